// Kernels of implicit_gemm_pointwise_shared for bf16.
#include "kernels/implicit_gemm/pointwise_shared_kernel.cuh"

template <>
cf::pointwise_shared::Launched cf::pointwise_shared::kernel_for<__nv_bfloat16>(const Shape &shape,
                                                                               int peers, dim3 grid,
                                                                               size_t shared) {
    return kernel_among<__nv_bfloat16>(std::make_index_sequence<std::size(Shapes)>(), shape, peers,
                                       grid, shared);
}
