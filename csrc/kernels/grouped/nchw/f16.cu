// Kernels of grouped_nchw for f16.
#include "kernels/grouped/nchw_kernel.cuh"

template <>
cf::grouped_nchw::Launched cf::grouped_nchw::kernel_for<__half>(const Instance &instance, dim3 grid,
                                                                size_t shared) {
    return kernel_among<__half, 1, 16, 32, 64>(instance, grid, shared);
}
