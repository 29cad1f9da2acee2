// The planner of depthwise_mma: how a problem becomes strips, and what a strip takes.
#pragma once

#include "core/divisor.cuh"
#include "core/estimate.cuh"
#include "core/fragment_epilogue.cuh"
#include "core/half_line_map.cuh"
#include "kernels/depthwise/family.cuh"

#include <algorithm>

namespace cf::depthwise_mma {

using namespace depthwise;

constexpr int Warps = 8;                       // of a block
constexpr int WarpChannels = 4;                // of each, the rest of a strip the same for all
constexpr int Channels = Warps * WarpChannels; // of a strip
constexpr int PixelBytes = Channels * 2;
static_assert(PixelBytes == HalfLineBytes, "a pixel of a box");
constexpr int Units = 16;          // rows of a product: column tiles of images
constexpr int TileWidth = 16;      // columns of x that a product takes
constexpr int MaxStages = 16;      // of the ring that rows of x stream through
constexpr int Slots = 4;           // that rows of y leave from
constexpr int StaticShared = 1024; // bytes, and what aligns the rest
constexpr int SystemShared = 1024; // bytes of each block's that are the system's
constexpr int MaxBox = 256;        // elements along a side
// Rows of x and y begin at multiples of what the swizzle repeats itself after, so that all of them
// are swizzled alike.
constexpr int PitchPixels = HalfLineAlign / PixelBytes;

// Columns of y whose windows are within the columns of x of a product.
__host__ __device__ constexpr int columns_of(int r, int stride) {
    return (TileWidth - r) / stride + 1 < 8 ? (TileWidth - r) / stride + 1 : 8;
}
// Blocks that registers leave room for on a multiprocessor.
__host__ __device__ constexpr int blocks_of(int r) { return r == 3 ? 2 : 1; }

// A strip is some rows of y in some column tiles of some images, in 32 channels. Its rows of x
// stream through the ring, a few steps to a stage: a step is as many rows of x as the vertical
// stride, and as many of y as it completes, one or none, are gathered in a slot. Offsets in shared
// memory are bytes.
struct Tiling {
    int n, c, p, q;
    int pad_top, pad_left;
    int images, tiles; // of a strip
    int rows;          // of y in a strip
    int steps;         // of a stage
    int items;         // of the ring, for a strip: its filters, then boxes of x
    int strips, channel_blocks, column_pieces, row_pieces;
    int stages;
    int finishes;   // whether there is an epilogue
    int activation; // beyond what cf::Finish does
    uint32_t stage_bytes, box_bytes;
    uint32_t pitch, image;                      // from row to row, from image to image of a stage
    uint32_t first_slot, slot_bytes, row_bytes; // behind the stages; of a row of y
    Divisor by_channel_blocks, by_column_pieces, by_row_pieces, by_tiles, by_items;
};

// A tiling, what it copies, and what its launch takes.
struct Option {
    Tiling tiling;
    Box x, y;
    int blocks;
    size_t shared;
    double us;
};

// Fitted to 589 times of an H100 (benches/results/evidence/h100-depthwise-mma-plans.csv), all steps
// counted that the kernel of then computed: clocks of a step of a block by itself, which waits for
// its loads and products; of an item of the ring beside them; until the first one is there, and
// more for each block of a multiprocessor; until any is, and bytes of it that come in one, where
// many are on their way. And shares: of clocks that shared memory counts, of the memory's
// bandwidth, of what strips read again that comes from it.
constexpr double StepAlone = 360, OfItem = 780, Fill = 1220, OfBlock = 147, InFlight = 2010,
                 BytesInFlight = 317, SharedShare = 0.62, StreamShare = 0.8, AgainShare = 0.25;
// Clocks that a product takes of a quarter of a multiprocessor.
constexpr double ProductClocks = 6.6;

// Clocks of a multiprocessor for a step of a block: those of shared memory, where loads of a warp
// take four for 256 bytes and stores too, or of its products.
inline double step_clocks(const cf_problem &p, const Tiling &t) {
    const double copied = double(t.box_bytes) / t.steps + t.row_bytes;
    const double shared = Warps * (p.stride_h * 8 * 4 + 4 * 4) + copied / 128;
    return std::max(SharedShare * shared, Warps / 4 * WarpChannels * p.r * ProductClocks);
}

inline double estimate(const cf_query &query, const Option &option) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const Tiling &t = option.tiling;
    // Each element once, and again what strips beside each other share.
    const int halo = std::max(p.r - p.stride_h, 0);
    const int shared_rows = std::max(((t.items - 1) * t.steps - t.rows) * p.stride_h, halo);
    const double rows_read =
        p.h + std::min<double>((t.row_pieces - 1.0) * shared_rows, (t.row_pieces - 1.0) * p.h);
    const double columns_read = p.w + std::min<double>((t.column_pieces - 1.0) * halo, p.w);
    const double again = (rows_read * columns_read / (double(p.h) * p.w) - 1) * AgainShare;
    const double bytes =
        (double(p.n) * p.c * p.h * p.w * (1 + again) + double(p.n) * p.k * p.p * p.q) *
        element_bytes(p);
    const double rounds = double(ceil_div(t.strips, option.blocks));
    const double of_sm = double(ceil_div(option.blocks, d.sm_count));
    // Strips of the last round leave some blocks without one, or some multiprocessors.
    const double balance =
        rounds > 1 ? rounds * option.blocks / t.strips : of_sm * d.sm_count / option.blocks;
    const double memory = bytes / (StreamShare * d.bytes_per_us) * balance;
    // While a stage is being read, the others are on their way.
    const double items = rounds * t.items;
    const double of_item = InFlight + t.box_bytes / BytesInFlight;
    const double read_us =
        items > t.stages ? clocks_us(d, items / (t.stages - 1.0) * of_item, FmaClock) : 0;
    const double steps = t.rows + rows_of(p.r, p.stride_h) - 1;
    const double of_step = together_us(StepAlone, step_clocks(p, t) * of_sm);
    const double fill = Fill + of_sm * OfBlock;
    const double computing =
        clocks_us(d, rounds * (steps * of_step + t.items * OfItem) + fill, FmaClock);
    return ShortLaunchUs +
           together_us(computing, clocks_us(d, fill, FmaClock) + std::max(memory, read_us));
}

