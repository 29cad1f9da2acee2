// Loads from shared memory before copies that write over what they read (PTX ISA, "fence.proxy").
#pragma once

#include "ptx/arch.cuh"

namespace cf {

#if CF_SM90
// Orders what this thread loaded from shared memory before copies that others ask for once it has
// arrived on a barrier. The arrival alone does not: it overtakes loads whose values nobody has used
// yet, and where those are queued behind stores, a copy may be there first (seen on an H200,
// docs/notes/depthwise.md). nvcc makes a MEMBAR of it, which waits for them.
__device__ __forceinline__ void finish_loads_before_copies() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
#endif

} // namespace cf
