// The plan of small_wgmma: how output pixels, filter elements and output channels come to the 64 x
// N x 16 product of one wgmma, and how a batch streams through shared memory.
//
// A position is what one row of the product stands for: one output pixel, or two beside each other.
// A column is an output channel of it, or of one of the two. A task is 64 positions in the row
// tiles of an image. The rest is as in small_mma16, whose names this uses; a unit is an image.
#pragma once

#include "kernels/small/mma16_plan.cuh"

namespace cf::small_wgmma {

using small16::Cut;
using small16::MaxStages;
using small16::Raws;

constexpr int Groups = 3; // of four computing warps; four more load and store
constexpr int Computing = Groups * 4, Warps = Computing + 4;
constexpr int Positions = 64;
constexpr int MaxSlots = 8; // images in shared memory

// Rows of y of a task with so many columns: as many as registers hold the sums of, beside the rows
// of x in them.
__host__ __device__ constexpr int rows_of(int r, int columns) {
    return columns == 16 ? (r == 3 ? 6 : 8) : columns == 48 ? 3 : columns == 32 && r == 3 ? 4 : 5;
}

// Channels of a pixel in shared memory, of which so many quads hold some: an odd number of quads,
// so that lanes meet no bank twice.
__host__ __device__ constexpr int pixel_of(int quads) { return (quads | 1) * 4; }

// Halves of steps, 8 elements each, along a row of the filter: 8 channels at a tap, then the 4 that
// are left at two.
__host__ __device__ constexpr int halves_of(int quads, int s) {
    return quads / 2 * s + quads % 2 * ((s + 1) / 2);
}

// Two pixels to a position: every row of x begins with a word, and four of them are a window. A
// step is two channels, and would be half empty with one.
inline bool takes_pairs(const cf_problem &p) {
    return p.c > 1 && p.w % 2 == 0 && p.align >= 4 && (p.r == 3 || p.r == 5 || p.r == 7) &&
           p.s <= 7 && p.k <= 24;
}

// One pixel, with channels beside each other.
inline bool takes_pixels(const cf_problem &p) {
    return p.r == p.s && (p.r == 3 || p.r == 5) && p.c >= 5 && p.c <= 16 && p.k <= 32;
}

inline uint64_t filter_bytes(const Cut &cut) {
    return uint64_t(cut.steps) * 2 * cut.r * cut.tiles * 8 * 16;
}

// Clocks of the busiest multiprocessor: the longest of what its tensor cores, its shared memory and
// the device's memory need for an image, and part of the others. The factors are fitted to 13
// layers of 10000 images, within 14 %.
inline double estimate(const cf_call *call, const Cut &cut) {
    const cf_problem &p = call->problem;
    const int columns = cut.tiles * 8, rows = rows_of(p.r, columns);
    const bool pairs = cut.joint == 2;
    const double units = double(ceil_div(cut.units, call->device.sm_count));
    const double products = double(cut.tasks) * cut.steps * rows * p.r;
    const double tensor = products * std::max(columns / 2, 13);
    const double x = 2.0 * p.c * p.h * p.w, y = 2.0 * p.k * p.p * p.q;
    const double loads = double(cut.tasks) * cut.steps * (rows + p.r - 1) * 16;
    const double shared = loads + products * columns / 4 + x / 128 * (pairs ? 1 : 4) +
                          y / 128 * (cut.together == 2 ? 2 : 3);
    const double memory = (x + y) / 18.5;
    const double longest = std::max({tensor, shared, memory});
    const double others = tensor + shared + memory - longest;
    return (pairs ? 2500 : 3500) + units * (0.95 * longest + 0.2 * others + (pairs ? 100 : 500));
}

// With two pixels to a position, or with one; false where it does not fit.
inline bool cut_into(const cf_call *call, bool pairs, Cut &cut) {
    const cf_problem &p = call->problem;
    cut = {};
    cut.c = p.c, cut.h = p.h, cut.w = p.w, cut.k = p.k, cut.p = p.p, cut.q = p.q, cut.r = p.r;
    cut.stride_h = cut.stride_w = 1;
    cut.nchw = true;
    cut.joint = pairs ? 2 : 1;
    const int columns = p.k * cut.joint;
    cut.tiles = columns <= 16 ? 2 : columns <= 24 ? 3 : columns <= 32 ? 4 : 6;
    const int rows = rows_of(p.r, cut.tiles * 8);
    cut.row_tiles = int(ceil_div(p.p, rows));
    cut.strips = cut.joined = 1;
    // Two pixels that a lane holds are neighbours in a row.
    cut.positions = int(ceil_div(p.q, 2) * (pairs ? 1 : 2));
    cut.blocks = cut.tasks = int(ceil_div(int64_t(cut.row_tiles) * cut.positions, Positions));
    const int64_t image = int64_t(p.c) * p.h * p.w;
    if (image * 2 >= 1 << 20 || double(p.n) * cut.tasks > (1 << 30)) // bytes of a copy; tasks
        return false;
    cut.units = int(p.n);
    cut.rows = cut.row_tiles * rows + p.r - 1; // that are read, some of them below the image
    if (pairs) {
        cut.pixel = 1;
        cut.steps = int(ceil_div(p.c, 2));
        cut.pitch = uint32_t(p.w * 2);
        cut.fill = 32; // windows end there, and the images before may have been NaN
        const int64_t before = (2 * cut.steps - 1) * int64_t(p.h) * cut.pitch;
        cut.slot = uint32_t(ceil_div(16 + before + cut.rows * cut.pitch + cut.fill, 16) * 16);
        cut.piece = small16::Direct;
        cut.loading = 1;
    } else {
        const auto quads = int(ceil_div(p.c, 4));
        cut.pixel = pixel_of(quads);
        cut.steps = int(ceil_div(halves_of(quads, p.s), 2));
        cut.pitch = uint32_t(p.w * cut.pixel * 2);
        // Windows of the last pixels end behind their rows.
        cut.slot =
            uint32_t(ceil_div(cut.rows * int64_t(cut.pitch) + (p.s + 2) * cut.pixel * 2, 16) * 16);
        cut.raw = uint32_t(ceil_div(image * 2 + 30, 16) * 16);
        cut.piece = small16::Planes;
        cut.loading = 3;
    }
    cut.together = p.q % 2 == 0 && p.align >= 4 ? 2 : 1;
    cut.staged = true;
    cut.segments = 1;
    const int64_t stage = ceil_div(int64_t(p.k) * p.p * p.q * 2 + 30, 16) * 16;
    const int64_t budget = int64_t(call->device.shared_per_block) - 1024 -
                           int64_t(filter_bytes(cut)) - int64_t(Raws) * cut.raw;
    const int64_t of_block = std::max<int64_t>(ceil_div(p.n, call->device.sm_count), 1);
    const auto slots_beside = [&](int stages) {
        return std::max<int64_t>(budget - stages * stage, 0) / cut.slot;
    };
    cut.stages = int(std::min<int64_t>(MaxStages, of_block));
    while (cut.stages > 2 && slots_beside(cut.stages) < std::min<int64_t>(of_block, 6))
        --cut.stages;
    const int64_t fit = slots_beside(cut.stages);
    if (fit < std::min<int64_t>(of_block, 2))
        return false;
    cut.stage = cut.segment = uint32_t(stage);
    cut.slots = int(std::min({fit, of_block, int64_t(MaxSlots)}));
    cut.weights = uint32_t(filter_bytes(cut));
    cut.clocks = estimate(call, cut);
    return true;
}

// The plan with the fewest clocks; rows is 0 where none fits.
inline Cut plan_of(const cf_call *call) {
    const cf_problem &p = call->problem;
    Cut best = {}, cut;
    for (bool pairs : {true, false})
        if ((pairs ? takes_pairs(p) : takes_pixels(p)) && cut_into(call, pairs, cut) &&
            (best.rows == 0 || cut.clocks < best.clocks))
            best = cut;
    return best;
}

} // namespace cf::small_wgmma
