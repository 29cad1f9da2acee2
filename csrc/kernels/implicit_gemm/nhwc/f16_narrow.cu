// Kernels of implicit_gemm_nhwc for f16 and few pixels.
#include "kernels/implicit_gemm/nhwc_kernel.cuh"

template <>
cf::implicit_gemm::Launched cf::implicit_gemm::narrow_kernel<__half>(int width, dim3 grid,
                                                                     size_t shared) {
    return kernel_among<__half>(NarrowWidths(), width, grid, shared);
}
