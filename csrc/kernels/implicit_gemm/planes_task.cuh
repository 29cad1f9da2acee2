// The main loop of implicit_gemm_planes: a warpgroup's sums, of some pixels in N output channels.
#pragma once

#include "kernels/implicit_gemm/planes_load.cuh"
#include "kernels/implicit_gemm/pointwise_task.cuh"

namespace cf::planes {

#if CF_SM90A
using pointwise::nearest_tf32, pointwise::Pixel;

// Where a lane's two neighbouring pixels of a product lie: of each row of taps it reads their two
// columns of x, and one on either side.
struct Window {
    int y_row;        // of the image
    int at;           // pixels from the first that is copied to those under the first row of taps
    bool left, right; // whether the columns on either side are inside of x

    // Of product i of a warpgroup, whose first pixel of the image is `first`.
    template <int Products>
    static __device__ __forceinline__ Window of(const Tiling &t, int i, int first, int warp,
                                                int lane) {
        const int in_piece = Pixel::of<Products>(t, i, 0, warp, lane).pixel;
        const int pixel = min(first + in_piece, t.pixels - 2);
        const int row = t.by_row_pixels.quotient(pixel), column = pixel - row * t.width;
        const int copied = t.boxes == 0 ? pixel : warp / 4 * t.piece_pixels + in_piece - t.run;
        return {row, copied - t.pad_top * t.width, column > 0, column + 2 < t.width};
    }
    // Whether a row of taps falls on x.
    __device__ __forceinline__ bool has(const Tiling &t, int r) const {
        return unsigned(y_row + r * t.row_step - t.pad_top) < unsigned(t.height);
    }
    // Where the two columns under a row of taps lie in a stage, in bytes; of a row outside of x
    // where others do.
    template <class Element>
    __device__ __forceinline__ int place(const Tiling &t, int r) const {
        const int in_row = at + r * t.row_step * t.width;
        if (t.boxes == 0)
            return Margin + (has(t, r) ? in_row : 0) * int(sizeof(Element));
        // The box is that which has the column before, too.
        const int box = t.by_box_step.quotient(in_row - 2);
        return box * t.box_bytes + (in_row - box * t.box_step) * int(sizeof(Element));
    }
};

// Steps whose registers are loaded together, as many as there are registers for.
template <int Products, int N>
constexpr int StepsAtOnce = Products > 1 && Products *N > 128 ? Steps / 2 : Steps;

// A lane's channels of a row of taps, four columns of x by steps and halves of a step: tap s takes
// column s for the first pixel, s + 1 for the other one.
template <int Products, int AtOnce>
using Fragment = uint32_t[Products][AtOnce][2][Columns + 1];

// The four columns of a channel: in 16 bits three words, of which the outer ones' inner halves.
template <class Element>
struct FourColumns {
    static constexpr int Words = sizeof(Element) == 4 ? 4 : 3;
    uint32_t word[Words];

    __device__ __forceinline__ FourColumns(uint32_t at, bool there) {
        word[0] = load_shared(at - 4);
        if constexpr (sizeof(Element) == 4) {
            const uint2 two = load_shared2(at);
            word[1] = two.x, word[2] = two.y;
        } else {
            word[1] = load_shared(at);
        }
        word[Words - 1] = load_shared(at + (sizeof(Element) == 4 ? 8 : 4));
#pragma unroll
        for (int i = 0; i < Words; ++i)
            word[i] = there ? word[i] : 0;
    }
};

// Registers of wgmma_rows for half a step, of the lane's channels behind `at`.
template <class Element, bool Whole>
__device__ __forceinline__ void load_columns(const Tiling &t, uint32_t at, int half_step, int bytes,
                                             uint32_t (&columns)[Columns + 1]) {
    constexpr int Own = sizeof(Element) == 4 ? 1 : 2;
    const auto of = [&](int i) {
        const int behind = t.channel_bytes[half_step * Own + i];
        return FourColumns<Element>(at + behind, Whole || behind < bytes);
    };
    const auto one = of(0);
    if constexpr (sizeof(Element) == 4) {
#pragma unroll
        for (int i = 0; i <= Columns; ++i)
            columns[i] = nearest_tf32(one.word[i]);
    } else {
        const auto other = of(1);
        columns[0] = __byte_perm(one.word[0], other.word[0], 0x7632);
        columns[1] = __byte_perm(one.word[1], other.word[1], 0x5410);
        columns[2] = __byte_perm(one.word[1], other.word[1], 0x7632);
        columns[3] = __byte_perm(one.word[2], other.word[2], 0x5410);
    }
}

// Those of a row of taps, from this step on.
template <class Element, bool Whole, int Products, int AtOnce>
__device__ __forceinline__ void load_row(const Tiling &t, const Window (&windows)[Products], int r,
                                         int first_step, uint32_t stage, int lane,
                                         Fragment<Products, AtOnce> &fragment) {
    const int first = (lane % 4 << t.order) * t.pitch;
#pragma unroll
    for (int i = 0; i < Products; ++i) {
        const Window &window = windows[i];
        const uint32_t at = stage + first + window.place<Element>(t, r);
        const uint32_t row = window.has(t, r) ? ~0u : 0;
        const uint32_t inside[Columns + 1] = {window.left ? row : 0, row, row,
                                              window.right ? row : 0};
#pragma unroll
        for (int step = 0; step < AtOnce; ++step)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                auto &columns = fragment[i][step][half];
                load_columns<Element, Whole>(t, at, (first_step + step) * 2 + half,
                                             t.last_channels * t.pitch - first, columns);
#pragma unroll
                for (int c = 0; c <= Columns; ++c)
                    columns[c] &= inside[c];
            }
    }
}

