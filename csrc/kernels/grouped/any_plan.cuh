// The planner of grouped_any: how a problem becomes tiles, and a filter parts; what a tile takes.
#pragma once

#include "core/divisor.cuh"
#include "core/estimate.cuh"
#include "core/fragment_epilogue.cuh"
#include "core/room.cuh"
#include "core/strides.cuh"
#include "kernels/grouped/any_filter.cuh"

#include <numeric>

namespace cf::grouped_any {

constexpr int MaxWarps = 8, MaxThreads = MaxWarps * 32;
constexpr int MaxBlocks = 2;    // of MaxThreads that registers leave room for
constexpr int MaxPixels = 512;  // of a tile
constexpr int RowPixels = 16;   // rows of mma.sync
constexpr int EntryBytes = 8;   // of the tables: a pixel, a piece
constexpr double Issued = 0.82; // of the clocks, where instructions are what there is
// Fitted, as Issued is, to 101 times of problems of all kinds (h200-any-estimates.csv): of counted
// clocks of shared memory; of a warp's instruction that waits for the one before it; until the
// first tile is there and behind the last; bytes over those of the memory's pins, from there and
// from the second-level cache.
constexpr double ReadClocks = 1.44, ChainClocks = 7, PartClocks = 1000, EndClocks = 4100;
constexpr double FromMemory = 0.51, FromCache = 0.95;
// What pixels of two rows cost that meet in a bank, and of FMAs a row of x that a warp begins to
// stage. Chosen beside those by 56 plans of four problems in fp32 and NCHW
// (h200-grouped-any-plans.csv), 34 of them with rows further apart, which do not meet.
constexpr double RowsMeet = 0.5, RowBegins = 1;

// Times 16 pixels, of a warp with so many tiles.
constexpr int rows_for(Product product, int tiles) {
    return tiles > (product == Fp32 ? 2 : 3) ? 3 : 4;
}
constexpr int MaxFmaTiles = 3; // of a warp

// Rows, or columns. Of x those lie beside each other in shared memory that some output reads for a
// part of the taps: `step` apart.
struct Axis {
    int stride, dilation, pad, size, outputs, filter;
    int taps, parts; // of a part, the last may have fewer; parts
    int step, of_output, of_tap;
    Divisor by_step;

    Axis() = default;
    Axis(int stride, int dilation, int pad, int size, int outputs, int filter)
        : stride(stride), dilation(dilation), pad(pad), size(size), outputs(outputs),
          filter(filter) {
        split(filter);
    }
    // Into parts of at most so many taps, all as large.
    void split(int most) {
        parts = int(ceil_div(filter, most));
        taps = int(ceil_div(filter, parts));
        step = taps > 1 ? std::gcd(stride, dilation) : stride;
        of_output = stride / step, of_tap = taps > 1 ? dilation / step : 0;
        by_step = Divisor(step);
    }
    // That so many outputs read.
    __host__ __device__ __forceinline__ int64_t positions(int outputs) const {
        return int64_t(outputs - 1) * of_output + int64_t(taps - 1) * of_tap + 1;
    }
    // The first of them for an output and a tap.
    __device__ __forceinline__ int place(int output, int tap) const {
        return int(unsigned(output) * stride + unsigned(tap) * dilation - pad);
    }
};

// Where a launch leaves its outputs: in y, or as sums for the shared pass.
struct Target {
    void *y;
    float *sums;
    Finish finish;
};

// A block's tile is some rows and columns of some images of y, in the output channels of some sets
// or some of a set's. A task of a warp is some of its pixels in a chunk of a set's output channels.
// A part of the filter is some of its rows, columns and pieces of channels. Places in x and in
// shared memory are bytes, in y elements.
struct Tiling {
    Packed filter;
    Axis down, across;
    bool channels_last;
    int element; // bytes
    int64_t image_x, row_x, column_x, channel_x;
    uint64_t rows_apart, columns_apart; // of x, from position to position
    int64_t image_y, row_y, column_y, channel_y;
    int images, rows, columns, sets, pixels, all_pixels; // of a tile; with those that fill a row
    int height, width, positions;                        // of an image; of a tile
    int even; // columns of a row that lie before the others: each second one, or none
    int part_pieces, piece_parts, parts;
    int entries, steps;                  // of the table of a part's pieces; along the sum
    int pitch;                           // from position to position
    int all_pieces;                      // of a position
    int piece_threads, position_threads; // of a block, to stage these
    int together;                        // neighbouring channels that are read at once
    int chunks, tasks;                   // of a set's output channels, each of a warp; tasks
    int chunk_blocks, set_blocks, column_tiles, row_tiles;
    int pieces_at, x_at; // in shared memory, behind the table of pixels
    int64_t most_images; // of a launch
    int runs;            // whether neighbouring output channels are stored together
    int finishes;        // whether there is an epilogue
    int activation;      // beyond what cf::Finish does
    Divisor by_chunk_blocks, by_set_blocks, by_column_tiles, by_row_tiles, by_columns, by_rows;
    Divisor by_width, by_height, by_staging, by_part_pieces;
    Divisor by_taps, by_across_parts, by_piece_parts, by_chunks, by_sets;
};

struct Option {
    Tiling tiling;
    int warps = 0; // none where nothing fits
    int tiles;     // of a warp
    int shared;    // bytes
    double us;
};

// What a tile has of each dimension, and a part of the filter.
struct TileSize {
    int images, rows, columns, sets;
    int tiles, chunks; // of a warp; of a set that a block has
    int taps_down, taps_across;
};

// Tiles of as many images as one has.
inline double tiles_of_images(const Tiling &t) {
    return double(t.chunk_blocks) * t.set_blocks * t.column_tiles * t.row_tiles;
}

// What a warp takes for a step along the sum, in clocks of a multiprocessor that has nothing else:
// issued instructions, tensor cores, shared memory.
struct StepClocks {
    double issued, products, reads;

