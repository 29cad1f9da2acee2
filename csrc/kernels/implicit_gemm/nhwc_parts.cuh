// Sums of implicit_gemm_nhwc whose parts are in the blocks of a cluster: all of a block's lie in
// shared memory, in the place of its stages, and each block adds and stores some columns of them.
#pragma once

#include "kernels/implicit_gemm/nhwc_store.cuh"

namespace cf::implicit_gemm {

#if CF_SM90A
// The same sum of all threads that multiply lies beside each other.
struct Parts {
    const Block &block;
    int thread;

    __device__ __forceinline__ uint32_t place(int sum) const {
        return block.stages + uint32_t(sum * Warpgroups * Warpgroup + thread) * 4;
    }
    // From sum number `first` on, in the order of the parts, all of them asked for at once.
    template <int Count>
    __device__ __forceinline__ void add(int first, float (&sums)[8], Constant<Count>) const {
        const int peers = block.tiling.pixel_peers * block.tiling.weight_peers;
        float v[8][Count];
#pragma unroll
        for (int part = 0; part < Count; ++part)
#pragma unroll
            for (int i = 0; i < 8; ++i)
                v[i][part] = load_shared_of(block.parts_first + part * peers, place(first + i));
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            sums[i] = v[i][0];
#pragma unroll
            for (int part = 1; part < Count; ++part)
                sums[i] += v[i][part];
        }
    }
};

// Both warpgroups are done with all stages: a block has one tile, and nothing is on its way.
template <class Element, int N>
__device__ __forceinline__ void store_parts(const Block &block, int warp, int lane,
                                            const Place &place, int warpgroup, float (&sums)[N / 2],
                                            Element *y, const Finish &finish) {
    const Tiling &t = block.tiling;
    const StoreLane<Element, 16> at(t, block.staged(warpgroup), warp, lane);
    const Parts parts = {block, warp * 32 + lane};
    wait_at_bar(1 + Warpgroups, Warpgroups * Warpgroup);
    // As floats, one by one: ptxas would want others in other registers, and wait for each product.
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
        store_if(true, parts.place(i), sums[i]);
    wait_for_cluster();
    // Two by two; behind the last one of a tile lies another one's, or something that is not
    // stored.
    const int eights = (N / 8 + t.parts - 1) / t.parts, first = block.part * eights;
    const int end = min(first + eights, N / 8);
#pragma unroll 1
    for (int eight = first; eight < end; eight += 2) {
        float some[8];
        if (t.parts == 2)
            parts.add(eight * 4, some, Constant<2>());
        else if (t.parts == 4)
            parts.add(eight * 4, some, Constant<4>());
        else
            parts.add(eight * 4, some, Constant<8>());
        const Target<Element> target(t, place, warpgroup, eight * 8, min((end - eight) * 8, 16));
        store_tile<Element, 16>(at, target, some, y, finish);
    }
}
#endif

} // namespace cf::implicit_gemm
