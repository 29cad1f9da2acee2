// Kernels of implicit_gemm_resident for f16.
#include "kernels/implicit_gemm/resident_kernel.cuh"

template <>
cf::implicit_resident::Launched
cf::implicit_resident::kernel_for<__half>(int width, int depth, dim3 grid, size_t shared) {
    return kernel_among<__half>(Widths(), width, depth, grid, shared);
}
