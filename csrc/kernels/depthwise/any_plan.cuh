// The planner of depthwise_any: how a problem becomes tiles, and a filter parts; what a tile takes.
#pragma once

#include "core/divisor.cuh"
#include "core/estimate.cuh"
#include "core/fragment_epilogue.cuh"
#include "core/room.cuh"
#include "core/strides.cuh"
#include "kernels/depthwise/family.cuh"

#include <algorithm>
#include <numeric>

namespace cf::depthwise_any {

constexpr int MaxThreads = 224; // of a block: those of 256 have fewer registers than they want
constexpr int MaxBlocks = 4;    // of them that registers leave room for on a multiprocessor
constexpr int MaxTasks = 8 * MaxThreads; // of a tile
constexpr int Word = 4;                  // f32 that are read at once: rows of x, taps of a column
constexpr int WordBytes = Word * sizeof(float);
constexpr int MaxFilter = 1 << 30; // rows and columns
// Fitted to 78 times of problems of all kinds (h200-any-estimates.csv): instructions of the slots
// of a quarter; of counted clocks of shared memory; clocks of a warp's instruction that waits for
// the one before it; of a round of parts; until the first tile is there and behind the last; bytes
// over those of the memory's pins.
constexpr double Issued = 0.82, ReadClocks = 1.75, ChainClocks = 6.2, RoundClocks = 2000;
constexpr double EndClocks = 1000, FromMemory = 0.53;

// Some taps of a filter's rows, or of its columns: the first, and those behind it in its class.
struct Part {
    int first, taps;
};

// Rows, or columns. Taps at a distance of `classes` are multiples of the stride apart in x, and are
// a class. Seen from a class, the convolution has no stride: it sees every stride-th pixel of x,
// and its taps are `spread` of these apart. To outputs that are `spread` apart its taps are
// neighbours, too: such are a set.
struct Axis {
    int stride, dilation, pad, size, outputs, filter;
    int classes, spread;
    int step;  // of x, between pixels that lie beside each other in shared memory
    int taps;  // of a part, at most
    int parts; // of a class
    Divisor by_classes, by_parts, by_spread, by_step;

    Axis() = default;
    // Where outputs come in sets, only what a set reads lies beside each other.
    Axis(int stride, int dilation, int pad, int size, int outputs, int filter, bool in_sets)
        : stride(stride), dilation(dilation), pad(pad), size(size), outputs(outputs),
          filter(filter) {
        const int common = std::gcd(stride, dilation);
        classes = std::min(stride / common, filter);
        spread = dilation / common;
        // Where it were larger there is no second one.
        step = int(std::min<int64_t>(int64_t(stride) * (in_sets ? spread : 1), INT32_MAX));
        by_classes = Divisor(classes), by_spread = Divisor(spread), by_step = Divisor(step);
        split(all_taps());
    }
    // Of the largest class.
    int all_taps() const { return int(ceil_div(filter, classes)); }
    // Into parts of at most so many taps, all as large.
    void split(int most) {
        parts = int(ceil_div(all_taps(), most));
        taps = int(ceil_div(all_taps(), parts));
        by_parts = Divisor(parts);
    }
    __host__ __device__ __forceinline__ int all_parts() const { return classes * parts; }
    // The first pixel of x that an output reads for a part that has taps.
    __device__ __forceinline__ int place(int output, const Part &part) const {
        return int(unsigned(output) * stride + unsigned(part.first) * dilation - pad);
    }
    // Without taps where a class has fewer than others.
    __device__ __forceinline__ Part part(int number) const {
        const int of_class = by_parts.quotient(number);
        const int first = of_class + (number - of_class * parts) * taps * classes;
        const int left = filter - first;
        return {first, left > 0 ? min(taps, by_classes.quotient(left - 1) + 1) : 0};
    }
};

// What a launch has of y and of x: planes in NCHW, images in NHWC.
struct Units {
    int y, x;
};

// Where a launch leaves its outputs: in y, or as sums for the shared pass.
struct Target {
    void *y;
    float *sums;
    Finish finish;
};

// Of y, of so many images.
inline double units_of(const cf_problem &p, int64_t images) {
    return double(images) * (p.layout == CF_NCHW ? p.k : 1);
}

// Planes or channels of x that so many of y read, which begin at a multiple of their number.
inline int inputs_of(int outputs, int multiplier) {
    if (outputs % multiplier == 0 || multiplier % outputs == 0)
        return std::max(outputs / multiplier, 1);
    return (outputs + multiplier - 2) / multiplier + 1;
}

// A tile is some rows of a set and some columns of some units of y, in NHWC in `inner` channels. A
// task is some of these rows, as many as a thread has sums, in one column and channel. A window is
// what a tile reads of x for a part of the filter, a slot has one and the part's weights. Places in
// x and in shared memory are bytes.
struct Tiling {
    Axis down, across;
    int k, channels_x;
    uint64_t unit_y, row_y, column_y;   // elements of y, from one to the next
    int64_t image, row, column;         // of x
    uint64_t rows_apart, columns_apart; // of x, from step to step
    int element;
    int inner, columns, groups, units, tasks; // of a tile; groups of rows, each of a task
    int filters;                              // of a tile
    int inner_x, units_x;                     // that a window has
    int together, most_skew;   // lanes that a thread reads at once; columns that make them aligned
    int lanes, reads, reads_x; // of a window: columns and channels; together; channels together
    int words, items;          // of rows; in all
    int channel_blocks, column_tiles, row_sets, row_tiles; // of y
    int64_t most_images;                                   // of a launch
    int pitch;                                             // from lane to lane of a window
    uint32_t next_tap; // from one column's tap to the next one's, in a window
    int tap_pitch;     // the same in a filter
    int filter_pitch;  // from filter to filter
    int window_bytes, slot_bytes;
    int parts, slots; // of the filter; of them that lie in shared memory together
    int rounding;     // what operands are rounded to: a cf_math, or 0 for as they are
    int finishes;     // whether there is an epilogue
    int activation;   // beyond what cf::Finish does
    Divisor by_channel_blocks, by_column_tiles, by_row_sets, by_row_tiles, by_k, by_multiplier;
    Divisor by_inner, by_columns, by_groups, by_reads, by_reads_x, by_words;
    Divisor by_across_parts, by_taps_across, by_taps_down;
};

struct Option {
    Tiling tiling;
    int rows = 0; // of a task; none where nothing fits
    int threads;
    int shared; // bytes
    double us;
};

// What a tile has of each dimension, before its filter is split.
struct TileSize {
    int rows, inner, columns, groups, units;

