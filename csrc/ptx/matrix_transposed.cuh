// Eight channels of a pixel put together where lanes hold neighbouring pixels of a channel, and the
// inverse: stmatrix and ldmatrix, transposed (PTX ISA, "stmatrix", "ldmatrix").
#pragma once

#include "ptx/arch.cuh"

#include <cstdint>

namespace cf {

#if CF_SM90
// Four 8x8 matrices of 16-bit elements, of each the column that goes to the address that a lane
// gives: lanes 8 i to 8 i + 7 those of number i. Lane l has the two elements at row l / 4, column
// 2 (l % 4) of each.
__device__ __forceinline__ void store_matrices_transposed(uint32_t address,
                                                          const uint32_t (&from)[4]) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
        "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
        : "memory");
}
// Two, to the addresses that lanes 0 to 15 give.
__device__ __forceinline__ void store_matrices_transposed(uint32_t address,
                                                          const uint32_t (&from)[2]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address),
                 "r"(from[0]), "r"(from[1])
                 : "memory");
}
#endif

} // namespace cf
