// Loads and stores as they are written: the compiler keeps their place among each other, and
// leaves an address as register plus constant (PTX ISA, "ld", "st").
#pragma once

#include <cstdint>

namespace cf {

// From shared memory, so many bytes behind the address.
template <int Offset = 0>
__device__ __forceinline__ float load_shared_f32(uint32_t at) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1 + %2];" : "=f"(v) : "r"(at), "n"(Offset));
    return v;
}
template <int Offset = 0>
__device__ __forceinline__ float2 load_shared_f32x2(uint32_t at) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2 + %3];"
                 : "=f"(v.x), "=f"(v.y)
                 : "r"(at), "n"(Offset));
    return v;
}
template <int Offset = 0>
__device__ __forceinline__ float4 load_shared_f32x4(uint32_t at) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4 + %5];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(at), "n"(Offset));
    return v;
}

// Stays in front of the copies behind it.
__device__ __forceinline__ float4 load_global_f32x4(const float *at) {
    float4 v;
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

// To a global address.
__device__ __forceinline__ void store_global(uint64_t at, uint16_t v) {
    asm volatile("st.global.u16 [%0], %1;" ::"l"(at), "h"(v) : "memory");
}
__device__ __forceinline__ void store_global(uint64_t at, float v) {
    asm volatile("st.global.f32 [%0], %1;" ::"l"(at), "f"(v) : "memory");
}
__device__ __forceinline__ void store_global(uint64_t at, const float (&v)[1]) {
    store_global(at, v[0]);
}
__device__ __forceinline__ void store_global(uint64_t at, const float (&v)[2]) {
    asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(at), "f"(v[0]), "f"(v[1]) : "memory");
}

// Hides from the compiler how a number of 32 bits came about: it would work out an address anew for
// every use, or keep what it was made of in registers.
template <class T>
__device__ __forceinline__ void keep(T &v) {
    asm volatile("" : "+r"(v));
}

// Adds to the lower half of an address.
__device__ __forceinline__ void advance_low(uint64_t &at, uint32_t bytes) {
    asm("{\n.reg .b32 low, high;\n"
        "mov.b64 {low, high}, %0;\n"
        "add.u32 low, low, %1;\n"
        "mov.b64 %0, {low, high};\n}"
        : "+l"(at)
        : "r"(bytes));
}

} // namespace cf
