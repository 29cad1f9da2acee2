// Addresses in shared memory, as instructions take them, and loads and stores through them whose
// place among other memory operations the compiler keeps.
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

} // namespace cf
