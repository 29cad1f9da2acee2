// Barriers of the block by number, for some of its warps; number 0 is __syncthreads (PTX ISA,
// "bar").
#pragma once

namespace cf {

template <int Number>
__device__ __forceinline__ void wait_at_bar(int threads) {
    asm volatile("bar.sync %0, %1;" ::"n"(Number), "r"(threads) : "memory");
}

// Without waiting for the others.
template <int Number>
__device__ __forceinline__ void arrive_at_bar(int threads) {
    asm volatile("bar.arrive %0, %1;" ::"n"(Number), "r"(threads) : "memory");
}

} // namespace cf