    StepClocks(Product product, int tiles_of_warp, double conflicts) {
        const double rows = rows_for(product, tiles_of_warp), tiles = tiles_of_warp;
        const bool fma = product == Fp32;
        issued = (fma ? 4 + 6 * tiles + 2 * rows + 16 * rows * tiles
                      : 14 + 3 * tiles + rows * (3 + tiles)) /
                 (4 * Issued);
        products = fma ? 0 : 6 * rows * tiles / (4 * 0.8);
        reads = 1 + (fma ? 4 : 2) * tiles + 4 * rows * conflicts;
    }
    double longest() const { return std::max({issued, products, reads}); }
};

// How many of eight pixels that are read together meet in a bank of shared memory. Pieces of
// positions that are a multiple of eight apart do; so, at times, do pixels of two rows, unless the
// second row goes on where the first ends, which is counted where evens come first, and of FMAs.
inline double bank_conflicts(const Tiling &t, bool fma) {
    const int apart = t.even ? 1 : t.across.of_output;
    const double in_row = std::gcd(apart, 8);
    const bool goes_on =
        (int64_t(t.down.of_output) * t.width - int64_t(t.columns) * apart) % 8 == 0;
    return in_row *
           (goes_on || !(fma || t.even) ? 1 : 1 + RowsMeet * std::min(1.0, 7.0 / t.columns));
}

inline double estimate(const cf_query &query, const Option &option) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const Tiling &t = option.tiling;
    const bool fma = product_of(p) == Fp32;
    const double tiles = std::ceil(double(p.n) / t.images) * tiles_of_images(t);
    const double per = t.filter.per, rows = rows_for(product_of(p), option.tiles);
    const StepClocks step(product_of(p), option.tiles, bank_conflicts(t, fma));
    const double steps = double(t.tasks) * t.steps * t.parts;
    const double runs = rows * option.tiles * (fma ? 1 : 2);
    const double stored = t.tasks * (80 + runs * (t.runs ? 8 : fma ? 20 : 11));
    const double staged = double(t.positions) * t.all_pieces * t.parts / 32;
    // Clocks of a multiprocessor: of issue, tensor cores and shared memory.
    const double beside = stored + staged * (52 + 5 * per / t.together + per / 2) +
                          (t.all_pixels + double(t.entries) * t.parts) / 32 * 30 +
                          option.warps * (150 + 120.0 * t.parts);
    const double issued = steps * step.issued + beside / (4 * Issued);
    const double products = steps * step.products;
    const double of_rows = fma && !t.channels_last ? RowBegins * per * 32 / t.width : 0;
    const double reads =
        ReadClocks * (steps * step.reads + staged * (4 + 4 * per / t.together + of_rows));
    // Blocks beside each other hide what one waits for its loads.
    const int of_sm = std::max(std::min({MaxBlocks * MaxWarps / option.warps, 32,
                                         d.shared_per_sm / (option.shared + SystemShared)}),
                               1);
    const double waves = std::ceil(tiles / (double(d.sm_count) * of_sm));
    const double together = std::clamp(tiles / d.sm_count, 1.0, double(of_sm));
    const double busy = together * std::max({issued, products, reads});
    const double alone =
        (t.parts - 1) * PartClocks + issued * 4 * Issued / option.warps * ChainClocks;
    const double computing =
        clocks_us(d, waves * together_us(busy, alone) + EndClocks, fma ? FmaClock : TensorClock);
    // Lines of neighbours that a tile reads or writes: sectors at both ends are shared with others.
    const double size = element_bytes(p);
    const auto sectors = [&](double neighbours) { return 1 + 24 / (neighbours * size); };
    const double x = double(p.n) * p.c * p.h * p.w, y = double(p.n) * p.k * p.p * p.q;
    const double channels = double(t.sets) * t.filter.sets.channels;
    const double filters = double(t.sets) * t.filter.sets.filters / t.chunk_blocks;
    const double skipped = t.channels_last ? 1 : std::min<double>(t.across.step, 32 / size);
    const double line = t.channels_last ? channels * (channels >= p.c ? t.width : 1) : t.width;
    const double loaded = tiles * staged * 32 * per * skipped * std::min(sectors(line), 32 / size);
    const double of_y = t.channels_last ? sectors(filters >= p.k ? filters * t.columns : filters)
                                        : sectors(t.columns);
    // What tiles beside each other share comes from memory to a third; the second-level cache gives
    // all of it, and the filter to each tile, nearly twice as fast as the memory does.
    const double unique = std::min(x, loaded);
    const double filter = 4.0 * t.filter.set_words() / t.chunk_blocks * t.sets;
    const double bytes = (unique + (loaded - unique) / 3 + y * of_y) * size;
    const double memory = bytes / (FromMemory * d.bytes_per_us);
    const double cached = ((loaded + y) * size + tiles * filter) / (FromCache * d.bytes_per_us);
    return ShortLaunchUs + together_us(computing, std::max(memory, cached));
}

