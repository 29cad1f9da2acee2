// The main loop of implicit_gemm_pointwise_shared: a warpgroup's sums, of 64 output channels in so
// many pixels.
#pragma once

#include "kernels/implicit_gemm/pointwise_shared_load.cuh"
#include "ptx/wgmma_shared.cuh"

namespace cf::pointwise_shared {

#if CF_SM90A
// A block of channels, asked for as a group: steps of a parity after those of the one before.
template <class Element, int Columns, int Parities>
__device__ __forceinline__ void multiply_block(uint32_t pixels, uint32_t weights, bool add,
                                               float (&sums)[Parities][Columns / 2]) {
    constexpr int Own = Steps / Parities, Bytes = StripBytes / Parities; // of a parity
    const WgmmaPlanes columns(pixels, Bytes);
    const WgmmaLines rows(weights, LineAlign);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < Steps; ++i)
        wgmma_shared<Element, Columns, true>(
            sums[i / Own], rows.behind(i * StepBytes),
            columns.behind(i / Own * strips_of(Columns) * Bytes + i % Own * StripStepBytes),
            add || i % Own > 0);
    wgmma_commit();
}

// Adds the sums of odd channels, whose pixels are `Shift` columns further on. Of eight columns lane
// t of four has numbers 2 t and 2 t + 1: those wanted are two lanes on, for the last two lanes
// among the next eight. Of the last eight columns the last four are of no pixel.
template <int Columns>
__device__ __forceinline__ void add_shifted(const float (&odd)[Columns / 2], int lane,
                                            float (&sums)[Columns / 2]) {
    static_assert(Shift == 4, "half of eight columns");
    constexpr int Eights = Columns / 8;
    const bool low = lane % 4 < 2;
#pragma unroll
    for (int eight = 0; eight < Eights; ++eight)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float next = eight + 1 < Eights ? odd[(eight + 1) % Eights * 4 + i] : 0.0f;
            sums[eight * 4 + i] += __shfl_xor_sync(~0u, low ? next : odd[eight * 4 + i], 2);
        }
}

// Hands a stage back, to the block's own loader and its peer's, by a warp.
__device__ __forceinline__ void release(const Tiling &t, Shared &shared, int stage, int lane) {
    Barrier &empty = shared.ring.empty[stage];
    if (t.peers == 1 && lane == 0)
        empty.arrive();
    else if (t.peers > 1 && lane < t.peers)
        arrive_at(empty, lane);
}

// The sums of a tile, from nothing. A block is handed back when the next one was asked for.
template <class Element, int Columns, int Parities>
__device__ __forceinline__ void multiply(const Tiling &t, Shared &shared, uint32_t first,
                                         int warpgroup, int lane, RingPosition &at,
                                         float (&sums)[Parities][Columns / 2]) {
    int before = 0; // its stage
#pragma unroll 1
    for (int b = 0; b < t.blocks; ++b, at.next(t.stages)) {
        const uint32_t pixels = first + at.stage * t.stage_bytes;
        const uint32_t weights = pixels + t.pixel_bytes + warpgroup * RowChannels * LineBytes;
        shared.ring.wait_full(at);
        multiply_block<Element, Columns, Parities>(pixels, weights, b > 0, sums);
        wgmma_wait<1>();
        if (b > 0)
            release(t, shared, before, lane);
        before = at.stage;
    }
    wgmma_wait<0>();
    release(t, shared, before, lane);
#pragma unroll
    for (int i = 0; i < Parities; ++i)
#pragma unroll
        for (int j = 0; j < Columns / 2; ++j)
            settle(sums[i][j]);
    if constexpr (Parities == 2)
        add_shifted<Columns>(sums[1], lane, sums[0]);
}

// The same where the tile has no output channels for the warpgroup.
__device__ __forceinline__ void pass_over(const Tiling &t, Shared &shared, int lane,
                                          RingPosition &at) {
    for (int b = 0; b < t.blocks; ++b, at.next(t.stages)) {
        shared.ring.wait_full(at);
        release(t, shared, at.stage, lane);
    }
}
#endif

} // namespace cf::pointwise_shared
