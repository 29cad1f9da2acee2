// The planner of depthwise_nchw: how a problem becomes strips, and what a strip takes.
#pragma once

#include "core/divisor.cuh"
#include "core/estimate.cuh"
#include "kernels/depthwise/family.cuh"

#include <algorithm>

namespace cf::depthwise_nchw {

using namespace depthwise;

constexpr int Warps = 4;      // of a block
constexpr int MaxStages = 16; // of the ring that strips go through
constexpr int StaticShared = 1024;

// Adjacent columns of a thread: 16 bytes of x, if registers have room for them.
__host__ __device__ constexpr int columns_of(int r, int stride, int element_bytes) {
    return element_bytes == 2 && stride == 1 && r < 7 ? 8 : 4;
}
constexpr int MaxWindow = (4 - 1) * 2 + 7; // columns of words; of halves there are no more bytes
// What a row outside of x is read from, bytes before its origin and behind it; beside it is a place
// for rows of y that do not exist.
constexpr int ZerosBefore = 16, ZerosBehind = 64, ZeroBytes = ZerosBefore + ZerosBehind;
constexpr int ScratchBytes = ZeroBytes + 16;
static_assert(ZerosBehind >= MaxWindow * 4);

// Blocks that registers leave room for on a multiprocessor.
constexpr int blocks_of(int r) { return r == 3 ? 6 : 4; }

// Words that a plane's filter may touch in memory: an odd number, so that those of planes beside
// each other lie in different banks.
__host__ __device__ constexpr int filter_words(int r, int element_bytes) {
    return element_bytes == 4 ? r * r : (r * r * 2 + 2) / 4;
}

// A strip is some whole planes beside each other in memory, or some rows of one. A task is some
// adjacent columns in some rows of y of one of its planes. Offsets in shared memory are bytes.
struct Tiling {
    int c, h, w, p, q;
    int pad_top, pad_left;
    int planes;       // of x: images x channels
    int set;          // planes of a strip
    int strip_rows;   // of y in each of them
    int row_strips;   // of a plane
    int rows, pieces; // of y in a task; tasks below each other in a strip
    int tiles;        // of columns
    int tasks, strips;
    int stages;
    int finishes;                       // whether there is an epilogue
    int activation;                     // beyond what cf::Finish does
    int together;                       // columns of y that are written as one word or two
    uint32_t stage_bytes, filter_bytes; // filters first, then rows of x,
    uint32_t output;                    // and from there on rows of y
    Divisor by_row_strips, by_tiles, by_pieces, by_channels;
};

// Bytes, up to 8, that rows of so many bytes are multiples of and begin at multiples of.
inline int vector_bytes(int64_t row, int align, int element_bytes) {
    int bytes = 8;
    while (bytes > element_bytes && (row % bytes != 0 || align < bytes))
        bytes /= 2;
    return bytes;
}
// Bytes of x that are loaded together. Those of more than an element need windows that begin in
// the same place of one in every tile: padding as it is common.
inline int vector_bytes(const cf_problem &p) {
    const int size = element_bytes(p);
    return p.pad_left == p.r / 2 ? vector_bytes(int64_t(p.w) * size, p.align, size) : size;
}

struct Option {
    Tiling tiling;
    int blocks;
    double us;
};

// Instructions of a warp for a step.
inline double instructions(const cf_problem &p) {
    const int Columns = columns_of(p.r, p.stride_h, element_bytes(p));
    const int width = (Columns - 1) * p.stride_w + p.s;
    const int of_element = p.storage == CF_STORE_F32 ? 2 : 3;
    return double(p.r) * p.s * Columns + p.stride_h * (width * of_element + 6.0) + 22;
}

inline double estimate(const cf_query &query, const Option &option) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const Tiling &t = option.tiling;
    const double planes = double(t.planes), size = element_bytes(p);
    const double shared_rows = double(t.row_strips - 1) * std::max(p.r - p.stride_h, 0);
    const double bytes =
        planes * (double(p.h) * p.w + shared_rows * p.w / 3 + double(p.p) * p.q) * size;
    const double memory = bytes / (0.85 * d.bytes_per_us);
    const int slots = d.sm_count * blocks_of(p.r);
    const double rounds = double(ceil_div(t.strips, slots));
    const double together = std::clamp(double(t.strips) / d.sm_count, 1.0, double(blocks_of(p.r)));
    const double steps = t.rows + rows_of(p.r, p.stride_h) - 1;
    const double warps = double(ceil_div(t.tasks, 32));
    const double passes = std::max(warps / Warps, 1.0); // warps share sets of tasks beyond a strip
    const double issue = instructions(p) * std::max(passes * 4.0, warps * together / 4 * 1.1) +
                         (passes * 300 + 400) / steps;
    const double fill = 1300;
    const double computing = clocks_us(d, rounds * steps * issue + fill, FmaClock);
    const double balance = rounds > 1 ? rounds * slots / t.strips : 1;
    const double waiting = clocks_us(d, fill, FmaClock);
    return ShortLaunchUs + together_us(computing, waiting + memory * balance);
}

