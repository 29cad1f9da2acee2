// Tensor maps of boxes whose innermost side is 128 bytes, swizzled: in shared memory, where a box
// begins at a multiple of 1024, the 16 bytes number i of every 128 are swapped with number i ^ (the
// 128 bytes' own number modulo 8). So the same 16 bytes of eight neighbours lie in all banks.
#pragma once

#include "core/tensor_map.cuh"

namespace cf {

constexpr int SwizzleSpan = 128, SwizzleAlign = 1024; // bytes

struct SwizzledMap : TensorMap {
    // Elements of 2 or 4 bytes.
    int32_t prepare(const Box &box) { return TensorMap::prepare(box, CU_TENSOR_MAP_SWIZZLE_128B); }
};

} // namespace cf
