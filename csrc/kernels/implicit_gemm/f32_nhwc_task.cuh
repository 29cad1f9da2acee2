// The main loop of implicit_gemm_f32_nhwc: a warpgroup's sums, of 64 output channels in N pixels.
#pragma once

#include "kernels/implicit_gemm/f32_nhwc_load.cuh"
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
// whole line in a row.
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
#pragma unroll 1
        for (int i = 0; i + 1 < steps; ++i)
            body(i * StepBytes, i > 0);
        body((steps - 1) * StepBytes, steps > 1);
        wgmma_commit();
    }
}

// The products of a tap, whose lines of pixels' high parts begin here: those with low parts first,
// which are LowScale times too large. The last ones are on their way.
template <int N>
__device__ __forceinline__ void multiply_tap(Held &held, float (&part)[N / 2], int weight_ring,
                                             uint32_t lines, int steps) {
    const Tiling &t = held.block.tiling;
    const WgmmaLines high(lines, t.group_bytes), low(lines + t.pixel_stage_bytes, t.group_bytes);
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

// Adds what a tap's products are, times the factors of their columns.
template <int N>
__device__ __forceinline__ void add_tap(float (&sums)[N / 2], const float (&part)[N / 2],
                                        const float2 (&factors)[N / 8]) {
#pragma unroll
    for (int eight = 0; eight < N / 8; ++eight)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            sums[eight * 4 + i] =
                fmaf(part[eight * 4 + i], i % 2 ? factors[eight].y : factors[eight].x,
                     sums[eight * 4 + i]);
}

// The sums of a tile; `keep`: the next one is of the same pixels.
template <int N>
__device__ __forceinline__ void multiply_tile(const Block &block, Held &held, int pixel_ring,
                                              int weight_ring, bool keep, float (&sums)[N / 2]) {
    const Tiling &t = block.tiling;
    const RingPosition begin = held.pixels_at;
    const uint32_t group_factors = t.group_bytes / LineBytes * 8;
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
        sums[i] = 0;
    for (int b = 0; b < block.blocks; ++b) {
        const int steps = block.first_block + b + 1 < t.blocks ? Steps : t.last_steps;
        for (int load = 0; load < t.load_rows * t.load_columns; ++load) {
            held.pixels.wait_full(held.pixels_at);
            const uint32_t first = block.pixels(pixel_ring, held.pixels_at.stage);
            const uint32_t first_factor =
                block.factors(pixel_ring, held.pixels_at.stage) + held.lane % 4 * 16;
            uint32_t row = 0;
            for (int r = 0; r < t.tap_rows; ++r, row += t.tap_row_bytes) {
                uint32_t tap = row;
                for (int s = 0; s < t.tap_columns; ++s, tap += t.tap_bytes) {
                    float part[N / 2];
                    multiply_tap<N>(held, part, weight_ring, first + tap, steps);
                    float2 factors[N / 8];
#pragma unroll
                    for (int eight = 0; eight < N / 8; ++eight)
                        factors[eight] = load_shared_f32x2(first_factor + tap / (LineBytes / 8) +
                                                           eight * group_factors);
                    wait_for_sums(part);
                    held.release_weights(held.weights_at);
                    held.weights_at.next(t.weight_stages);
                    held.let_other_begin();
                    add_tap<N>(sums, part, factors);
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
