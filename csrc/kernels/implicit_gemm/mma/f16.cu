// Kernels of implicit_gemm_mma in f16.
#include "kernels/implicit_gemm/mma_kernel.cuh"

namespace cf::implicit_mma {

template <>
Launched kernel_for<__half, F16>(const Option &option, bool nchw) {
    return kernel_copying<__half, F16>(option, nchw);
}

} // namespace cf::implicit_mma
