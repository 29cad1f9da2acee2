// The planner of depthwise_batched: how a problem becomes strips, and what a strip takes.
#pragma once

#include "core/divisor.cuh"
#include "core/estimate.cuh"
#include "core/fragment_epilogue.cuh"
#include "core/ranking.cuh"
#include "core/room.cuh"
#include "kernels/depthwise/family.cuh"

#include <algorithm>

namespace cf::depthwise_batched {

using namespace depthwise;

constexpr int MaxWarps = 8;
constexpr int TileRows = 16, TileColumns = 8; // of y in a product
constexpr int Columns = 8;                    // of x in a half of a step
constexpr int WindowLead = 4;                 // columns of x in front of a tile's first of y
constexpr int MaxWidth = 28;                  // of a plane
constexpr int StaticShared = 1024;            // bytes, and what aligns the rest

// Blocks of the largest size that registers leave room for on a multiprocessor.
__host__ __device__ constexpr int blocks_of(int r) { return r == 3 ? 3 : 2; }

// Tiles of rows that a warp has under way together, of so many tiles of columns.
__host__ __device__ constexpr int together_of(int tiles) { return 4 / tiles; }

// How a row of a plane lies along the sums: in one half of a step, beside the next row of x; in a
// whole one; or in four halves, of which each tile of y has two.
struct Form {
    int halves, tiles; // of a row of x; of a row of y

    bool is_windowed() const { return halves > 2; }
};
inline Form form_of(const cf_problem &p) {
    if (p.w <= Columns && p.q <= TileColumns)
        return {1, 1};
    if (p.w <= 2 * Columns && p.q <= 2 * TileColumns)
        return {2, p.q <= TileColumns ? 1 : 2};
    return {4, 4};
}

// A strip is some adjacent channels of some images: a segment of memory for each image. A tile is
// 16 rows of y of a channel, of one image or of several, and all columns. Rows of y of an odd
// number of columns begin at a word or in the middle of one: each kind is a class, with tiles of
// its own. Offsets in shared memory are bytes.
struct Tiling {
    int n, c, h, w, p, q;
    int stride, pad_top, pad_left;
    int set, images; // of a strip: channels, images
    int channel_blocks;
    int log_rows;                   // of an image's rows in a tile: 4, 8 or 16
    int classes, chunks;            // of rows: of an image's, of a class's
    int parts;                      // of a strip's images, each of a warp
    int pieces;                     // of a channel: classes x chunks x parts, each a task
    int finishes;                   // whether there is an epilogue
    int activation;                 // beyond what cf::Finish does
    uint32_t x_image, y_image;      // from image to image
    uint32_t x_at, y_at;            // of the first ones
    int64_t x_elements, y_elements; // of an image of all channels
    Divisor by_channel_blocks, by_pieces, by_parts, by_chunks;
};

struct Option {
    Tiling tiling;
    int warps = 0; // of a block; none where nothing fits
    int blocks;    // of the launch
    int shared;    // bytes
    double us;
};

// Channels that a strip has are a multiple of these: segments are then whole pieces of 16 bytes.
inline int channel_step(const cf_problem &p) {
    int step = 1;
    while (int64_t(step) * p.h * p.w % 8 != 0 || int64_t(step) * p.p * p.q % 8 != 0)
        step *= 2;
    return step;
}

struct StripSize {
    int set, images, warps, parts;
};

// Issue slots of a warp: of a tile, and of what it does before a channel's first one. These and
// what follows are fitted to 390 times of plans of ten problems (h100-depthwise-batched-plans.csv),
// those of fast plans most.
inline double tile_slots(const cf_problem &p, const Form &form) {
    const double products = form.halves == 1 ? 0.5 : form.tiles;
    return 7 + p.r * (6.1 + 2.3 * form.halves + 2.6 * products) + form.tiles * (p.q % 2 ? 47 : 11);
}
inline double task_slots(const cf_problem &p, const Form &form) {
    const double words = form.halves == 1     ? p.r + 1
                         : form.is_windowed() ? 2 * p.r
                                              : 2 * p.r * form.tiles;
    return 129 + words * 8 + p.r * 10;
}
// Clocks from slot to slot of a warp, with so many to a quarter of a multiprocessor.
inline double slot_clocks(double warps) { return std::max(0.57 + 0.92 * warps, 4.8); }
// Clocks that a block takes besides; issue slots that are filled; bytes over those of the memory's
// pins.
constexpr double BlockClocks = 730, Issued = 0.67, StreamShare = 0.79;

inline double estimate(const cf_query &query, const Form &form, const Option &option) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const Tiling &t = option.tiling;
    const double bytes = (double(p.n) * p.c * p.h * p.w + double(p.n) * p.k * p.p * p.q) * 2;
    const double memory = bytes / (StreamShare * d.bytes_per_us);
    const int together = together_of(form.tiles);
    const int64_t images = (TileRows >> t.log_rows) * together;
    const double tiles = double(ceil_div(ceil_div(t.images, t.parts), images)) * together;
    const double of_task = task_slots(p, form) + tiles * tile_slots(p, form);
    const double tasks = double(t.set) * t.pieces;
    const int most = std::max(std::min({blocks_of(p.r) * MaxWarps / option.warps, 32,
                                        d.shared_per_sm / (option.shared + SystemShared)}),
                              1);
    // Of the busiest multiprocessor.
    const double of_sm = double(ceil_div(option.blocks, d.sm_count));
    const double beside = std::min<double>(most, of_sm), waves = std::ceil(of_sm / most);
    const double slot = slot_clocks(std::min<double>(option.warps, tasks) * beside / 4);
    const double alone = BlockClocks + std::ceil(tasks / option.warps) * of_task * slot;
    const double issue = of_sm * tasks * of_task / (4 * Issued);
    const double computing = clocks_us(d, std::max(waves * alone, issue), FmaClock);
    // While the first blocks load, and the last ones store, none computes.
    const double ends = memory * std::min(0.77, 1.17 / std::sqrt(of_sm));
    return ShortLaunchUs + ends + together_us(computing, memory);
}

