// Kernels of grouped_nchw for fp32: three products of tf32.
#include "kernels/grouped/nchw_kernel.cuh"

template <>
cf::grouped_nchw::Launched cf::grouped_nchw::kernel_for<float, 3>(const Instance &instance,
                                                                  dim3 grid, size_t shared) {
    return kernel_among<float, 3, 32, 64, 128>(instance, grid, shared);
}
