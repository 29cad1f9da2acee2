// How depthwise_nhwc, depthwise_rows and depthwise_mma cover a problem by strips.
#pragma once

#include "core/divisor.cuh"
#include "core/estimate.cuh"
#include "core/fragment_epilogue.cuh"
#include "core/room.cuh"
#include "core/tensor_map.cuh"
#include "kernels/depthwise/family.cuh"

#include <algorithm>

namespace cf::depthwise {

constexpr int MaxStages = 16;   // of the ring that rows of x stream through
constexpr int RingShared = 256; // bytes that its barriers take
constexpr int MaxBox = 256;     // elements along a side

// A strip is some rows of y in some column tiles of some images, in a block of channels. Its rows
// of x stream through the ring, a few steps to a stage: a step is as many rows of x as the vertical
// stride. Offsets in shared memory are bytes.
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
    uint32_t pitch, image; // from row to row, from image to image of a stage
    Divisor by_channel_blocks, by_column_pieces, by_row_pieces, by_tiles, by_items;
};

// What a plan chooses of a strip: rows of y, column tiles and images, and about how many bytes of x
// are copied at once.
struct StripSize {
    int images, tiles, rows, copied;
};
// What follows from the kernel: columns of a tile, channels, what the columns and the bytes of a
// stage are multiples of, and columns that are copied before the first one that is read.
struct StripShape {
    int columns, channels, width_multiple, stage_multiple;
    int before = 0;
};
// Up to how many column tiles a strip has, of all its images, how many images, bytes of x that are
// copied at once, and pieces that rows of y are divided into.
struct StripLimits {
    int units;
    int64_t images;
    int copied;
    int row_pieces = 16;
};

// Everything but the number of stages, and the box that is copied; or false where the box is too
// long or strips are too many to be counted.
inline bool tile_strips(const cf_problem &p, const StripShape &shape, const StripSize &size,
                        Tiling &t, Box &box) {
    const int stride = p.stride_h, element = element_bytes(p);
    const int64_t columns = int64_t(size.tiles) * shape.columns;
    const int64_t width =
        round_up(shape.before + (columns - 1) * stride + p.s, shape.width_multiple);
    const int64_t column_pieces = ceil_div(p.q, columns), row_pieces = ceil_div(p.p, size.rows);
    const int64_t channel_blocks = ceil_div(p.c, shape.channels);
    // A batch may be empty, a tensor not.
    const int64_t n = std::max<int64_t>(p.n, 1);
    const double strips =
        double(ceil_div(n, size.images)) * column_pieces * row_pieces * channel_blocks;
    // Items of the ring are counted in 31 bits.
    if (width > MaxBox || size.images > MaxBox || strips * (size.rows + p.r) > INT32_MAX / 2)
        return false;
    const int64_t pitch = width * shape.channels * element;
    const int64_t step_bytes = pitch * stride * size.images;
    const int64_t all_steps = size.rows + rows_of(p.r, stride) - 1;
    const int64_t most = std::clamp<int64_t>(size.copied / step_bytes, 1, 8);
    const int64_t boxes = ceil_div(all_steps, most);
    const int64_t steps = ceil_div(all_steps, boxes); // no more than so many boxes need
    const int64_t filter_bytes = int64_t(p.r) * p.s * shape.channels * element;
    t.n = int(p.n), t.c = p.c, t.p = p.p, t.q = p.q;
    t.pad_top = p.pad_top, t.pad_left = p.pad_left;
    t.images = size.images, t.tiles = size.tiles, t.rows = size.rows, t.steps = int(steps);
    t.items = 1 + int(boxes);
    t.strips = int(strips), t.channel_blocks = int(channel_blocks);
    t.column_pieces = int(column_pieces), t.row_pieces = int(row_pieces);
    t.finishes = has_epilogue(p);
    t.activation = late_activation(p);
    t.box_bytes = uint32_t(step_bytes * steps);
    t.stage_bytes =
        uint32_t(round_up(std::max(step_bytes * steps, filter_bytes), shape.stage_multiple));
    t.pitch = uint32_t(pitch), t.image = uint32_t(pitch * stride * steps);
    t.by_channel_blocks = Divisor(int(channel_blocks));
    t.by_column_pieces = Divisor(int(column_pieces));
    t.by_row_pieces = Divisor(int(row_pieces));
    t.by_tiles = Divisor(size.tiles);
    t.by_items = Divisor(t.items);
    box = {element,
           {uint64_t(p.c), uint64_t(p.w), uint64_t(p.h), uint64_t(n)},
           {uint32_t(shape.channels), uint32_t(width), uint32_t(stride * steps),
            uint32_t(size.images)}};
    return true;
}

