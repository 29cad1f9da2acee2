// Copies of 4 or 16 bytes from global into shared memory, one by each lane (PTX ISA, "cp.async").
// With live == false they write zeros, and `from` is not read.
#pragma once

#include "ptx/shared.cuh"

namespace cf {

__device__ __forceinline__ void copy4_async(uint32_t to, const void *from, bool live) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                 "r"(live ? 4 : 0)
                 : "memory");
}

// Both addresses are multiples of 16.
__device__ __forceinline__ void copy16_async(uint32_t to, const void *from, bool live) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(live ? 16 : 0)
                 : "memory");
}

// Copies come in groups, in order; waits until at most `Left` groups of this thread are on the way.
__device__ __forceinline__ void end_of_group() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int Left>
__device__ __forceinline__ void wait_for_groups() {
    asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
}
// Waits for all of this thread's copies: nobody leaves before its own have arrived.
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

} // namespace cf
