// Kernels of implicit_gemm_resident for bf16.
#include "kernels/implicit_gemm/resident_kernel.cuh"

template <>
cf::implicit_resident::Launched
cf::implicit_resident::kernel_for<__nv_bfloat16>(int width, int depth, dim3 grid, size_t shared) {
    return kernel_among<__nv_bfloat16>(Widths(), width, depth, grid, shared);
}