    int height() const { return rows * groups; }
    int tasks() const { return inner * columns * groups * units; }
};

// Tiles of as many units as one has.
inline double tiles_of_units(const Tiling &t) {
    return double(t.channel_blocks) * t.column_tiles * t.row_sets * t.row_tiles;
}

inline double estimate(const cf_query &query, const TileSize &size, const Option &option) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const Tiling &t = option.tiling;
    const bool nchw = p.layout == CF_NCHW;
    const double tiles = std::ceil(units_of(p, p.n) / size.units) * tiles_of_units(t);
    const double tasks = t.tasks / 32.0, taps = double(p.r) * p.s;
    const double filter_columns = double(t.down.all_parts()) * p.s;
    const double words = double(ceil_div(t.down.taps, Word));
    // Instructions of warps, counted in what they are compiled to: products and what they read,
    // words of windows and weights on their way, what each warp works out of its tile.
    const double staged = double(t.items) * t.parts, warps = option.threads / 32;
    const double issued =
        tasks * (taps * size.rows + filter_columns * (2 * words + 15) + size.rows * 9 + 120) +
        staged / 32 * (70 + 8 * t.together) + t.filters * taps / 32 * 45 +
        warps * (150 + 180.0 * t.parts);
    // Clocks of shared memory.
    const double read =
        ReadClocks * (tasks * filter_columns * (size.rows + words * Word * (nchw ? 1.25 : 2)) +
                      staged / 32 * Word * t.together * t.together);
    // Blocks beside each other hide what one waits for its loads.
    const int of_sm = std::max(std::min({MaxBlocks * MaxThreads / option.threads, 32,
                                         d.shared_per_sm / (option.shared + SystemShared)}),
                               1);
    const double waves = std::ceil(tiles / (double(d.sm_count) * of_sm));
    const double together = std::clamp(tiles / d.sm_count, 1.0, double(of_sm));
    const double busy = together * std::max(issued / (4 * Issued), read);
    const double alone =
        std::ceil(double(t.parts) / t.slots) * RoundClocks + issued / warps * ChainClocks;
    const double computing = clocks_us(d, waves * together_us(busy, alone) + EndClocks, FmaClock);
    // What tiles beside each other share comes from memory to a third. Where a class skips columns,
    // or a tile has few of a pixel's channels, sectors of memory are moved for a part of them.
    const double element = element_bytes(p);
    const auto sectors = [&](double together) { return std::max(32 / (together * element), 1.0); };
    const double x = double(p.n) * p.c * p.h * p.w, y = double(p.n) * p.k * p.p * p.q;
    const double of_x = nchw ? sectors(32 / (element * p.stride_w))
                             : sectors(p.c == t.inner_x ? p.w * double(p.c) : t.inner_x);
    const double of_y = nchw || p.k == t.inner ? 1 : sectors(t.inner);
    const double loaded = tiles * staged * Word * t.together * std::min(of_x, 32 / element);
    const double unique = std::min(x, loaded);
    const double bytes = (unique + (loaded - unique) / 3 + y * of_y) * element;
    const double memory = bytes / (FromMemory * d.bytes_per_us);
    return ShortLaunchUs + together_us(computing, memory);
}

