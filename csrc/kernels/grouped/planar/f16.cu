// Kernels of grouped_planar for f16.
#include "kernels/grouped/planar_kernel.cuh"

template <>
cf::grouped_planar::Launched
cf::grouped_planar::kernel_for<__half>(const grouped::Instance &instance, dim3 grid,
                                       size_t shared) {
    return kernel_among<__half, 1, 4, 8, 16>(instance, grid, shared);
}
