// Boxes of a tensor, which one instruction copies into shared memory (PTX ISA,
// "cp.async.bulk.tensor"): what lies outside of the tensor arrives as zeros.
#pragma once

#include "device/launch.cuh"
#include "device/pipeline.cuh"

#include <cuda.h>

namespace cf {

// A tensor of four dimensions without gaps, the innermost first, and what is copied of it at once.
// Elements are so many bytes: 2, 4 or 8. An innermost side of either is a multiple of 16 bytes, no
// side of the box is longer than 256.
struct Box {
    int element;
    uint64_t tensor[4];
    uint32_t box[4];
};

// The driver's function comes through the runtime: nothing links with the driver.
inline int32_t encode(const Box &box, const void *x, CUtensorMap &map) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                               12000, cudaEnableDefault, &result);
#else
    const cudaError_t error =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
    if (error != cudaSuccess)
        return error;
    if (result != cudaDriverEntryPointSuccess)
        return cudaErrorNotSupported;
    const CUtensorMapDataType type = box.element == 8   ? CU_TENSOR_MAP_DATA_TYPE_INT64
                                     : box.element == 4 ? CU_TENSOR_MAP_DATA_TYPE_INT32
                                                        : CU_TENSOR_MAP_DATA_TYPE_UINT16;
    uint64_t pitches[3], pitch = box.element;
    for (int i = 0; i < 3; ++i)
        pitches[i] = pitch *= box.tensor[i];
    const uint32_t steps[4] = {1, 1, 1, 1};
    const auto encode_tiled = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
    return encode_tiled(&map, type, 4, const_cast<void *>(x), box.tensor, pitches, box.box, steps,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                        CU_TENSOR_MAP_L2_PROMOTION_NONE,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS
               ? cudaSuccess
               : cudaErrorInvalidValue;
}

#if __CUDA_ARCH__ >= 900
// The box that begins at these places, which may be negative. The innermost is a multiple of 16
// bytes, or the instruction counts as an illegal one; `to` is a multiple of 128.
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap &map, int a, int b, int c,
                                         int d, Barrier &full) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
                 "l"(&map), "r"(a), "r"(b), "r"(c), "r"(d), "r"(shared_address(&full.word))
                 : "memory");
}
#endif

} // namespace cf
