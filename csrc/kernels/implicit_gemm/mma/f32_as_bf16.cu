// Kernels of implicit_gemm_mma of f32 that multiply bf16.
#include "kernels/implicit_gemm/mma_kernel.cuh"

namespace cf::implicit_mma {

template <>
Launched kernel_for<float, Bf16>(const Option &option, bool nchw) {
    return kernel_gathering<float, Bf16>(option, nchw);
}

} // namespace cf::implicit_mma
