// The planner of depthwise_nhwc: how a problem becomes strips, and what a strip takes.
#pragma once

#include "core/divisor.cuh"
#include "core/estimate.cuh"
#include "core/fragment_epilogue.cuh"
#include "core/tensor_map.cuh"
#include "kernels/depthwise/family.cuh"

#include <algorithm>

namespace cf::depthwise {

constexpr int MaxWarps = 8;   // of a block
constexpr int MaxStages = 16; // of the ring that rows stream through
constexpr int StaticShared = 1024;
constexpr int MaxBox = 256; // elements along a side
constexpr int LaneChannels = 2;

// Adjacent columns of y that a thread has sums of.
constexpr int columns_of(int r) { return r == 3 ? 7 : 4; }
// Blocks of so many warps that registers leave room for on a multiprocessor.
constexpr int blocks_of(int r) { return r == 7 ? 1 : 2; }
inline int blocks_of(int r, int warps) { return blocks_of(r) * MaxWarps / warps; }

// A strip is some rows of y in some columns of some images, in as many channels as some lanes of a
// warp have. Its rows of x stream through the ring, a few steps to a stage: a step is as many rows
// of x as the vertical stride. Offsets in shared memory are bytes.
struct Tiling {
    int n, c, p, q;
    int pad_top, pad_left;
    int images, tiles; // of a strip; tiles are a thread's columns
    int rows;          // of y in a strip
    int steps;         // of a stage
    int items;         // of the ring, for a strip: its filters, then boxes of x
    int strips, channel_blocks, column_pieces, row_pieces;
    int stages;
    int finishes;   // whether there is an epilogue
    int activation; // beyond what cf::Finish does
    uint32_t stage_bytes, box_bytes;
    uint32_t pitch, image; // from row to row, from image to image of a stage
    Divisor by_channel_blocks, by_column_pieces, by_row_pieces, by_tiles, by_items;
};

// A tiling, what it copies, and the clocks that its launch takes.
struct Option {
    Tiling tiling;
    Box box;
    int warps, lanes; // of a block; of a channel block
    int blocks;
    double us;
};

// Instructions of a warp for a step, about; of 7x7 those for rows of y that a strip has.
inline double instructions(const cf_problem &p, const Tiling &t) {
    const int columns = columns_of(p.r), width = (columns - 1) * p.stride_w + p.r;
    const int elements = columns * LaneChannels;
    const double steps = t.rows + rows_of(p.r, p.stride_h) - 1;
    const double products = double(p.r) * p.s * elements * (p.r == 7 ? t.rows / steps : 1);
    const int widening = p.storage == CF_STORE_F32 ? 1 : 2;
    return products + p.stride_h * width * 1.5 * widening + elements * 6 + 70;
}
// Clocks of a warp's step by itself, which waits for its loads and products; of an instruction of
// each of many warps; of an item of the ring beside them; until the first one is there, and more
// for each block of a multiprocessor; until any is, where many are on their way. Fitted to
// benches/results/evidence/h200-depthwise-plans.csv, as shares of the memory's bandwidth are, and
// to what was chosen by estimates before (h200-depthwise-grouped.csv).
constexpr double StepAlone = 1000, ClocksOfMany = 0.88, OfItem = 120, Fill = 120, OfBlock = 310,
                 InFlight = 2200;

inline double estimate(const cf_query &query, const Option &option) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const Tiling &t = option.tiling;
    // Each element once, and again what strips beside each other share, of which a third comes from
    // memory.
    const double halo = std::max(p.r - p.stride_h, 0);
    const double rows_read = p.h + std::min<double>((t.row_pieces - 1) * halo, p.h);
    const double columns_read = p.w + std::min<double>((t.column_pieces - 1) * halo, p.w);
    const double again = (rows_read * columns_read / (double(p.h) * p.w) - 1) / 3;
    const double bytes =
        (double(p.n) * p.c * p.h * p.w * (1 + again) + double(p.n) * p.k * p.p * p.q) *
        element_bytes(p);
    // Of pixels in 64 bytes at a time the memory gives less.
    const bool narrow =
        option.lanes * LaneChannels * element_bytes(p) < 128 && option.lanes * LaneChannels < p.c;
    const double rounds = double(ceil_div(t.strips, option.blocks));
    const double of_sm = double(ceil_div(option.blocks, d.sm_count));
    // Strips of the last round leave some blocks without one, or some multiprocessors.
    const double balance =
        rounds > 1 ? rounds * option.blocks / t.strips : of_sm * d.sm_count / option.blocks;
    const double memory = bytes / ((narrow ? 0.635 : 0.805) * d.bytes_per_us) * balance;
    // While a stage is being read, the others are on their way.
    const double items = rounds * t.items;
    const double read_us =
        items > t.stages ? clocks_us(d, items / (t.stages - 1.0) * InFlight, FmaClock) : 0;
    const double steps = t.rows + rows_of(p.r, p.stride_h) - 1;
    const double of_step =
        together_us(StepAlone, instructions(p, t) * option.warps * of_sm / 4 * ClocksOfMany);
    const double fill = Fill + of_sm * OfBlock;
    const double computing =
        clocks_us(d, rounds * (steps * of_step + t.items * OfItem) + fill, FmaClock);
    return ShortLaunchUs +
           together_us(computing, clocks_us(d, fill, FmaClock) + std::max(memory, read_us));
}

