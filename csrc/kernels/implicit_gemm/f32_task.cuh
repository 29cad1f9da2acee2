// The main loop of the rows that split f32: a warpgroup's sums, of 64 output channels in N pixels.
#pragma once

#include "kernels/implicit_gemm/f32_block.cuh"
#include "kernels/implicit_gemm/steps.cuh"
#include "ptx/load_store.cuh"
#include "ptx/wgmma_shared.cuh"

namespace cf::implicit_f32 {

#if CF_SM90A
using implicit_gemm::StepBytes;
using implicit_gemm::wait_for_sums;

// What a warpgroup holds of its rings.
struct Held {
    const Block &block;
    Ring<MaxPixelStages> &pixels;
    Ring<MaxWeightStages> &weights;
    RingPosition pixels_at, weights_at;
    int lead; // taps until the other warpgroup may begin
    int lane;

    __device__ __forceinline__ Held(const Block &block, int warpgroup, int lane)
        : block(block), pixels(block.shared.pixels[block.tiling.apart ? warpgroup : 0]),
          weights(block.shared.weights[block.tiling.apart ? 0 : warpgroup]),
          lead(warpgroup == 0 ? block.tiling.lead : 0), lane(lane) {}
    __device__ __forceinline__ WgmmaLines wait_for_weights(int ring) {
        weights.wait_full(weights_at);
        return {block.weights(ring, weights_at.stage), LineAlign};
    }
    // Only wgmma reads weights; factors of pixels are read by all lanes.
    __device__ __forceinline__ void release_weights(RingPosition at) {
        if (lane == 0)
            weights.release(at);
    }
    __device__ __forceinline__ void release_pixels(bool keep) {
        if (!keep)
            pixels.release(pixels_at);
        pixels_at.next(block.tiling.pixel_stages);
    }
    __device__ __forceinline__ void let_other_begin() {
        if (--lead == 0 && lane == 0)
            block.shared.lead.arrive();
    }
};

// body(bytes into a line, whether there are products before) for each step of a tap; those of a
// whole line in a row. The first one by itself: registers that it may read would be kept for it
// from the tile before.
template <class Body>
__device__ __forceinline__ void for_steps(int steps, Body body) {
    wgmma_fence();
    // A group in either branch: the compiler would begin one of its own behind both.
    if (steps == Steps) {
#pragma unroll
        for (int i = 0; i < Steps; ++i)
            body(i * StepBytes, i > 0);
        wgmma_commit();
    } else {
        body(0, false);
#pragma unroll 1
        for (int i = 1; i < steps; ++i)
            body(i * StepBytes, true);
        wgmma_commit();
    }
}

// The products of a tap, whose lines of pixels' high parts begin here: those with low parts first,
// which are LowScale times too large. The last ones are on their way.
template <int N>
__device__ __forceinline__ void multiply_tap(Held &held, float (&part)[N / 2], int weight_ring,
                                             uint32_t lines, uint32_t group_bytes, int steps) {
    const Tiling &t = held.block.tiling;
    const WgmmaLines high(lines, group_bytes), low(lines + t.pixel_stage_bytes, group_bytes);
    const WgmmaLines weights_low = held.wait_for_weights(weight_ring);
    for_steps(steps, [&](int bytes, bool add) {
        wgmma_shared<__half, N>(part, weights_low.behind(bytes), high.behind(bytes), add);
    });
    const RingPosition low_at = held.weights_at;
    held.weights_at.next(t.weight_stages);
    const WgmmaLines weights = held.wait_for_weights(weight_ring);
    for_steps(steps, [&](int bytes, bool) {
        wgmma_shared<__half, N>(part, weights.behind(bytes), low.behind(bytes), true);
    });
    wait_for_sums(part);
    held.release_weights(low_at);
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
        part[i] *= 1 / LowScale;
    for_steps(steps, [&](int bytes, bool) {
        wgmma_shared<__half, N>(part, weights.behind(bytes), high.behind(bytes), true);
    });
}

// What columns of products are multiplied by: some at a time, from these addresses on.
template <int Count>
__device__ __forceinline__ void load_factors(uint32_t from, uint32_t behind,
                                             float2 (&factors)[Count]) {
#pragma unroll
    for (int i = 0; i < Count; ++i)
        factors[i] = load_shared_f32x2(from + i * behind);
}

// Adds what a tap's products are, times the factors of their columns, from eight number First on.
template <int N, int First, int Count>
__device__ __forceinline__ void add_eights(float (&sums)[N / 2], const float (&part)[N / 2],
                                           const float2 (&factors)[Count]) {
#pragma unroll
    for (int eight = 0; eight < Count; ++eight)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int at = (First + eight) * 4 + i;
            sums[at] = fmaf(part[at], i % 2 ? factors[eight].y : factors[eight].x, sums[at]);
        }
}

// Where taps of a row of a load begin, in bytes, of lines that tensor copies brought.
struct CopiedLines {
    static constexpr bool Written = false; // by threads: to be made known to wgmma
    const Tiling &t;

    __device__ __forceinline__ uint32_t tap(int s) const { return s * t.tap_bytes; }
    __device__ __forceinline__ uint32_t group_bytes() const { return t.group_bytes; }
};

// The sums of a tile; `keep`: the next one is of the same pixels.
template <int N, class Lines>
__device__ __forceinline__ void multiply_tile(const Block &block, Held &held, const Lines &lines,
                                              int pixel_ring, int weight_ring, bool keep,
                                              float (&sums)[N / 2]) {
    const Tiling &t = block.tiling;
    const RingPosition begin = held.pixels_at;
    const uint32_t group_factors = lines.group_bytes() / LineBytes * 8;
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
        sums[i] = 0;
    for (int b = 0; b < block.blocks; ++b) {
        const int steps = block.first_block + b + 1 < t.blocks ? Steps : t.last_steps;
        for (int load = 0; load < t.load_rows * t.load_columns; ++load) {
            held.pixels.wait_full(held.pixels_at);
            if (Lines::Written)
                publish_to_bulk_copies();
            const uint32_t first = block.pixels(pixel_ring, held.pixels_at.stage);
            const uint32_t first_factor =
                block.factors(pixel_ring, held.pixels_at.stage) + held.lane % 4 * 16;
            uint32_t row = 0;
            for (int r = 0; r < t.tap_rows; ++r, row += t.tap_row_bytes) {
                for (int s = 0; s < t.tap_columns; ++s) {
                    const uint32_t tap = row + lines.tap(s);
                    float part[N / 2];
                    multiply_tap<N>(held, part, weight_ring, first + tap, lines.group_bytes(),
                                    steps);
                    // Sums leave no room for more of them; the others come while these are used.
                    constexpr int Eights = N / 8, Early = Eights <= 12 ? Eights : Eights / 2;
                    const uint32_t factor = first_factor + tap / (LineBytes / 8);
                    float2 factors[Early];
                    load_factors(factor, group_factors, factors);
                    wait_for_sums(part);
                    held.release_weights(held.weights_at);
                    held.weights_at.next(t.weight_stages);
                    held.let_other_begin();
                    add_eights<N, 0>(sums, part, factors);
                    if constexpr (Early < Eights) {
                        float2 others[Eights - Early];
                        load_factors(factor + Early * group_factors, group_factors, others);
                        add_eights<N, Early>(sums, part, others);
                    }
                }
            }
            held.release_pixels(keep);
        }
    }
    if (keep)
        held.pixels_at = begin;
}
#endif

} // namespace cf::implicit_f32
