// The products of lines as groups of wgmma, and the end of such a group.
#pragma once

#include "kernels/implicit_gemm/tiling.cuh"
#include "ptx/wgmma.cuh"

namespace cf::implicit_gemm {

#if CF_SM90A
// A group: multiply(step) for each step along lines; those of a whole line in a row.
template <class Multiply>
__device__ __forceinline__ void multiply_steps(int steps, Multiply multiply) {
    // A group in either branch: the compiler would begin one of its own behind both.
    wgmma_fence();
    if (steps == Steps) {
#pragma unroll
        for (int i = 0; i < Steps; ++i)
            multiply(i);
        wgmma_commit();
    } else {
#pragma unroll 1
        for (int i = 0; i + 1 < steps; ++i)
            multiply(i);
        multiply(steps - 1);
        wgmma_commit();
    }
}

// Until all groups are done, and their sums are there.
template <int Count>
__device__ __forceinline__ void wait_for_sums(float (&sums)[Count]) {
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < Count; ++i)
        settle(sums[i]);
}
#endif

} // namespace cf::implicit_gemm
