// Tensor maps of boxes whose innermost side is 128 bytes, swizzled: in shared memory, where a box
// begins at a multiple of 1024, the 16 bytes number i of every 128 are swapped with number i ^ (the
// 128 bytes' own number modulo 8). So the same 16 bytes of eight neighbours lie in all banks.
#pragma once

#include "core/tensor_map.cuh"

namespace cf {

constexpr int SwizzleSpan = 128, SwizzleAlign = 1024; // bytes

class SwizzledMap {
    uint64_t words[sizeof(CUtensorMap) / 8] = {};
    decltype(cuTensorMapReplaceAddress) *replace_address = nullptr;

  public:
    // Elements of 2 or 4 bytes.
    int32_t prepare(const Box &box) {
        decltype(cuTensorMapEncodeTiled) *encode = nullptr;
        if (const int32_t error = driver_function("cuTensorMapEncodeTiled", encode))
            return error;
        if (const int32_t error = driver_function("cuTensorMapReplaceAddress", replace_address))
            return error;
        uint64_t pitches[3], pitch = box.element;
        for (int i = 0; i < 3; ++i)
            pitches[i] = pitch *= box.tensor[i];
        const uint32_t steps[4] = {1, 1, 1, 1};
        // Any aligned address: nothing is read through it.
        void *const nowhere = reinterpret_cast<void *>(uintptr_t(1) << 20);
        CUtensorMap map;
        if (encode(&map,
                   box.element == 4 ? CU_TENSOR_MAP_DATA_TYPE_INT32
                                    : CU_TENSOR_MAP_DATA_TYPE_UINT16,
                   4, nowhere, box.tensor, pitches, box.box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
            return cudaErrorInvalidValue;
        std::memcpy(words, &map, sizeof(map));
        return 0;
    }

    // The map of the tensor at this address, which is a multiple of 16.
    int32_t at(const void *address, CUtensorMap &filled) const {
        std::memcpy(&filled, words, sizeof(filled));
        return replace_address(&filled, const_cast<void *>(address)) == CUDA_SUCCESS
                   ? 0
                   : int32_t(cudaErrorInvalidValue);
    }
};

} // namespace cf
