// The plan of small_wgmma: how output pixels, filter elements and output channels come to the 64 x
// N x 16 product of one wgmma, and how a batch streams through shared memory.
//
// A position is what one row of the product stands for: one output pixel, or two beside each other.
// A column is an output channel of it, or of one of the two. A task is 64 positions in the row
// tiles of an image. The rest is as in small_mma16, whose names this uses; a strip is an image.
#pragma once

#include "kernels/small/mma16_plan.cuh"

namespace cf::small_wgmma {

using small16::MaxOutStages;
using small16::PlanarBuffers;
using small16::Tiling;

constexpr int Groups = 3; // of four consumer warps; four more load and store
constexpr int Consumers = Groups * 4, Warps = Consumers + 4;
constexpr int Positions = 64;
constexpr int MaxStages = 8; // images in shared memory

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

inline bool is_paired(const Tiling &t) { return t.pixels_per_position == 2; }

inline uint64_t packed_size(const Tiling &t) {
    return uint64_t(t.steps) * 2 * t.r * t.column_tiles * 8 * 16;
}

// What does not depend on how the batch is tiled, with two pixels to a position or with one.
inline Tiling shape_of(const cf_problem &p, bool pairs) {
    Tiling t = {};
    t.c = p.c, t.h = p.h, t.w = p.w, t.k = p.k, t.p = p.p, t.q = p.q, t.r = p.r;
    t.stride_h = t.stride_w = 1;
    t.nchw = true;
    t.pixels_per_position = pairs ? 2 : 1;
    const int columns = p.k * t.pixels_per_position;
    t.column_tiles = columns <= 16 ? 2 : columns <= 24 ? 3 : columns <= 32 ? 4 : 6;
    // Two pixels that a lane holds are neighbours in a row.
    t.positions = int(ceil_div(p.q, 2) * (pairs ? 1 : 2));
    const auto quads = int(ceil_div(p.c, 4));
    t.pixel_elements = pairs ? 1 : pixel_of(quads);
    t.steps = int(ceil_div(pairs ? p.c : halves_of(quads, p.s), 2));
    t.copy = pairs ? small16::Direct : small16::Planes;
    t.producers = pairs ? 1 : 3;
    t.per_store = p.q % 2 == 0 && p.align >= 4 ? 2 : 1;
    t.strips_per_image = t.strips_per_out_stage = 1;
    t.staged = true;
    t.segments = 1;
    return t;
}

// A filter is packed for each of the two that the problem allows, whatever the number of images:
// that decides which of them a launch takes. The shape of one that is not packed has no steps.
struct Shapes {
    Tiling pairs, pixels;
};

inline Shapes shapes_of(const cf_problem &p) {
    return {takes_pairs(p) ? shape_of(p, true) : Tiling(),
            takes_pixels(p) ? shape_of(p, false) : Tiling()};
}

inline uint64_t packed_size(const Shapes &shapes) {
    return packed_size(shapes.pairs) + packed_size(shapes.pixels);
}

// How a filter is arranged, for cf_plan::filter_layout: all that pack_kernel looks at.
inline uint64_t filter_layout(const cf_problem &p, const Shapes &shapes) {
    uint64_t id = 0;
    const auto digit = [&](int value, int base) { id = id * base + value; };
    digit(p.c, MostInputs + 1), digit(p.k, MostOutputs + 1), digit(p.r, 8), digit(p.s, 8);
    digit(p.math == CF_MATH_BF16, 2);
    digit(shapes.pairs.steps > 0, 2), digit(shapes.pixels.steps > 0, 2);
    return id;
}

// Clocks of the busiest multiprocessor: the longest of what its tensor cores, its shared memory and
// the device's memory need for an image, and part of the others. The factors are fitted to 13
// layers of 10000 images, within 14 % (benches/results/evidence/h200-small-wgmma-experiments.txt).
inline double estimated_clocks(const cf_query &query, const Tiling &t) {
    const cf_problem &p = query.problem;
    const int columns = t.column_tiles * 8, rows = rows_of(p.r, columns);
    const bool pairs = is_paired(t);
    const double images = double(ceil_div(t.strips, query.device.sm_count));
    const double products = double(t.tasks) * t.steps * rows * p.r;
    const double tensor = products * std::max(columns / 2, 13);
    const double x = 2.0 * p.c * p.h * p.w, y = 2.0 * p.k * p.p * p.q;
    const double loads = double(t.tasks) * t.steps * (rows + p.r - 1) * 16;
    const double shared = loads + products * columns / 4 + x / 128 * (pairs ? 1 : 4) +
                          y / 128 * (t.per_store == 2 ? 2 : 3);
    const double memory = (x + y) / small16::memory_rate(query.device);
    const double longest = std::max({tensor, shared, memory});
    const double others = tensor + shared + memory - longest;
    return (pairs ? 2500 : 3500) + images * (0.95 * longest + 0.2 * others + (pairs ? 100 : 500));
}

// Completes a shape for all images; false where they do not fit.
inline bool tile(const cf_query &query, Tiling &t) {
    const cf_problem &p = query.problem;
    const bool pairs = is_paired(t);
    const int rows = rows_of(p.r, t.column_tiles * 8);
    const int64_t image_bytes = int64_t(p.c) * p.h * p.w * 2;
    t.row_tiles = int(ceil_div(p.p, rows));
    const int64_t tasks = ceil_div(int64_t(t.row_tiles) * t.positions, Positions);
    if (image_bytes >= small16::BulkBytes || double(p.n) * double(tasks) > small16::MaxTasks)
        return false;
    t.tasks_per_group = t.tasks = int(tasks);
    t.strips = int(p.n);
    t.input_rows = t.row_tiles * rows + p.r - 1; // that are read, some of them below the image
    t.pitch = uint32_t(p.w * t.pixel_elements * 2);
    if (pairs) {
        t.zero_bytes = 32; // windows end there, and the images before may have been NaN
        const int64_t planes_before = (2 * t.steps - 1) * int64_t(p.h) * t.pitch;
        t.stage_bytes = uint32_t(
            round_up(16 + planes_before + int64_t(t.input_rows) * t.pitch + t.zero_bytes, 16));
    } else {
        // Windows of the last pixels end behind their rows.
        t.stage_bytes = uint32_t(
            round_up(int64_t(t.input_rows) * t.pitch + (p.s + 2) * t.pixel_elements * 2, 16));
        t.planar_bytes = uint32_t(round_up(image_bytes + 30, 16));
    }
    t.weight_bytes = uint32_t(packed_size(t));
    const int64_t out_stage_bytes = round_up(int64_t(p.k) * p.p * p.q * 2 + 30, 16);
    const int64_t budget = int64_t(query.device.shared_per_block) - small16::StaticShared -
                           t.weight_bytes - int64_t(PlanarBuffers) * t.planar_bytes;
    const int64_t of_block = std::max<int64_t>(ceil_div(p.n, query.device.sm_count), 1);
    const auto stages_beside = [&](int out_stages) {
        return std::max<int64_t>(budget - out_stages * out_stage_bytes, 0) / t.stage_bytes;
    };
    t.out_stages = int(std::min<int64_t>(MaxOutStages, of_block));
    while (t.out_stages > 2 && stages_beside(t.out_stages) < std::min<int64_t>(of_block, 6))
        --t.out_stages;
    const int64_t fit = stages_beside(t.out_stages);
    if (fit < std::min<int64_t>(of_block, 2))
        return false;
    t.out_stage_bytes = t.segment_bytes = uint32_t(out_stage_bytes);
    t.stages = int(std::min({fit, of_block, int64_t(MaxStages)}));
    t.clocks = estimated_clocks(query, t);
    return true;
}

// The tiling that takes the fewest clocks; without input_rows where none fits.
inline Tiling best_tiling(const cf_query &query, const Shapes &shapes) {
    Tiling best = {};
    for (Tiling t : {shapes.pairs, shapes.pixels})
        if (t.steps > 0 && tile(query, t) && (best.input_rows == 0 || t.clocks < best.clocks))
            best = t;
    if (best.input_rows > 0)
        best.by_positions = Divisor(best.positions);
    return best;
}

} // namespace cf::small_wgmma
