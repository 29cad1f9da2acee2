// Loads from shared memory that leave a register as it was where a predicate is false: what stays
// zero, as what a window has outside of an image does, is zeroed once and not for every row (PTX
// ISA, "ld", "Predicated execution").
#pragma once

#include "ptx/shared.cuh"

namespace cf {

// So many bytes behind the address.
template <int Offset>
__device__ __forceinline__ void load_over(uint32_t live, uint32_t at, uint32_t &v) {
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %2, 0;\n"
                 "@live ld.shared.b32 %0, [%1 + %3];\n}"
                 : "+r"(v)
                 : "r"(at), "r"(live), "n"(Offset));
}
template <int Offset>
__device__ __forceinline__ void load_over(uint32_t live, uint32_t at, uint32_t &a, uint32_t &b) {
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %3, 0;\n"
                 "@live ld.shared.v2.b32 {%0, %1}, [%2 + %4];\n}"
                 : "+r"(a), "+r"(b)
                 : "r"(at), "r"(live), "n"(Offset));
}
template <int Offset>
__device__ __forceinline__ void load_over(uint32_t live, uint32_t at, uint32_t &a, uint32_t &b,
                                          uint32_t &c, uint32_t &d) {
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %5, 0;\n"
                 "@live ld.shared.v4.b32 {%0, %1, %2, %3}, [%4 + %6];\n}"
                 : "+r"(a), "+r"(b), "+r"(c), "+r"(d)
                 : "r"(at), "r"(live), "n"(Offset));
}
template <int Offset>
__device__ __forceinline__ void load_over_u16(uint32_t live, uint32_t at, uint32_t &v) {
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %2, 0;\n"
                 "@live ld.shared.u16 %0, [%1 + %3];\n}"
                 : "+r"(v)
                 : "r"(at), "r"(live), "n"(Offset));
}

} // namespace cf
