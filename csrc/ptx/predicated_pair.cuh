// Stores of two floats that a predicate turns off; predicated.cuh has those of words (PTX ISA,
// "st", "Predicated execution").
#pragma once

namespace cf {

// To a global address. As floats: as words, ptxas would want sums that wgmma made in other
// registers, and wait for each product.
__device__ __forceinline__ void store_pair_if(bool live, float *to, float a, float b) {
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %3, 0;\n"
                 "@live st.global.v2.f32 [%0], {%1, %2};\n}" ::"l"(to),
                 "f"(a), "f"(b), "r"(int(live))
                 : "memory");
}

} // namespace cf