// What does not depend on how a batch is divided.
inline Tiling tiling_of(const cf_problem &p) {
    Tiling t = {};
    t.filter = Packed(p, sets_of(p));
    t.down = Axis(p.stride_h, p.dilation_h, p.pad_top, p.h, p.p, p.r);
    t.across = Axis(p.stride_w, p.dilation_w, p.pad_left, p.w, p.q, p.s);
    t.channels_last = p.layout == CF_NHWC;
    t.element = element_bytes(p);
    const Strides x = input_strides(p), y = residual_strides(p);
    t.image_x = x.image * t.element, t.row_x = x.row * t.element;
    t.column_x = x.column * t.element, t.channel_x = x.channel * t.element;
    t.image_y = y.image, t.row_y = y.row, t.column_y = y.column, t.channel_y = y.channel;
    const Sets &sets = t.filter.sets;
    const int per = t.filter.per;
    const auto neighbours = [&](int count) {
        return t.channels_last && p.c % count == 0 && sets.channels % count == 0 &&
               p.align >= std::min(count * t.element, 16);
    };
    t.together = neighbours(per) ? per : neighbours(2) ? 2 : 1;
    const int run = product_of(p) == Fp32 ? 4 : 2;
    t.runs =
        t.channels_last && p.k % run == 0 && sets.filters % run == 0 && p.align >= run * t.element;
    t.finishes = has_epilogue(p);
    t.activation = late_activation(p);
    return t;
}

// Whether of a row of a tile each second position comes first, then the others, as many: with a
// stride of 2 neighbours of y read neighbours then, whose pieces lie in all banks. Rows of fewer
// than eight pixels gain less or nothing, and an even width takes room: of seven pixels by 3x3 two
// meet in a bank either way.
inline bool evens_first(const Axis &across, int columns) {
    return across.of_output == 2 && columns >= 8;
}
inline int64_t row_positions(const Axis &across, int columns) {
    const int64_t positions = across.positions(columns);
    return evens_first(across, columns) ? round_up(positions, 2) : positions;
}

// Tables and positions of a tile whose channels come in parts of so many pieces.
inline double shared_bytes(Tiling &t, int pieces) {
    t.piece_parts = int(ceil_div(t.filter.sets.pieces, pieces));
    t.part_pieces = int(ceil_div(t.filter.sets.pieces, t.piece_parts));
    // From position to position an odd number of pieces: those of eight neighbours lie in all
    // banks.
    const double pitch = double((int64_t(t.sets) * t.part_pieces) | 1) * PieceBytes;
    const double height = double(t.down.positions(t.rows));
    const double width = double(row_positions(t.across, t.columns));
    const double entries = double(t.down.taps) * t.across.taps * t.part_pieces + 4;
    return (t.all_pixels + entries) * EntryBytes + 2 * PieceBytes +
           height * width * t.images * pitch;
}

