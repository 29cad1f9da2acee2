// Sums of implicit_gemm_nchw whose parts are in the blocks of a cluster: all of a block's lie in
// shared memory, in the place of its stages, and each block adds and stores some channels of them,
// eight at a time by a warpgroup.
#pragma once

#include "core/epilogue.cuh"
#include "kernels/implicit_gemm/nchw_store.cuh"
#include "ptx/cluster.cuh"

namespace cf::implicit_nchw {

#if CF_SM90
// Two neighbouring pixels of a channel, for core/fragment_epilogue.cuh.
struct PairMap {
    float (&sums)[2];
    int k;

    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
        body(k, Constant<2>(), [&](int i) -> float & { return sums[i]; });
    }
};

template <class Block, class Element, int N, bool Straight>
struct PlanarParts {
    static constexpr int Eights = N / 8, SliceChannels = 8, Slices = RowChannels / SliceChannels;
    const Block &block;
    const PlanarStore<Element, N, Straight> &store; // of the warpgroup
    int warp, lane;

    // The same sum of all threads that multiply lies beside each other.
    __device__ __forceinline__ uint32_t at(int sum, int thread) const {
        return block.stages + uint32_t(sum * Warpgroups * Warpgroup + thread) * 4;
    }
    // As floats, one by one: ptxas would want others in other registers, and wait for each product.
    __device__ __forceinline__ void leave(const float (&sums)[N / 2]) const {
#pragma unroll
        for (int i = 0; i < N / 2; ++i)
            store_if(true, at(i, warp * 32 + lane), sums[i]);
    }
    // Pixels of two eights, in the order of the parts, all of them asked for at once.
    template <int Count>
    __device__ __forceinline__ void add(int slice, const int (&eights)[2], float (&sums)[2][2],
                                        Constant<Count>) const {
        const int thread = warp / 4 * Warpgroup + slice / 2 * 32 + lane;
        float v[2][2][Count];
#pragma unroll
        for (int part = 0; part < Count; ++part)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                v[i / 2][i % 2][part] =
                    load_shared_of(block.parts_first + part,
                                   at(eights[i / 2] * 4 + slice % 2 * 2 + i % 2, thread));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            sums[i / 2][i % 2] = v[i / 2][i % 2][0];
#pragma unroll
            for (int part = 1; part < Count; ++part)
                sums[i / 2][i % 2] += v[i / 2][i % 2][part];
        }
    }
    __device__ __forceinline__ void add(int slice, const int (&eights)[2],
                                        float (&sums)[2][2]) const {
        if (block.tiling.parts == 2)
            add(slice, eights, sums, Constant<2>());
        else if (block.tiling.parts == 4)
            add(slice, eights, sums, Constant<4>());
        else
            add(slice, eights, sums, Constant<8>());
    }
    // Through the epilogue to where they are staged, and a residual is.
    __device__ __forceinline__ void put(int eight, int k, float (&sums)[2],
                                        const Finish &finish) const {
        const uint32_t row = store.staged + lane / 4 * StagedRow<Element, N>;
        uint32_t places[2];
        store.find(eight, places);
        PairMap map = {sums, k};
        scale_and_add_bias(finish, block.tiling.k, map);
        if (finish.residual)
#pragma unroll
            for (int i = 0; i < 2; ++i)
                sums[i] += store.staged_element(row, places[i]);
        limit(finish, map);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float v = activate_keeping_nan(block.tiling.activation, sums[i]);
            if constexpr (sizeof(Element) == 4)
                store_if(store.is_there(places[i]), row + places[i], v);
            else
                store_if(store.is_there(places[i]), row + places[i], uint16_t(pack<Element>(v, 0)));
        }
    }
    // Channels number 8 slice and on, of the warpgroup's; `k` is their first, of all.
    __device__ __forceinline__ void stage(int slice, int k, const Finish &finish) const {
#pragma unroll 1
        for (int eight = warp % 4; eight < Eights; eight += 8) {
            const int eights[2] = {eight, min(eight + 4, Eights - 1)};
            float sums[2][2];
            add(slice, eights, sums);
            put(eight, k + lane / 4, sums[0], finish);
            if (eight + 4 < Eights)
                put(eight + 4, k + lane / 4, sums[1], finish);
        }
    }
};

// Both warpgroups are done with all stages: a block has one tile, and nothing is on its way. `row`
// is the warpgroup's first channel of the tile's.
template <class Block, class Element, int N, bool Straight>
__device__ __forceinline__ void store_parts(const PlanarParts<Block, Element, N, Straight> &parts,
                                            const Place &place, int row, float (&sums)[N / 2],
                                            Element *y, const Finish &finish) {
    using Of = PlanarParts<Block, Element, N, Straight>;
    const Tiling &t = parts.block.tiling;
    const auto meet = [&] { wait_at_bar(1 + parts.warp / 4, Warpgroup); };
    wait_at_bar(1 + Warpgroups, Warpgroups * Warpgroup);
    parts.leave(sums);
    wait_for_cluster();
    const int count = Of::Slices / t.parts;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
        const int slice = parts.block.part * count + i;
        const int channel = row + slice * Of::SliceChannels;
        const PlanarTarget target(t, parts.store.planes, place, channel);
        if (finish.residual) {
            parts.store.template load<Of::SliceChannels>(
                target, static_cast<const Element *>(finish.residual), 0);
            meet();
        }
        parts.stage(slice, place.group * t.group_k + place.k + channel, finish);
        meet();
        parts.store.template store<Of::SliceChannels>(target, y, 0);
        meet();
    }
}
#endif

} // namespace cf::implicit_nchw
