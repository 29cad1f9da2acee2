// Kernels of implicit_gemm_nhwc for f16 and many pixels.
#include "kernels/implicit_gemm/nhwc_kernel.cuh"

template <>
cf::implicit_gemm::Launched cf::implicit_gemm::wide_kernel<__half>(int width, dim3 grid,
                                                                   size_t shared) {
    return kernel_among<__half>(WideWidths(), width, grid, shared);
}
