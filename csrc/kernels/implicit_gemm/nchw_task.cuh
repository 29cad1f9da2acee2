// The main loop of implicit_gemm_nchw.
#pragma once

#include "kernels/implicit_gemm/held.cuh"
#include "kernels/implicit_gemm/nchw_tiling.cuh"

namespace cf::implicit_nchw {

#if CF_SM90A
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
