// Kernels of grouped_nhwc for bf16.
#include "kernels/grouped/nhwc_kernel.cuh"

template <>
cf::grouped::Launched cf::grouped::kernel_for<__nv_bfloat16>(const Instance &instance, dim3 grid,
                                                             dim3 block, size_t shared) {
    return kernel_among<__nv_bfloat16, 1, 16, 32, 64>(instance, grid, block, shared);
}
