// Kernels of grouped_nhwc for fp32: three products of tf32.
#include "kernels/grouped/nhwc_kernel.cuh"

template <>
cf::grouped::Launched cf::grouped::kernel_for<float, 3>(const Instance &instance, dim3 grid,
                                                        dim3 block, size_t shared) {
    return kernel_among<float, 3, 32, 64, 128>(instance, grid, block, shared);
}
