// Kernels of implicit_gemm_mma in bf16.
#include "kernels/implicit_gemm/mma_kernel.cuh"

namespace cf::implicit_mma {

template <>
Launched kernel_for<__nv_bfloat16, Bf16>(const Option &option, bool nchw) {
    return kernel_copying<__nv_bfloat16, Bf16>(option, nchw);
}

} // namespace cf::implicit_mma
