// Stores that a predicate turns off, where a branch would cost more, and behind which the compiler
// would no longer take a warp's lanes to run together (PTX ISA, "st", "Predicated execution").
#pragma once

#include <cstdint>

namespace cf {

// Into shared memory.
__device__ __forceinline__ void store_if(bool live, uint32_t to, float v) {
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %2, 0;\n"
                 "@live st.shared.f32 [%0], %1;\n}" ::"r"(to),
                 "f"(v), "r"(int(live))
                 : "memory");
}
__device__ __forceinline__ void store_if(bool live, uint32_t to, float v, float next) {
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %3, 0;\n"
                 "@live st.shared.v2.f32 [%0], {%1, %2};\n}" ::"r"(to),
                 "f"(v), "f"(next), "r"(int(live))
                 : "memory");
}
// To a global address: the compiler makes two stores of some float2.
__device__ __forceinline__ void store_if(bool live, float *to, float v, float next) {
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %3, 0;\n"
                 "@live st.global.v2.f32 [%0], {%1, %2};\n}" ::"l"(to),
                 "f"(v), "f"(next), "r"(int(live))
                 : "memory");
}

} // namespace cf
