// The planner of grouped_nhwc: how a problem becomes strips, and what a strip takes.
#pragma once

#include "core/divisor.cuh"
#include "core/estimate.cuh"
#include "core/evict_first.cuh"
#include "core/fragment_epilogue.cuh"
#include "core/ranking_of_kinds.cuh"
#include "core/room.cuh"
#include "core/swizzled_map.cuh"
#include "kernels/depthwise/family.cuh"
#include "kernels/grouped/nhwc_fragment.cuh"

#include <algorithm>

namespace cf::grouped {

constexpr int MaxWarps = 8;
constexpr int MaxStages = 16; // of the ring that rows stream through
constexpr int StaticShared = 1024;
constexpr int MaxBox = 256;                       // elements along a side
constexpr int LeastItem = 8192, MostItem = 32768; // bytes that are copied at once, about

using depthwise::rows_of;

// What a problem's kernel is compiled for; filter and stride are 0 for any. f32 takes one product
// of tf32, or three, of numbers that are split in two.
struct Instance {
    int set_bytes, tiles, filter, stride, products;
    int warps, blocks; // of the largest block; of such to a multiprocessor
};

constexpr int parts_of(int products) { return products == 3 ? 2 : 1; }

// Tiles of a warp: as many as registers have room for sums of all rows of y that a row of x meets,
// and for the filter. Pixels of y are stored as so many bytes at once.
constexpr int tiles_of(int set_bytes, int filter) {
    return set_bytes == 16 ? (filter > 3 ? 2 : 4) : set_bytes == 128 ? 1 : 2;
}
// Warps of the largest block, and blocks of so many that registers leave room for on a
// multiprocessor.
constexpr int warps_of(int set_bytes, int filter, int products) {
    return filter > 0 && set_bytes * parts_of(products) > 32 ? 4 : MaxWarps;
}
constexpr int blocks_of(int set_bytes, int filter, int products) {
    return filter == 7                                 ? 1
           : warps_of(set_bytes, filter, products) > 4 ? 2
           : set_bytes * parts_of(products) > 64       ? 2
                                                       : 3;
}

inline Instance instance_of(const cf_problem &p) {
    const int group_bytes = p.c / p.groups * element_bytes(p);
    Instance instance = {};
    instance.products = p.math == CF_MATH_FP32 && p.storage == CF_STORE_F32 ? 3 : 1;
    instance.set_bytes = std::max(group_bytes, TileChannels * element_bytes(p));
    const bool plain = p.r == p.s && p.stride_h == p.stride_w && p.stride_h <= 2 &&
                       p.dilation_h == 1 && p.dilation_w == 1;
    if (plain && (p.r == 3 || (instance.set_bytes == 16 && (p.r == 5 || p.r == 7))))
        instance.filter = p.r, instance.stride = p.stride_h;
    instance.tiles = tiles_of(instance.set_bytes, instance.filter);
    instance.warps = warps_of(instance.set_bytes, instance.filter, instance.products);
    instance.blocks = blocks_of(instance.set_bytes, instance.filter, instance.products);
    return instance;
}

// Calls body with what an instance is compiled for, as compile-time constants: bytes of a set,
// which is one of these, filter and stride.
template <int... SetBytes, class Body>
void for_instance(const Instance &instance, Body body) {
    const auto among = [&](auto set_bytes) {
        if (instance.set_bytes != set_bytes.value)
            return;
        const auto with_stride = [&](auto filter) {
            for_value<1, 2>(instance.stride - 1,
                            [&](auto stride) { body(set_bytes, filter, stride); });
        };
        if (instance.filter == 0)
            body(set_bytes, Constant<0>(), Constant<0>());
        else if constexpr (set_bytes.value == 16)
            for_value<3, 5, 7>(instance.filter / 2 - 1, with_stride);
        else
            with_stride(Constant<3>());
    };
    (among(Constant<SetBytes>()), ...);
}

inline FilterWords filter_words(const cf_problem &p, const Instance &instance) {
    return {p.r,
            p.s,
            instance.set_bytes,
            instance.tiles,
            element_bytes(p),
            parts_of(instance.products)};
}

// A strip is some rows of y in some columns of some images, in the channels of some boxes. Where
// rows of x meet several of y, as they do in kernels for one filter, they stream through the ring,
// a few steps to an item: a step is as many rows of x as the vertical stride. For other filters an
// item has all rows of x that a strip needs. Offsets in shared memory are bytes.
struct Tiling {
    int n, c, h, h_step, w_step; // steps: pixels of x from one of y to the next
    int p, q, r, s;
    int row_step, tap_step; // from tap to tap: pixels in the box
    int pad_top, pad_left;
    int images, units, columns; // of a strip; units of an image, columns that these have
    int rows;                   // of y in a strip
    int steps;                  // of an item
    int items;                  // of a strip
    int boxes, chunks;          // of a strip's channels; a warp has a chunk
    int chunk_bytes;            // of a pixel of x
    int all_chunks;
    int strips, channel_blocks, column_pieces, row_pieces;
    int stages;
    int finishes;     // whether there is an epilogue
    int activation;   // beyond what cf::Finish does
    bool evict_first; // whether lines of x leave the cache first (core/evict_first.cuh)
    uint32_t stage_bytes, box_bytes, copied_bytes;
    int width, image; // pixels of a box from row to row, from image to image
    Divisor by_channel_blocks, by_column_pieces, by_row_pieces, by_units, by_items, by_chunks;
};

// A tiling, what it copies, and the time that its launch takes.
struct Option {
    Tiling tiling;
    Box box;
    int warps;       // of a block
    int blocks;      // of the launch
    int of_sm;       // of a multiprocessor at a time
    bool persistent; // or each strip has a block of its own
    size_t shared;   // bytes of a block
    double us;
};

// What a strip has: boxes of channels, images, units of an image, rows of y; about so many bytes
// are copied at once.
struct StripSize {
    int boxes, images, units, rows, copied;
};

inline int chunks_of_box(const cf_problem &p, const Instance &instance) {
    return PixelBytes / element_bytes(p) / (instance.tiles * TileChannels);
}
inline int64_t boxes_of(const cf_problem &p) {
    return ceil_div(int64_t(p.c) * element_bytes(p), PixelBytes);
}

// Clocks of a multiprocessor's quarter that a row of y takes: of a warp by itself, which waits for
// its loads and products, and of each of many, which are issued in turn; of each piece of 16 bytes
// that is multiplied, each that is loaded where three products take it apart, each step's products
// that are then added to sums, and each tile. OfItem and all shares are fitted by
// scripts/fit_strips.py to 977 plans of 20 problems
// (h200-depthwise-forms.csv, h200-ordered-blocks.csv; 150 of them, in 16 bits, are no plans any
// longer), what f32 takes to those of 19; the others to h200-depthwise-plans.csv. 6 % off (root of
// the mean square), the plan that it picks 3.0 % slower than the fastest in the mean and 16 % at
// most (320 channels in fp32), the fastest of eight 0 %. Kernels of any filter are not among them.
constexpr double RowAlone = 365, PieceAlone = 2, RowEach = 25, PieceEach = 3, TileEach = 8;
struct SplitClocks {
    double each, add;
};
constexpr SplitClocks SplitOfLoads = {38, 5.6};
struct RowClocks {
    double alone, each;
};
inline RowClocks row_clocks(const cf_problem &p, const Instance &instance, SplitClocks split) {
    const double pieces = double(p.r) * p.s * instance.set_bytes / PieceBytes * instance.tiles;
    const double reused = instance.filter ? p.r / double(instance.stride) : 1;
    const double loads = pieces / reused / (instance.set_bytes == 16 ? 2 : 4);
    const double together = instance.filter && instance.set_bytes > 32 ? 3 : 1;
    const double apart =
        instance.products > 1 ? loads * split.each + pieces / 2 / together * split.add : 0;
    return {pieces * PieceAlone * instance.products + RowAlone,
            pieces * ((instance.filter ? 0 : 1) + PieceEach * instance.products) + apart +
                TileEach * instance.tiles + RowEach};
}
// Clocks of an item of the ring beside its rows; until the first one is there; and until any is,
// where many are on their way.
constexpr double OfItem = 560, Fill = 1500, InFlight = 4100;
// Shares of the memory's bandwidth, and of what is copied beyond x: what strips beside each other
// share, mostly from the second-level cache, and zeros beside the image.
constexpr double StreamShare = 0.8049, AgainShare = 0.09461;
// How much longer memory takes where all strips are in work at a time, so far from each other, and
// where 128 bytes of a pixel are copied by themselves.
constexpr double SpreadShare = 0.02133, ApartShare = 0.002591;
// Where each strip has a block of its own, by seven problems of 64 images: the share of the
// bandwidth; how much of it is lost where strips in work cover as much memory as the second-level
// cache has; clocks until such a block computes; and what the launch takes beside all that. Of what
// is copied again nothing was found to count, nor of a last round that is no whole one.
constexpr double OrderedShare = 1.167, FrontShare = 0.4739, OrderedStart = 1267, OrderedUs = 5.456;

// What the memory moves: so much of what is copied beyond x, too.
inline double bytes_of(const cf_problem &p, const Tiling &t, double again_share) {
    const double x_bytes = double(p.n) * p.c * p.h * p.w * element_bytes(p);
    const double y_bytes = double(p.n) * p.k * p.p * p.q * element_bytes(p);
    const double channels = double(p.c) * element_bytes(p) /
                            (double(t.channel_blocks) * t.boxes * PixelBytes); // that are there
    const double copied = double(t.strips) * t.items * t.copied_bytes * channels;
    return x_bytes + y_bytes + again_share * std::max(copied - x_bytes, 0.0);
}

// The rows of a strip, with so many blocks on a multiprocessor.
inline double strip_clocks(const cf_problem &p, const Instance &instance, const Option &option,
                           double of_sm) {
    const Tiling &t = option.tiling;
    // Rows above and below x take nothing.
    const double outside = t.row_pieces == 1 ? 1 : t.row_pieces == 2 ? 0.5 : 0;
    const double rows =
        t.rows + (instance.filter ? (1 - outside) * (rows_of(p.r, p.stride_h) - 1) : 0);
    const RowClocks of_warp = row_clocks(p, instance, SplitOfLoads);
    const double of_row = together_us(of_warp.alone, option.warps * of_sm / 4 * of_warp.each);
    return rows * of_row + t.items * OfItem;
}

// Of blocks that all run at a time, and take one strip after the other.
inline double persistent_us(const cf_query &query, const Instance &instance, const Option &option) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const Tiling &t = option.tiling;
    const double rounds = double(ceil_div(t.strips, option.blocks));
    const double of_sm = option.of_sm;
    // Strips of the last round leave some blocks without one, or some multiprocessors.
    const double balance =
        rounds > 1 ? rounds * option.blocks / t.strips : of_sm * d.sm_count / option.blocks;
    const double spread = 1 + SpreadShare * option.blocks / std::max(t.strips, 1) +
                          (t.channel_blocks > 1 ? ApartShare / t.boxes : 0);
    const double memory = bytes_of(p, t, AgainShare) / (StreamShare * d.bytes_per_us) * spread *
                          (of_sm > 1 || rounds > 1 ? balance : 1);
    // While a stage is being read, the others are on their way.
    const double items = rounds * t.items;
    const double read_us =
        items > t.stages ? clocks_us(d, items / (t.stages - 0.5) * InFlight, TensorClock) : 0;
    const double computing =
        clocks_us(d, rounds * strip_clocks(p, instance, option, of_sm) + Fill, TensorClock);
    return ShortLaunchUs +
           together_us(computing, clocks_us(d, Fill, TensorClock) + std::max(memory, read_us));
}

