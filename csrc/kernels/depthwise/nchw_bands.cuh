// A task of depthwise_nchw on tensor cores: some rows of y of a plane of 16-bit elements, without
// stride.
//
// Row r of the filter adds to 8 neighbouring columns of y products of x with matrices that have its
// taps along a diagonal (Toeplitz matrices), of the 8 columns of x from 8 j on and of the next 8:
//     y[p][8 j + BandLead + n] += sum over k < 16 of x[p + r - pad][8 j + k] band_r[k][n]
// So two halves of a step of mma.sync have a row of the filter for 16 rows and 8 columns, and what
// is multiplied by zeros is free. Columns of x come by ldmatrix, 8 at a time, for all rows that 16
// rows of y meet; they end the sums of some columns of y and begin those of the next.
#pragma once

#include "kernels/depthwise/bands.cuh"
#include "kernels/depthwise/nchw_strips.cuh"
#include "ptx/load_store.cuh"
#include "ptx/mma_half.cuh"

namespace cf::depthwise_nchw {

#if CF_SM90
// 8 columns of x in all rows that 16 rows of y meet: for each row of the filter units
// [g][t] and [g + 8][t], and those of one more.
template <class Shape>
struct Columns8 {
    static constexpr int Pairs = (Shape::R + 1) / 2; // rows of the filter that are loaded together
    uint32_t pair[Pairs][4];

    __device__ __forceinline__ void add_to(Fragment<typename Shape::Stored, float> &sums,
                                           const Bands<Shape::R> &bands, int half) const {
#pragma unroll
        for (int r = 0; r < Shape::R; ++r)
            add_half(sums, pair[r / 2][r % 2 * 2], pair[r / 2][r % 2 * 2 + 1], bands.word[r][half]);
    }
};

// Where a lane's rows of x lie for ldmatrix, from the left to the right. Rows outside of x are read
// from a place that holds zeros.
template <class Shape>
class LaneRows {
    static constexpr int Pairs = Columns8<Shape>::Pairs;
    uint32_t at[Pairs], step[Pairs];

  public:
    // 16 rows of y meet row `row` of the strip's `count` rows first, that at `first`.
    __device__ __forceinline__ LaneRows(int row, int count, uint32_t first, uint32_t pitch,
                                        uint32_t zeros, int lane) {
#pragma unroll
        for (int i = 0; i < Pairs; ++i) {
            const int below = 2 * i + lane / 16 + lane % 16;
            const bool inside = unsigned(row + below) < unsigned(count);
            at[i] = inside ? first + below * pitch : zeros;
            step[i] = inside ? 16 : 0;
            keep(step[i]); // or each column would ask anew
        }
    }
    __device__ __forceinline__ void load(Columns8<Shape> &x) {
#pragma unroll
        for (int i = 0; i < Pairs; ++i) {
            load_matrices(x.pair[i], at[i]);
            at[i] += step[i];
        }
    }
};

// Where a lane's sums go: two neighbours in row g of y, and two in row g + 8.
struct BandOutput {
    int64_t place; // of row g's beginning in y
    int channel, column;
    uint32_t at, below; // in shared memory, where the strip's are gathered; from row g to row g + 8
    int columns[2];     // of the two rows; none where they do not exist

    __device__ __forceinline__ bool live(int half) const {
        return unsigned(column) < unsigned(columns[half]);
    }
};

// For core/fragment_epilogue.cuh.
template <class Sums>
struct BandMap {
    Sums &sums;
    const BandOutput &output;
    int q;

    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
        body(output.channel, Constant<4>(), [&](int i) -> float & { return sums.value[i]; });
    }
    template <class T, class Body>
    __device__ __forceinline__ void for_runs(T *tensor, Body body) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
            body(Constant<2>(), tensor + output.place + output.column + half * 8 * q,
                 output.live(half), [&](int i) -> float & { return sums.value[2 * half + i]; });
    }
};

