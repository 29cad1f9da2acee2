// A store of one float that a predicate turns off; predicated_pair.cuh has that of two, and the
// reason why they are no words (PTX ISA, "st", "Predicated execution").
#pragma once

namespace cf {

// To a global address.
__device__ __forceinline__ void store_float_if(bool live, float *to, float v) {
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %2, 0;\n"
                 "@live st.global.f32 [%0], %1;\n}" ::"l"(to),
                 "f"(v), "r"(int(live))
                 : "memory");
}

} // namespace cf
