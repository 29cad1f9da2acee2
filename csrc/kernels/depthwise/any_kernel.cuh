// The kernel of depthwise_any: a block stages what a tile of y reads of x beside its filters, part
// by part of the filter, and its threads slide down over that.
#pragma once

#include "core/fragment_epilogue.cuh"
#include "kernels/depthwise/any_plan.cuh"
#include "ptx/load_store.cuh"
#include "ptx/shared.cuh"

namespace cf::depthwise_any {

// Where a tile begins in y, and how much of it exists.
struct Tile {
    int unit, unit_x; // the first one, of y and of x
    int channel, channel_x;
    int row, rows; // the first one, and as many `spread` apart
    int column, columns;
};

template <bool Nchw>
__device__ __forceinline__ Tile tile_of(const Tiling &t, int thread_rows, int number) {
    const auto digit = [&](const Divisor &by, int base) {
        const int others = by.quotient(number), last = number - others * base;
        number = others;
        return last;
    };
    Tile tile;
    tile.channel = Nchw ? 0 : digit(t.by_channel_blocks, t.channel_blocks) * t.inner;
    tile.column = digit(t.by_column_tiles, t.column_tiles) * t.columns;
    tile.columns = min(t.columns, t.across.outputs - tile.column);
    const int set = digit(t.by_row_sets, t.row_sets), most = thread_rows * t.groups;
    // Sets may differ by a row: a tile of the shorter ones may begin behind their last.
    const int64_t row = set + int64_t(digit(t.by_row_tiles, t.row_tiles)) * most * t.down.spread;
    const int64_t below = t.down.outputs - 1 - row;
    tile.row = int(row);
    tile.rows = below < 0 ? 0 : min(most, t.down.by_spread.quotient(int(below)) + 1);
    tile.unit = number * t.units;
    tile.unit_x = Nchw ? t.by_multiplier.quotient(tile.unit) : tile.unit;
    tile.channel_x = Nchw ? 0 : t.by_multiplier.quotient(tile.channel);
    return tile;
}

// A part of the filter, some taps of rows, some of columns; and where a tile begins to read for it.
struct Taps {
    Part down, across;
    int top, left; // row and column of x
    int skew;      // columns that are staged in front of `left`

    __device__ __forceinline__ Taps(const Tiling &t, const Tile &tile, int part) {
        const int of_rows = t.by_across_parts.quotient(part);
        down = t.down.part(of_rows);
        across = t.across.part(part - of_rows * t.across.all_parts());
        top = t.down.place(tile.row, down);
        left = t.across.place(tile.column, across);
        skew = left & t.most_skew;
    }
    __device__ __forceinline__ bool any() const { return down.taps > 0 && across.taps > 0; }
};

// Rows or columns of x, counted from one on: those from `first` on exist, and an output needs them.
struct Range {
    int first, count;

    __device__ __forceinline__ Range(const Axis &axis, int begin, int needed) {
        // The first one that does not lie before a place.
        const auto from = [&](int place) {
            return place > begin ? axis.by_step.quotient(place - begin - 1) + 1 : 0;
        };
        first = from(0);
        count = max(min(from(axis.size), needed) - first, 0);
    }
    __device__ __forceinline__ bool has(int i) const {
        return unsigned(i - first) < unsigned(count);
    }
};

// What a tile reads of x for some taps.
struct Window {
    Range rows, columns;
    int channels, units; // that exist
    int64_t at;          // in x; may lie outside

    __device__ __forceinline__ Window(const Tiling &t, const Tile &tile, const Taps &taps,
                                      int units_x)
        : rows(t.down, taps.top, tile.rows - 1 + taps.down.taps),
          columns(t.across, taps.left - taps.skew,
                  taps.skew + tile.columns + (taps.across.taps - 1) * t.across.spread),
          channels(min(t.inner_x, t.channels_x - tile.channel_x)),
          units(min(t.units_x, units_x - tile.unit_x)),
          at(tile.unit_x * t.image + taps.top * t.row + (taps.left - taps.skew) * t.column +
             int64_t(tile.channel_x) * t.element) {}
};

// Rounded as the math wants it.
template <class Stored>
__device__ __forceinline__ float rounded(int rounding, float v) {
    if constexpr (std::is_same_v<Stored, float>) {
        if (rounding == CF_MATH_F16)
            return Sum<CF_MATH_F16>::operand(v);
        if (rounding == CF_MATH_BF16)
            return Sum<CF_MATH_BF16>::operand(v);
    }
    return v;
}

// Words of a window: rows in a column and channel of a unit, or in as many neighbouring columns or
// channels as are Lanes. Zeros where the filter hangs over an edge.
template <class Stored, bool Nchw, int Lanes>
struct StagedWords {
    float value[Word][Lanes];
    uint32_t to; // from where the window lies in shared memory

