// Tensor cores one warp at a time: mma.sync with the loads of its operands (PTX ISA, "mma",
// "ldmatrix").
//
// A warp multiplies A (16 rows) by B (8 columns). In units of 4 bytes, of which a step has eight
// per row of A and per column of B, lane l = 4 g + t holds
//   A: [g][t], [g + 8][t], [g][t + 4], [g + 8][t + 4]
//   B: [t][g], [t + 4][g]
//   C: [g][2 t], [g][2 t + 1], [g + 8][2 t], [g + 8][2 t + 1]
// where a unit of A and B is two neighbouring 16-bit elements along the sum, or one tf32, and one
// of C is one sum.
#pragma once

#include "ptx/shared.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace cf {

// Four 8x8 matrices of 16-bit elements, the rows of number i at the addresses that lanes 8 i to
// 8 i + 7 give: lane l gets the two elements at row l / 4, column 2 (l % 4) of each.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

// The same transposed: lane l gets the two elements at rows 2 (l % 4) and the next, column l / 4.
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&to)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

// The sums of a 16x8 tile that one lane holds.
template <class Element, class Acc>
struct Fragment {
    float value[4] = {};

    __device__ __forceinline__ void add(const uint32_t (&a)[4], const uint32_t (&b)[2]) {
        if constexpr (std::is_same_v<Element, __half>)
            asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                : "+f"(value[0]), "+f"(value[1]), "+f"(value[2]), "+f"(value[3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
        else if constexpr (std::is_same_v<Element, __nv_bfloat16>)
            asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                : "+f"(value[0]), "+f"(value[1]), "+f"(value[2]), "+f"(value[3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
        else // tf32: the low 13 bits are not looked at
            asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
                "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                : "+f"(value[0]), "+f"(value[1]), "+f"(value[2]), "+f"(value[3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    __device__ __forceinline__ float get(int i) const { return value[i]; }
};

// Sums in f16, two to a register.
template <>
struct Fragment<__half, __half> {
    uint32_t value[2] = {};

    __device__ __forceinline__ void add(const uint32_t (&a)[4], const uint32_t (&b)[2]) {
        asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, "
            "{%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
            : "+r"(value[0]), "+r"(value[1])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    __device__ __forceinline__ float get(int i) const {
        return __half2float(
            __ushort_as_half(static_cast<unsigned short>(value[i / 2] >> (i % 2 * 16))));
    }
};

} // namespace cf