// With so many planes to a strip and rows to each of them, and tasks of so many rows.
inline bool tile(const cf_query &query, int set, int strip_rows, int rows, Option &option) {
    const cf_problem &p = query.problem;
    const int size = element_bytes(p);
    option = {};
    Tiling &t = option.tiling;
    const int64_t planes = p.n * p.c, row_strips = ceil_div(p.p, strip_rows);
    const int64_t strips = ceil_div(planes, set) * row_strips;
    const int64_t in_rows =
        row_strips == 1 ? p.h : std::min<int64_t>(int64_t(strip_rows - 1) * p.stride_h + p.r, p.h);
    const int64_t filter_bytes = round_up(int64_t(set) * filter_words(p.r, size) * 4, 16);
    const int64_t output = filter_bytes + round_up(in_rows * set * p.w * size + 15, 16);
    const int64_t stage_bytes = output + round_up(int64_t(strip_rows) * set * p.q * size + 15, 16);
    const int64_t pieces = ceil_div(strip_rows, rows);
    const int64_t tiles = ceil_div(p.q, columns_of(p.r, p.stride_h, size));
    const int64_t tasks = set * pieces * tiles;
    const int64_t room = query.device.shared_per_sm / blocks_of(p.r) - 1024 - StaticShared;
    const int64_t most = std::min<int64_t>(room, query.device.shared_per_block - StaticShared);
    const int64_t stages = std::min<int64_t>((most - ScratchBytes) / stage_bytes, MaxStages);
    if (stages < 2 || tasks > INT32_MAX / 2 || strips > INT32_MAX / 2)
        return false;
    t.c = p.c, t.h = p.h, t.w = p.w, t.p = p.p, t.q = p.q;
    t.pad_top = p.pad_top, t.pad_left = p.pad_left;
    t.planes = int(planes), t.set = set;
    t.strip_rows = strip_rows, t.row_strips = int(row_strips);
    t.rows = rows, t.pieces = int(pieces), t.tiles = int(tiles);
    t.tasks = int(tasks), t.strips = int(strips), t.stages = int(stages);
    t.finishes = has_epilogue(p);
    t.activation = late_activation(p);
    t.together = vector_bytes(p.q * size, p.align, size) / size;
    t.stage_bytes = uint32_t(stage_bytes), t.filter_bytes = uint32_t(filter_bytes);
    t.output = uint32_t(output);
    t.by_row_strips = Divisor(t.row_strips);
    t.by_tiles = Divisor(t.tiles);
    t.by_pieces = Divisor(t.pieces);
    t.by_channels = Divisor(t.c);
    option.blocks = int(
        std::min<int64_t>(std::max<int64_t>(strips, 1), query.device.sm_count * blocks_of(p.r)));
    option.us = estimate(query, option);
    return true;
}

// The one that is estimated to take least; none of its stages where none fits.
inline Option best_option(const cf_query &query) {
    const cf_problem &p = query.problem;
    Option best = {};
    const auto consider = [&](int set, int strip_rows) {
        for (int pieces = 1, before = 0; pieces <= 8; ++pieces) {
            const int rows = int(ceil_div(strip_rows, pieces));
            Option option;
            if (rows != before && tile(query, set, strip_rows, rows, option) &&
                (best.tiling.stages == 0 || option.us < best.us))
                best = option;
            before = rows;
        }
    };
    const int64_t planes = std::max<int64_t>(p.n * p.c, 1);
    for (int set = 1; set <= std::min<int64_t>(planes, 256); set += 1 + set / 8)
        consider(set, p.p);
    for (int row_strips = 2, before = p.p; row_strips <= 64; ++row_strips) {
        const int rows = int(ceil_div(p.p, row_strips));
        if (rows != before)
            consider(1, rows);
        before = rows;
    }
    return best;
}

} // namespace cf::depthwise_nchw