    __device__ __forceinline__ void load(const Tiling &t, const Window &window, const char *x,
                                         int item) {
        const int line = t.by_reads.quotient(item), read = item - line * t.reads;
        const int unit = t.units_x == 1 ? 0 : t.by_words.quotient(line);
        const int first = (line - unit * t.words) * Word;
        int column = read * Lanes, channel = 0;
        if (!Nchw) {
            column = t.by_reads_x.quotient(read);
            channel = (read - column * t.reads_x) * Lanes;
        }
        const bool live = item < t.items && window.columns.has(column) &&
                          channel < window.channels && unit < window.units;
        const char *from = x + unsigned(first) * t.rows_apart + unsigned(column) * t.columns_apart;
        if (!Nchw)
            from += unsigned(channel * t.element);
        if (t.units_x > 1)
            from += unsigned(unit) * t.image;
#pragma unroll
        for (int i = 0; i < Word; ++i, from += t.rows_apart)
            load_neighbours(reinterpret_cast<const Stored *>(from),
                            live && window.rows.has(first + i), value[i]);
        to = (unit * t.lanes + read * Lanes) * t.pitch + first * int(sizeof(float));
    }
    __device__ __forceinline__ void store(const Tiling &t, uint32_t window) const {
#pragma unroll
        for (int lane = 0; lane < Lanes; ++lane) {
            uint32_t bits[Word];
#pragma unroll
            for (int i = 0; i < Word; ++i)
                bits[i] = __float_as_uint(rounded<Stored>(t.rounding, value[i][lane]));
            store_shared4(window + to + lane * t.pitch, bits[0], bits[1], bits[2], bits[3]);
        }
    }
};

// Each thread has some loads on their way together.
template <class Stored, bool Nchw, int Lanes>
__device__ __forceinline__ void stage_lanes(const Tiling &t, const Window &window, const char *x,
                                            uint32_t to) {
    constexpr int Together = 2;
#pragma unroll 1
    for (int item = threadIdx.x; item < t.items; item += Together * blockDim.x) {
        StagedWords<Stored, Nchw, Lanes> words[Together];
#pragma unroll
        for (int i = 0; i < Together; ++i)
            words[i].load(t, window, x, item + i * blockDim.x);
#pragma unroll
        for (int i = 0; i < Together; ++i)
            if (item + i * blockDim.x < t.items)
                words[i].store(t, to);
    }
}

template <class Stored, bool Nchw>
__device__ __forceinline__ void stage_window(const Tiling &t, const Window &window, const char *x,
                                             uint32_t to) {
    if (t.together == 2)
        stage_lanes<Stored, Nchw, 2>(t, window, x + window.at, to);
    else
        stage_lanes<Stored, Nchw, 1>(t, window, x + window.at, to);
}

// The weights of a tile, column by column of each filter. Stored k r s in both layouts, as a filter
// has one channel.
template <class Stored, bool Nchw>
__device__ __forceinline__ void stage_filters(const Tiling &t, const Tile &tile, const Taps &taps,
                                              int units, const Stored *__restrict__ w,
                                              uint32_t to) {
    const int items = t.filters * t.down.taps * t.across.taps;
#pragma unroll 1
    for (int item = threadIdx.x; item < items; item += blockDim.x) {
        const int line = t.by_taps_across.quotient(item), s = item - line * t.across.taps;
        const int filter = t.by_taps_down.quotient(line), r = line - filter * t.down.taps;
        const int unit = tile.unit + filter;
        const int k = Nchw ? unit - t.by_k.quotient(unit) * t.k : tile.channel + filter;
        const bool exists = Nchw ? unit < units : k < t.k;
        if (!exists || r >= taps.down.taps || s >= taps.across.taps)
            continue;
        const int row = taps.down.first + r * t.down.classes;
        const int column = taps.across.first + s * t.across.classes;
        const int64_t at = (int64_t(k) * t.down.filter + row) * t.across.filter + column;
        store_shared(to + filter * t.filter_pitch + s * t.tap_pitch + r * int(sizeof(float)),
                     __float_as_uint(rounded<Stored>(t.rounding, widen(w[at]))));
    }
}

// Outputs below each other that a thread computes, and where in a slot it reads.
struct Task {
    int unit, channel, row, rows, column; // `rows` of them exist
    uint32_t x, w;
};

template <bool Nchw>
__device__ __forceinline__ Task task_of(const Tiling &t, const Tile &tile, int units,
                                        int thread_rows, int number) {
    const auto digit = [&](const Divisor &by, int base) {
        const int others = by.quotient(number), last = number - others * base;
        number = others;
        return last;
    };
    const int inner = Nchw ? 0 : digit(t.by_inner, t.inner);
    const int column = digit(t.by_columns, t.columns), group = digit(t.by_groups, t.groups);
    const int unit = number, above = group * thread_rows;
    Task task;
    task.unit = tile.unit + unit;
    task.channel = tile.channel + inner;
    const bool exists = task.unit < units && column < tile.columns && task.channel < t.k;
    const int unit_x = Nchw ? t.by_multiplier.quotient(task.unit) - tile.unit_x : unit;
    const int channel_x = Nchw ? 0 : t.by_multiplier.quotient(task.channel) - tile.channel_x;
    task.row = tile.row + above * t.down.spread;
    task.rows = exists ? tile.rows - above : 0;
    task.column = tile.column + column;
    task.x =
        (unit_x * t.lanes + column * t.inner_x + channel_x) * t.pitch + above * int(sizeof(float));
    task.w = (Nchw ? unit : inner) * t.filter_pitch;
    return task;
}

// Adds so many products to each sum: of tap i and row i + j of the window to sum j.
template <int Taps, int Rows, int Height>
__device__ __forceinline__ void multiply(const float (&window)[Height], const float4 &weights,
                                         float (&sums)[Rows]) {
    const float w[Word] = {weights.x, weights.y, weights.z, weights.w};
#pragma unroll
    for (int i = 0; i < Taps; ++i)
#pragma unroll
        for (int j = 0; j < Rows; ++j)
            sums[j] = fmaf(window[i + j], w[i], sums[j]);
}

// Rows of a window, in words from `x` on.
template <int Rows>
struct Rolling {
    static constexpr int Held = Rows > 1 ? Rows : 0; // that the next taps meet again
    static_assert(Held <= 2 * Word, "as many as begin() reads");
    float row[Held + Word];

