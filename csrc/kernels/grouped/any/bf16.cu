// Kernels of grouped_any whose products are in bf16.
#include "kernels/grouped/any_kernel.cuh"

namespace cf::grouped_any {

template <>
Launched kernel_for<Bf16>(int storage, int tiles, dim3 block, size_t shared) {
    if (storage == CF_STORE_F32)
        return kernel_among<float, Bf16, 1, 2, 3, 4>(tiles, block, shared);
    return kernel_among<__nv_bfloat16, Bf16, 1, 2, 3, 4>(tiles, block, shared);
}

} // namespace cf::grouped_any
