// Kernels of grouped_planar for tf32.
#include "kernels/grouped/planar_kernel.cuh"

template <>
cf::grouped_planar::Launched
cf::grouped_planar::kernel_for<float>(const grouped::Instance &instance, dim3 grid, size_t shared) {
    return kernel_among<float, 1, 4, 8, 16>(instance, grid, shared);
}
