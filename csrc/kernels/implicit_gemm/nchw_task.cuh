// The main loop of implicit_gemm_nchw: that of implicit_gemm_nhwc, but for where taps begin.
#pragma once

#include "kernels/implicit_gemm/nchw_plan.cuh"
#include "kernels/implicit_gemm/nhwc_task.cuh"

namespace cf::implicit_nchw {

#if CF_SM90A
// The sums of a tile, from nothing; `ring` of pixels, and where the warpgroup's rows begin among
// the weights of a stage.
template <class Element, int N>
__device__ __forceinline__ void multiply_planes(const Block &block, const Planes &planes,
                                                Held &held, int ring, uint32_t rows,
                                                float (&sums)[N / 2]) {
    const Tiling &t = block.tiling;
    bool add = false;
    for (int b = 0; b < block.blocks; ++b) {
        const int steps = block.first_block + b + 1 < t.blocks ? Steps : t.last_steps;
        for (int load = 0; load < t.load_rows * t.load_columns; ++load) {
            held.wait_for_pixels();
            publish_to_bulk_copies(); // what loaders wrote, to wgmma
            uint32_t row = block.pixels(ring, held.pixels_at.stage);
            for (int r = 0; r < t.tap_rows; ++r, row += t.tap_row_bytes)
                for (int s = 0; s < t.tap_columns; ++s) {
                    held.wait_for_weights();
                    const WgmmaLines weights(block.weights(held.weights_at.stage) + rows,
                                             LineAlign);
                    const WgmmaLines pixels(row + tap_line(planes, s * t.column_offset),
                                            t.group_bytes);
                    multiply_tap<Element, N>(sums, weights, pixels, steps, add);
                    wgmma_wait<1>();
                    held.let_other_begin();
                    if (add) {
                        held.release_weights();
                        if (r + s == 0)
                            held.release_pixels();
                    }
                    add = true;
                    held.weight_stage = held.weights_at.stage;
                    held.pixel_stage = held.pixels_at.stage;
                    held.weights_at.next(t.weight_stages);
                }
            held.pixels_at.next(t.pixel_stages);
        }
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
        settle(sums[i]);
    held.release_weights();
    held.release_pixels();
}

// The same of x as it lies: of a block of channels 64 of each 64 pixels.
template <class Element, int N>
__device__ __forceinline__ void multiply_straight(const Block &block, Held &held, int ring,
                                                  uint32_t rows, float (&sums)[N / 2]) {
    const Tiling &t = block.tiling;
    bool add = false;
    for (int b = 0; b < block.blocks; ++b) {
        held.wait_for_pixels();
        held.wait_for_weights();
        const WgmmaLines weights(block.weights(held.weights_at.stage) + rows, LineAlign);
        const WgmmaPlanes pixels(block.pixels(ring, held.pixels_at.stage), StraightBytes);
        const auto multiply = [&](int i) {
            wgmma_shared<Element, N, true>(sums, weights.behind(i * StepBytes),
                                           pixels.behind(i * (StraightBytes / Steps)),
                                           i > 0 || add);
        };
        // A group in either branch: the compiler would begin one of its own behind both.
        wgmma_fence();
        const int steps = block.first_block + b + 1 < t.blocks ? Steps : t.last_steps;
        if (steps == Steps) {
#pragma unroll
            for (int i = 0; i < Steps; ++i)
                multiply(i);
            wgmma_commit();
        } else {
#pragma unroll 1
            for (int i = 0; i + 1 < steps; ++i)
                multiply(i);
            multiply(steps - 1);
            wgmma_commit();
        }
        wgmma_wait<1>();
        held.let_other_begin();
        if (add) {
            held.release_weights();
            held.release_pixels();
        }
        add = true;
        held.weight_stage = held.weights_at.stage;
        held.pixel_stage = held.pixels_at.stage;
        held.weights_at.next(t.weight_stages);
        held.pixels_at.next(t.pixel_stages);
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
        settle(sums[i]);
    held.release_weights();
    held.release_pixels();
}
#endif

} // namespace cf::implicit_nchw
