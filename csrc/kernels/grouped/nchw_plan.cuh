// The planner of grouped_nchw: how a problem becomes strips, and what a strip takes.
#pragma once

#include "core/ranking.cuh"
#include "kernels/grouped/nhwc_plan.cuh"

namespace cf::grouped_nchw {

using namespace grouped;

constexpr int Warps = 4;          // of a block
constexpr int Loader = Warps - 1; // which loads and stores for them, and has no more tasks than any
constexpr int MaxStages = 4;      // of the ring that strips go through
constexpr int Slack = 32; // bytes between rows of channels that are copied in whole 16 bytes
constexpr int MaxTaskPieces = 8, MaxChannels = 256;

// Tiles of a warp: as many as registers have room for, of the same set.
__host__ __device__ constexpr int tiles_of(int set_bytes, int size, int products) {
    return set_bytes == TileChannels * size || set_bytes == 128 || products == 3 ? 1 : 2;
}
// Blocks that registers leave room for on a multiprocessor: a lane has a filter and the sums of all
// rows of y that a row of x meets.
constexpr int blocks_of(int set_bytes, int size, int filter, int products) {
    const int tiles = tiles_of(set_bytes, size, products);
    const int words = filter * (filter * set_bytes / PieceBytes + 4) * tiles * parts_of(products);
    return filter == 0 ? 4 : words <= 36 ? 6 : words <= 72 ? 4 : words <= 120 ? 3 : 2;
}

inline Instance instance_of(const cf_problem &p) {
    Instance instance = grouped::instance_of(p);
    instance.tiles = tiles_of(instance.set_bytes, element_bytes(p), instance.products);
    instance.warps = Warps;
    instance.blocks =
        blocks_of(instance.set_bytes, element_bytes(p), instance.filter, instance.products);
    return instance;
}

// A strip is some rows of y, or all, in some channels of an image: x as it lies in memory (raw),
// and the same with channels beside each other (transposed), with zeros around. A piece of channels
// is 16 bytes of a pixel. A task of a warp is two units, 8 columns in some rows of y each, of a
// chunk of channels. Offsets in shared memory are bytes.
struct Tiling {
    int c, h, w, h_step, w_step; // steps: pixels of x from one of y to the next
    int p, q, r, s;
    int row_step, tap_step; // from tap to tap: pixels in what is transposed
    int pad_top, pad_left;
    int channels, pieces, chunks; // of a strip
    int chunk_bytes;              // of a pixel of x
    int all_chunks;               // of all channels
    int rows;                     // of y in a strip
    int in_rows;                  // of x that a strip needs, those outside too
    int task_rows, column_units;  // rows of y in a unit; units beside each other
    int units, tasks;             // of a strip
    int whole;                    // whether a strip has all rows of x
    int strips, channel_blocks, row_strips;
    int stages;
    int finishes;                      // whether there is an epilogue
    int activation;                    // beyond what cf::Finish does
    int width, pixels;                 // of what is transposed: of a row, of all
    uint32_t stage_bytes, piece_bytes; // of a stage; of a piece of all pixels
    uint32_t x_plane, x_pitch;         // from channel to channel: in x, in a stage
    uint32_t y_plane, y_pitch;
    Divisor by_channel_blocks, by_row_strips, by_width, by_chunks, by_column_units;
};

struct Option {
    Tiling tiling;
    int blocks;    // of the launch
    size_t shared; // bytes of a block
    double us;
};

// What a strip has: channels, rows of y, and pieces of rows for tasks.
struct StripSize {
    int channels, rows, pieces;
};

// Channels that a strip may have are multiples of these.
inline int channel_step(const cf_problem &p, const Instance &instance) {
    return std::max(instance.set_bytes / element_bytes(p), instance.tiles * TileChannels);
}

// Bytes from channel to channel of a stage: what some rows have, with room between them, and as far
// behind a multiple of 16 bytes as in the tensor.
inline int64_t pitch_of(int64_t bytes, int64_t plane) {
    const int64_t least = bytes + Slack;
    return least + ((plane - least) % 16 + 16) % 16;
}

// Clocks of a strip beside its rows, as its warps wait for each other twice; and of a bulk copy,
// which a multiprocessor does one after the other.
constexpr double StripClocks = 700, CopyClocks = 64;
// As grouped_nhwc's were fitted when this row was timed; not fitted by itself.
constexpr SplitClocks SplitOfPieces = {42, 5.2};

inline double estimate(const cf_query &query, const Instance &instance, const Option &option) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const Tiling &t = option.tiling;
    const int size = element_bytes(p);
    // Each element once, and again what strips below each other share, of which a third comes from
    // memory.
    const double height = (p.r - 1.0) * p.dilation_h + 1;
    const double again =
        std::min<double>((t.row_strips - 1) * std::max(height - p.stride_h, 0.0), p.h) / 3;
    const double bytes = double(p.n) * p.c * ((p.h + again) * p.w + double(p.p) * p.q) * size;
    const double rounds = double(ceil_div(t.strips, option.blocks));
    const double of_sm = double(ceil_div(option.blocks, d.sm_count));
    const double balance =
        rounds > 1 ? rounds * option.blocks / t.strips : of_sm * d.sm_count / option.blocks;
    const double memory = bytes / (0.87 * d.bytes_per_us) * (of_sm > 1 || rounds > 1 ? balance : 1);
    const double read_us =
        rounds > 1 ? clocks_us(d, rounds / (t.stages - 0.5) * InFlight, TensorClock) : 0;
    const double copies = double(t.strips) * (t.whole ? 2 : 2 * t.channels) / d.sm_count;
    const double copy_us = clocks_us(d, copies * CopyClocks, TensorClock);
    const RowClocks of_row = row_clocks(p, instance, SplitOfPieces);
    const double steps = t.task_rows + (instance.filter ? rows_of(p.r, p.stride_h) - 1 : 0);
    const double of_warp = double(ceil_div(t.tasks, Warps)); // tasks
    const double transposed = double(ceil_div(t.pixels, Warps * 32));
    const double transpose = transposed * (22 + t.pieces * (40.0 / size + 7));
    const double each = transpose + of_warp * (steps * of_row.each + 80);
    const double alone = transpose * 2 + of_warp * steps * of_row.alone + StripClocks;
    const double computing =
        clocks_us(d, rounds * together_us(alone, of_sm * each) + Fill, TensorClock);
    return ShortLaunchUs + together_us(computing, clocks_us(d, Fill, TensorClock) +
                                                      std::max({memory, read_us, copy_us}));
}