// With so many images and column tiles to a strip, and rows of y; about so many bytes are copied at
// once.
inline bool tile(const cf_query &query, int images, int tiles, int rows, int copied,
                 Option &option) {
    const cf_problem &p = query.problem;
    const int stride = p.stride_h, columns = columns_of(p.r, stride);
    option = {};
    Tiling &t = option.tiling;
    const int64_t width = round_up((tiles * columns - 1) * stride + p.s, PitchPixels);
    const int64_t column_pieces = ceil_div(p.q, int64_t(tiles) * columns);
    const int64_t row_pieces = ceil_div(p.p, rows);
    const int64_t channel_blocks = ceil_div(p.c, Channels);
    const double strips = double(ceil_div(std::max<int64_t>(p.n, 1), images)) * column_pieces *
                          row_pieces * channel_blocks;
    // Items of the ring are counted in 31 bits.
    if (width > MaxBox || strips * (rows + p.r) > INT32_MAX / 2)
        return false;
    const int64_t pitch = width * PixelBytes, step_bytes = pitch * stride * images;
    int64_t steps = std::clamp<int64_t>(copied / step_bytes, 1, 8);
    steps = std::min<int64_t>(steps, rows + rows_of(p.r, stride) - 1);
    const int64_t row_bytes =
        round_up(int64_t(images) * tiles * columns * PixelBytes, HalfLineAlign);
    const int64_t filter_bytes = int64_t(p.r) * p.s * PixelBytes;
    const int64_t stage_bytes = round_up(std::max(step_bytes * steps, filter_bytes), HalfLineAlign);
    const int64_t room = query.device.shared_per_sm / blocks_of(p.r) - SystemShared;
    const int64_t most = std::min<int64_t>(room, query.device.shared_per_block) - StaticShared -
                         HalfLineAlign - Slots * steps * row_bytes;
    t.stages = int(std::min<int64_t>(most / stage_bytes, MaxStages));
    if (most < 0 || t.stages < 2) {
        t.stages = 0;
        return false;
    }
    t.n = int(p.n), t.c = p.c, t.p = p.p, t.q = p.q;
    t.pad_top = p.pad_top, t.pad_left = p.pad_left;
    t.images = images, t.tiles = tiles, t.rows = rows, t.steps = int(steps);
    t.items = 1 + int(ceil_div(rows + rows_of(p.r, stride) - 1, steps));
    t.strips = int(strips), t.channel_blocks = int(channel_blocks);
    t.column_pieces = int(column_pieces), t.row_pieces = int(row_pieces);
    t.finishes = has_epilogue(p);
    t.activation = late_activation(p);
    t.stage_bytes = uint32_t(stage_bytes), t.box_bytes = uint32_t(step_bytes * steps);
    t.pitch = uint32_t(pitch), t.image = uint32_t(pitch * stride * steps);
    t.first_slot = uint32_t(t.stages * stage_bytes);
    t.row_bytes = uint32_t(row_bytes), t.slot_bytes = uint32_t(steps * row_bytes);
    t.by_channel_blocks = Divisor(int(channel_blocks));
    t.by_column_pieces = Divisor(int(column_pieces));
    t.by_row_pieces = Divisor(int(row_pieces));
    t.by_tiles = Divisor(tiles);
    t.by_items = Divisor(t.items);
    // A batch may be empty, a tensor not.
    const uint64_t n = uint64_t(std::max<int64_t>(p.n, 1));
    option.x = {element_bytes(p),
                {uint64_t(p.c), uint64_t(p.w), uint64_t(p.h), n},
                {Channels, uint32_t(width), uint32_t(stride * steps), uint32_t(images)}};
    option.y = {element_bytes(p),
                {uint64_t(p.c), uint64_t(p.q), uint64_t(p.p), n},
                {Channels, uint32_t(tiles * columns), 1, uint32_t(images)}};
    option.blocks = int(std::min<int64_t>(t.strips, query.device.sm_count * blocks_of(p.r)));
    option.shared = HalfLineAlign + t.first_slot + Slots * t.slot_bytes;
    option.us = estimate(query, option);
    return true;
}

// The one that is estimated to take least; none of its stages where none fits.
inline Option best_option(const cf_query &query) {
    const cf_problem &p = query.problem;
    Option best = {};
    const auto consider = [&](int images, int tiles, int rows) {
        for (int copied = 4096; copied <= 32768; copied *= 2) {
            Option option;
            if (tile(query, images, tiles, rows, copied, option) &&
                (best.tiling.stages == 0 || option.us < best.us))
                best = option;
        }
    };
    const int all = int(ceil_div(p.q, columns_of(p.r, p.stride_h)));
    for (int tiles = std::min(all, Units); tiles > 0; --tiles) {
        // As few as so many pieces of a row need.
        if (tiles != ceil_div(all, ceil_div(all, tiles)))
            continue;
        for (int images = 1; images * tiles <= Units && images <= std::max<int64_t>(p.n, 1);
             ++images)
            for (int of_rows = 1, before = 0; of_rows <= 16; ++of_rows) {
                const int rows = int(ceil_div(p.p, of_rows));
                if (rows != before)
                    consider(images, tiles, rows);
                before = rows;
            }
    }
    return best;
}

} // namespace cf::depthwise_mma
