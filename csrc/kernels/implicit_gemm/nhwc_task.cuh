// The main loop of implicit_gemm_nhwc: a warpgroup's sums, of 64 output channels in N pixels.
#pragma once

#include "kernels/implicit_gemm/nhwc_load.cuh"
#include "kernels/implicit_gemm/steps.cuh"
#include "ptx/barrier_address.cuh"
#include "ptx/wgmma_shared.cuh"

namespace cf::implicit_gemm {

#if CF_SM90A
// What a warpgroup holds of both rings: it hands a stage back when the products behind those that
// read it are on their way, and those themselves are done.
struct Held {
    const Block &block;
    PixelRing &pixels;
    uint32_t full_pixels, full_weights; // addresses of the first stages' barriers
    RingPosition pixels_at, weights_at;
    int pixel_stage = 0, weight_stage = 0; // of the products before
    int lead;                              // taps until the other warpgroup may begin
    int lane;

    __device__ __forceinline__ Held(const Block &block, int ring, int lead, int lane)
        : block(block), pixels(block.shared.pixels[ring]), full_pixels(shared_address(pixels.full)),
          full_weights(shared_address(block.shared.weights.full)), lead(lead), lane(lane) {
        keep(full_pixels);
        keep(full_weights);
    }
    __device__ __forceinline__ void release_weights() {
        if (block.tiling.reload_weights)
            block.of_weights.release(block.shared.weights.empty[weight_stage], lane);
    }
    __device__ __forceinline__ void release_pixels() {
        block.of_pixels.release(pixels.empty[pixel_stage], lane);
    }
    __device__ __forceinline__ void let_other_begin() {
        if (--lead == 0 && lane == 0)
            block.shared.lead.arrive();
    }
    __device__ __forceinline__ void wait_for_pixels() {
        wait_at_address(full_pixels + pixels_at.stage * sizeof(Barrier), pixels_at.parity());
    }
    __device__ __forceinline__ void wait_for_weights() {
        wait_at_address(full_weights + weights_at.stage * sizeof(Barrier),
                        weights_at.parity() & block.tiling.reload_weights);
    }
    // Behind the products of a stage of weights: those before are done, so what they read is handed
    // back, pixels with the first products of the stage behind. `add`: there were some.
    __device__ __forceinline__ void pass_stage(bool first_of_pixels, bool &add) {
        wgmma_wait<1>();
        let_other_begin();
        if (add) {
            release_weights();
            if (first_of_pixels)
                release_pixels();
        }
        add = true;
        weight_stage = weights_at.stage;
        pixel_stage = pixels_at.stage;
        weights_at.next(block.tiling.weight_stages);
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

// The end of a tile's sums: the last stages are handed back.
template <int Count>
__device__ __forceinline__ void finish_sums(Held &held, float (&sums)[Count]) {
    wait_for_sums(sums);
    held.release_weights();
    held.release_pixels();
}

// The sums of a tile, from nothing; `ring` of pixels, and where the warpgroup's rows begin among
// the weights of a stage.
template <class Element, int N>
__device__ __forceinline__ void multiply_tile(const Block &block, Held &held, int ring,
                                              uint32_t rows, float (&sums)[N / 2]) {
    const Tiling &t = block.tiling;
    bool add = false;
    for (int b = 0; b < block.blocks; ++b) {
        const int steps = block.first_block + b + 1 < t.blocks ? Steps : t.last_steps;
        for (int load = 0; load < t.load_rows * t.load_columns; ++load) {
            held.wait_for_pixels();
            uint32_t row = block.pixels(ring, held.pixels_at.stage);
            for (int r = 0; r < t.tap_rows; ++r, row += t.tap_row_bytes) {
                uint32_t line = row;
                for (int s = 0; s < t.tap_columns; ++s, line += t.tap_bytes) {
                    held.wait_for_weights();
                    const WgmmaLines weights(block.weights(held.weights_at.stage) + rows,
                                             LineAlign);
                    multiply_tap<Element, N>(sums, weights, WgmmaLines(line, t.group_bytes), steps,
                                             add);
                    held.pass_stage(r + s == 0, add);
                }
            }
            held.pixels_at.next(t.pixel_stages);
        }
    }
    finish_sums(held, sums);
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
#pragma unroll
    for (int i = 0; i < Count; ++i, at.next()) {
        full[i] = at.full_pixels, full[Count + i] = at.full_weights;
        weights[i] = at.weights, lines[i] = at.line;
    }
    wait_at_addresses(full);
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
