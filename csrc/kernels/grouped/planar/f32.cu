// Kernels of grouped_planar for fp32: three products of tf32.
#include "kernels/grouped/planar_kernel.cuh"

template <>
cf::grouped_planar::Launched
cf::grouped_planar::kernel_for<float, 3>(const grouped::Instance &instance, dim3 grid,
                                         size_t shared) {
    return kernel_among<float, 3, 4, 8>(instance, grid, shared);
}