// With so many lanes to a channel block, images and column tiles to a strip, and rows of y; about
// so many bytes are copied at once.
inline bool tile(const cf_query &query, int lanes, int images, int tiles, int rows, int copied,
                 Option &option) {
    const cf_problem &p = query.problem;
    const int element = element_bytes(p), columns = columns_of(p.r), stride = p.stride_h;
    const int channels = lanes * LaneChannels;
    option = {};
    Tiling &t = option.tiling;
    const int64_t width = int64_t(tiles * columns - 1) * stride + p.s;
    const int64_t column_pieces = ceil_div(p.q, int64_t(tiles) * columns);
    const int64_t row_pieces = ceil_div(p.p, rows);
    const int64_t channel_blocks = ceil_div(p.c, channels);
    const double strips = double(ceil_div(std::max<int64_t>(p.n, 1), images)) * column_pieces *
                          row_pieces * channel_blocks;
    // Items of the ring are counted in 31 bits.
    if (width > MaxBox || strips * (rows + p.r) > INT32_MAX / 2)
        return false;
    option.lanes = lanes;
    option.warps = int(ceil_div(images * tiles, 32 / lanes));
    if (option.warps > MaxWarps)
        return false;
    const int64_t pitch = width * channels * element;
    const int64_t room =
        query.device.shared_per_sm / blocks_of(p.r, option.warps) - 1024 - StaticShared;
    const int64_t most = std::min<int64_t>(room, query.device.shared_per_block - StaticShared);
    const int64_t step_bytes = pitch * stride * images;
    int64_t steps = std::clamp<int64_t>(copied / step_bytes, 1, 8);
    steps = std::min<int64_t>(steps, rows + rows_of(p.r, stride) - 1);
    const int64_t filter_bytes = int64_t(p.r) * p.s * channels * element;
    const int64_t stage_bytes = round_up(std::max(step_bytes * steps, filter_bytes), 128);
    t.stages = int(std::min<int64_t>(most / stage_bytes, MaxStages));
    if (t.stages < 2)
        return false;
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
    t.by_channel_blocks = Divisor(int(channel_blocks));
    t.by_column_pieces = Divisor(int(column_pieces));
    t.by_row_pieces = Divisor(int(row_pieces));
    t.by_tiles = Divisor(tiles);
    t.by_items = Divisor(t.items);
    // A batch may be empty, a tensor not.
    option.box = {
        element,
        {uint64_t(p.c), uint64_t(p.w), uint64_t(p.h), uint64_t(std::max<int64_t>(p.n, 1))},
        {uint32_t(channels), uint32_t(width), uint32_t(stride * steps), uint32_t(images)}};
    option.blocks =
        int(std::min<int64_t>(t.strips, query.device.sm_count * blocks_of(p.r, option.warps)));
    option.us = estimate(query, option);
    return true;
}

// The one that is estimated to take least; none of its stages where none fits.
inline Option best_option(const cf_query &query) {
    const cf_problem &p = query.problem;
    Option best = {};
    const auto consider = [&](int lanes, int images, int tiles, int rows) {
        for (int copied = 4096; copied <= 16384; copied *= 2) {
            Option option;
            if (tile(query, lanes, images, tiles, rows, copied, option) &&
                (best.tiling.stages == 0 || option.us < best.us))
                best = option;
        }
    };
    const int all = int(ceil_div(p.q, columns_of(p.r)));
    for (int lanes = p.storage == CF_STORE_F32 ? 16 : 32; lanes >= 16; lanes /= 2) {
        const int units = MaxWarps * (32 / lanes);
        for (int tiles = std::min(all, units); tiles > 0; --tiles) {
            // As few as so many pieces of a row need.
            if (tiles != ceil_div(all, ceil_div(all, tiles)))
                continue;
            for (int images = 1; images * tiles <= units && images <= std::max<int64_t>(p.n, 1);
                 ++images)
                for (int of_rows = 1, before = 0; of_rows <= 16; ++of_rows) {
                    const int rows = int(ceil_div(p.p, of_rows));
                    if (rows != before)
                        consider(lanes, images, tiles, rows);
                    before = rows;
                }
        }
    }
    return best;
}

} // namespace cf::depthwise