// Of a block for each strip, of which more come as others end: in the order of memory, and fewer to
// multiprocessors that are slower. Where what is in work lies close together, memory is faster.
inline double ordered_us(const cf_query &query, const Instance &instance, const Option &option) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const Tiling &t = option.tiling;
    const double at_once = double(option.of_sm) * d.sm_count;
    const double rounds = t.strips / at_once;
    const double front = at_once * t.items * t.copied_bytes / d.l2_bytes;
    const double share = OrderedShare / (1 + FrontShare * front);
    const double memory = bytes_of(p, t, 0) / (share * d.bytes_per_us) *
                          (1 + (t.channel_blocks > 1 ? ApartShare / t.boxes : 0));
    const double waits =
        t.items > t.stages ? (t.items - t.stages) / (t.stages - 0.5) * InFlight : 0;
    const double strip = std::max(strip_clocks(p, instance, option, option.of_sm), waits);
    return ShortLaunchUs + OrderedUs +
           together_us(clocks_us(d, rounds * (strip + OrderedStart), TensorClock), memory);
}

inline double estimate(const cf_query &query, const Instance &instance, const Option &option) {
    return option.persistent ? persistent_us(query, instance, option)
                             : ordered_us(query, instance, option);
}

// Calls meet(option) with each number of blocks that a multiprocessor may have at a time, at most
// `most`, and the stages of their rings. A block needs so many bytes of shared memory beside its
// ring and what the kernel declares, and `wanted(blocks)` are the stages that are of use to one of
// so many: without room for two, or for all that are of use, there are no such blocks.
template <class Option, class Wanted, class Meet>
void share_multiprocessors(const cf_query &query, int most, int64_t beside, Option option,
                           Wanted wanted, Meet meet) {
    const cf_device &d = query.device;
    auto &t = option.tiling;
    int met = 0; // blocks that were met last
    for (int of_sm = most; of_sm > 0; --of_sm) {
        const int64_t room = shared_room(d, of_sm) - StaticShared - beside;
        option.blocks = int(std::min<int64_t>(std::max(t.strips, 1), int64_t(d.sm_count) * of_sm));
        // A persistent block keeps its channels, and its filter, from strip to strip.
        if (t.strips > option.blocks && option.blocks > t.channel_blocks)
            option.blocks -= option.blocks % t.channel_blocks;
        const int useful = wanted(option.blocks), before = t.stages;
        t.stages = int(std::min<int64_t>(room / t.stage_bytes, useful));
        // Where there are few strips fewer blocks are no others.
        if (t.stages < std::min(useful, 2) || (t.stages == before && option.blocks == met))
            continue;
        met = option.blocks;
        option.shared =
            launch_room(d, option.blocks, beside + int64_t(t.stages) * t.stage_bytes, StaticShared);
        meet(option);
    }
}

