// What 16-bit tiles need beside ptx/mma.cuh: half a step of mma.sync, and stmatrix, the inverse of
// ldmatrix (PTX ISA, "mma", "stmatrix").
#pragma once

#include "ptx/arch.cuh"
#include "ptx/mma.cuh"

namespace cf {

// A step of 8 elements along the sum instead of 16: of A lane 4 g + t holds units [g][t] and
// [g + 8][t], of B unit [t][g].
template <class Element>
__device__ __forceinline__ void add_half(Fragment<Element, float> &sums, uint32_t a0, uint32_t a1,
                                         uint32_t b) {
    float(&c)[4] = sums.value;
    if constexpr (std::is_same_v<Element, __half>)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
            "{%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a0), "r"(a1), "r"(b));
    else
        asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
            "{%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a0), "r"(a1), "r"(b));
}

#if CF_SM90
// Four 8x8 matrices of 16-bit elements, the rows of number i to the addresses that lanes 8 i to
// 8 i + 7 give: lane l has the two elements at row l / 4, column 2 (l % 4) of each.
__device__ __forceinline__ void store_matrices(uint32_t address, const uint32_t (&from)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
}
#endif

} // namespace cf
