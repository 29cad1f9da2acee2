// Kernels of implicit_gemm_f32_nhwc for few pixels.
#include "kernels/implicit_gemm/f32_nhwc_kernel.cuh"

cf::implicit_f32::Launched cf::implicit_f32::narrow_kernel(int width, dim3 grid, size_t shared) {
    return kernel_among(NarrowWidths(), width, grid, shared);
}
