// Barriers of the block whose number is known at run time (PTX ISA, "bar"); number 0 is
// __syncthreads.
#pragma once

namespace cf {

__device__ __forceinline__ void wait_at_bar(int number, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

} // namespace cf
