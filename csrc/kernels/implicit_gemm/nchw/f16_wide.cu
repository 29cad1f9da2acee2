// Kernels of implicit_gemm_nchw for f16 and many pixels.
#include "kernels/implicit_gemm/nchw_kernel.cuh"

template <>
cf::implicit_nchw::Launched cf::implicit_nchw::wide_kernel<__half>(int width, dim3 grid,
                                                                   size_t shared) {
    return kernel_among<__half>(WideWidths(), width, grid, shared);
}
