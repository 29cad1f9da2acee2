// Kernels of implicit_gemm_nhwc for bf16 and many pixels.
#include "kernels/implicit_gemm/nhwc_kernel.cuh"

template <>
cf::implicit_gemm::Launched cf::implicit_gemm::wide_kernel<__nv_bfloat16>(int width, dim3 grid,
                                                                          size_t shared) {
    return kernel_among<__nv_bfloat16>(WideWidths(), width, grid, shared);
}
