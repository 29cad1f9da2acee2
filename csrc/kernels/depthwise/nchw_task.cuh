// A task of depthwise_nchw: a thread slides down over rows of x in adjacent columns of a plane.
#pragma once

#include "core/fragment_epilogue.cuh"
#include "kernels/depthwise/nchw_strips.cuh"
#include "ptx/load_over.cuh"

namespace cf::depthwise_nchw {

#if CF_SM90
// The window of a thread: its columns of a row of x, as units of up to a word, and which of these x
// has. The others are zero and stay so: nothing is ever loaded over them.
template <class Shape>
class Window {
    static constexpr int Width = Shape::Sums::Width, Size = Shape::Size, Lead = Shape::Lead;
    static constexpr int UnitBytes = Shape::Vector < 4 ? Shape::Vector : 4;
    static constexpr int UnitColumns = UnitBytes / Size;
    // Units in front of the origin, and all.
    static constexpr int Before = units_of(Lead, UnitColumns, Shape::Vector);
    static constexpr int Units = Before + units_of(Width - Lead, UnitColumns, Shape::Vector);
    static_assert(Before * UnitBytes <= ZerosBefore && (Units - Before) * UnitBytes <= ZerosBehind);

    uint32_t unit[Units] = {};
    uint32_t inside = 0; // a bit for each

    template <int I>
    __device__ __forceinline__ void load_from(uint32_t at) {
        if constexpr (I < Units) {
            constexpr int Offset = (I - Before) * UnitBytes;
            constexpr int Count = loaded_together(I - Before, Units - Before, Shape::Vector);
            const uint32_t live = inside & 1u << I;
            if constexpr (Count == 4)
                load_over<Offset>(live, at, unit[I], unit[I + 1], unit[I + 2], unit[I + 3]);
            else if constexpr (Count == 2)
                load_over<Offset>(live, at, unit[I], unit[I + 1]);
            else if constexpr (UnitBytes == 4)
                load_over<Offset>(live, at, unit[I]);
            else
                load_over_u16<Offset>(live, at, unit[I]);
            load_from<I + Count>(at);
        }
    }
    __device__ __forceinline__ float element(int i) const {
        using Stored = typename Shape::Stored;
        const int column = i - Lead + Before * UnitColumns;
        const uint32_t bits = unit[column / UnitColumns];
        if constexpr (Size == 4)
            return __uint_as_float(bits);
        else
            return widen(reinterpret_cast<const Pack<Stored, 2> &>(bits).v[column % UnitColumns]);
    }

  public:
    // From a column of x on, which may lie in the padding.
    __device__ __forceinline__ Window(int first, int columns) {
#pragma unroll
        for (int i = 0; i < Units; ++i)
            if (unsigned(first + Lead + (i - Before) * UnitColumns) < unsigned(columns))
                inside |= 1u << i;
        keep(inside); // or rows would ask anew
    }
    // The row whose origin lies there.
    __device__ __forceinline__ void load(uint32_t at, float (&x)[Width][1]) {
        load_from<0>(at);
#pragma unroll
        for (int i = 0; i < Width; ++i)
            x[i][0] = element(i);
    }
};

// A plane's filter, whose words begin at `at`.
template <class Shape>
__device__ __forceinline__ void load_weights(uint32_t at, typename Shape::Weights &weights) {
#pragma unroll
    for (int tap = 0; tap < Shape::R * Shape::R; ++tap) {
        float &weight = weights.value[tap / Shape::R][tap % Shape::R][0];
        if constexpr (Shape::Size == 4) {
            weight = load_shared_f32(at + tap * 4);
        } else {
            const auto bits = uint16_t(load_shared_u16(at + tap * 2));
            weight = widen(reinterpret_cast<const typename Shape::Stored &>(bits));
        }
    }
}

// Where a task's rows of y go.
struct Output {
    int64_t place; // of its first element in y
    uint32_t at;   // in shared memory, where the strip's are gathered
    int channel, columns, rows;
    char *to; // in y
};

// The oldest row of sums of adjacent columns of a plane, for core/fragment_epilogue.cuh, in runs of
// so many.
template <class Sums, int Together>
struct PlaneOutputMap {
    Sums &sums;
    int64_t place; // of the first sum in y
    int channel, columns;

    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
        body(channel, Constant<Sums::Columns>(),
             [&](int q) -> float & { return sums.oldest(q, 0); });
    }
    template <class T, class Body>
    __device__ __forceinline__ void for_runs(T *tensor, Body body) {
#pragma unroll
        for (int q = 0; q < Sums::Columns; q += Together)
            body(Constant<Together>(), tensor + place + q, q < columns,
                 [&](int i) -> float & { return sums.oldest(q + i, 0); });
    }
};

