// Kernels of implicit_gemm_nchw for tf32 and few pixels.
#include "kernels/implicit_gemm/nchw_kernel.cuh"

template <>
cf::implicit_nchw::Launched cf::implicit_nchw::narrow_kernel<float>(int width, dim3 grid,
                                                                    size_t shared) {
    return kernel_among<float>(NarrowWidths(), width, grid, shared);
}