// Odd multiples of a word: lanes beside each other then read words from different banks.
inline int64_t odd_words(int64_t floats) { return (ceil_div(floats, Word) | 1) * WordBytes; }

// Splits the filter into parts so that a slot takes no more than so many bytes, the longer side
// first.
inline bool split_filter(const TileSize &size, int64_t bytes, Tiling &t) {
    int down = t.down.all_taps(), across = t.across.all_taps();
    for (;;) {
        t.down.split(down);
        t.across.split(across);
        int64_t columns = size.columns + int64_t(t.across.taps - 1) * t.across.spread;
        if (t.most_skew)
            columns = round_up(columns + t.most_skew, t.together);
        const int64_t tap_words = ceil_div(t.down.taps, Word);
        const int64_t pitch = odd_words(size.height() + tap_words * Word);
        const int64_t filter_pitch = odd_words(t.across.taps * tap_words * Word);
        const double window = double(t.units_x) * double(columns) * t.inner_x * double(pitch);
        const double slot = window + double(t.filters) * double(filter_pitch);
        const double parts = double(t.down.all_parts()) * t.across.all_parts();
        if (slot <= bytes && parts <= INT32_MAX) {
            t.lanes = int(columns) * t.inner_x;
            t.words = int(ceil_div(size.height() + t.down.taps - 1, Word));
            t.reads = t.lanes / t.together, t.reads_x = t.inner_x / t.together;
            t.items = t.units_x * t.words * t.reads;
            t.pitch = int(pitch), t.next_tap = uint32_t(t.across.spread) * t.inner_x * t.pitch;
            t.tap_pitch = int(tap_words) * WordBytes, t.filter_pitch = int(filter_pitch);
            t.window_bytes = int(window), t.slot_bytes = int(slot);
            t.parts = int(parts);
            t.slots = int(std::min<int64_t>(bytes / t.slot_bytes, t.parts));
            return true;
        }
        if (across > 1 && (across >= down || down == 1))
            across = int(ceil_div(across, 2));
        else if (down > 1)
            down = int(ceil_div(down, 2));
        else
            return false;
    }
}

// What does not depend on how a batch is divided.
inline Tiling tiling_of(const cf_problem &p) {
    const bool nchw = p.layout == CF_NCHW;
    Tiling t = {};
    t.down = Axis(p.stride_h, p.dilation_h, p.pad_top, p.h, p.p, p.r, true);
    t.across = Axis(p.stride_w, p.dilation_w, p.pad_left, p.w, p.q, p.s, false);
    const Strides y = residual_strides(p);
    t.unit_y = nchw ? y.channel : y.image, t.row_y = y.row, t.column_y = y.column;
    t.k = p.k, t.channels_x = p.c;
    t.element = element_bytes(p);
    const Strides x = input_strides(p);
    t.image = (nchw ? x.channel : x.image) * t.element;
    t.row = x.row * t.element, t.column = x.column * t.element;
    t.rows_apart = uint64_t(t.row) * t.down.step;
    t.columns_apart = uint64_t(t.column) * t.across.step;
    t.row_sets = std::min(t.down.spread, p.p);
    if (p.storage == CF_STORE_F32 && (p.math == CF_MATH_F16 || p.math == CF_MATH_BF16))
        t.rounding = p.math;
    t.finishes = has_epilogue(p);
    t.activation = late_activation(p);
    t.by_row_sets = Divisor(t.row_sets);
    t.by_k = Divisor(p.k), t.by_multiplier = Divisor(p.k / p.c);
    return t;
}

// Of y, in the largest set.
inline int rows_of_set(const Tiling &t) { return int(ceil_div(t.down.outputs, t.down.spread)); }

// Whether two neighbours of x can be read at once, columns in NCHW, channels in NHWC.
inline bool reads_pairs(const cf_problem &p, const Tiling &t) {
    if (p.align < 2 * t.element)
        return false;
    if (p.layout == CF_NCHW)
        return p.w % 2 == 0 && p.stride_w == 1;
    return p.c % 2 == 0 && t.inner_x % 2 == 0 && t.inner == t.inner_x * (p.k / p.c);
}

