// Atomic operations in shared memory (PTX ISA, "atom").
#pragma once

#include "ptx/shared.cuh"

namespace cf {

// Adds one and returns what was there. Whoever counts later knows that the threads which counted
// before have read what they read before it.
__device__ __forceinline__ int count_shared(int &counter) {
    int before;
    asm volatile("atom.acq_rel.cta.shared::cta.add.s32 %0, [%1], 1;"
                 : "=r"(before)
                 : "r"(shared_address(&counter))
                 : "memory");
    return before;
}

} // namespace cf
