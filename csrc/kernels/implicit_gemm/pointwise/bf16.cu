// Kernels of implicit_gemm_pointwise for bf16.
#include "kernels/implicit_gemm/pointwise_kernel.cuh"

template <>
cf::pointwise::Launched cf::pointwise::kernel_for<__nv_bfloat16>(const Shape &shape, Pairs pairs,
                                                                 dim3 grid, size_t shared) {
    return kernel_among<__nv_bfloat16>(std::make_index_sequence<std::size(Shapes)>(), shape, pairs,
                                       grid, shared);
}
