// The main loop of implicit_gemm_nhwc: a warpgroup's sums, of 64 output channels in N pixels.
#pragma once

#include "kernels/implicit_gemm/nhwc_load.cuh"
#include "kernels/implicit_gemm/steps.cuh"
#include "ptx/barrier_address.cuh"
#include "ptx/load_store.cuh"
#include "ptx/wgmma_shared.cuh"

namespace cf::implicit_gemm {

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
// the weights of a stage. Narrow products take less time than an instruction waits for another, so
// a tap has few of them, and branches only where it is the last one of something.
template <class Element, int N>
__device__ __forceinline__ void multiply_tile(const Block &block, Held &held, int ring,
                                              uint32_t rows, float (&sums)[N / 2]) {
    const Tiling &t = block.tiling;
    const bool is_partial = block.first_block + block.blocks == t.blocks && t.last_steps < Steps;
    const int taps = block.blocks * t.taps, whole = is_partial ? taps - t.taps : taps;
    TapStages before;
    int r = 0, s = 0;
    uint32_t row = block.pixels(ring, held.pixels_at.stage), line = row;
#pragma unroll 1
    for (int tap = 0; tap < taps; ++tap) {
        const bool first = (r | s) == 0;
        held.wait_for_tap(first);
        const WgmmaLines weights(block.weights(held.weights_at.stage) + rows, LineAlign);
        multiply_tap<Element, N>(sums, weights, WgmmaLines(line, t.group_bytes),
                                 tap < whole ? Steps : t.last_steps, tap > 0);
        held.pass_tap(before, tap, first);
        line += t.tap_bytes;
        if (++s < t.tap_columns)
            continue;
        s = 0;
        line = row += t.tap_row_bytes;
        if (++r < t.tap_rows)
            continue;
        r = 0;
        held.pixels_at.next(t.pixel_stages);
        line = row = block.pixels(ring, held.pixels_at.stage);
    }
    held.finish(before, sums);
}

// What a tap reads, tap by tap, of a tile whose stages are all filled once.
struct TapWalk {
    const Tiling &tiling;
    uint32_t full_pixels, full_weights; // barriers
    uint32_t weights;
    uint32_t load; // of pixels
    uint32_t row;  // of taps in it
    uint32_t line; // of the tap in that
    int tap_row = 0, tap_column = 0;

    __device__ __forceinline__ TapWalk(const Block &block, int ring, uint32_t rows)
        : tiling(block.tiling), full_pixels(shared_address(block.shared.pixels[ring].full)),
          full_weights(shared_address(block.shared.weights.full)), weights(block.weights(0) + rows),
          load(block.pixels(ring, 0)), row(load), line(load) {}
    __device__ __forceinline__ void next() {
        full_weights += sizeof(Barrier);
        weights += tiling.weight_stage_bytes;
        line += tiling.tap_bytes;
        if (++tap_column < tiling.tap_columns)
            return;
        tap_column = 0;
        line = row += tiling.tap_row_bytes;
        if (++tap_row < tiling.tap_rows)
            return;
        tap_row = 0;
        full_pixels += sizeof(Barrier);
        line = row = load += tiling.pixel_stage_bytes;
    }
};

// The next taps' products, as a group; added to what the sums are.
template <int Count, class Element, int N>
__device__ __forceinline__ void multiply_taps(TapWalk &at, float (&sums)[N / 2]) {
    uint32_t full[2 * Count], weights[Count], lines[Count];
    constexpr uint32_t zeros[2 * Count] = {};
#pragma unroll
    for (int i = 0; i < Count; ++i, at.next()) {
        full[i] = at.full_pixels, full[Count + i] = at.full_weights;
        weights[i] = at.weights, lines[i] = at.line;
    }
    wait_at_addresses(full, zeros);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < Count; ++i) {
        const WgmmaLines a(weights[i], LineAlign), b(lines[i], at.tiling.group_bytes);
#pragma unroll
        for (int step = 0; step < Steps; ++step)
            wgmma_shared<Element, N>(sums, a.behind(step * StepBytes), b.behind(step * StepBytes),
                                     true);
    }
    wgmma_commit();
}

// The same sums where a block reads all that its only tile takes at once: no stage is handed back,
// so the warpgroup waits for no products but the last. Narrow ones take less time than what is done
// around a tap.
template <class Element, int N>
__device__ __forceinline__ void multiply_once(const Block &block, int ring, uint32_t rows,
                                              float (&sums)[N / 2]) {
    constexpr int Together = 4;
    const Tiling &t = block.tiling;
    TapWalk at(block, ring, rows);
    const int taps = block.blocks * t.taps;
    int done = 0;
    for (; done + Together <= taps; done += Together)
        multiply_taps<Together, Element, N>(at, sums);
    for (; done < taps; ++done)
        multiply_taps<1, Element, N>(at, sums);
    wait_for_sums(sums);
}
#endif

} // namespace cf::implicit_gemm
