// Kernels of implicit_gemm_nchw for bf16 that multiply x as it lies.
#include "kernels/implicit_gemm/nchw_kernel.cuh"

template <>
cf::implicit_nchw::StraightLaunched
cf::implicit_nchw::straight_kernel<__nv_bfloat16>(int width, dim3 grid, size_t shared) {
    return straight_among<__nv_bfloat16>(width, grid, shared);
}
