// Tensor maps of boxes whose innermost side is 64 bytes, half of a line of memory, swizzled: in
// shared memory, where a box begins at a multiple of 512, the 16 bytes number i of a side are
// swapped with number i ^ (the number of the 128 bytes that it lies in, modulo 4). Who reads the
// other half of a line is another block, at about the same time: so all of it is fetched.
#pragma once

#include "core/tensor_map.cuh"

namespace cf {

constexpr int HalfLineBytes = 64, HalfLineAlign = 512;

struct HalfLineMap : TensorMap {
    int32_t prepare(const Box &box) {
        return TensorMap::prepare(box, CU_TENSOR_MAP_SWIZZLE_64B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
    }
};

// Where what lies so many bytes behind the beginning of a box is in shared memory.
__device__ __forceinline__ uint32_t in_half_lines(uint32_t at) { return at ^ (at >> 3 & 0x30); }

} // namespace cf
