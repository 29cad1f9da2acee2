// Sums of implicit_gemm_nchw and implicit_gemm_f32_nchw whose parts are in the blocks of a cluster:
// each block adds and stores some channels of its tile, to which the others send theirs, eight at a
// time by a warpgroup.
#pragma once

#include "core/epilogue.cuh"
#include "kernels/implicit_gemm/begin.cuh"
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

// A slice is 8 channels of a warpgroup's 64: half of what a warp has sums of, so that it sends
// these to one block or two. Of a slice lanes have two eights of pixels beside each other.
template <class Block, class Element, int N, bool Straight>
struct PlanarParts {
    static constexpr int Eights = N / 8, Pairs = eight_pairs(N);
    const Block &block;
    const PlanarStore<Element, N, Straight> &store; // of the warpgroup
    int warp, lane;

    // Slices that each block adds up.
    __device__ __forceinline__ int count() const { return Slices >> block.tiling.part_shift; }
    // Of a slice of the block's, where a part of it comes to.
    __device__ __forceinline__ uint32_t place(int part, int slice, int pair) const {
        const uint32_t all =
            block.tiling.parts_replace ? block.stages : block.staged(0) + staging_bytes(N);
        const int row = (part * count() + slice) * Warpgroups + warp / 4;
        return all + uint32_t(row * Pairs + pair) * PairBytes + lane * 16;
    }
    __device__ __forceinline__ int rank(int part) const { return block.parts_first + part; }
    __device__ __forceinline__ void expect() const {
        block.shared.parts_full.arrive_and_expect((block.tiling.parts - 1) * count() * Warpgroups *
                                                  Pairs * PairBytes);
    }
    // body(pair, its four sums) of a half of the warp's channels. Behind an odd eight nothing is
    // there, and something is sent.
    template <int Half, class Body>
    __device__ __forceinline__ void visit(const float (&sums)[N / 2], Body body) const {
#pragma unroll
        for (int pair = 0; pair < Pairs; ++pair) {
            constexpr int Last = Eights - 1;
            const int a = pair * 8 + Half * 2;
            const int b = (pair * 2 + 1 < Last ? pair * 2 + 1 : Last) * 4 + Half * 2;
            body(pair, sums[a], sums[a + 1], sums[b], sums[b + 1]);
        }
    }
    template <int Half>
    __device__ __forceinline__ void send(const float (&sums)[N / 2]) const {
        const int slice = warp % 4 * 2 + Half, to = slice >> (SliceShift - block.tiling.part_shift);
        const uint32_t here = place(block.part, slice - to * count(), 0);
        if (to == block.part) {
            visit<Half>(sums, [&](int pair, float a, float b, float c, float d) {
                store_shared4_f32(here + pair * PairBytes, a, b, c, d);
            });
            return;
        }
        const uint32_t there = address_of(rank(to), here);
        const uint32_t full = address_of(rank(to), shared_address(&block.shared.parts_full));
        visit<Half>(sums, [&](int pair, float a, float b, float c, float d) {
            store_async4(there + pair * PairBytes, a, b, c, d, full);
        });
    }
    __device__ __forceinline__ void send(const float (&sums)[N / 2]) const {
        send<0>(sums);
        send<1>(sums);
    }
    // A pair of a slice, in the order of the parts, all of them asked for at once.
    template <int Count>
    __device__ __forceinline__ void add(int slice, int pair, float (&sums)[2][2],
                                        Constant<Count>) const {
        uint4 v[Count];
#pragma unroll
        for (int part = 0; part < Count; ++part)
            v[part] = load_shared4(place(part, slice, pair));
        sums[0][0] = sums[0][1] = sums[1][0] = sums[1][1] = 0;
#pragma unroll
        for (int part = 0; part < Count; ++part) {
            sums[0][0] += __uint_as_float(v[part].x);
            sums[0][1] += __uint_as_float(v[part].y);
            sums[1][0] += __uint_as_float(v[part].z);
            sums[1][1] += __uint_as_float(v[part].w);
        }
    }
    __device__ __forceinline__ void add(int slice, int pair, float (&sums)[2][2]) const {
        if (block.tiling.parts == 2)
            add(slice, pair, sums, Constant<2>());
        else if (block.tiling.parts == 4)
            add(slice, pair, sums, Constant<4>());
        else
            add(slice, pair, sums, Constant<8>());
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
    // Number `slice` of the block's, of the warpgroup's, by some of its warps; `k` is its first
    // channel, of all.
    __device__ __forceinline__ void stage(int slice, int k, const Finish &finish) const {
#pragma unroll 1
        for (int pair = store.worker / 32; pair < Pairs; pair += store.workers / 32) {
            float sums[2][2];
            add(slice, pair, sums);
            put(pair * 2, k + lane / 4, sums[0], finish);
            if (pair * 2 + 1 < Eights)
                put(pair * 2 + 1, k + lane / 4, sums[1], finish);
        }
    }
};

// A block has one tile. `row` is the warpgroup's first channel of the tile's. Warps of a warpgroup
// have slices of their own, as many as are staged together, or share them.
template <class Block, class Element, int N, bool Straight>
__device__ __forceinline__ void store_parts(const PlanarParts<Block, Element, N, Straight> &parts,
                                            const Place &place, int row, float (&sums)[N / 2],
                                            Element *y, const Finish &finish) {
    using Of = PlanarParts<Block, Element, N, Straight>;
    const Block &block = parts.block;
    const Tiling &t = block.tiling;
    const int warp = parts.warp % 4, count = parts.count();
    const int together = min(count, 4 * PassChannels<Element> / SliceChannels);
    const auto meet = [&] { wait_at_bar(1 + parts.warp / 4, Warpgroup); };
    if (parts.warp == 0 && parts.lane == 0)
        parts.expect();
    meet_for_parts(t);
    if (t.parts_replace)
        wait_for_places(parts, parts.lane);
    parts.send(sums);
    const auto store = parts.store.of_slice(warp % together, warp / together, 4 / together);
    const Of of_slice = {block, store, parts.warp, parts.lane};
    block.shared.parts_full.wait_for_cluster_writes(0);
    meet(); // the block's own are there
#pragma unroll 1
    for (int slice = warp % together; slice < count; slice += together) {
        const int channel = row + (block.part * count + slice) * SliceChannels;
        const PlanarTarget target(t, store.planes, place, channel);
        if (finish.residual) {
            store.template load<SliceChannels>(target,
                                               static_cast<const Element *>(finish.residual), 0);
            meet();
        }
        of_slice.stage(slice, place.group * t.group_k + place.k + channel, finish);
        meet();
        store.template store<SliceChannels>(target, y, 0);
        meet();
    }
}
#endif

} // namespace cf::implicit_nchw
