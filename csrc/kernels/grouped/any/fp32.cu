// Kernels of grouped_any whose products are in fp32.
#include "kernels/grouped/any_kernel.cuh"

namespace cf::grouped_any {

template <>
Launched kernel_for<Fp32>(int storage, int tiles, dim3 block, size_t shared) {
    if (storage == CF_STORE_F32)
        return kernel_among<float, Fp32, 1, 2, 3>(tiles, block, shared);
    if (storage == CF_STORE_F16)
        return kernel_among<__half, Fp32, 1, 2, 3>(tiles, block, shared);
    return kernel_among<__nv_bfloat16, Fp32, 1, 2, 3>(tiles, block, shared);
}

} // namespace cf::grouped_any
