// The plan of small_mma16: how positions, filter elements and output channels come to the 16 x 8 x
// 16 product of one mma.sync, and how a batch is cut into what streams through shared memory.
//
// A position is what one row of the product stands for: one output pixel, or two beside each other
// where there is a single input channel. A column of the product is an output channel of it, or one
// of the two pixels in one. The sum runs along the elements of a row of the filter, which lie one
// behind the other in shared memory: [column][channel], channels padded by zeros.
//
// A unit is an image or a strip of its rows; a task is 16 positions in the row tiles of a unit, by
// one group of output channels.
#pragma once

#include "core/divisor.cuh"
#include "kernels/small/few_channels.cuh"
#include "core/launch.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

namespace cf::small16 {

constexpr int Warps = 16, Computing = 12; // the others load and store
constexpr int Positions = 16;             // of a task, in one row of y
constexpr int MaxSlots = 4;               // units in shared memory
constexpr int MaxStages = 4;              // of which the outputs gather
constexpr int Raws = 2;                   // buffers for images as they are in x
constexpr int MaxTiles = 4;               // of 8 columns in a group
constexpr int MaxFilter = 11;             // rows, columns
constexpr int FragmentBytes = 256;

// Rows of y of a task: as many as 128 registers per thread hold the sums of.
__host__ __device__ constexpr int rows_of(int tiles) {
    return tiles == 1 ? 8 : tiles == 2 ? 7 : tiles == 3 ? 5 : 4;
}

// Fragments of weights of a step: in twos, which a lane reads at once.
__host__ __device__ constexpr int fragments_of(int filter_rows, int tiles) {
    return (filter_rows * tiles + 1) / 2 * 2;
}

// Tiles of the widest group that is compiled; more spill registers, and two groups of two do as
// well. Stride 0 stands for the kernel that takes any.
constexpr int most_tiles(bool single, int stride) {
    return stride == 2 ? 2 : stride == 1 && single ? 3 : MaxTiles;
}

// What a lane of a loading warp takes at once, or what one bulk copy brings.
enum Piece {
    Word,    // two elements on their own, for one word of shared memory
    Line,    // two neighbours that are neighbours in shared memory too
    Whole,   // four of them, of an image that lies in shared memory as it does in x
    Column,  // one column of four channels (NCHW)
    Columns, // two columns of four channels
    Threes,  // four columns of three channels (NHWC)
    Direct,  // bulk: rows of x as they are to lie in shared memory
    Planes,  // bulk: an image of NCHW, whose channels lanes then bring beside each other
};

// A problem as the kernel wants it, and how it is cut. Offsets in shared memory are bytes.
struct Cut {
    int c, h, w, k, p, q, r, stride_h, stride_w, pad_top, pad_left;
    bool nchw, from_floats, wide; // x in f32, y in f32
    int pixel;                    // elements of a column in shared memory: 1, or c padded
    int joint;                    // pixels of a position
    int positions;                // of a row of y
    int steps;                    // along a row of the filter: 16 elements, 8 with a single channel
    int filter_rows;              // products of a step: R, or pairs of rows with a single channel
    int parities;                 // of rows of y that have weights of their own
    int unrolled;                 // R where the kernel is compiled for it, else 0
    int tiles;                    // columns of a group over 8
    int groups;
    // channel = group * span + tile * of_tile + column / 2 * of_pair + column % 2 * of_column
    int span, of_tile, of_pair, of_column;
    int row_tiles; // of a unit
    int strips;    // units of an image
    int units;     // of the batch
    int blocks;    // tasks of a unit and a group
    int tasks;     // of a unit
    int rows;      // of x in a unit
    int loading;   // warps
    int slots;
    uint32_t pitch, slot; // from row to row, from slot to slot
    uint32_t raw;         // of a buffer for an image as it is in x
    uint32_t fill;        // bytes of zeros behind rows that a bulk copy brings
    uint32_t weights;     // bytes in shared memory; 0: they stay in global memory
    Piece piece;
    int parts;         // of a column: pairs of channels, or fours in NCHW
    int items, pieces; // of a row (NCHW: in one part), of a unit
    bool staged;       // outputs gather in shared memory and leave by bulk copies
    int stages;
    uint32_t stage;
    // Segments of a stage that are contiguous in y: all of it, or each channel (strips of NCHW).
    int segments;
    uint32_t segment;
    int together;  // pixels in NCHW, or all channels of a lane in NHWC, that are stored at once
    bool sectors;  // and those make whole sectors of 32 bytes
    double clocks; // estimated
    bool at_once;  // a block's units are brought by all warps, which compute then
    int shares;    // blocks of a unit
    int joined;    // units of a stage: one, or all strips of an image
    Divisor by_groups, by_positions, by_strips, by_items, by_parts, by_shares, by_joined;
};

inline bool compiled(const cf_problem &p) {
    return (p.r == 3 || p.r == 5 || p.r == 7) && (p.stride_h == 1 || (p.stride_h == 2 && p.c > 1));
}

// Calls body with a value of the operands' type.
template <class Body>
inline int32_t for_element(const cf_problem &p, Body body) {
    return p.math == CF_MATH_BF16 ? body(__nv_bfloat16()) : body(__half());
}

// What does not depend on how the batch is cut. `unrolled` asks for the kernel that keeps its
// weights in shared memory.
inline Cut shape_of(const cf_problem &p, bool unrolled) {
    Cut cut = {};
    cut.c = p.c, cut.h = p.h, cut.w = p.w, cut.k = p.k, cut.p = p.p, cut.q = p.q, cut.r = p.r;
    cut.stride_h = p.stride_h, cut.stride_w = p.stride_w;
    cut.pad_top = p.pad_top, cut.pad_left = p.pad_left;
    cut.nchw = p.layout == CF_NCHW;
    cut.from_floats = p.storage == CF_STORE_F32;
    cut.wide = cut.from_floats || sums_follow(p);
    cut.unrolled = unrolled ? p.r : 0;
    const bool single = p.c == 1;
    cut.pixel = single ? 1 : int(ceil_div(p.c, 2) * 2);
    if (cut.pixel % 16 == 0)
        cut.pixel += 4; // lanes would read from two banks only
    cut.joint = single ? 2 : 1;
    cut.positions = int(ceil_div(p.q, cut.joint));
    cut.steps = int(single ? ceil_div(p.s + p.stride_w, 8) : ceil_div(p.s * cut.pixel, 16));
    cut.filter_rows = int(single ? ceil_div(p.r, 2) : p.r);
    cut.parities = single && unrolled ? 2 : 1;
    // The fewest columns, then the fewest groups.
    const int columns = int(ceil_div(p.k * cut.joint, 8));
    const int most = most_tiles(single, unrolled ? p.stride_h : 0);
    const int least = unrolled && p.stride_h == 1 ? 1 : most;
    cut.tiles = most;
    for (int tiles = most - 1; tiles >= least; --tiles)
        if (ceil_div(columns, tiles) * tiles < ceil_div(columns, cut.tiles) * cut.tiles)
            cut.tiles = tiles;
    cut.groups = int(ceil_div(columns, cut.tiles));
    cut.span = cut.tiles * 8 / cut.joint;
    if (cut.nchw) // lanes that store neighbouring pixels hold one channel
        cut.of_tile = single ? 4 : 8, cut.of_pair = single ? 1 : 2;
    else // a lane's channels are neighbours
        cut.of_tile = single ? 1 : 2, cut.of_pair = cut.of_tile * cut.tiles;
    cut.of_column = single ? 0 : 1;
    return cut;
}

inline uint64_t packed_bytes(const Cut &cut) {
    return uint64_t(cut.groups) * cut.steps * cut.parities *
           fragments_of(cut.filter_rows, cut.tiles) * FragmentBytes;
}

// Clocks of the busiest multiprocessor: the longest of what its four tensor cores, its shared
// memory, its four schedulers, its loading warps and the device's memory need for a unit.
inline double clocks(const cf_call *call, const Cut &cut) {
    const cf_problem &p = call->problem;
    const double rows = rows_of(cut.tiles),
                 units =
                     double(ceil_div(cut.units / cut.joined, call->device.sm_count)) * cut.joined;
    const double all = units * double(ceil_div(cut.tasks, cut.shares));
    // The last turn of the warps is whole.
    const int computing = cut.at_once ? Warps : Computing;
    const double tasks =
        std::max(all, double(ceil_div(int64_t(all), computing)) * computing) / units;
    const double window =
        cut.unrolled ? (rows - 1) * p.stride_h + p.r : rows * cut.filter_rows; // rows of x read
    const double products = rows * cut.tiles * cut.filter_rows * cut.steps;
    const double weights = double(cut.parities) * cut.filter_rows * cut.tiles * cut.steps;
    const double words = cut.joint == 2 && cut.unrolled ? 2 : 4;
    const double tensor = tasks * products * 8 / 4; // 6 alone, the others for what goes beside
    const double sums = rows * cut.tiles * 4;
    const double shared = tasks * (cut.steps * window * words + weights * 2 + sums);
    const double issue =
        (tasks * (products + cut.steps * window * (words + 2) + weights + sums * 2 + 150) +
         cut.pieces / 32.0 * 40) /
        4;
    const double elements = double(cut.rows) * p.w * p.c;
    const double outputs = double(std::min(cut.row_tiles * int(rows), p.p)) * p.q * p.k;
    const double brought = elements * (p.storage == CF_STORE_F32 ? 4 : 2);
    const double left = outputs * (cut.wide ? 4 : 2);
    // Ends of segments and half sectors cost more than their bytes, and so do units that are
    // written for long: what all blocks write meanwhile lies far apart.
    const double written = cut.sectors ? 1 : cut.segments > 1 ? 1.25 : cut.staged ? 1.1 : 2.5;
    const double apart = cut.at_once ? 1 : 1 + 0.6 * std::clamp(left / 150000 - 1, 0.0, 1.0);
    const double memory = (brought + left * written) * apart / 18.5;
    const double loading = cut.piece == Direct || cut.piece == Planes
                               ? 1000
                               : double(ceil_div(cut.pieces, 32 * 16 * 3)) * 1800;
    const double unit = std::max({tensor, shared, issue, memory, loading});
    return 4000 + loading + units * (1.15 * unit + 200);
}

// With so many row tiles to a unit; false where it does not fit.
inline bool cut_into(const cf_call *call, int row_tiles, bool staged, bool join, bool by_bulk,
                     Cut &cut) {
    const cf_problem &p = call->problem;
    const int rows = rows_of(cut.tiles);
    const int64_t out_bytes = cut.wide ? 4 : 2;
    cut.row_tiles = row_tiles;
    cut.strips = int(ceil_div(ceil_div(p.p, rows), row_tiles));
    cut.blocks = int(ceil_div(int64_t(row_tiles) * cut.positions, Positions));
    cut.tasks = cut.blocks * cut.groups;
    // Units, tasks and pieces are counted in 31 bits.
    if (double(p.n) * cut.strips * cut.tasks > (1 << 30))
        return false;
    // As are elements of an image of x.
    if (double(p.c) * p.h * p.w > INT32_MAX)
        return false;
    cut.units = int(p.n * cut.strips);
    cut.joined = join ? cut.strips : 1;
    cut.rows = (row_tiles * rows - 1) * p.stride_h + p.r;
    const int64_t columns =
        std::max(p.pad_left + p.w, (cut.positions * cut.joint - 1) * p.stride_w + p.s);
    const int64_t pitch = ceil_div(columns * cut.pixel, 2) * 4;
    // The last positions read beyond their rows, and pairs of rows beyond the last one: finite
    // numbers, which meet weights of zero.
    const int64_t row_beyond = cut.parities == 2 ? pitch : 0;
    const int64_t beyond = cut.joint * p.stride_w * cut.pixel * 2 + cut.steps * 32 + row_beyond;

    const int64_t image = int64_t(p.h) * p.w * p.c;
    const bool whole = cut.strips == 1 && cut.rows >= p.h;
    const bool even = p.w * p.c % 2 == 0 && p.align >= 4; // each row begins with a word
    const bool unpadded = !p.pad_top && !p.pad_left && pitch == int64_t(p.w) * cut.pixel * 2;
    const bool bulk = by_bulk && unpadded && p.storage != CF_STORE_F32 && image * 2 < (1 << 20);
    const bool direct = bulk && p.c == cut.pixel && (p.c == 1 || !cut.nchw) && even &&
                        (p.p - 1) * p.stride_h + p.r <= p.h;
    const bool planes = bulk && cut.nchw && p.c > 1 && whole;
    if (by_bulk && !direct && !planes)
        return false;
    // What a position reads beyond its window, which rows of an earlier image must not be.
    cut.fill = direct ? uint32_t(32 + row_beyond) : 0;
    cut.raw = planes ? uint32_t(ceil_div(image * 2 + 30, 16) * 16) : 0;
    // A copy keeps its place among 16 bytes.
    const int64_t slot =
        ceil_div(cut.rows * pitch + std::max<int64_t>(beyond, direct ? cut.fill + 32 : 0), 16) * 16;
    cut.weights = cut.unrolled ? uint32_t(packed_bytes(cut)) : 0;
    int64_t budget = int64_t(call->device.shared_per_block) - 1024 - cut.weights - Raws * cut.raw;
    cut.staged = staged;
    cut.segments = 0, cut.segment = cut.stage = 0;
    if (staged) {
        // As far behind a multiple of 16 bytes as its place in y.
        const int64_t part =
            int64_t(std::min(cut.joined * row_tiles * rows, p.p)) * p.q * out_bytes;
        cut.segments = cut.nchw && cut.strips > cut.joined ? p.k : 1;
        cut.segment = uint32_t(std::min<int64_t>(
            ceil_div(part * (cut.segments > 1 ? 1 : p.k) + 30, 16) * 16, 1 << 24));
        cut.stage = cut.segments * cut.segment;
    }
    // Stages first, as long as three slots are left; two of both suffice.
    const int64_t of_block = ceil_div(cut.units / cut.joined, call->device.sm_count) * cut.joined;
    const auto slots_beside = [&](int stages) {
        return std::max<int64_t>(budget - int64_t(stages) * cut.stage, 0) / slot;
    };
    cut.stages = staged ? MaxStages : 0;
    while (cut.stages > 2 && slots_beside(cut.stages) < std::min<int64_t>(of_block, 3))
        --cut.stages;
    const int64_t fit = slots_beside(cut.stages);
    if (fit < std::min<int64_t>(of_block, 2))
        return false;
    cut.loading = direct ? 1 : Warps - Computing - staged;
    cut.pitch = uint32_t(pitch), cut.slot = uint32_t(slot);
    cut.slots = int(std::min({fit, of_block, int64_t(MaxSlots)}));

    const int element = p.storage == CF_STORE_F32 ? 4 : 2;
    const bool pairs = p.align >= 2 * element; // as far as addresses go
    cut.parts = std::max(cut.pixel / 2, 1);
    if (cut.nchw) // zeros that fill up the channels are there already
        cut.parts = int(ceil_div(p.c, 2));
    int lines = cut.rows;
    if (direct) {
        cut.piece = Direct;
        cut.items = lines = 1;
    } else if (planes) {
        cut.piece = Planes;
        cut.items = lines = 1;
        cut.parts = int(ceil_div(p.c, cut.pixel % 4 ? 2 : 4));
    } else if (unpadded && whole && p.c == cut.pixel && image % 4 == 0 && p.align >= 4 * element &&
               (p.c == 1 || !cut.nchw)) {
        cut.piece = Whole;
        cut.items = int(image / 4), lines = 1;
    } else if (p.c == 1) {
        cut.piece = pairs && p.w % 2 == 0 && p.pad_left % 2 == 0 ? Line : Word;
        cut.items = int(cut.piece == Line ? p.w / 2 : ceil_div(p.pad_left + p.w, 2));
    } else if (cut.nchw) {
        if (cut.pixel % 4)
            cut.piece = Word;
        else
            cut.piece = pairs && p.w % 2 == 0 ? Columns : Column, cut.parts = int(ceil_div(p.c, 4));
        cut.items = cut.piece == Columns ? p.w / 2 : p.w;
        lines *= cut.parts;
    } else if (p.c == 3 && p.w % 4 == 0 && p.align >= 4 * element) {
        cut.piece = Threes;
        cut.items = p.w / 4;
    } else {
        cut.piece = pairs && p.c == cut.pixel ? Line : Word;
        cut.items = p.w * cut.parts;
    }
    cut.pieces = cut.items * lines;
    cut.at_once = !direct && !planes && !staged && of_block <= cut.slots;
    const int units = std::max(cut.units, 1); // a batch may be empty
    cut.shares = cut.at_once ? std::clamp(call->device.sm_count / units, 1, cut.tasks) : 1;
    cut.clocks = clocks(call, cut);
    return true;
}

// The plan with the fewest clocks; rows is 0 where none fits.
inline Cut plan_of(const cf_call *call) {
    const cf_problem &p = call->problem;
    const int align = sums_follow(p) ? 16 : p.align; // of what is written
    Cut best = {};
    for (bool unrolled : {true, false}) {
        if (unrolled ? !compiled(p) : best.rows > 0)
            continue;
        Cut cut = shape_of(p, unrolled);
        const int64_t out_bytes = cut.wide ? 4 : 2;
        if (cut.nchw) {
            const int most = 2 * cut.joint;
            cut.together = p.q % most == 0 && align >= most * out_bytes ? most
                           : p.q % 2 == 0 && align >= 2 * out_bytes     ? 2
                                                                        : 1;
            cut.sectors = cut.together == most && p.q * out_bytes % 32 == 0;
        } else {
            const int channels = cut.span / 4; // of a lane
            cut.sectors =
                p.c > 1 && p.k % channels == 0 && p.k * out_bytes % 16 == 0 && align >= 16;
            cut.together = cut.sectors ? channels : 1;
        }
        // Whatever a bulk copy can bring is left to it.
        for (bool by_bulk : {true, false}) {
            if (!by_bulk && best.rows > 0)
                continue;
            // Straight to y; gathered by units; gathered by images, which are cut into several.
            for (int stage_of : {2, 1, 0}) {
                if (stage_of > 0 && cut.sectors)
                    continue;
                const int all = int(ceil_div(p.p, rows_of(cut.tiles)));
                for (int row_tiles = 1; row_tiles <= all; ++row_tiles) {
                    // Each number of strips once.
                    if (row_tiles > 1 && ceil_div(all, row_tiles) == ceil_div(all, row_tiles - 1))
                        continue;
                    if (stage_of == 2 && (row_tiles == all || !cut.nchw))
                        continue;
                    if (cut_into(call, row_tiles, stage_of > 0, stage_of == 2, by_bulk, cut) &&
                        (best.rows == 0 || cut.clocks < best.clocks))
                        best = cut;
                }
            }
        }
    }
    return best;
}

} // namespace cf::small16
