// Kernels of depthwise_planar for f16.
#include "kernels/depthwise/planar_kernel.cuh"

template <>
cf::depthwise_planar::Launched cf::depthwise_planar::kernel_for<__half>(const cf_problem &p,
                                                                        dim3 grid, size_t shared) {
    return kernel_among<__half>(p, grid, shared);
}
