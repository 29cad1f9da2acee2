// Addresses in shared memory, as instructions take them, and loads and stores through them whose
// place among other memory operations the compiler keeps (PTX ISA, "ld", "st").
#pragma once

#include <cstdint>

namespace cf {

__device__ __forceinline__ uint32_t shared_address(const void *p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ uint32_t load_shared(uint32_t address) {
    uint32_t v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
    return v;
}

// So many bytes behind. The offset is part of the instruction: the compiler would add it to each
// address by itself.
template <int Offset>
__device__ __forceinline__ uint32_t load_shared_behind(uint32_t address) {
    uint32_t v;
    asm volatile("ld.shared.b32 %0, [%1 + %2];" : "=r"(v) : "r"(address), "n"(Offset) : "memory");
    return v;
}

__device__ __forceinline__ uint2 load_shared2(uint32_t address) {
    uint2 v;
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "r"(address)
                 : "memory");
    return v;
}

__device__ __forceinline__ uint4 load_shared4(uint32_t address) {
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}

__device__ __forceinline__ uint32_t load_shared_u16(uint32_t address) {
    uint16_t v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(address) : "memory");
    return v;
}

__device__ __forceinline__ void store_shared(uint32_t address, uint32_t v) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}

__device__ __forceinline__ void store_shared2(uint32_t address, uint32_t a, uint32_t b) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(a), "r"(b) : "memory");
}

__device__ __forceinline__ void store_shared4(uint32_t address, uint32_t a, uint32_t b, uint32_t c,
                                              uint32_t d) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c),
                 "r"(d)
                 : "memory");
}

// As floats: ptxas would want words in other registers than sums of wgmma.
__device__ __forceinline__ void store_shared4_f32(uint32_t address, float a, float b, float c,
                                                  float d) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(a), "f"(b), "f"(c),
                 "f"(d)
                 : "memory");
}

__device__ __forceinline__ void store_shared_u16(uint32_t address, uint32_t v) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(uint16_t(v)) : "memory");
}

} // namespace cf
