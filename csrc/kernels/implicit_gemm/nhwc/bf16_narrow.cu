// Kernels of implicit_gemm_nhwc for bf16 and few pixels.
#include "kernels/implicit_gemm/nhwc_kernel.cuh"

template <>
cf::implicit_gemm::Launched cf::implicit_gemm::narrow_kernel<__nv_bfloat16>(int width, dim3 grid,
                                                                            size_t shared) {
    return kernel_among<__nv_bfloat16>(NarrowWidths(), width, grid, shared);
}
