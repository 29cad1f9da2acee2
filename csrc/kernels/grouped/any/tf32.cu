// Kernels of grouped_any whose products are in tf32.
#include "kernels/grouped/any_kernel.cuh"

namespace cf::grouped_any {

template <>
Launched kernel_for<Tf32>(int, int tiles, dim3 block, size_t shared) {
    return kernel_among<float, Tf32, 1, 2, 3, 4>(tiles, block, shared);
}

} // namespace cf::grouped_any
