// Tensor maps of boxes whose innermost side is 64 bytes, half of a line of memory, swizzled: in
// shared memory, where a box begins at a multiple of 512, the 16 bytes number i of a side are
// swapped with number i ^ (the number of the 128 bytes that it lies in, modulo 4). Who reads the
// other half of a line is another block, at about the same time: so all of it is fetched.
#pragma once

#include "core/tensor_map.cuh"

namespace cf {

constexpr int HalfLineBytes = 64, HalfLineAlign = 512;

struct HalfLineMap : EncodedMap {
    // Elements of 2 bytes.
    int32_t prepare(const Box &box) {
        decltype(cuTensorMapEncodeTiled) *encode = nullptr;
        if (const int32_t error = driver_function("cuTensorMapEncodeTiled", encode))
            return error;
        uint64_t pitches[3], pitch = box.element;
        for (int i = 0; i < 3; ++i)
            pitches[i] = pitch *= box.tensor[i];
        const uint32_t steps[4] = {1, 1, 1, 1};
        return keep(box.tensor, pitches, [&](void *address, CUtensorMap &map) {
            return encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, address, box.tensor, pitches,
                          box.box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_64B,
                          CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        });
    }
};

// Where what lies so many bytes behind the beginning of a box is in shared memory.
__device__ __forceinline__ uint32_t in_half_lines(uint32_t at) { return at ^ (at >> 3 & 0x30); }

} // namespace cf