inline bool tile(const cf_query &query, const Form &form, const StripSize &size, Option &option) {
    const cf_problem &p = query.problem;
    option = {};
    Tiling &t = option.tiling;
    t.n = int(p.n), t.c = p.c, t.h = p.h, t.w = p.w, t.p = p.p, t.q = p.q;
    t.stride = p.stride_h, t.pad_top = p.pad_top, t.pad_left = p.pad_left;
    t.set = size.set, t.images = size.images, t.parts = size.parts;
    t.channel_blocks = int(ceil_div(p.c, size.set));
    t.classes = p.q % 2 ? 2 : 1;
    const int rows = int(ceil_div(p.p, t.classes));
    t.log_rows = rows <= 4 ? 2 : rows <= 8 ? 3 : 4;
    t.chunks = int(ceil_div(rows, TileRows));
    t.pieces = t.classes * t.chunks * t.parts;
    t.finishes = has_epilogue(p);
    t.activation = late_activation(p);
    t.x_elements = int64_t(p.c) * p.h * p.w, t.y_elements = int64_t(p.c) * p.p * p.q;
    const int64_t x_image = int64_t(size.set) * p.h * p.w * 2;
    const int64_t y_image = int64_t(size.set) * p.p * p.q * 2;
    // What a tile reads beside the planes counts as zero, but is read.
    const int64_t guard = round_up((int64_t(p.r) * p.w + 4 * Columns) * 2, 16);
    const int64_t x_images = round_up(size.images, TileRows >> t.log_rows);
    const int64_t y_at = 2 * guard + x_images * x_image;
    const int64_t shared = y_at + size.images * y_image;
    const double strips = double(t.channel_blocks) * double(ceil_div(p.n, size.images));
    if (shared > query.device.shared_per_block - StaticShared || strips > INT32_MAX / 2)
        return false;
    t.x_image = uint32_t(x_image), t.y_image = uint32_t(y_image);
    t.x_at = uint32_t(guard), t.y_at = uint32_t(y_at);
    t.by_channel_blocks = Divisor(t.channel_blocks), t.by_pieces = Divisor(t.pieces);
    t.by_parts = Divisor(t.parts), t.by_chunks = Divisor(t.chunks);
    option.shared = int(shared);
    option.blocks = std::max(int(strips), 1);
    option.warps = size.warps;
    option.us = estimate(query, form, option);
    // Where all blocks fit at a time; the estimate asks for what one needs.
    option.shared = int(launch_room(query.device, option.blocks, shared, StaticShared));
    return true;
}

inline void rank_options(const cf_query &query, Ranking<Option> &ranking) {
    const cf_problem &p = query.problem;
    const Form form = form_of(p);
    const int step = channel_step(p);
    // No warp is without a task where channels are left.
    const auto with_images = [&](int images) {
        for (int set = step; set < round_up(p.c, step) + step && set <= 96; set += step)
            for (int warps = MaxWarps / 2; warps <= MaxWarps; warps *= 2)
                for (int parts = 1; parts <= 4; parts *= 2) {
                    Option option;
                    if (tile(query, form, {set, images, warps, parts}, option) &&
                        (set * option.tiling.pieces >= warps || set + step > p.c))
                        ranking.meet(option, option.us);
                }
    };
    const int64_t all = std::max<int64_t>(p.n, 1);
    for (int images = 1; images < 2 * all && images <= 64; images *= 2)
        with_images(int(std::min<int64_t>(images, all)));
}

} // namespace cf::depthwise_batched
