// Kernels of implicit_gemm_pointwise for tf32.
#include "kernels/implicit_gemm/pointwise_kernel.cuh"

template <>
cf::pointwise::Launched cf::pointwise::kernel_for<float>(const Shape &shape, Pairs pairs, dim3 grid,
                                                         size_t shared) {
    return kernel_among<float>(std::make_index_sequence<std::size(Shapes)>(), shape, pairs, grid,
                               shared);
}
