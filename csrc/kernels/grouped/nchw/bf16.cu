// Kernels of grouped_nchw for bf16.
#include "kernels/grouped/nchw_kernel.cuh"

template <>
cf::grouped_nchw::Launched cf::grouped_nchw::kernel_for<__nv_bfloat16>(const Instance &instance,
                                                                       dim3 grid, size_t shared) {
    return kernel_among<__nv_bfloat16, 1, 16, 32, 64>(instance, grid, shared);
}