// What a plan tells of it.
inline void tell_strips(cf_plan &plan, const Tiling &t, int blocks) {
    tell(plan, "images=%d tiles=%d rows=%d steps=%d strips=%d stages=%d blocks=%d", t.images,
         t.tiles, t.rows, t.steps, t.strips, t.stages, blocks);
}

// Calls meet(option) with all strips within the limits, as far as tile(size, option) fills them in.
template <class Option, class Tile, class Meet>
void for_strips(const cf_problem &p, int columns, const StripLimits &most, Tile tile, Meet meet) {
    const int all = int(ceil_div(p.q, columns));
    for (int tiles = std::min(all, most.units); tiles > 0; --tiles) {
        // As few as so many pieces of a row need.
        if (tiles != ceil_div(all, ceil_div(all, tiles)))
            continue;
        for (int images = 1;
             images * tiles <= most.units && images <= std::max<int64_t>(most.images, 1); ++images)
            for (int of_rows = 1, before = 0; of_rows <= most.row_pieces; ++of_rows) {
                const int rows = int(ceil_div(p.p, of_rows));
                if (rows == before)
                    continue;
                before = rows;
                for (int copied = 4096, steps = 0; copied <= most.copied; copied *= 2) {
                    Option option;
                    // With as many steps to a stage as before they are the same strips.
                    if (!tile(StripSize{images, tiles, rows, copied}, option) ||
                        option.tiling.steps == steps)
                        continue;
                    steps = option.tiling.steps;
                    meet(option);
                }
            }
    }
}

// Fills in the ring and the launch of an option whose kernel has nothing else in shared memory,
// with room for so many blocks on a multiprocessor; false where two stages do not fit.
template <class Option>
bool place(const cf_query &query, int blocks, Option &option) {
    const cf_device &d = query.device;
    auto &t = option.tiling;
    const RingRoom room = ring_room(d, blocks, RingShared, RingShared, t.stage_bytes, MaxStages);
    t.stages = room.stages, option.shared = room.shared;
    if (t.stages < 2)
        return false;
    option.blocks = int(std::min<int64_t>(t.strips, int64_t(d.sm_count) * blocks));
    option.us = estimate(query, option);
    return true;
}

// Bytes that the memory moves: each element of x and y once, and so much of what strips beside each
// other read again, which are so many rows of x.
inline double moved_bytes(const cf_problem &p, const Tiling &t, double rows_again, double share) {
    const double halo = std::max(p.r - p.stride_h, 0);
    const double rows_read = p.h + rows_again;
    const double columns_read = p.w + std::min<double>((t.column_pieces - 1) * halo, p.w);
    const double again = (rows_read * columns_read / (double(p.h) * p.w) - 1) * share;
    return (double(p.n) * p.c * p.h * p.w * (1 + again) + double(p.n) * p.k * p.p * p.q) *
           element_bytes(p);
}

// Clocks of what a block does, in estimates: of a step of its strips, of an item of the ring beside
// them, until the first one is there, and until any is.
struct StripClocks {
    double step, item, fill, in_flight;
};

// What a launch takes, where so many blocks move so many bytes by so much of the memory's
// bandwidth.
inline double strips_us(const cf_query &query, const Tiling &t, int blocks, double bytes,
                        double bandwidth_share, const StripClocks &clocks) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const double rounds = double(ceil_div(t.strips, blocks));
    const double of_sm = double(ceil_div(blocks, d.sm_count));
    // Strips of the last round leave some blocks without one, or some multiprocessors.
    const double balance = rounds > 1 ? rounds * blocks / t.strips : of_sm * d.sm_count / blocks;
    const double memory = bytes / (bandwidth_share * d.bytes_per_us) * balance;
    // While a stage is being read, the others are on their way.
    const double items = rounds * t.items;
    const double read_us =
        items > t.stages ? clocks_us(d, items / (t.stages - 1.0) * clocks.in_flight, FmaClock) : 0;
    const double steps = t.rows + rows_of(p.r, p.stride_h) - 1;
    const double computing = clocks_us(
        d, rounds * (steps * clocks.step + t.items * clocks.item) + clocks.fill, FmaClock);
    return ShortLaunchUs +
           together_us(computing, clocks_us(d, clocks.fill, FmaClock) + std::max(memory, read_us));
}

} // namespace cf::depthwise
