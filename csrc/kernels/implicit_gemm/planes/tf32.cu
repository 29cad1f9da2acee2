// Kernels of implicit_gemm_planes for tf32.
#include "kernels/implicit_gemm/planes_kernel.cuh"

template <>
cf::planes::Launched cf::planes::kernel_for<float>(const Shape &shape, int step, dim3 grid,
                                                   size_t shared) {
    return kernel_among<float>(std::make_index_sequence<std::size(Shapes)>(), shape, step, grid,
                               shared);
}
