// Kernels of grouped_nchw for tf32.
#include "kernels/grouped/nchw_kernel.cuh"

template <>
cf::grouped_nchw::Launched cf::grouped_nchw::kernel_for<float>(const Instance &instance, dim3 grid,
                                                               size_t shared) {
    return kernel_among<float, 1, 32, 64, 128>(instance, grid, shared);
}