// Those steps of a row's taps. A warpgroup waits for its products before it loads the next
// registers (pointwise_task.cuh says why).
template <class Element, int N, int Products, int AtOnce>
__device__ __forceinline__ void multiply_row(const uint32_t (&weights)[Columns], int first_step,
                                             const Fragment<Products, AtOnce> &fragment, bool add,
                                             float (&sums)[Products][N / 2]) {
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < Columns; ++s) {
        const WgmmaLines lines(weights[s], LineAlign);
#pragma unroll
        for (int step = 0; step < AtOnce; ++step)
#pragma unroll
            for (int i = 0; i < Products; ++i) {
                const auto &halves = fragment[i][step];
                const uint32_t rows[4] = {halves[0][s], halves[0][s + 1], halves[1][s],
                                          halves[1][s + 1]};
                wgmma_rows<Element, N>(sums[i], rows, lines.behind((first_step + step) * StepBytes),
                                       s > 0 || step > 0 || add);
            }
    }
    wgmma_commit();
    wgmma_wait<0>();
}

// A block of channels under a row of taps.
template <class Element, int N, bool Whole, int Products>
__device__ __forceinline__ void multiply_row(const Tiling &t, Shared &shared, uint32_t dynamic,
                                             const Window (&windows)[Products], int r,
                                             uint32_t stage, int lane, bool add, RingPosition &at,
                                             float (&sums)[Products][N / 2]) {
    constexpr int AtOnce = StepsAtOnce<Products, N>;
    RingPosition taps[Columns];
    uint32_t weights[Columns];
#pragma unroll
    for (int first_step = 0; first_step < Steps; first_step += AtOnce) {
        Fragment<Products, AtOnce> fragment;
        load_row<Element, Whole>(t, windows, r, first_step, stage, lane, fragment);
#pragma unroll
        for (int s = 0; s < Columns && first_step == 0; ++s, at.next(t.weight_stages)) {
            weights[s] = weight_stage(t, dynamic, at);
            shared.weights.wait_full(taps[s] = at);
        }
        multiply_row<Element, N>(weights, first_step, fragment, add || first_step > 0, sums);
    }
#pragma unroll
    for (int s = 0; s < Columns; ++s)
        shared.weights.release(taps[s]);
}

// The sums of a tile, from nothing.
template <class Element, int Products, int N>
__device__ __forceinline__ void
multiply(const Tiling &t, Shared &shared, uint32_t dynamic, const Place &place, int warp, int lane,
         RingPosition &planes, RingPosition &weights, float (&sums)[Products][N / 2]) {
    Window windows[Products];
#pragma unroll
    for (int i = 0; i < Products; ++i)
        windows[i] = Window::of<Products>(t, i, place.piece * t.piece_pixels, warp, lane);
#pragma unroll 1
    for (int b = 0; b < t.blocks; ++b, planes.next(t.stages)) {
        const uint32_t stage = plane_stage(t, dynamic, planes);
        shared.planes.wait_full(planes);
#pragma unroll 1
        for (int r = 0; r < t.rows; ++r) {
            const bool add = r > 0 || b > 0;
            if (b + 1 < t.blocks)
                multiply_row<Element, N, true>(t, shared, dynamic, windows, r, stage, lane, add,
                                               weights, sums);
            else
                multiply_row<Element, N, false>(t, shared, dynamic, windows, r, stage, lane, add,
                                                weights, sums);
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