// What a strip does not change.
inline void set_problem(const cf_problem &p, const Instance &instance, Tiling &t) {
    t.c = p.c, t.h = p.h, t.w = p.w, t.h_step = p.stride_h, t.w_step = p.stride_w;
    t.p = p.p, t.q = p.q, t.r = p.r, t.s = p.s;
    t.width = int(int64_t(p.q - 1) * p.stride_w + int64_t(p.s - 1) * p.dilation_w + 1);
    t.row_step = t.width * p.dilation_h, t.tap_step = p.dilation_w;
    t.pad_top = p.pad_top, t.pad_left = p.pad_left;
    t.chunk_bytes = instance.tiles * TileChannels * element_bytes(p);
    t.all_chunks = int(ceil_div(p.c, instance.tiles * TileChannels));
    t.column_units = int(ceil_div(p.q, UnitPixels));
    t.finishes = has_epilogue(p);
    t.activation = late_activation(p);
}

// What a strip has, and its tasks; how many strips there are, in 31 bits or more.
inline double set_strip(const cf_problem &p, const Instance &instance, const StripSize &strip,
                        Tiling &t) {
    t.channels = strip.channels, t.rows = strip.rows;
    t.pieces = int(int64_t(strip.channels) * element_bytes(p) / PieceBytes);
    t.chunks = strip.channels / (instance.tiles * TileChannels);
    t.task_rows = int(ceil_div(strip.rows, strip.pieces));
    t.units = int(ceil_div(strip.rows, t.task_rows)) * t.column_units;
    t.tasks = int(ceil_div(t.units, 2)) * t.chunks;
    t.row_strips = int(ceil_div(p.p, strip.rows));
    t.channel_blocks = int(ceil_div(p.c, strip.channels));
    t.whole = t.row_strips == 1;
    return double(p.n) * t.row_strips * t.channel_blocks;
}