    __device__ __forceinline__ void put(int to, const float4 &word) {
        row[to] = word.x, row[to + 1] = word.y, row[to + 2] = word.z, row[to + 3] = word.w;
    }
    __device__ __forceinline__ void begin(uint32_t x) {
        if constexpr (Held > 0)
            put(0, load_shared_f32x4(x));
        if constexpr (Held > Word)
            put(Word, load_shared_f32x4<WordBytes>(x));
    }
    // Products of the next taps, whose weights are a word from `w` on.
    template <int Taps>
    __device__ __forceinline__ void multiply(uint32_t x, uint32_t w, float (&sums)[Rows]) {
        if constexpr (Held == 0 || Taps > 1)
            put(Held, load_shared_f32x4<Held * sizeof(float)>(x));
        const float4 word = load_shared_f32x4(w);
        const float weights[Word] = {word.x, word.y, word.z, word.w};
#pragma unroll
        for (int i = 0; i < Taps; ++i)
#pragma unroll
            for (int j = 0; j < Rows; ++j)
                sums[j] = fmaf(row[i + j], weights[i], sums[j]);
    }
    __device__ __forceinline__ void move() {
#pragma unroll
        for (int i = 0; i < Held; ++i)
            row[i] = row[i + Word];
    }
};

// The taps of a filter's columns, of which each has `words` words and `Left` taps behind them.
template <int Left, int Rows>
__device__ __forceinline__ void add_columns(const Tiling &t, int columns, int words, uint32_t x,
                                            uint32_t w, float (&sums)[Rows]) {
#pragma unroll 1
    for (; columns > 0; --columns, x += t.next_tap, w += t.tap_pitch) {
        Rolling<Rows> window;
        window.begin(x);
        uint32_t from = x, weights = w;
#pragma unroll 2
        for (int i = 0; i < words; ++i, from += WordBytes, weights += WordBytes) {
            window.template multiply<Word>(from, weights, sums);
            window.move();
        }
        if constexpr (Left > 0)
            window.template multiply<Left>(from, weights, sums);
    }
}

// The products of a part, whose slot begins at `slot`.
template <int Rows>
__device__ __forceinline__ void add_part(const Tiling &t, const Taps &taps, const Task &task,
                                         uint32_t slot, float (&sums)[Rows]) {
    const uint32_t x = slot + task.x + taps.skew * t.pitch;
    const uint32_t w = slot + t.window_bytes + task.w;
    const int columns = taps.across.taps, words = taps.down.taps / Word;
    switch (taps.down.taps % Word) {
    case 0:
        return add_columns<0>(t, columns, words, x, w, sums);
    case 1:
        return add_columns<1>(t, columns, words, x, w, sums);
    case 2:
        return add_columns<2>(t, columns, words, x, w, sums);
    default:
        return add_columns<3>(t, columns, words, x, w, sums);
    }
}

// A task's sums, for core/fragment_epilogue.cuh.
template <int Rows>
struct OutputMap {
    float (&sums)[Rows];
    int64_t place, step; // of the first one in y; to the next
    int channel, rows;

    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
        body(channel, Constant<Rows>(), [&](int i) -> float & { return sums[i]; });
    }
    template <class T, class Body>
    __device__ __forceinline__ void for_runs(T *tensor, Body body) {
        T *at = tensor + place;
#pragma unroll
        for (int i = 0; i < Rows; ++i, at += step)
            body(Constant<1>(), at, i < rows, [&](int) -> float & { return sums[i]; });
    }
    template <class T>
    __device__ __forceinline__ void store(T *tensor) {
        for_runs(tensor, [](auto, T *at, bool live, auto value) {
            const float v[1] = {value(0)};
            store_neighbours<T>(reinterpret_cast<char *>(at), live, v);
        });
    }
};

