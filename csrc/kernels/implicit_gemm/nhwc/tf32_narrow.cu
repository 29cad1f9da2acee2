// Kernels of implicit_gemm_nhwc for tf32 and few pixels.
#include "kernels/implicit_gemm/nhwc_kernel.cuh"

template <>
cf::implicit_gemm::Launched cf::implicit_gemm::narrow_kernel<float>(int width, dim3 grid,
                                                                    size_t shared) {
    return kernel_among<float>(NarrowWidths(), width, grid, shared);
}