// The oldest row of sums, the task's row number `row` of y.
template <int Together, class Shape>
__device__ __forceinline__ void finish_row(const Tiling &tiling, const Output &output, int row,
                                           typename Shape::Sums &sums, const Finish &finish) {
    using Stored = typename Shape::Stored;
    static_assert(Shape::Columns % Together == 0, "whole runs");
    const int columns = row < output.rows ? output.columns : 0;
    // By itself, so that it costs one branch where there is none.
    if (__builtin_expect(tiling.finishes, 0)) {
        const PlaneOutputMap<typename Shape::Sums, Together> map = {
            sums, output.place + int64_t(row) * tiling.q, output.channel, columns};
        finish_fragment<Stored>(finish, tiling.c, map);
        sums.activate_oldest(tiling.activation);
    }
#pragma unroll
    for (int q = 0; q < Shape::Columns; q += Together) {
        float v[Together];
#pragma unroll
        for (int i = 0; i < Together; ++i)
            v[i] = sums.oldest(q + i, 0);
        if constexpr (Shape::StoresDirectly)
            store_neighbours<Stored>(output.to + q * Shape::Size, q < columns, v);
        else
            store_neighbours<Stored>(output.at + q * Shape::Size, q < columns, v);
    }
}

// A thread's task of a strip: as many rows of y as `tiling` says in adjacent columns, the first of
// which meets row `row` of the strip's `count` rows of x, that at `at`.
template <int Together, class Shape>
__device__ __forceinline__ void compute_task(const Tiling &tiling, Window<Shape> &window, int row,
                                             int count, uint32_t at, uint32_t zeros,
                                             const typename Shape::Weights &weights, Output output,
                                             const Finish &finish) {
    const uint32_t pitch = tiling.w * Shape::Size;
    typename Shape::Sums sums = {};
    const int first = Shape::Sums::Rows - 1;
#pragma unroll 1
    for (int step = 0; step < tiling.rows + first; ++step) {
        const auto load = [&](int, float(&x)[Shape::Sums::Width][1]) {
            window.load(unsigned(row) < unsigned(count) ? at : zeros, x);
            ++row;
            at += pitch;
        };
        const int least = step - tiling.rows + 1;
        if (!Shape::AsksAlways && step >= first && least <= 0)
            sums.template step<false>(weights, 0, first, load);
        else
            sums.template step<true>(weights, least, step, load);
        if (step < first)
            continue;
        finish_row<Together, Shape>(tiling, output, step - first, sums, finish);
        output.at += tiling.q * Shape::Size;
        output.to += tiling.q * Shape::Size;
    }
}

// Task `number` of a strip in stage `stage`, whose first row of x lies at `rows`.
template <class Shape>
__device__ __forceinline__ void compute_task(const Strips &strips, const Strip &strip, int stage,
                                             uint32_t rows, uint32_t gathered, int number,
                                             uint32_t scratch, const typename Shape::Stored *w,
                                             typename Shape::Stored *y, const Finish &finish) {
    const Tiling &tiling = strips.tiling;
    const int task = min(number, tiling.tasks - 1);
    const int line = tiling.by_tiles.quotient(task), tile = task - line * tiling.tiles;
    const int of_plane = tiling.by_pieces.quotient(line);
    const int piece = line - of_plane * tiling.pieces;
    const bool live = number < tiling.tasks && of_plane < strip.planes;
    const int plane = live ? of_plane : 0;
    const int channel = strips.channel(strip.plane + plane);
    typename Shape::Weights weights;
    load_weights<Shape>(strips.filter<Shape>(w, stage, plane, channel), weights);
    const int q = tile * Shape::Columns, p = piece * tiling.rows; // the latter in the strip
    const int column = q * Shape::Stride - tiling.pad_left;
    const int row = (strip.row + p) * Shape::Stride - tiling.pad_top - strip.from;
    Window<Shape> window(column, tiling.w);
    const uint32_t at =
        rows + ((plane * tiling.h + row) * tiling.w + column + Shape::Lead) * Shape::Size;
    Output output;
    output.place = (int64_t(strip.plane + plane) * tiling.p + strip.row + p) * tiling.q + q;
    output.at = gathered + ((plane * strip.rows + p) * tiling.q + q) * Shape::Size;
    output.to = reinterpret_cast<char *>(y + output.place);
    output.channel = channel;
    output.columns = live ? tiling.q - q : 0;
    output.rows = strip.rows - p;
    const auto compute = [&](auto together) {
        compute_task<together.value>(tiling, window, row, strip.count, at, scratch + ZerosBefore,
                                     weights, output, finish);
    };
    constexpr int Most = most_together(Shape::Columns, Shape::Vector, Shape::Size);
    if (Shape::StoresDirectly || (Most > 2 && tiling.together == Most))
        compute(Constant<Most>());
    else if (Most > 1 && tiling.together * 2 >= Most)
        compute(Constant<(Most + 1) / 2>());
    else
        compute(Constant<1>());
}
#endif

} // namespace cf::depthwise_nchw
