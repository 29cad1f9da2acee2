// What planners of the rows that split f32 share: what they make of a family's tiling, whose lines
// are two operands in shared memory, and how long it takes.
#pragma once

#include "core/estimate.cuh"
#include "core/plan.cuh"
#include "kernels/implicit_gemm/f32_tiling.cuh"
#include "kernels/implicit_gemm/nhwc_plan.cuh"
#include "kernels/implicit_gemm/norm.cuh"
#include "kernels/implicit_gemm/refusals.cuh"

#include <algorithm>

namespace cf::implicit_f32 {

using implicit_gemm::norm;
using implicit_gemm::Option;
using implicit_gemm::PortBytes;

struct Choice {
    int width, grid;
    Plan plan;
    double us;
};

// What a row's kernel takes, in clocks: until a tile's first pixels are split, and the last ones
// stored; of a launch in us; of scaling and adding a tap's sums of a column of products, and of
// handing on a load of pixels, where the other warpgroup's products do not hide them; of storing a
// piece of 32 pixels, and the part of it that others do not hide; until a stage of weights is there
// after it was handed back. Products take so many times what the tensor cores need.
struct Costs {
    double fill, alone_us, of_column, of_load, of_piece, store_share, weight_round, product_share;
};
// Bytes that come from L2 in a clock; how long warpgroups hold a stage of weights: parts of a tap;
// until a stage of pixels is there after it was handed back; what a tap of fewer steps than a line
// has takes besides, as these are looped: by six layers of 4 and 12 channels, which were told 0.4
// to 5 us too little.
constexpr double FillBytes = 30, WeightsHeld = 1.2, Refill = 2500, PartialTap = 170;
// Where parts of a sum meet, of each column, and where they wait for the place of stages: as of
// implicit_gemm_nhwc, not fitted here. Of planes they meet as in implicit_gemm_nchw, whose numbers
// are larger; but four parts are told too much by these already
// (benches/results/evidence/h200-implicit-gemm-f32-nchw-parts.csv).
constexpr double Meet = 276, MeetColumn = 34, Ready = 1280;

// Of a plan whose pixels of a tile are split in so many clocks.
inline double estimate(const cf_query &query, const Choice &choice, const Costs &costs,
                       double split) {
    const cf_problem &p = query.problem;
    const Plan &plan = choice.plan;
    const Tiling &t = plan.tiling;
    const double width = choice.width, taps = t.taps;
    const double blocks = double(ceil_div(t.blocks, t.parts));
    const double loads = blocks * t.load_rows * t.load_columns;
    const double products =
        3 * Warpgroups * taps * ((blocks - 1) * Steps + (t.parts == 1 ? t.last_steps : Steps));
    const double partial_taps = t.parts == 1 && t.last_steps < Steps ? taps : 0;
    const double lines = loads * plan.pixel_rings() * t.pixel_bytes / LineBytes;
    const double pixel_bytes = lines * 2 * LineBytes;
    const double taken = pixel_bytes / plan.sweep; // by a tile
    const double weight_bytes = 2 * blocks * taps * plan.weight_rings() * WeightBytes;
    const double filled = (taken + weight_bytes) / FillBytes;
    const double port = products * (16 + width / 4) + (3 * taken + weight_bytes) / PortBytes;
    const double issued = costs.product_share * std::max(products * width / 2, port) +
                          blocks * taps * width * costs.of_column + partial_taps * PartialTap +
                          loads * plan.pixel_rings() * costs.of_load;
    const double round = blocks * taps * costs.weight_round / (t.weight_stages / 2.0 - WeightsHeld);
    const double main = norm<5>(norm<5>(issued, filled), norm<5>(split / plan.sweep, round));
    const double store = costs.of_piece * width / 32;
    const double rounds =
        plan.sweep * double(ceil_div(std::max(t.tiles, 1), choice.grid / t.parts));
    // The next pixels come when the first of those that are kept are done with.
    const double kept = loads + 1 > t.pixel_stages ? loads - 1 : t.pixel_stages;
    const double gap =
        plan.sweep > 1 ? std::max(Refill - kept * main / loads, 0.0) / plan.sweep : 0;
    const double meet = t.parts > 1 ? Meet + MeetColumn * width + (t.parts_replace ? Ready : 0) : 0;
    // Warpgroups that begin together store together.
    const bool apart = t.lead * 4 >= t.blocks * t.taps;
    const double clocks =
        rounds * (main + gap + (apart ? costs.store_share : 1) * store) + costs.fill + meet + store;
    const double read =
        p.r * p.s == 1 ? std::min(double(p.h) * p.w, double(p.p) * p.q) : double(p.h) * p.w;
    const double memory =
        4 * (double(p.n) * p.c * read + pixels(p) * p.k * (p.epilogue.residual ? 2 : 1)) +
        double(plan.packed.lines);
    return ShortLaunchUs + costs.alone_us +
           norm<5>(clocks_us(query.device, clocks, TensorClock),
                   memory / (0.85 * query.device.bytes_per_us));
}

// Taps: half of a tile, so that either warpgroup has time to store; 0 with one tile.
inline int lead_of(const Choice &choice) {
    const Tiling &t = choice.plan.tiling;
    const int taps = t.tap_rows * t.tap_columns;
    const bool kept = choice.plan.sweep > 1;
    const int of_pixels = kept ? t.blocks * t.taps : (t.pixel_stages - (t.apart ? 0 : 1)) * taps;
    const int most = t.apart ? std::min(t.weight_stages / 2 - 1, of_pixels) : of_pixels;
    return t.parts == 1 && (kept || t.tiles > choice.grid)
               ? std::max(std::min(t.blocks * t.taps / 2, most), 1)
               : 0;
}

// Stages of the rings in what shared memory leaves; false where it is too little.
inline bool share_stages(const cf_query &query, Choice &choice) {
    Plan &plan = choice.plan;
    Tiling &t = plan.tiling;
    const int64_t room = int64_t(query.device.shared_per_block) - StaticShared - LineAlign -
                         int64_t(plan.staged_bytes) - int64_t(plan.slot_bytes);
    const int64_t pixels =
        plan.pixel_rings() * (2 * int64_t(t.pixel_stage_bytes) + plan.factor_lines * 8);
    const int64_t weights = plan.weight_rings() * int64_t(WeightBytes);
    const int64_t taps = t.tap_rows * t.tap_columns;
    const int64_t even = room / (pixels + 2 * weights);
    const int64_t loads = int64_t(t.blocks) * t.load_rows * t.load_columns;
    if (plan.sweep > 1 && loads > MaxPixelStages)
        return false;
    const int64_t least = plan.sweep > 1 ? std::max<int64_t>(loads, 2) : 2;
    t.pixel_stages =
        int(std::min<int64_t>(taps > 1 ? least : std::max(even, least), MaxPixelStages));
    t.weight_stages =
        int(std::min<int64_t>((room - t.pixel_stages * pixels) / weights, MaxWeightStages));
    return room >= t.pixel_stages * pixels && t.weight_stages >= 4;
}

// Where parts of sums meet: in so many bytes, of their own or in the place of stages.
struct PartsPlace {
    uint32_t bytes;
    bool own;

