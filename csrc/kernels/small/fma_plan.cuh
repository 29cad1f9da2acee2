// How the small family cuts a batch for persistent blocks: which rows a thread computes, which
// strips of images a block streams through shared memory, and how many of them are there at once.
//
// A unit is an image or a strip of its rows; a line is a row tile of a unit, all columns wide; an
// item is what one line gives in Maps output channels. Blocks count lines and items through all of
// their units.
#pragma once

#include "core/divisor.cuh"
#include "core/launch.cuh"

#include <algorithm>

namespace cf::small {

constexpr int Maps = 4;       // output channels of a thread
constexpr int MaxSlots = 32;  // as many units as 32 columns may touch
constexpr int MaxStages = 32; // items
constexpr int MaxFilter = 11; // rows and columns

// Outputs of a thread in one channel.
struct Shape {
    int rows;
    int wide; // adjacent columns
};

// Of one column: a vertical stride of 2 has 20 and 8 rows, weights in shared memory these, 22, 16
// and 7 and no stride of 2, constant ones all but 16 and 7. Two columns are for 3 x 3 filters.
constexpr Shape Shapes[] = {{29, 1}, {22, 1}, {20, 1}, {17, 1}, {16, 1},
                            {15, 1}, {8, 1},  {7, 1},  {7, 2}};

// A problem as the kernel wants it, and how it is cut. Offsets in shared memory are bytes.
struct Cut {
    int c, h, w, k, s, p, q, stride_w, pad_top, pad_left, pad_right;
    int wide;    // columns of a thread
    int across;  // threads' columns of a row: q / wide
    int tiles;   // row tiles of a unit
    int strips;  // units of an image
    int units;   // of the batch
    int columns; // of a unit: tiles x across
    int parts;   // of the output channels, each of blocks of its own
    int groups;  // of Maps output channels in a part
    int rows;    // input rows of a unit
    int slots;
    uint32_t pitch; // from row to row in a slot
    uint32_t plane; // from channel to channel
    uint32_t slot;  // from slot to slot
    // Bulk copies of a unit, each so many bytes, but not beyond the end of its image or channel.
    int bulks;
    int64_t bulk, end;
    // Without them: bytes that one lane copies at once, and how many such pieces a row and a unit
    // have.
    int piece, row_pieces, pieces;
    int left;    // bytes of a slot before the first, behind the zeros of the padding
    int loaders; // warps; none where all of a block's units are copied before it computes
    int blocks;  // of 32 columns in a block's units
    // Items that are gathered in shared memory before they are stored; 0 where threads store their
    // sums themselves. Behind the slots; each has Maps planes.
    int stages;
    uint32_t stage, stage_plane;
    Divisor by_across, by_tiles, by_groups, by_blocks, by_strips, by_slots, by_stages, by_row,
        by_rows;
};

// A problem's plan: rows of a thread and the cut, with its estimated clocks.
struct Plan {
    int rows;
    Cut cut;
    double clocks;
};

// The packed filter: [group][c][s][r][Maps].
inline int floats(const cf_problem &p) { return int(ceil_div(p.k, Maps)) * Maps * p.c * p.r * p.s; }

// Rows of y that are no whole sectors, so that two warps write to one.
inline bool ragged(const cf_problem &p) { return p.q % 8 || int64_t(p.p) * p.q % 8; }

// Filter heights that have all shapes. The others have constant weights and two: columns of 8 rows,
// and, for a vertical stride of 1, of as many as registers allow.
constexpr bool common_height(int r) { return r == 3 || r == 5 || r == 7; }
constexpr int tall(int r) { return r > 8 ? 16 : 20; }

// Of a block, the loading ones included: as many as registers allow, and few enough registers that
// weights come to uniform ones. With 3 filter rows and 8 of outputs they do so for a stride of 2
// only.
constexpr int warps(int r, Shape shape, int stride, bool constant) {
    const int rows = shape.rows;
    if (shape.wide == 2)
        return 16;
    if (rows == 8 && !common_height(r))
        return 28;
    if (rows > 22 || (rows > 16 && !constant))
        return 12;
    if (rows > 15)
        return r == 3 && rows == 17 ? 18 : 16;
    if (rows > 8)
        return 20;
    return !constant ? 28 : r == 3 && stride == 1 ? 24 : 32;
}

// Clocks of the busiest multiprocessor. Each of its four schedulers issues one instruction per
// clock at best; a warp alone on one leaves gaps.
inline double clocks(const cf_call *call, const Cut &cut, Shape shape, bool constant) {
    const cf_problem &p = call->problem;
    const int rows = shape.rows;
    const double units = double(ceil_div(cut.units, call->device.sm_count / cut.parts));
    // Instructions of a task, and of a warp for each unit that it passes.
    const double window = (rows - 1) * p.stride_h + p.r;
    // Of one filter column, or of all three where a thread has two columns.
    const int s = shape.wide == 2 ? 3 : 1;
    const double loads = shape.wide == 1 ? window : window * (p.stride_h == 1 ? 3 : 2);
    double body =
        double(p.r) * s * Maps * rows * shape.wide + loads + p.r * s * (constant ? 2 : 4) + 7;
    // A filter beyond the nearest cache of constants brings a weight in 4.5 clocks to one of the
    // four schedulers. Two columns and tasks in the order of groups hide it.
    if (constant && !(shape.wide == 2 && cut.loaders == 0) && floats(p) * 4 > 2048)
        body = std::max(body, 18.0 * p.r * s * Maps);
    const double task = double(p.c) * p.s / s * body + Maps * rows * (cut.stages ? 1.5 : 3) + 200;
    const int computing = warps(p.r, shape, p.stride_h, constant) - cut.loaders;
    const double passing = units * computing * 40 / 4;
    const double tasks_of_unit = cut.columns * cut.groups / 32.0;
    const double tasks = units * tasks_of_unit;
    const double together =
        std::min({tasks, double(computing), std::max((cut.slots - 0.5) * tasks_of_unit, 1.0)});
    const double on_each = std::max(together / 4, 1.0);
    const double efficiency = on_each / (on_each + 0.35);
    // Schedulers without a warp, and the last tasks, which not all of them have.
    const double rounds = together < 4 ? tasks / together : tasks / 4 + 0.4;
    // Warps wait for each other's stages; weights in vector registers take ports from the products;
    // of two slots only one is there while the slowest warp keeps the other.
    const double products = (std::max(rounds, 1.0) * task + passing) / efficiency *
                            (cut.stages ? 1.06 : 1) * (constant ? 1 : 1.02) *
                            (cut.slots == 2 && units > 2 ? 1.15 : 1);
    const double bytes = 4.0 * cut.rows * p.w * p.c; // of x for a unit
    const double outputs = 4.0 * p.k / cut.parts * std::min(cut.tiles * rows, p.p) * p.q;
    // Bytes per clock; sectors that two warps write cost as much as two and a half.
    const double memory = units * (bytes + outputs * (ragged(p) && !cut.stages ? 2.5 : 1)) / 17;
    double first = 1500 + bytes / 32;
    if (cut.bulks == 0) { // barriers are known to all before, and a copy takes instructions
        const double copied = double(cut.pieces) * (cut.loaders ? 1 : cut.slots);
        first += 1000 + copied / 32 / (cut.loaders ? cut.loaders : computing) * 60;
    }
    // Each part reads x anew, from the L2 cache.
    const double again = cut.parts > 1 ? units * bytes / 34 : 0;
    return first + std::max(products, memory) + 0.1 * std::min(products, memory) + again;
}

// With so many rows to a thread and row tiles to a unit; false where it does not fit.
inline bool cut_into(const cf_call *call, Shape shape, int tiles, int parts, bool constant,
                     bool staged, Cut &cut) {
    const cf_problem &p = call->problem;
    const int rows = shape.rows;
    const int64_t all = ceil_div(p.p, rows);
    const int64_t area = int64_t(p.h) * p.w, image = p.c * area;
    cut = {};
    cut.c = p.c, cut.h = p.h, cut.w = p.w, cut.k = p.k, cut.s = p.s, cut.p = p.p, cut.q = p.q;
    cut.stride_w = p.stride_w;
    cut.pad_top = p.pad_top, cut.pad_left = p.pad_left, cut.pad_right = p.pad_right;
    cut.wide = shape.wide;
    cut.across = p.q / shape.wide;
    cut.tiles = tiles;
    cut.strips = int(ceil_div(all, tiles));
    cut.parts = parts;
    cut.groups = int(ceil_div(p.k, Maps)) / parts;
    // Tasks, columns and items are counted in 31 bits.
    if (double(p.n) * cut.strips * tiles * p.q * cut.groups > (1 << 30))
        return false;
    cut.units = int(p.n * cut.strips);
    cut.columns = tiles * cut.across;
    cut.rows = (tiles * rows - 1) * p.stride_h + p.r;

    // Row tiles may read below the image, and the last strip may have fewer rows: sums of what
    // lies there are not stored.
    const bool unpadded = !p.pad_top && !p.pad_left && !p.pad_bottom && !p.pad_right;
    const int64_t step = int64_t(tiles) * rows * p.stride_h * p.w; // from strip to strip
    int64_t pitch = int64_t(p.w) * 4, plane, slot;
    cut.loaders = 1;
    if (unpadded && p.align >= 16 && cut.strips == 1 && image % 4 == 0) {
        cut.bulks = 1;
        cut.bulk = cut.end = image * 4;
        plane = area * 4;
        slot = (p.c - 1) * plane + std::max<int64_t>(cut.rows, p.h) * pitch;
    } else if (unpadded && p.align >= 16 && area % 4 == 0 && step % 4 == 0) {
        cut.bulks = p.c;
        cut.bulk = plane = ceil_div(cut.rows * pitch, 16) * 16;
        cut.end = area * 4;
        slot = p.c * plane;
    } else {
        cut.loaders = 2;
        cut.piece = p.align >= 16 && p.w % 4 == 0 ? 16 : 4;
        cut.row_pieces = p.w * 4 / cut.piece;
        // Two columns are read in words of 8 or 16 bytes.
        const int whole = shape.wide == 2 ? 16 : cut.piece;
        cut.left = int(ceil_div(p.pad_left * 4, whole) * whole);
        pitch = ceil_div(cut.left + pitch + p.pad_right * 4, whole) * whole;
        plane = cut.rows * pitch;
        slot = p.c * plane;
    }
    slot = ceil_div(slot, 128) * 128;
    int64_t budget = call->device.shared_per_block - 2048 - (constant ? 0 : floats(p) / parts * 4);
    if (staged) {
        // A task writes items of all lines that 32 columns may touch, while tasks before it may not
        // have written theirs: with fewer stages each could wait for the other.
        const int64_t least = (ceil_div(31, p.q) + 1) * cut.groups;
        // A plane begins as far behind a multiple of 16 bytes as its place in y does.
        cut.stage_plane = uint32_t(ceil_div(int64_t(rows) * p.q * 4 + 12, 16) * 16);
        cut.stage = Maps * cut.stage_plane;
        cut.loaders = 2; // they store as well
        // Barriers show one bit, and a stage has two of them: they would mislead a warp that waits
        // for a stage whose last turn but two is not stored yet. But then every second item of the
        // two turns before waits as well: in q / 32 tasks each, all of them taken before this one
        // but for one of each group. With so many stages these are more than there are other warps.
        const int others = warps(p.r, shape, p.stride_h, constant) - cut.loaders - 1;
        const int64_t enough = 32 * (others + cut.groups) / p.q + 1;
        // A stage's items are all stored by the same warp, since these take turns.
        cut.stages = int(ceil_div(std::max(least + 2, enough), cut.loaders) * cut.loaders);
        if (cut.stages > MaxStages)
            return false;
        budget -= int64_t(cut.stages) * cut.stage;
    }
    const int64_t fit = budget / slot;
    const int64_t of_block = ceil_div(cut.units, call->device.sm_count / parts);
    // All units that 32 columns may touch have to be there together, and one more to be on its way.
    const int64_t touched = ceil_div(31, cut.columns) + 1;
    if (fit < std::min(std::max<int64_t>(touched, 2), of_block))
        return false;
    cut.blocks = int(ceil_div(of_block * cut.columns, 32));
    if (cut.bulks == 0 && !staged && of_block <= std::min<int64_t>(fit, MaxSlots))
        cut.loaders = 0;
    cut.pieces = p.c * cut.rows * cut.row_pieces;
    cut.pitch = uint32_t(pitch);
    cut.plane = uint32_t(plane);
    cut.slot = uint32_t(slot);
    cut.slots = int(std::min({fit, int64_t(MaxSlots), of_block}));
    return true;
}

// Whether the shape is compiled for the problem and suits it.
inline bool has(const cf_problem &p, Shape shape, bool constant) {
    if (!common_height(p.r))
        return constant && shape.wide == 1 &&
               (shape.rows == 8 || (p.stride_h == 1 && shape.rows == tall(p.r)));
    if (shape.wide == 1) {
        if (shape.rows == 20 || shape.rows == 8)
            return constant || p.stride_h == 1;
        return p.stride_h == 1 &&
               (shape.rows == 22 || constant == (shape.rows != 16 && shape.rows != 7));
    }
    // The word that both columns share begins behind the first column, and is aligned.
    return p.r == 3 && p.s == 3 && p.stride_w == p.stride_h && p.pad_left == 1 && p.q % 2 == 0 &&
           p.align >= 8;
}

// The plan with the fewest clocks; rows is 0 where none fits.
inline Plan plan_of(const cf_call *call, bool constant) {
    const cf_problem &p = call->problem;
    const int groups = int(ceil_div(p.k, Maps));
    Plan best = {};
    for (const Shape shape : Shapes) {
        if (!has(p, shape, constant))
            continue;
        const int all = int(ceil_div(p.p, shape.rows));
        for (int tiles = 1; tiles <= all; ++tiles) {
            // Each number of strips once, with as few row tiles as it needs; few of tall images'.
            if (tiles > 1 && ceil_div(all, tiles) == ceil_div(all, tiles - 1))
                continue;
            const int sms = call->device.sm_count;
            const bool few = p.n * ceil_div(all, tiles) <= 8 * sms && groups <= sms;
            for (int staged = 0; staged <= (shape.wide == 1 && ragged(p)); ++staged) {
                // Blocks that take one group each have more units, and share them more evenly.
                for (int alone = 0; alone <= (few && groups > 1); ++alone) {
                    Plan plan = {shape.rows, {}, 0};
                    if (!cut_into(call, shape, tiles, alone ? groups : 1, constant, staged,
                                  plan.cut))
                        continue;
                    plan.clocks = clocks(call, plan.cut, shape, constant);
                    if (best.rows == 0 || plan.clocks < best.clocks)
                        best = plan;
                }
            }
        }
    }
    return best;
}

} // namespace cf::small
