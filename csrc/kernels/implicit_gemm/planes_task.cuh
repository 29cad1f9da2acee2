// The main loop of implicit_gemm_planes: a warpgroup's sums, of some pixels in N output channels.
#pragma once

#include "kernels/implicit_gemm/planes_load.cuh"
#include "kernels/implicit_gemm/planes_window.cuh"

namespace cf::planes {

#if CF_SM90A
// A lane's channels of a row of taps, columns of x by steps and halves of a step: tap s takes
// column s for the first pixel, s + Step for the other one.
template <int Products, int AtOnce, int Step>
using Fragment = uint32_t[Products][AtOnce][2][Columns + Step];

// Those from this step on.
template <class Element, bool Whole, int Products, int AtOnce, int Step>
__device__ __forceinline__ void load_row(const Tiling &t, const Window<Step> (&windows)[Products],
                                         int r, int first_step, uint32_t stage, int lane,
                                         Fragment<Products, AtOnce, Step> &fragment) {
    const int first = (lane % 4 << t.order) * t.pitch, behind = t.last_channels * t.pitch - first;
#pragma unroll
    for (int i = 0; i < Products; ++i) {
        const Window<Step> &window = windows[i];
        const uint32_t at = stage + first + window.template place<Element>(t, r);
        const uint32_t row = window.has(t, r) ? ~0u : 0;
        const uint32_t left = window.left ? row : 0, right = window.right ? row : 0;
#pragma unroll
        for (int half_step = 0; half_step < 2 * AtOnce; ++half_step) {
            auto &columns = fragment[i][half_step / 2][half_step % 2];
            load_columns<Element, Step, Whole>(t, at, 2 * first_step + half_step, behind, columns);
            columns[0] &= left, columns[Columns + Step - 1] &= right;
#pragma unroll
            for (int c = 1; c < Columns + Step - 1; ++c)
                columns[c] &= row;
        }
    }
}

// Those steps under one tap, asked for as a group.
template <class Element, int N, int Products, int AtOnce, int Step>
__device__ __forceinline__ void ask_products(uint32_t weights, int tap, int first_step,
                                             const Fragment<Products, AtOnce, Step> &fragment,
                                             bool add, float (&sums)[Products][N / 2]) {
    const WgmmaLines lines(weights, LineAlign);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < AtOnce; ++step)
#pragma unroll
        for (int i = 0; i < Products; ++i) {
            const auto &halves = fragment[i][step];
            const uint32_t rows[4] = {halves[0][tap], halves[0][tap + Step], halves[1][tap],
                                      halves[1][tap + Step]};
            wgmma_rows<Element, N>(sums[i], rows, lines.behind((first_step + step) * StepBytes),
                                   step > 0 || add);
        }
    wgmma_commit();
}

// A block of channels under a row of taps. A tap's weights are handed back when its products are
// done, while those of the next tap run. A warpgroup waits for all of them before it loads the next
// registers (pointwise_task.cuh says why).
template <class Element, int N, bool Whole, int Products, int Step>
__device__ __forceinline__ void multiply_row(const Tiling &t, Shared &shared, uint32_t dynamic,
                                             const Window<Step> (&windows)[Products], int r,
                                             uint32_t stage, int lane, bool add, RingPosition &at,
                                             float (&sums)[Products][N / 2]) {
    constexpr int AtOnce = steps_at_once(Products, N);
    RingPosition taps[Columns];
#pragma unroll
    for (int first_step = 0; first_step < Steps; first_step += AtOnce) {
        const bool last = first_step + AtOnce == Steps;
        Fragment<Products, AtOnce, Step> fragment;
        load_row<Element, Whole, Products, AtOnce>(t, windows, r, first_step, stage, lane,
                                                   fragment);
#pragma unroll
        for (int s = 0; s < Columns; ++s) {
            if (first_step == 0) {
                shared.weights.wait_full(taps[s] = at);
                at.next(t.weight_stages);
            }
            ask_products<Element, N, Products, AtOnce, Step>(weight_stage(t, dynamic, taps[s]), s,
                                                             first_step, fragment,
                                                             add || first_step > 0 || s > 0, sums);
            if (s > 0)
                wgmma_wait<1>();
            if (s > 0 && last)
                shared.weights.release(taps[s - 1]);
        }
        wgmma_wait<0>();
    }
    shared.weights.release(taps[Columns - 1]);
}

// The sums of a tile, from nothing.
template <class Element, int Step, int Products, int N>
__device__ __forceinline__ void
multiply(const Tiling &t, Shared &shared, uint32_t dynamic, const Place &place, int warp, int lane,
         RingPosition &planes, RingPosition &weights, float (&sums)[Products][N / 2]) {
    Window<Step> windows[Products];
#pragma unroll
    for (int i = 0; i < Products; ++i)
        windows[i] =
            Window<Step>::template of<Products>(t, i, place.piece * t.piece_pixels, warp, lane);
#pragma unroll 1
    for (int b = 0; b < t.blocks; ++b, planes.next(t.stages)) {
        const uint32_t stage = plane_stage(t, dynamic, planes);
        shared.planes.wait_full(planes);
#pragma unroll 1
        for (int r = 0; r < t.rows; ++r) {
            const bool add = r > 0 || b > 0;
            if (b + 1 < t.blocks)
                multiply_row<Element, N, true, Products, Step>(t, shared, dynamic, windows, r,
                                                               stage, lane, add, weights, sums);
            else
                multiply_row<Element, N, false, Products, Step>(t, shared, dynamic, windows, r,
                                                                stage, lane, add, weights, sums);
        }
        shared.planes.release(planes);
    }
#pragma unroll
    for (int i = 0; i < Products; ++i)
#pragma unroll
        for (int j = 0; j < N / 2; ++j)
            settle(sums[i][j]);
}
#endif

} // namespace cf::planes