template <class Stored, bool Nchw, int Rows>
__device__ __forceinline__ void store_task(const Tiling &t, const Task &task, const Target &to,
                                           float (&sums)[Rows]) {
    const uint64_t place = unsigned(task.unit) * t.unit_y + unsigned(task.row) * t.row_y +
                           unsigned(task.column) * t.column_y + unsigned(task.channel);
    OutputMap<Rows> map = {sums, int64_t(place), int64_t(t.row_y * t.down.spread), task.channel,
                           task.rows};
    if (to.sums)
        return map.store(to.sums);
    // By itself, so that it costs one branch where there is none.
    if (t.finishes) {
        if (Nchw)
            map.channel = task.unit - t.by_k.quotient(task.unit) * t.k;
        finish_fragment<Stored>(to.finish, t.k, map);
        if (t.activation != CF_ACT_NONE) {
#pragma unroll
            for (int i = 0; i < Rows; ++i)
                sums[i] = activate_keeping_nan(t.activation, sums[i]);
        }
    }
    map.store(static_cast<Stored *>(to.y));
}

template <class Stored, bool Nchw, int Rows>
__global__ void __launch_bounds__(MaxThreads, MaxBlocks)
    depthwise_any_kernel(const __grid_constant__ Tiling t, const char *__restrict__ x,
                         const Stored *__restrict__ w, const __grid_constant__ Target to,
                         const Units units) {
    extern __shared__ __align__(16) unsigned char dynamic[];
    uint32_t slots = shared_address(dynamic);
    keep(slots); // or each use reads a special register anew
    const Tile tile = tile_of<Nchw>(t, Rows, blockIdx.x);
    if (tile.rows == 0)
        return;
    float sums[Rows] = {};
    for (int first = 0; first < t.parts; first += t.slots) {
        const int parts = min(t.slots, t.parts - first);
        Taps taps(t, tile, first);
        if (first > 0)
            __syncthreads(); // until nobody reads what was here before
#pragma unroll 1
        for (int i = 0; i < parts; ++i) {
            if (parts > 1)
                taps = Taps(t, tile, first + i);
            if (!taps.any())
                continue;
            const uint32_t slot = slots + i * t.slot_bytes;
            stage_window<Stored, Nchw>(t, Window(t, tile, taps, units.x), x, slot);
            stage_filters<Stored, Nchw>(t, tile, taps, units.y, w, slot + t.window_bytes);
        }
        __syncthreads();
        // Several to a thread only where all parts are here.
#pragma unroll 1
        for (int number = threadIdx.x; number < t.tasks; number += blockDim.x) {
            const Task task = task_of<Nchw>(t, tile, units.y, Rows, number);
            if (task.rows <= 0)
                continue;
#pragma unroll 1
            for (int i = 0; i < parts; ++i) {
                if (parts > 1)
                    taps = Taps(t, tile, first + i);
                if (taps.any())
                    add_part(t, taps, task, slots + i * t.slot_bytes, sums);
            }
            if (first + parts < t.parts)
                continue;
            store_task<Stored, Nchw>(t, task, to, sums);
#pragma unroll
            for (float &sum : sums)
                sum = 0;
        }
    }
}

} // namespace cf::depthwise_any
