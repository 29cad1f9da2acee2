// Stores into shared memory that a predicate turns off, so many bytes behind an address: the offset
// is part of the instruction (PTX ISA, "st", "Predicated execution").
#pragma once

#include <cstdint>

namespace cf {

template <int Offset>
__device__ __forceinline__ void store_behind_if(bool live, uint32_t to, uint32_t v) {
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %2, 0;\n"
                 "@live st.shared.b32 [%0 + %3], %1;\n}" ::"r"(to),
                 "r"(v), "r"(int(live)), "n"(Offset)
                 : "memory");
}

} // namespace cf