// Threads of a block lie along what is contiguous in x, pieces or positions, and then along the
// other.
inline void share_staging(Tiling &t, int threads) {
    if (t.channels_last) {
        t.piece_threads = std::min(t.all_pieces, threads);
        t.position_threads = threads / t.piece_threads;
    } else {
        t.position_threads = std::min(int(round_up(t.positions, 32)), threads);
        t.piece_threads = threads / t.position_threads;
    }
}

inline void set_divisors(Tiling &t) {
    t.by_chunk_blocks = Divisor(t.chunk_blocks);
    t.by_set_blocks = Divisor(t.set_blocks), t.by_column_tiles = Divisor(t.column_tiles);
    t.by_row_tiles = Divisor(t.row_tiles);
    t.by_columns = Divisor(t.columns), t.by_rows = Divisor(t.rows);
    t.by_width = Divisor(t.width), t.by_height = Divisor(t.height);
    t.by_staging = Divisor(t.channels_last ? t.piece_threads : t.position_threads);
    t.by_part_pieces = Divisor(t.part_pieces), t.by_taps = Divisor(t.across.taps);
    t.by_across_parts = Divisor(t.across.parts), t.by_piece_parts = Divisor(t.piece_parts);
    t.by_chunks = Divisor(t.chunks), t.by_sets = Divisor(t.sets);
}

