// The device's time of day (PTX ISA, "Special Registers", %globaltimer).
#pragma once

#include <cstdint>

namespace cf {

__device__ __forceinline__ uint64_t global_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

} // namespace cf