    uint32_t added() const { return own ? bytes : 0; }
};

// What these rows make of a family's tiling, of which columns of products read so many lines of a
// stage; all but the time. False where it does not fit.
inline bool adapt(const cf_query &query, const Option &option, int sweep, int64_t read,
                  uint32_t staged_bytes, uint32_t slot_bytes, const PartsPlace &parts,
                  Choice &choice) {
    const cf_problem &p = query.problem;
    choice.width = option.width;
    Plan &plan = choice.plan;
    plan.packed = packed_of(p);
    plan.staged_bytes = staged_bytes, plan.slot_bytes = slot_bytes;
    Tiling &t = plan.tiling;
    t = option.tiling;
    t.group_c = p.c / p.groups;
    t.blocks = int(blocks_of(p));
    // A piece of 16 bytes has four channels, and the four that are 32 behind.
    const int last = std::min(t.group_c - (t.blocks - 1) * BlockChannels, FloatChannels);
    t.last_steps = int(ceil_div(last, 8));
    t.whole = p.k / p.groups % 4 == 0;
    t.reload_weights = 1;
    if (t.group_tiles % sweep != 0 || (sweep > 1 && t.parts > 1))
        return false;
    plan.sweep = sweep;
    t.channel_sets /= sweep;
    t.tiles /= sweep;
    t.by_channel_sets = Divisor(t.channel_sets);
    plan.factor_lines = int(round_up(std::max<int64_t>(read, t.pixel_stage_bytes / LineBytes), 16));
    if (!share_stages(query, choice))
        return false;
    if (read * LineBytes > int64_t(t.pixel_stage_bytes) + plan.weight_bytes())
        return false;
    t.parts_replace = t.parts > 1 && !parts.own;
    if (t.parts > t.blocks ||
        (t.parts_replace && parts.bytes > plan.pixel_bytes() + plan.weight_bytes()))
        return false;
    choice.grid = t.parts > 1 ? option.grid : std::max(std::min(t.tiles, query.device.sm_count), 1);
    // A block has a multiprocessor to itself.
    if (choice.grid > query.device.sm_count)
        return false;
    t.lead = lead_of(choice);
    return true;
}

// What both rows refuse.
inline bool splits(const cf_problem &p, const Refusal &no) {
    if (p.storage != CF_STORE_F32 || p.math != CF_MATH_FP32)
        return no("multiplies f32 in three products of f16");
    if (p.epilogue.pool_h)
        return no("fuses no pooling");
    if (reduction(p) < LeastSum)
        return no("is as accurate as f32 in sums of at least %d products; this has %.0f", LeastSum,
                  reduction(p));
    if (p.c > INT32_MAX / 4 || double(p.c) * p.r * p.s > INT32_MAX / 4 ||
        double(p.k / p.groups) * p.r * p.s > INT32_MAX / 4 ||
        double(packed_of(p).rows) > INT32_MAX / 4 || double(packed_of(p).channels) > INT32_MAX / 4)
        return no("counts the filter's channels and taps in 29 bits");
    return implicit_gemm::counts_images(p, no);
}

} // namespace cf::implicit_f32
