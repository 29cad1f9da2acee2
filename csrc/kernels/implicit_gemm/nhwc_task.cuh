// The main loop of implicit_gemm_nhwc: a warpgroup's sums, of 64 output channels in N pixels.
#pragma once

#include "kernels/implicit_gemm/nhwc_load.cuh"
#include "kernels/implicit_gemm/steps.cuh"
#include "ptx/barrier_address.cuh"
#include "ptx/load_store.cuh"
#include "ptx/wgmma_shared.cuh"

namespace cf::implicit_gemm {

#if CF_SM90A
// A ring as a warp sees it whose products read it, stage by stage. A stage is handed back by a lane
// to each block that reads the same; lanes for which there is none, and rings that are kept, hand
// nothing back. A tap is taken for a few clocks' work: what does not change is kept in registers.
struct StageWalk {
    WgmmaLines lines; // where the next stage begins
    uint32_t full;    // its barriers: this block's
    uint32_t empty;   // that of the block that the lane tells
    int hands_back;
    uint32_t parity = 0, flip;  // what a round turns the barriers' parity by
    int stage = 0, stages, low; // of descriptors, from stage to stage

    template <class AnyRing>
    __device__ __forceinline__ StageWalk(AnyRing &ring, const WgmmaLines &lines, uint32_t bytes,
                                         int stages, const Peers &peers, bool kept, int lane)
        : lines(lines), full(shared_address(ring.full)),
          empty(address_of(peers.first + min(lane, peers.count - 1) * peers.step,
                           shared_address(ring.empty))),
          hands_back(lane < peers.count && !kept), flip(!kept), stages(stages), low(bytes >> 4) {
        keep(hands_back);
        keep(flip);
        keep(this->stages);
        keep(low);
        keep(this->lines.high);
    }
    __device__ __forceinline__ void next() {
        lines.low += low, full += sizeof(Barrier), empty += sizeof(Barrier);
        if (++stage < stages)
            return;
        stage = 0;
        lines.low -= stages * low;
        full -= stages * uint32_t(sizeof(Barrier)), empty -= stages * uint32_t(sizeof(Barrier));
        parity ^= flip;
    }
};

// A barrier at which a lane arrives, or does not.
struct Arrival {
    uint32_t barrier;
    int arrives = 0;

    __device__ __forceinline__ void operator()() const {
        arrive_at_cluster_address(barrier, arrives);
    }
};

// A warpgroup's place in both rings, and in the taps of a load of pixels.
struct TapReader {
    StageWalk pixels, weights;
    uint32_t line; // where the pixels of the next tap begin, as descriptors say it
    int column = 0, tap = 0;
    int columns, taps, from_tap, from_row; // of a load, and from one to the next
    int lead;                              // taps until the other warpgroup may begin

    __device__ __forceinline__ TapReader(const Block &block, int ring, uint32_t rows, int lead,
                                         int lane)
        : TapReader(block, block.tiling, ring, rows, lead, lane) {}
    // Until what the next tap reads is there: of pixels once more, where a tap before read them.
    __device__ __forceinline__ void wait() const {
        wait_at_addresses({weights.full, pixels.full}, {weights.parity, pixels.parity});
    }
    __device__ __forceinline__ WgmmaLines lines() const {
        WgmmaLines at = pixels.lines;
        at.low = line;
        return at;
    }
    // Says which stages the tap was the last one to read.
    __device__ __forceinline__ void next(Arrival &of_weights, Arrival &of_pixels) {
        of_weights = {weights.empty, weights.hands_back};
        weights.next();
        const bool last = ++tap == taps;
        of_pixels = {pixels.empty, last ? pixels.hands_back : 0};
        line += from_tap;
        if (++column == columns) {
            column = 0;
            line += from_row;
        }
        if (last) {
            tap = 0;
            pixels.next();
            line = pixels.lines.low;
        }
    }

  private:
    __device__ __forceinline__ TapReader(const Block &block, const Tiling &t, int ring,
                                         uint32_t rows, int lead, int lane)
        : pixels(block.shared.pixels[ring], {block.pixels(ring, 0), uint32_t(t.group_bytes)},
                 t.pixel_stage_bytes, t.pixel_stages, block.of_pixels, false, lane),
          weights(block.shared.weights, {block.weights(0) + rows, LineAlign}, t.weight_stage_bytes,
                  t.weight_stages, block.of_weights, !t.reload_weights, lane),
          line(pixels.lines.low), columns(t.tap_columns), taps(t.tap_rows * t.tap_columns),
          from_tap(t.tap_bytes >> 4), from_row((t.tap_row_bytes - columns * t.tap_bytes) >> 4),
          lead(lead) {
        keep(columns);
        keep(taps);
        keep(from_tap);
        keep(from_row);
    }
};

// The sums of a tile, from nothing. A stage is handed back when the products behind those that read
// it are on their way, and those themselves are done. Narrow products take less time than an
// instruction waits for another, so a tap has few of them; those of fewer steps come by themselves.
template <class Element, int N>
__device__ __forceinline__ void multiply_tile(const Block &block, TapReader &at, int lane,
                                              float (&sums)[N / 2]) {
    const Tiling &t = block.tiling;
    const bool is_partial = block.first_block + block.blocks == t.blocks && t.last_steps < Steps;
    const int taps = block.blocks * t.taps, whole = is_partial ? taps - t.taps : taps;
    Arrival of_weights = {at.weights.empty}, of_pixels = {at.pixels.empty};
    const auto pass_tap = [&] {
        wgmma_commit();
        wgmma_wait<1>();
        of_weights();
        of_pixels();
        if (--at.lead == 0 && lane == 0)
            block.shared.lead.arrive();
        at.next(of_weights, of_pixels);
    };
    int tap = 0;
#pragma unroll 1
    for (; tap < whole; ++tap) {
        at.wait();
        const WgmmaLines weights = at.weights.lines, pixels = at.lines();
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < Steps; ++i)
            wgmma_shared<Element, N>(sums, weights.behind(i * StepBytes),
                                     pixels.behind(i * StepBytes), i > 0 || tap > 0);
        pass_tap();
    }
#pragma unroll 1
    for (; tap < taps; ++tap) {
        at.wait();
        const WgmmaLines weights = at.weights.lines, pixels = at.lines();
        const auto multiply = [&](int i) {
            wgmma_shared<Element, N>(sums, weights.behind(i * StepBytes),
                                     pixels.behind(i * StepBytes), i > 0 || tap > 0);
        };
        wgmma_fence();
#pragma unroll 1
        for (int i = 0; i + 1 < t.last_steps; ++i)
            multiply(i);
        multiply(t.last_steps - 1);
        pass_tap();
    }
    wait_for_sums(sums);
    of_weights();
    of_pixels();
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
