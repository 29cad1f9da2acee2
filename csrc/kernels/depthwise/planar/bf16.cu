// Kernels of depthwise_planar for bf16.
#include "kernels/depthwise/planar_kernel.cuh"

template <>
cf::depthwise_planar::Launched
cf::depthwise_planar::kernel_for<__nv_bfloat16>(const cf_problem &p, dim3 grid, size_t shared) {
    return kernel_among<__nv_bfloat16>(p, grid, shared);
}
