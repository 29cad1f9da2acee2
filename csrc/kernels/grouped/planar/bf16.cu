// Kernels of grouped_planar for bf16.
#include "kernels/grouped/planar_kernel.cuh"

template <>
cf::grouped_planar::Launched
cf::grouped_planar::kernel_for<__nv_bfloat16>(const grouped::Instance &instance, dim3 grid,
                                              size_t shared) {
    return kernel_among<__nv_bfloat16, 1, 4, 8, 16>(instance, grid, shared);
}