// What a strip does not change.
inline void set_problem(const cf_problem &p, const Instance &instance, Tiling &t) {
    t.n = int(p.n), t.c = p.c, t.h = p.h, t.h_step = p.stride_h, t.w_step = p.stride_w;
    t.p = p.p, t.q = p.q, t.r = p.r, t.s = p.s;
    t.tap_step = p.dilation_w;
    t.pad_top = p.pad_top, t.pad_left = p.pad_left;
    t.chunk_bytes = instance.tiles * TileChannels * element_bytes(p);
    t.all_chunks = int(boxes_of(p)) * chunks_of_box(p, instance);
    t.finishes = has_epilogue(p);
    t.activation = late_activation(p);
}

// What a strip has; how many strips there are, in 31 bits or more.
inline double set_strip(const cf_problem &p, const Instance &instance, const StripSize &strip,
                        Tiling &t) {
    t.images = strip.images, t.units = strip.units, t.rows = strip.rows, t.boxes = strip.boxes;
    t.chunks = int(std::min<int64_t>(int64_t(strip.boxes) * chunks_of_box(p, instance),
                                     ceil_div(p.c, instance.tiles * TileChannels)));
    t.columns = std::min(strip.units * UnitPixels, p.q);
    t.column_pieces = int(ceil_div(p.q, int64_t(strip.units) * UnitPixels));
    t.row_pieces = int(ceil_div(p.p, strip.rows));
    t.channel_blocks = int(ceil_div(boxes_of(p), strip.boxes));
    return double(ceil_div(std::max<int64_t>(p.n, 1), strip.images)) * t.column_pieces *
           t.row_pieces * t.channel_blocks;
}

