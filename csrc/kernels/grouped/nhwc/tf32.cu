// Kernels of grouped_nhwc for tf32.
#include "kernels/grouped/nhwc_kernel.cuh"

template <>
cf::grouped::Launched cf::grouped::kernel_for<float>(const Instance &instance, dim3 grid,
                                                     dim3 block, size_t shared) {
    return kernel_among<float, 1, 32, 64, 128>(instance, grid, block, shared);
}
