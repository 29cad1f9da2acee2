// Kernels of implicit_gemm_nhwc for tf32 and few pixels.
#include "kernels/implicit_gemm/nhwc_kernel.cuh"

template <>
cf::implicit_gemm::Launched cf::implicit_gemm::narrow_kernel<float>(int width, dim3 grid,
                                                                    size_t shared) {
    return kernel_among<float, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160>(width, grid, shared);
}
