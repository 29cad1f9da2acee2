// Kernels of implicit_gemm_nchw for bf16 and many pixels.
#include "kernels/implicit_gemm/nchw_kernel.cuh"

template <>
cf::implicit_nchw::Launched cf::implicit_nchw::wide_kernel<__nv_bfloat16>(int width, dim3 grid,
                                                                          size_t shared) {
    return kernel_among<__nv_bfloat16>(WideWidths(), width, grid, shared);
}