// What a warp slides over, down to the last row that a step reads: pixels. Sets the rows of x that
// a strip needs, too.
inline int64_t set_rows(const cf_problem &p, const Instance &instance, Tiling &t) {
    const int64_t height = int64_t(p.r - 1) * p.dilation_h + 1;
    const int64_t slid = ceil_div(t.rows, t.task_rows) * t.task_rows; // of y
    const int64_t transposed = instance.filter ? (slid + rows_of(p.r, p.stride_h) - 1) * p.stride_h
                                               : (slid - 1) * p.stride_h + height;
    t.in_rows = int(int64_t(t.rows - 1) * p.stride_h + height);
    return transposed * t.width;
}

// Planes, and a strip's channels in a stage; false where planes are too large. `stage` are the
// bytes that x or y takes there.
inline bool set_pitches(const cf_problem &p, Tiling &t, int64_t &stage) {
    const int size = element_bytes(p);
    const int64_t x_plane = int64_t(p.h) * p.w * size, y_plane = int64_t(p.p) * p.q * size;
    if (std::max(x_plane, y_plane) > UINT32_MAX)
        return false;
    const int64_t x_bytes = int64_t(std::min(t.in_rows, p.h)) * p.w * size;
    const int64_t y_bytes = int64_t(t.rows) * p.q * size;
    const int64_t x_pitch = t.whole ? x_plane : pitch_of(x_bytes, x_plane);
    const int64_t y_pitch = t.whole ? y_plane : pitch_of(y_bytes, y_plane);
    t.x_plane = uint32_t(x_plane), t.x_pitch = uint32_t(x_pitch);
    t.y_plane = uint32_t(y_plane), t.y_pitch = uint32_t(y_pitch);
    stage = std::max(x_pitch, y_pitch) * t.channels + 2 * Slack;
    return true;
}

inline void set_divisors(Tiling &t) {
    t.by_channel_blocks = Divisor(t.channel_blocks);
    t.by_row_strips = Divisor(t.row_strips);
    t.by_width = Divisor(t.width);
    t.by_chunks = Divisor(t.chunks);
    t.by_column_units = Divisor(t.column_units);
}

// Meets the strip's tiling with each number of blocks.
inline void tile(const cf_query &query, const Instance &instance, const StripSize &strip,
                 Ranking<Option> &ranking) {
    const cf_problem &p = query.problem;
    Option option = {};
    Tiling &t = option.tiling;
    set_problem(p, instance, t);
    const double strips = set_strip(p, instance, strip, t);
    const int64_t pixels = set_rows(p, instance, t);
    int64_t stage;
    if (strips > INT32_MAX / 2 || !set_pitches(p, t, stage) ||
        stage + double(pixels) * PieceBytes * t.pieces > query.device.shared_per_block)
        return;
    t.strips = int(strips);
    t.pixels = int(pixels);
    t.stage_bytes = uint32_t(round_up(stage, 16)), t.piece_bytes = uint32_t(pixels * PieceBytes);
    set_divisors(t);
    // Of a block's stages one is being read or stored, others are on their way.
    share_multiprocessors(
        query, instance.blocks, int64_t(t.piece_bytes) * t.pieces, option,
        [&](int blocks) { return int(std::clamp<int64_t>(ceil_div(t.strips, blocks), 1, 3)); },
        [&](Option met) {
            met.us = estimate(query, instance, met);
            ranking.meet(met, met.us);
        });
}

inline void rank_options(const cf_query &query, const Instance &instance,
                         Ranking<Option> &ranking) {
    const cf_problem &p = query.problem;
    const int step = channel_step(p, instance);
    const int most = int(std::min<int64_t>(round_up(p.c, step), MaxChannels));
    for (int channels = step; channels <= most; channels += step)
        for (int rows = p.p; rows > 0;) {
            for (int pieces = 1, before = 0; pieces <= std::min(rows, MaxTaskPieces); ++pieces) {
                const int task_rows = int(ceil_div(rows, pieces));
                if (task_rows != before)
                    tile(query, instance, {channels, rows, pieces}, ranking);
                before = task_rows;
            }
            rows = rows > 1 ? int(ceil_div(p.p, ceil_div(p.p, rows - 1))) : 0;
        }
}

} // namespace cf::grouped_nchw
