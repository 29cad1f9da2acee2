// Kernels of implicit_gemm_mma in tf32.
#include "kernels/implicit_gemm/mma_kernel.cuh"

namespace cf::implicit_mma {

template <>
Launched kernel_for<float, Tf32>(const Option &option, bool nchw) {
    return kernel_copying<float, Tf32>(option, nchw);
}

} // namespace cf::implicit_mma
