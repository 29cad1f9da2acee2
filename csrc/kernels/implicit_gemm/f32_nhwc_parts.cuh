// Sums of implicit_gemm_f32_nhwc whose parts are in the blocks of a cluster: all of a block's lie
// in shared memory, in the place of its stages, and each block adds and stores some columns of
// them.
#pragma once

#include "kernels/implicit_gemm/f32_nhwc_load.cuh"
#include "kernels/implicit_gemm/nhwc_store.cuh"

namespace cf::implicit_f32 {

#if CF_SM90A
// By warps that have no sums: as store_parts.
__device__ __forceinline__ void meet_parts(const Block &block) {
    __syncwarp();
    if (block.tiling.parts > 1 && block.count > 0)
        wait_for_cluster();
}

// Where a sum lies: the same one of all threads that multiply beside each other.
__device__ __forceinline__ uint32_t place_of_sum(const Block &block, int sum, int thread) {
    return block.stages + uint32_t(sum * Warpgroups * Warpgroup + thread) * 4;
}

// Sums from number `first` on, in the order of the parts, all of them asked for at once.
template <int Parts>
__device__ __forceinline__ void add_parts(const Block &block, int first, int thread,
                                          float (&sums)[8]) {
    float v[8][Parts];
#pragma unroll
    for (int part = 0; part < Parts; ++part)
#pragma unroll
        for (int i = 0; i < 8; ++i)
            v[i][part] = load_shared_of(part, place_of_sum(block, first + i, thread));
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        sums[i] = v[i][0];
#pragma unroll
        for (int part = 1; part < Parts; ++part)
            sums[i] += v[i][part];
    }
}

// Both warpgroups are done with all stages: a block has one tile, and nothing is on its way.
template <int N>
__device__ __forceinline__ void store_parts(const Block &block, int warp, int lane,
                                            const Place &place, int warpgroup, float (&sums)[N / 2],
                                            float *y, const Finish &finish) {
    using namespace implicit_gemm;
    const Tiling &t = block.tiling;
    const StoreLane<float, 16> at(t, block.staged(warpgroup), warp, lane);
    const int thread = warp * 32 + lane;
    wait_at_bar(1 + Warpgroups, Warpgroups * Warpgroup);
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
        store_if(true, place_of_sum(block, i, thread), sums[i]);
    wait_for_cluster();
    // Two by two; behind the last one of a tile lies another one's, or something that is not
    // stored.
    const int eights = (N / 8 + t.parts - 1) / t.parts, first = block.part * eights;
    const int end = min(first + eights, N / 8);
#pragma unroll 1
    for (int eight = first; eight < end; eight += 2) {
        float some[8];
        if (t.parts == 2)
            add_parts<2>(block, eight * 4, thread, some);
        else if (t.parts == 4)
            add_parts<4>(block, eight * 4, thread, some);
        else
            add_parts<8>(block, eight * 4, thread, some);
        const Target<float> target(t, place, warpgroup, eight * 8, min((end - eight) * 8, 16));
        store_tile<float, 16>(at, target, some, y, finish);
    }
}
#endif

} // namespace cf::implicit_f32