inline bool tile(const cf_query &query, const Tiling &common, const TileSize &size, int64_t bytes,
                 Option &option) {
    const cf_problem &p = query.problem;
    const bool nchw = p.layout == CF_NCHW;
    const int multiplier = p.k / p.c;
    option = {};
    Tiling &t = option.tiling = common;
    t.inner = size.inner, t.columns = size.columns, t.groups = size.groups, t.units = size.units;
    t.tasks = size.tasks();
    t.filters = nchw ? size.units : size.inner;
    t.inner_x = nchw ? 1 : std::min(inputs_of(size.inner, multiplier), p.c);
    t.units_x = nchw ? inputs_of(size.units, multiplier) : size.units;
    t.together = reads_pairs(p, t) ? 2 : 1;
    t.most_skew = nchw ? t.together - 1 : 0;
    // From round to round of parts a thread keeps the sums of one task.
    const int64_t of_thread = ceil_div(t.tasks, MaxThreads);
    if (!split_filter(size, bytes, t) || (of_thread > 1 && t.slots < t.parts))
        return false;
    t.channel_blocks = nchw ? 1 : int(ceil_div(p.k, size.inner));
    t.column_tiles = int(ceil_div(p.q, size.columns));
    t.row_tiles = int(ceil_div(rows_of_set(t), size.height()));
    // Tiles and units are counted in 31 bits; the last tile may have units that do not exist.
    const double tiles = units_of(p, 1) * tiles_of_units(t);
    t.most_images = int64_t((INT32_MAX - MaxTasks) / std::max(tiles, units_of(p, 1)));
    if (t.most_images == 0)
        return false;
    t.by_channel_blocks = Divisor(t.channel_blocks), t.by_column_tiles = Divisor(t.column_tiles);
    t.by_row_tiles = Divisor(t.row_tiles);
    t.by_inner = Divisor(t.inner), t.by_columns = Divisor(t.columns);
    t.by_groups = Divisor(t.groups), t.by_words = Divisor(t.words);
    t.by_reads = Divisor(t.reads), t.by_reads_x = Divisor(std::max(t.reads_x, 1));
    t.by_across_parts = Divisor(t.across.all_parts());
    t.by_taps_across = Divisor(t.across.taps), t.by_taps_down = Divisor(t.down.taps);
    option.rows = size.rows;
    option.threads = int(round_up(ceil_div(t.tasks, of_thread), 32));
    option.shared = t.slot_bytes * t.slots;
    option.us = estimate(query, size, option);
    return true;
}

// Calls body with the sizes of ever more pieces of `all`, none larger than `most`.
template <class Body>
void for_pieces(int all, int most, Body body) {
    for (int64_t pieces = ceil_div(all, most), last = 0;; pieces += 1 + pieces / 2) {
        const int64_t size = ceil_div(all, pieces);
        if (size != last)
            body(int(size));
        if (size == 1)
            return;
        last = size;
    }
}

// The one that is estimated to take least; without rows where none fits.
inline Option best_option(const cf_query &query) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const Tiling common = tiling_of(p);
    Option best;
    const auto consider = [&](const TileSize &size) {
        for (int blocks = 4; blocks >= 1; blocks /= 2) {
            const int64_t bytes = shared_room(d, blocks);
            Option option;
            if (tile(query, common, size, bytes, option) && (!best.rows || option.us < best.us))
                best = option;
            // More room is for filters that are split.
            if (option.rows && option.tiling.slots == option.tiling.parts)
                break;
        }
    };
    const double units = std::max(units_of(p, p.n), 1.0);
    const int set = rows_of_set(common);
    const auto with_inner = [&](int rows, int inner) {
        for_pieces(p.q, std::max(MaxTasks / inner, 1), [&](int columns) {
            const int most_groups = std::max(MaxTasks / inner, 1) / columns;
            for_pieces(int(ceil_div(set, rows)), most_groups, [&](int groups) {
                const bool whole = columns == p.q && groups * rows >= set;
                int together = whole ? int(std::min(most_groups / groups * 1.0, units)) : 1;
                for (; together >= 1; together /= 2)
                    consider({rows, inner, columns, groups, together});
            });
        });
    };
    const auto with_rows = [&](int rows) {
        if (p.layout == CF_NCHW)
            return with_inner(rows, 1);
        if (p.k <= 64)
            with_inner(rows, p.k);
        for (int inner = 8; inner <= 64 && inner < p.k; inner *= 2)
            with_inner(rows, inner);
    };
    if (set == 1)
        with_rows(1);
    else
        with_rows(4), with_rows(8);
    return best;
}

} // namespace cf::depthwise_any