// False where it needs more than so many bytes of shared memory, or counts beyond 31 bits.
inline bool tile(const cf_query &query, const Tiling &common, const TileSize &size, int64_t bytes,
                 Option &option) {
    const cf_problem &p = query.problem;
    option = {};
    Tiling &t = option.tiling = common;
    const Sets &sets = t.filter.sets;
    t.down.split(size.taps_down), t.across.split(size.taps_across);
    t.rows_apart = uint64_t(t.row_x) * t.down.step;
    t.columns_apart = uint64_t(t.column_x) * t.across.step;
    t.images = size.images, t.rows = size.rows, t.columns = size.columns, t.sets = size.sets;
    const int pixels = rows_for(product_of(p), size.tiles) * RowPixels; // of a task
    t.pixels = size.images * size.rows * size.columns;
    t.all_pixels = int(round_up(t.pixels, pixels));
    t.chunks = size.chunks;
    t.chunk_blocks = int(ceil_div(ceil_div(sets.tiles, size.tiles), size.chunks));
    const double tasks = double(t.all_pixels / pixels) * t.sets * t.chunks;
    int pieces = sets.pieces;
    while (pieces > 1 && shared_bytes(t, pieces) > double(bytes))
        pieces = int(ceil_div(pieces, 2));
    const double shared = shared_bytes(t, pieces);
    const double parts = double(t.down.parts) * t.across.parts * t.piece_parts;
    // From part to part a warp keeps the sums of one task.
    if (shared > double(bytes) || tasks > 1 << 16 || parts > 1 << 30 ||
        (parts > 1 && tasks > MaxWarps))
        return false;
    t.tasks = int(tasks), t.parts = int(parts);
    option.warps = int(ceil_div(t.tasks, ceil_div(t.tasks, MaxWarps)));
    option.tiles = size.tiles;
    t.height = int(t.down.positions(t.rows)), t.width = int(row_positions(t.across, t.columns));
    t.even = evens_first(t.across, t.columns) ? t.width / 2 : 0;
    t.positions = t.height * t.width * t.images;
    t.pitch = (t.sets * t.part_pieces | 1) * PieceBytes;
    t.all_pieces = t.sets * t.part_pieces;
    share_staging(t, option.warps * 32);
    const int taken = t.down.taps * t.across.taps * t.part_pieces;
    // A step of a tensor core takes two pieces. The loop looks one step ahead.
    const int of_step = product_of(p) == Fp32 ? 1 : 2;
    t.steps = int(ceil_div(taken, of_step)), t.entries = (t.steps + 1) * of_step;
    t.pieces_at = t.all_pixels * EntryBytes;
    t.x_at = int(round_up(t.pieces_at + t.entries * EntryBytes, PieceBytes));
    option.shared = t.x_at + t.positions * t.pitch;
    t.set_blocks = int(ceil_div(sets.count, t.sets));
    t.column_tiles = int(ceil_div(p.q, t.columns)), t.row_tiles = int(ceil_div(p.p, t.rows));
    const double in_y = double(t.images - 1) * t.image_y + double(t.rows - 1) * t.row_y +
                        double(t.columns - 1) * t.column_y;
    t.most_images = int64_t(INT32_MAX / std::max(tiles_of_images(t), 2.0)) / t.images * t.images;
    // A tile may reach as far behind the last image as it has images.
    if (in_y > INT32_MAX || t.most_images == 0)
        return false;
    set_divisors(t);
    option.us = estimate(query, option);
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

// Of a warp: as many as take least for the same pixels.
inline int tiles_of_warp(const Sets &sets, Product product) {
    const auto clocks = [&](int tiles) {
        return double(ceil_div(sets.tiles, tiles)) * StepClocks(product, tiles, 1).longest() /
               rows_for(product, tiles);
    };
    int best = 1;
    for (int tiles = 2; tiles <= (product == Fp32 ? MaxFmaTiles : MaxTiles); ++tiles)
        if (clocks(tiles) < clocks(best))
            best = tiles;
    return best;
}

// Takes the tile in place of the best one, where it is estimated to take less; false where it does
// not fit.
inline bool take(const cf_query &query, const Tiling &common, const TileSize &size, Option &best) {
    const cf_device &d = query.device;
    bool fits = false;
    for (int blocks = 4; blocks >= 1; blocks /= 2) {
        const int64_t bytes = shared_room(d, blocks);
        Option option;
        if (!tile(query, common, size, bytes, option))
            continue;
        fits = true;
        if (!best.warps || option.us < best.us)
            best = option;
        // More room is for channels that come in parts.
        if (option.tiling.piece_parts == 1)
            break;
    }
    return fits;
}

// Whether what lies between taps is more than what outputs read.
inline bool wide(int taps, int dilation, int stride, int outputs) {
    return taps > 1 && double(taps - 1) * dilation > 2.0 * stride * outputs;
}

// The same with the filter in parts, too: rows by themselves where they do not fit together, or lie
// wide apart; then single taps.
inline void take_parts(const cf_query &query, const Tiling &common, TileSize size, Option &best) {
    const cf_problem &p = query.problem;
    const bool fits = take(query, common, size, best);
    if (fits && !wide(p.r, p.dilation_h, p.stride_h, size.rows) &&
        !wide(p.s, p.dilation_w, p.stride_w, size.columns))
        return;
    while (size.taps_down > 1) {
        size.taps_down = int(ceil_div(size.taps_down, 2));
        take(query, common, size, best);
    }
    while (size.taps_across > 1) {
        size.taps_across = int(ceil_div(size.taps_across, 2));
        take(query, common, size, best);
    }
}

// Calls body with the sizes of tiles that may be worth it, so many of them to a warp and the filter
// in one part.
template <class Body>
void for_sizes_of(const cf_problem &p, const Sets &sets, int tiles, Body body) {
    const int chunks = int(ceil_div(sets.tiles, tiles));
    const int images = int(std::clamp<int64_t>(p.n, 1, MaxPixels));
    const auto with_sets = [&](int images, int rows, int columns) {
        for (int set = 1;; set *= 2) {
            set = std::min(set, sets.count);
            for_pieces(set == 1 ? chunks : 1, chunks, [&](int some) {
                body({images, rows, columns, set, tiles, set == 1 ? some : chunks, p.r, p.s});
            });
            // Lines of this many channels are long enough.
            if (set == sets.count || set * sets.channels >= 128)
                return;
        }
    };
    for_pieces(p.q, MaxPixels, [&](int columns) {
        for_pieces(p.p, MaxPixels / columns, [&](int rows) {
            const bool whole = columns == p.q && rows == p.p;
            for (int together = whole ? std::min(MaxPixels / (rows * columns), images) : 1;
                 together >= 1; together /= 2)
                with_sets(together, rows, columns);
        });
    });
}

// The same. What FMAs gain by more tiles, a block may lose for want of room.
template <class Body>
void for_sizes(const cf_problem &p, const Sets &sets, Body body) {
    const int tiles = tiles_of_warp(sets, product_of(p));
    for_sizes_of(p, sets, tiles, body);
    if (product_of(p) == Fp32 && tiles > 1)
        for_sizes_of(p, sets, 1, body);
}

// The one that is estimated to take least; without warps where none fits.
inline Option best_option(const cf_query &query) {
    const Tiling common = tiling_of(query.problem);
    Option best;
    for_sizes(query.problem, common.filter.sets,
              [&](const TileSize &size) { take_parts(query, common, size, best); });
    return best;
}

} // namespace cf::grouped_any
