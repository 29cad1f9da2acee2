// Arriving at a barrier of the block, without waiting for it (PTX ISA, "bar.arrive"); number 0 is
// __syncthreads.
#pragma once

namespace cf {

template <int Number>
__device__ __forceinline__ void arrive_at_bar(int threads) {
    asm volatile("bar.arrive %0, %1;" ::"n"(Number), "r"(threads) : "memory");
}

} // namespace cf
