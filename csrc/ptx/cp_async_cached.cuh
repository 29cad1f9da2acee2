// cp.async by way of the first-level cache, for what neighbouring taps read again (PTX ISA,
// "cp.async"). Brings whole lines of 128 bytes into the second-level cache.
#pragma once

#include <cstdint>

namespace cf {

// Both addresses are multiples of 16. With live == false it writes zeros, and `from` is not read.
__device__ __forceinline__ void copy16_cached_async(uint32_t to, const void *from, bool live) {
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(live ? 16 : 0)
                 : "memory");
}

} // namespace cf