template <class Shape, class Sums>
__device__ __forceinline__ void store_sums(const Tiling &tiling, Sums &sums,
                                           const BandOutput &output, const Finish &finish) {
    using Stored = typename Shape::Stored;
    // By itself, so that it costs one branch where there is none.
    if (tiling.finishes) {
        const BandMap<Sums> map = {sums, output, tiling.q};
        finish_fragment<Stored>(finish, tiling.c, map);
        if (tiling.activation != CF_ACT_NONE)
#pragma unroll
            for (float &sum : sums.value)
                sum = activate_keeping_nan(tiling.activation, sum);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float v[2] = {sums.value[2 * half], sums.value[2 * half + 1]};
        store_neighbours<Stored>(output.at + half * output.below, output.live(half), v);
    }
}

// All columns of 16 rows of y, 8 at a time; the first of them lie beside the plane.
template <class Shape>
__device__ __forceinline__ void compute_columns(const Tiling &tiling, LaneRows<Shape> &rows,
                                                const Bands<Shape::R> &bands, BandOutput &output,
                                                const Finish &finish) {
    using Sums = Fragment<typename Shape::Stored, float>;
    const int columns = (tiling.q + 8 - BandLead + 7) / 8;
    int whole = tiling.w / 8;
    keep(whole);
    // Columns of x that end `sums` and begin `next`.
    const auto compute = [&](int number, Sums &sums, Sums &next) {
        next = {};
        if (number < whole) {
            Columns8<Shape> x;
            rows.load(x);
            x.add_to(sums, bands, 1);
            x.add_to(next, bands, 0);
        }
        store_sums<Shape>(tiling, sums, output, finish);
        output.at += 8 * Shape::Size, output.column += 8;
    };
    Sums one, other;
#pragma unroll 1
    for (int number = 0; number < columns; number += 2) {
        compute(number, one, other);
        if (number + 1 < columns)
            compute(number + 1, other, one);
    }
}

// Task `number` of a strip in stage `stage`, by a warp: some rows of y of a plane, 16 at a time.
// The strip's first row of x lies at `rows`.
template <class Shape>
__device__ __forceinline__ void
compute_bands(const Strips &strips, const Strip &strip, int stage, uint32_t rows, uint32_t gathered,
              int number, int lane, uint32_t zeros, const typename Shape::Stored *w,
              const Finish &finish) {
    const Tiling &tiling = strips.tiling;
    const int plane = tiling.by_pieces.quotient(number);
    const int first = (number - plane * tiling.pieces) * tiling.rows; // in the strip
    const int end = plane < strip.planes ? min(first + tiling.rows, strip.rows) : 0;
    if (first >= end)
        return;
    const int channel = strips.channel(strip.plane + plane);
    Bands<Shape::R> bands;
    bands.template load<1, BandLead, Shape::R / 2>(strips.filter<Shape>(w, stage, plane, channel),
                                                   lane);
    const uint32_t pitch = tiling.w * Shape::Size;
    const int64_t y_row = int64_t(strip.plane + plane) * tiling.p + strip.row;
    const int column = 2 * (lane % 4) + BandLead - 8;
#pragma unroll 1
    for (int p = first; p < end; p += BandRows) {
        const int row = strip.row + p - tiling.pad_top - strip.from, line = p + lane / 4;
        LaneRows<Shape> lane_rows(row, strip.count, rows + (plane * tiling.h + row) * pitch, pitch,
                                  zeros, lane);
        BandOutput output;
        output.place = (y_row + line) * tiling.q;
        output.channel = channel;
        output.column = column;
        output.at = gathered + ((plane * strip.rows + line) * tiling.q + column) * Shape::Size;
        output.below = 8 * tiling.q * Shape::Size;
        output.columns[0] = line < end ? tiling.q : 0;
        output.columns[1] = line + 8 < end ? tiling.q : 0;
        compute_columns<Shape>(tiling, lane_rows, bands, output, finish);
    }
}
#endif

} // namespace cf::depthwise_nchw
