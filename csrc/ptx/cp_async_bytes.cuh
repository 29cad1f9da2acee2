// The same copies of 4, 8 or 16 bytes, by a template's argument (PTX ISA, "cp.async").
#pragma once

#include "ptx/cp_async.cuh"

namespace cf {

// Both addresses are multiples of so many bytes.
template <int Bytes>
__device__ __forceinline__ void copy_async(uint32_t to, const void *from, bool live) {
    static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
    if constexpr (Bytes == 16)
        copy16_async(to, from, live);
    else if constexpr (Bytes == 4)
        copy4_async(to, from, live);
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from),
                     "r"(live ? 8 : 0)
                     : "memory");
}

} // namespace cf
