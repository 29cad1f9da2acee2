// The main loop of implicit_gemm_nchw. That of implicit_gemm_nhwc (nhwc_task.cuh) takes fewer
// instructions for the same, and was not measured here.
#pragma once

#include "kernels/implicit_gemm/nchw_tiling.cuh"
#include "kernels/implicit_gemm/nhwc_load.cuh"
#include "kernels/implicit_gemm/steps.cuh"
#include "ptx/barrier_address.cuh"
#include "ptx/load_store.cuh"
#include "ptx/wgmma_shared.cuh"

namespace cf::implicit_nchw {

#if CF_SM90A
// How a warp hands stages of a ring back: a lane to each block that reads the same. Without a
// branch, as a tap is taken for a few clocks' work.
struct HandBack {
    uint32_t here;  // the first stage's barrier
    uint32_t there; // that of the block that the lane tells
    int tells;      // 1: here, 2: there

    template <int Stages>
    __device__ __forceinline__ HandBack(Ring<Stages> &ring, const Peers &peers, int lane)
        : here(shared_address(ring.empty)),
          there(address_of(peers.first + min(lane, peers.count - 1) * peers.step, here)),
          tells(lane >= peers.count ? 0
                : peers.count > 1   ? 2
                                    : 1) {
        keep(tells);
    }
    __device__ __forceinline__ void operator()(int stage, bool held) const {
        const uint32_t barrier = stage * uint32_t(sizeof(Barrier));
        const int now = held ? tells : 0;
        arrive_at_address(here + barrier, now & 1);
        arrive_at_cluster_address(there + barrier, now & 2);
    }
};

// What a tap read.
struct TapStages {
    int pixels = 0, weights = 0;
};

// A warpgroup's place in both rings. It hands a stage back when the products behind those that read
// it are on their way, and those themselves are done.
struct Held {
    const Block &block;
    uint32_t full_pixels, full_weights; // addresses of the first stages' barriers
    HandBack hand_back_pixels, hand_back_weights;
    RingPosition pixels_at, weights_at;
    int lead; // taps until the other warpgroup may begin
    int lane;

    __device__ __forceinline__ Held(const Block &block, int ring, int lead, int lane)
        : block(block), full_pixels(shared_address(block.shared.pixels[ring].full)),
          full_weights(shared_address(block.shared.weights.full)),
          hand_back_pixels(block.shared.pixels[ring], block.of_pixels, lane),
          hand_back_weights(block.shared.weights, block.of_weights, lane), lead(lead), lane(lane) {
        keep(full_pixels);
        keep(full_weights);
    }
    // Until a tap's weights are there, and the pixels that it is the first one to read.
    __device__ __forceinline__ void wait_for_tap(bool reads_pixels) const {
        const uint32_t weights = full_weights + weights_at.stage * uint32_t(sizeof(Barrier));
        const uint32_t pixels = full_pixels + pixels_at.stage * uint32_t(sizeof(Barrier));
        const uint32_t parity = weights_at.parity() & block.tiling.reload_weights;
        wait_at_addresses({weights, reads_pixels ? pixels : weights},
                          {parity, reads_pixels ? pixels_at.parity() : parity});
    }
    // Behind the products of tap number `tap`: those `before` are done, so what they read is handed
    // back, pixels with the first products that read others.
    __device__ __forceinline__ void pass_tap(TapStages &before, int tap, bool reads_pixels) {
        wgmma_wait<1>();
        if (--lead == 0 && lane == 0)
            block.shared.lead.arrive();
        hand_back_weights(before.weights, tap > 0 && block.tiling.reload_weights);
        hand_back_pixels(before.pixels, tap > 0 && reads_pixels);
        before = {pixels_at.stage, weights_at.stage};
        weights_at.next(block.tiling.weight_stages);
    }
    // The end of a tile's sums: the last tap's stages are handed back.
    template <int Count>
    __device__ __forceinline__ void finish(const TapStages &last, float (&sums)[Count]) const {
        wait_for_sums(sums);
        hand_back_weights(last.weights, block.tiling.reload_weights);
        hand_back_pixels(last.pixels, true);
    }
};

// The products of a tap: `steps` of them.
template <class Element, int N>
__device__ __forceinline__ void multiply_tap(float (&sums)[N / 2], const WgmmaLines &weights,
                                             const WgmmaLines &pixels, int steps, bool add) {
    multiply_steps(steps, [&](int i) {
        wgmma_shared<Element, N>(sums, weights.behind(i * StepBytes), pixels.behind(i * StepBytes),
                                 i > 0 || add);
    });
}
// The sums of a tile, from nothing; `ring` of pixels, and where the warpgroup's rows begin among
// the weights of a stage.
template <class Element, int N>
__device__ __forceinline__ void multiply_planes(const Block &block, const Planes &planes,
                                                Held &held, int ring, uint32_t rows,
                                                float (&sums)[N / 2]) {
    const Tiling &t = block.tiling;
    TapStages before;
    int tap = 0;
    for (int b = 0; b < block.blocks; ++b) {
        const int steps = block.first_block + b + 1 < t.blocks ? Steps : t.last_steps;
        for (int load = 0; load < t.load_rows * t.load_columns; ++load) {
            uint32_t row = block.pixels(ring, held.pixels_at.stage);
            for (int r = 0; r < t.tap_rows; ++r, row += t.tap_row_bytes)
                for (int s = 0; s < t.tap_columns; ++s, ++tap) {
                    const bool first = r + s == 0;
                    held.wait_for_tap(first);
                    if (first)
                        publish_to_bulk_copies(); // what loaders wrote, to wgmma
                    const WgmmaLines weights(block.weights(held.weights_at.stage) + rows,
                                             LineAlign);
                    const WgmmaLines pixels(row + tap_line(planes, s * t.column_offset),
                                            t.group_bytes);
                    multiply_tap<Element, N>(sums, weights, pixels, steps, tap > 0);
                    held.pass_tap(before, tap, first);
                }
            held.pixels_at.next(t.pixel_stages);
        }
    }
    held.finish(before, sums);
}

// The same of x as it lies: of a block of channels 64 of each 64 pixels.
template <class Element, int N>
__device__ __forceinline__ void multiply_straight(const Block &block, Held &held, int ring,
                                                  uint32_t rows, float (&sums)[N / 2]) {
    const Tiling &t = block.tiling;
    TapStages before;
    for (int b = 0; b < block.blocks; ++b) {
        held.wait_for_tap(true);
        const WgmmaLines weights(block.weights(held.weights_at.stage) + rows, LineAlign);
        const WgmmaPlanes pixels(block.pixels(ring, held.pixels_at.stage), StraightBytes);
        const int steps = block.first_block + b + 1 < t.blocks ? Steps : t.last_steps;
        multiply_steps(steps, [&](int i) {
            wgmma_shared<Element, N, true>(sums, weights.behind(i * StepBytes),
                                           pixels.behind(i * (StraightBytes / Steps)),
                                           i > 0 || b > 0);
        });
        held.pass_tap(before, b, true);
        held.pixels_at.next(t.pixel_stages);
    }
    held.finish(before, sums);
}
#endif

} // namespace cf::implicit_nchw
