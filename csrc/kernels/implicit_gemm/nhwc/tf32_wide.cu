// Kernels of implicit_gemm_nhwc for tf32 and many pixels.
#include "kernels/implicit_gemm/nhwc_kernel.cuh"

template <>
cf::implicit_gemm::Launched cf::implicit_gemm::wide_kernel<float>(int width, dim3 grid,
                                                                  size_t shared) {
    return kernel_among<float>(WideWidths(), width, grid, shared);
}