// Pixels of an item's box, of an image.
struct BoxSize {
    int64_t width, rows;
};

// A strip's items, of about so many bytes, and of no more steps than so many items need.
inline BoxSize set_items(const cf_problem &p, const Instance &instance, int copied, Tiling &t) {
    const int64_t height = int64_t(p.r - 1) * p.dilation_h + 1;
    const int64_t width = int64_t(t.columns - 1) * p.stride_w + int64_t(p.s - 1) * p.dilation_w + 1;
    if (instance.filter == 0) {
        t.steps = t.rows, t.items = 1;
        return {width, int64_t(t.rows - 1) * p.stride_h + height};
    }
    const int64_t all = t.rows + rows_of(p.r, p.stride_h) - 1;
    const int64_t step_bytes = width * p.stride_h * t.images * t.boxes * PixelBytes;
    const int64_t items = ceil_div(all, std::clamp<int64_t>(copied / step_bytes, 1, 8));
    const int64_t steps = ceil_div(all, items);
    t.steps = int(steps), t.items = int(items);
    return {width, steps * p.stride_h};
}

// The box that is copied, and what it takes of a stage.
inline Box set_box(const cf_problem &p, const BoxSize &size, Tiling &t) {
    const int element = element_bytes(p);
    const int64_t image = size.width * size.rows, bytes = image * t.images * PixelBytes;
    t.width = int(size.width), t.image = int(image);
    t.row_step = int(size.width) * p.dilation_h;
    t.box_bytes = uint32_t(round_up(bytes, SwizzleAlign));
    t.stage_bytes = uint32_t(round_up(bytes, SwizzleAlign) * t.boxes);
    t.copied_bytes = uint32_t(bytes * t.boxes);
    // A batch may be empty, a tensor not.
    return {element,
            {uint64_t(p.c), uint64_t(p.w), uint64_t(p.h), uint64_t(std::max<int64_t>(p.n, 1))},
            {uint32_t(PixelBytes / element), uint32_t(size.width), uint32_t(size.rows),
             uint32_t(t.images)}};
}

