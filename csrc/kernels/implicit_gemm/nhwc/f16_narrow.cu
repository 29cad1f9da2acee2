// Kernels of implicit_gemm_nhwc for f16 and few pixels.
#include "kernels/implicit_gemm/nhwc_kernel.cuh"

template <>
cf::implicit_gemm::Launched cf::implicit_gemm::narrow_kernel<__half>(int width, dim3 grid,
                                                                     size_t shared) {
    return kernel_among<__half, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160>(width, grid, shared);
}
