// Kernels of implicit_gemm_f32_nchw for many pixels.
#include "kernels/implicit_gemm/f32_nchw_kernel.cuh"

cf::implicit_f32::PlanarLaunched cf::implicit_f32::wide_planar_kernel(int width, dim3 grid,
                                                                      size_t shared) {
    return planar_kernel_among(PlanarWideWidths(), width, grid, shared);
}