inline void set_divisors(Tiling &t) {
    t.by_channel_blocks = Divisor(t.channel_blocks);
    t.by_column_pieces = Divisor(t.column_pieces);
    t.by_row_pieces = Divisor(t.row_pieces);
    t.by_units = Divisor(t.units);
    t.by_items = Divisor(t.items);
    t.by_chunks = Divisor(t.chunks);
}

// Gives each strip a block of its own, as many at a time; false where there are no more, and in 16
// bits: the fastest such plan of two layers in f16 took 1.02 and 1.13 times as long as the fastest
// of persistent blocks, in different calls (docs/notes/depthwise.md).
inline bool own_blocks(const cf_query &query, const Instance &instance, int64_t beside,
                       Option &option) {
    Tiling &t = option.tiling;
    if (element_bytes(query.problem) < 4 || t.strips <= option.blocks || t.items < 2)
        return false;
    option.persistent = false;
    option.blocks = t.strips;
    t.stages = std::min(t.stages, t.items);
    option.shared = exact_room(query.device, option.of_sm,
                               beside + int64_t(t.stages) * t.stage_bytes, StaticShared);
    option.us = estimate(query, instance, option);
    return true;
}

// Meets the strip's tiling with each number of blocks, unless an item has as many steps as before,
// and says how many it has; 0 where there is none.
inline int tile(const cf_query &query, const Instance &instance, const StripSize &strip, int before,
                RankingOfKinds<Option> &ranking) {
    const cf_problem &p = query.problem;
    Option option = {};
    Tiling &t = option.tiling;
    set_problem(p, instance, t);
    t.evict_first = evicts_first(query);
    const double strips = set_strip(p, instance, strip, t);
    option.warps = int(ceil_div(strip.images * strip.units, 2)) * t.chunks;
    if (option.warps > instance.warps)
        return 0;
    const BoxSize box = set_items(p, instance, strip.copied, t);
    if (t.steps == before)
        return before;
    // Items of the ring are counted in 31 bits, and so are the elements of a strip's images.
    const double strip_elements = (double(strip.images - 1) * p.p * p.q + p.q) * p.k;
    if (box.width > MaxBox || box.rows > MaxBox || strips * (strip.rows + p.r) > INT32_MAX / 2 ||
        strip_elements > INT32_MAX / 2)
        return 0;
    t.strips = int(strips);
    option.box = set_box(p, box, t);
    set_divisors(t);
    const int64_t staging =
        element_bytes(p) == 2 ? int64_t(option.warps) * 2 * instance.tiles * UnitPixels * PieceBytes
                              : 0;
    const int most = instance.blocks * instance.warps / option.warps;
    const auto stages = [&](int blocks) {
        return t.strips <= blocks ? std::min(t.items, MaxStages) : MaxStages;
    };
    const auto meet = [&](Option met) {
        met.of_sm = int(ceil_div(met.blocks, query.device.sm_count));
        met.persistent = true;
        met.us = estimate(query, instance, met);
        ranking.meet(met.persistent, met, met.us);
        if (own_blocks(query, instance, SwizzleAlign + staging, met))
            ranking.meet(met.persistent, met, met.us);
    };
    share_multiprocessors(query, most, SwizzleAlign + staging, option, stages, meet);
    return t.steps;
}

inline void rank_options(const cf_query &query, const Instance &instance,
                         RankingOfKinds<Option> &ranking) {
    const cf_problem &p = query.problem;
    const int all_units = int(ceil_div(p.q, UnitPixels));
    const int images = int(std::clamp<int64_t>(p.n, 1, 2 * MaxWarps));
    const int boxes = int(std::min<int64_t>(boxes_of(p), MaxWarps));
    for (int box = 1; box <= boxes; ++box)
        for (int pieces = 1, last = 0; pieces <= all_units; ++pieces) {
            const int units = int(ceil_div(all_units, pieces));
            if (units == last || units > 2 * MaxWarps)
                continue;
            last = units;
            for (int image = 1; image <= images && image * units <= 2 * MaxWarps; ++image)
                for (int rows = p.p; rows > 0;) {
                    for (int copied = LeastItem, steps = 0; copied <= MostItem; copied *= 2)
                        steps = tile(query, instance, {box, image, units, rows, copied}, steps,
                                     ranking);
                    // One more piece than now, or as many as make pieces lower.
                    rows = rows > 1 ? int(ceil_div(p.p, ceil_div(p.p, rows - 1))) : 0;
                }
        }
}

} // namespace cf::grouped
