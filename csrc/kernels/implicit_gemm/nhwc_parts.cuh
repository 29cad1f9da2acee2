// Sums of implicit_gemm_nhwc and implicit_gemm_f32_nhwc whose parts are in the blocks of a cluster:
// each block adds and stores some columns of its tile, to which the others send theirs.
#pragma once

#include "kernels/implicit_gemm/begin.cuh"
#include "kernels/implicit_gemm/nhwc_store.cuh"

namespace cf::implicit_gemm {

#if CF_SM90A
// The sums of 8 columns that a thread has lie beside each other, by thread, by 8 columns, and by
// the part that they are of.
template <int N, class AnyBlock>
struct Parts {
    const AnyBlock &block;
    int thread;
    int eights; // of columns, that each block adds up; the last ones fewer
    int count;  // this one

    __device__ __forceinline__ Parts(const AnyBlock &block, int thread)
        : block(block), thread(thread),
          eights((N / 8 + block.tiling.parts - 1) >> block.tiling.part_shift),
          count(max(min(eights, N / 8 - block.part * eights), 0)) {}
    __device__ __forceinline__ uint32_t place(int part, int eight) const {
        return block.parts() + uint32_t(part * eights + eight) * EightBytes + thread * 16;
    }
    __device__ __forceinline__ int rank(int part) const {
        return block.parts_first + (part << block.tiling.peer_shift);
    }
    __device__ __forceinline__ void expect() const {
        block.shared.parts_full.arrive_and_expect((block.tiling.parts - 1) * count * EightBytes);
    }
    // body(of how many 8 columns, its four sums), of those that block `to` adds up. Which sums are
    // whose is known when it is compiled, as sums are registers.
    template <int Count, class Body>
    __device__ __forceinline__ void visit(const float (&sums)[N / 2], int to, Constant<Count>,
                                          Body body) const {
        constexpr int Eights = part_eights(N, Count);
#pragma unroll
        for (int i = 0; i < N / 8; ++i)
            if (i / Eights == to)
                body(i % Eights, sums[i * 4], sums[i * 4 + 1], sums[i * 4 + 2], sums[i * 4 + 3]);
    }
    // Each block begins with another one: all at once to the same would wait for each other. What
    // is its own a thread reads again by itself.
    template <int Count>
    __device__ __forceinline__ void send(const float (&sums)[N / 2], Constant<Count> all) const {
        const uint32_t here = place(block.part, 0);
#pragma unroll 1
        for (int step = 1; step < Count; ++step) {
            const int to = (block.part + step) % Count;
            const uint32_t there = address_of(rank(to), here);
            const uint32_t full = address_of(rank(to), shared_address(&block.shared.parts_full));
            visit(sums, to, all, [&](int eight, float a, float b, float c, float d) {
                store_async4(there + eight * EightBytes, a, b, c, d, full);
            });
        }
        visit(sums, block.part, all, [&](int eight, float a, float b, float c, float d) {
            store_shared4_f32(here + eight * EightBytes, a, b, c, d);
        });
    }
    __device__ __forceinline__ void send(const float (&sums)[N / 2]) const {
        if (block.tiling.parts == 2)
            send(sums, Constant<2>());
        else if (block.tiling.parts == 4)
            send(sums, Constant<4>());
        else
            send(sums, Constant<8>());
    }
    // Of 16 columns, in the order of the parts. Where there are only 8, the others are not stored.
    __device__ __forceinline__ void add(int eight, float (&sums)[8]) const {
        const int second = min(eight + 1, eights - 1);
#pragma unroll
        for (float &sum : sums)
            sum = 0;
#pragma unroll 2
        for (int part = 0; part < block.tiling.parts; ++part) {
            const uint4 v[2] = {load_shared4(place(part, eight)),
                                load_shared4(place(part, second))};
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                sums[i * 4] += __uint_as_float(v[i].x);
                sums[i * 4 + 1] += __uint_as_float(v[i].y);
                sums[i * 4 + 2] += __uint_as_float(v[i].z);
                sums[i * 4 + 3] += __uint_as_float(v[i].w);
            }
        }
    }
};

// A block has one tile.
template <class Element, int N, class AnyBlock>
__device__ __forceinline__ void store_parts(const AnyBlock &block, int warp, int lane,
                                            const Place &place, int warpgroup, float (&sums)[N / 2],
                                            Element *y, const Finish &finish) {
    const Tiling &t = block.tiling;
    const Parts<N, AnyBlock> parts(block, warp * 32 + lane);
    if (warp == 0 && lane == 0)
        parts.expect();
    meet_for_parts(t);
    if (t.parts_replace)
        wait_for_places(parts, lane);
    parts.send(sums);
    const StoreLane<Element, 16> at(t, block.staged(warpgroup), warp, lane);
    block.shared.parts_full.wait_for_cluster_writes(0);
#pragma unroll 1
    for (int eight = 0; eight < parts.count; eight += 2) {
        float some[8];
        parts.add(eight, some);
        const Target<Element> target(t, place, warpgroup, (block.part * parts.eights + eight) * 8,
                                     min((parts.count - eight) * 8, 16));
        store_tile<Element, 16>(at, target, some, y, finish);
    }
}
#endif

} // namespace cf::implicit_gemm
