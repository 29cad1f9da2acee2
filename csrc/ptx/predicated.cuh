// Loads and stores that a predicate turns off. A branch would cost more and keep many of them from
// being under way together, and behind it the compiler would no longer take a warp's lanes to run
// together (PTX ISA, "ld", "st", "Predicated execution").
#pragma once

#include <cstdint>

namespace cf {

// Reads of constant global memory: zero where `live` is false, and `from` is not read.
__device__ __forceinline__ uint32_t load_if(bool live, const uint16_t *from) {
    uint32_t v;
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %2, 0;\n"
                 "mov.b32 %0, 0;\n"
                 "@live ld.global.nc.u16 %0, [%1];\n}"
                 : "=r"(v)
                 : "l"(from), "r"(int(live)));
    return v;
}
__device__ __forceinline__ uint32_t load_if(bool live, const uint32_t *from) {
    uint32_t v;
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %2, 0;\n"
                 "mov.b32 %0, 0;\n"
                 "@live ld.global.nc.b32 %0, [%1];\n}"
                 : "=r"(v)
                 : "l"(from), "r"(int(live)));
    return v;
}
__device__ __forceinline__ uint2 load_if(bool live, const uint2 *from) {
    uint2 v;
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %3, 0;\n"
                 "mov.b32 %0, 0;\n"
                 "mov.b32 %1, 0;\n"
                 "@live ld.global.nc.v2.b32 {%0, %1}, [%2];\n}"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(from), "r"(int(live)));
    return v;
}
__device__ __forceinline__ uint4 load_if(bool live, const uint4 *from) {
    uint4 v;
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %5, 0;\n"
                 "mov.b32 %0, 0;\n"
                 "mov.b32 %1, 0;\n"
                 "mov.b32 %2, 0;\n"
                 "mov.b32 %3, 0;\n"
                 "@live ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from), "r"(int(live)));
    return v;
}

// Into shared memory.
__device__ __forceinline__ void store_if(bool live, uint32_t to, float v) {
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %2, 0;\n"
                 "@live st.shared.f32 [%0], %1;\n}" ::"r"(to),
                 "f"(v), "r"(int(live))
                 : "memory");
}

// Words and halves of one, to a global address or into shared memory.
#define CF_STORE_IF(Space, Address, Constraint)                                                    \
    __device__ __forceinline__ void store_if(bool live, Address to, uint16_t v) {                  \
        asm volatile("{\n.reg .pred live;\n"                                                       \
                     "setp.ne.s32 live, %2, 0;\n"                                                  \
                     "@live st." Space ".u16 [%0], %1;\n}" ::Constraint(to),                       \
                     "h"(v), "r"(int(live))                                                        \
                     : "memory");                                                                  \
    }                                                                                              \
    __device__ __forceinline__ void store_if(bool live, Address to, const uint32_t(&v)[1]) {       \
        asm volatile("{\n.reg .pred live;\n"                                                       \
                     "setp.ne.s32 live, %2, 0;\n"                                                  \
                     "@live st." Space ".b32 [%0], %1;\n}" ::Constraint(to),                       \
                     "r"(v[0]), "r"(int(live))                                                     \
                     : "memory");                                                                  \
    }                                                                                              \
    __device__ __forceinline__ void store_if(bool live, Address to, const uint32_t(&v)[2]) {       \
        asm volatile("{\n.reg .pred live;\n"                                                       \
                     "setp.ne.s32 live, %3, 0;\n"                                                  \
                     "@live st." Space ".v2.b32 [%0], {%1, %2};\n}" ::Constraint(to),              \
                     "r"(v[0]), "r"(v[1]), "r"(int(live))                                          \
                     : "memory");                                                                  \
    }                                                                                              \
    __device__ __forceinline__ void store_if(bool live, Address to, const uint32_t(&v)[4]) {       \
        asm volatile("{\n.reg .pred live;\n"                                                       \
                     "setp.ne.s32 live, %5, 0;\n"                                                  \
                     "@live st." Space ".v4.b32 [%0], {%1, %2, %3, %4};\n}" ::Constraint(to),      \
                     "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]), "r"(int(live))                    \
                     : "memory");                                                                  \
    }
CF_STORE_IF("global", char *, "l")
CF_STORE_IF("shared", uint32_t, "r")
#undef CF_STORE_IF

} // namespace cf
