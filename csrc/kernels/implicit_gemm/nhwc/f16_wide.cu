// Kernels of implicit_gemm_nhwc for f16 and many pixels.
#include "kernels/implicit_gemm/nhwc_kernel.cuh"

template <>
cf::implicit_gemm::Launched cf::implicit_gemm::wide_kernel<__half>(int width, dim3 grid,
                                                                   size_t shared) {
    return kernel_among<__half, 176, 192, 200, 208, 216, 224, 232, 240, 248, 256>(width, grid,
                                                                                  shared);
}
