// Loads from shared memory that a predicate turns off, zeros where it does (PTX ISA, "ld",
// "Predicated execution").
#pragma once

#include <cstdint>

namespace cf {

__device__ __forceinline__ void load_shared_if(bool live, uint32_t from, uint32_t (&v)[1]) {
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %2, 0;\n"
                 "mov.b32 %0, 0;\n"
                 "@live ld.shared.b32 %0, [%1];\n}"
                 : "=&r"(v[0])
                 : "r"(from), "r"(int(live)));
}
__device__ __forceinline__ void load_shared_if(bool live, uint32_t from, uint32_t (&v)[2]) {
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %3, 0;\n"
                 "mov.b32 %0, 0;\n"
                 "mov.b32 %1, 0;\n"
                 "@live ld.shared.v2.b32 {%0, %1}, [%2];\n}"
                 : "=&r"(v[0]), "=&r"(v[1])
                 : "r"(from), "r"(int(live)));
}
__device__ __forceinline__ void load_shared_if(bool live, uint32_t from, uint32_t (&v)[4]) {
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %5, 0;\n"
                 "mov.b32 %0, 0;\n"
                 "mov.b32 %1, 0;\n"
                 "mov.b32 %2, 0;\n"
                 "mov.b32 %3, 0;\n"
                 "@live ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
                 : "=&r"(v[0]), "=&r"(v[1]), "=&r"(v[2]), "=&r"(v[3])
                 : "r"(from), "r"(int(live)));
}
__device__ __forceinline__ void load_shared_if(bool live, uint32_t from, uint32_t (&v)[8]) {
    load_shared_if(live, from, reinterpret_cast<uint32_t(&)[4]>(v[0]));
    load_shared_if(live, from + 16, reinterpret_cast<uint32_t(&)[4]>(v[4]));
}

} // namespace cf
