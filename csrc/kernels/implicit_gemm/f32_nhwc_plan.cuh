// The planner of implicit_gemm_f32_nhwc: tiles as implicit_gemm_nhwc cuts them, of lines that are
// two in memory and two operands in shared memory.
#pragma once

#include "kernels/implicit_gemm/f32_nhwc_tiling.cuh"
#include "kernels/implicit_gemm/nhwc_plan.cuh"

#include <algorithm>

namespace cf::implicit_f32 {

using implicit_gemm::norm5;
using implicit_gemm::Option;

struct Choice {
    int width, grid;
    Plan plan;
    Lines lines;
    double us;
};

// The problem as tensor copies see it: two 16-bit elements for each f32, whose lines are as long.
inline cf_query in_words(const cf_query &query) {
    cf_query words = query;
    words.problem.storage = CF_STORE_F16;
    words.problem.c *= 2;
    return words;
}

// Clocks: until a tile's first pixels are split, and the last ones stored; of a launch in us (both
// by the layers of one image); of scaling and adding a tap's sums of a column of products, and of
// handing on a load of pixels, where the other warpgroup's products do not hide them (by the layers
// of VGG-16 and ResNet-50); of storing a piece of 32 pixels; to split a value. Bytes that come from
// L2 in a clock, and that shared memory's port moves. Until a stage of weights is there after it
// was handed back, and how long warpgroups hold one: parts of a tap. Until a stage of pixels is.
constexpr double Fill = 2400, AloneUs = 1.15, OfColumn = 3.3, OfLoad = 900, OfPiece = 400,
                 SplitValues = 17;
constexpr double FillBytes = 30, PortBytes = 128, ProductShare = 1.08, StoreShare = 0.4;
constexpr double WeightRound = 1400, WeightsHeld = 1.2, Refill = 2500;
// Where parts of a sum meet: two barriers of a cluster, and of each column.
constexpr double Meet = 4500, MeetColumn = 8;

inline double estimate(const cf_query &query, const Choice &choice) {
    const cf_problem &p = query.problem;
    const Plan &plan = choice.plan;
    const Tiling &t = plan.tiling;
    const double width = choice.width, taps = t.taps;
    const double blocks = double(ceil_div(t.blocks, t.parts));
    const double loads = blocks * t.load_rows * t.load_columns;
    const double products =
        3 * Warpgroups * taps * ((blocks - 1) * Steps + (t.parts == 1 ? t.last_steps : Steps));
    const double lines = loads * plan.pixel_rings() * t.pixel_bytes / LineBytes;
    const double pixel_bytes = lines * 2 * LineBytes;
    const double taken = pixel_bytes / plan.sweep; // by a tile
    const double weight_bytes = 2 * blocks * taps * plan.weight_rings() * WeightBytes;
    const double filled = (taken + weight_bytes) / FillBytes;
    const double port = products * (16 + width / 4) + (3 * taken + weight_bytes) / PortBytes;
    const double issued = ProductShare * std::max(products * width / 2, port) +
                          blocks * taps * width * OfColumn + loads * plan.pixel_rings() * OfLoad;
    const double split = lines * BlockChannels / SplitValues / plan.sweep;
    const double round = blocks * taps * WeightRound / (t.weight_stages / 2.0 - WeightsHeld);
    const double main = norm5(norm5(issued, filled), norm5(split, round));
    const double store = OfPiece * width / 32;
    const double rounds =
        plan.sweep * double(ceil_div(std::max(t.tiles, 1), choice.grid / t.parts));
    // The next pixels come when the first of those that are kept are done with.
    const double kept = loads + 1 > t.pixel_stages ? loads - 1 : t.pixel_stages;
    const double gap =
        plan.sweep > 1 ? std::max(Refill - kept * main / loads, 0.0) / plan.sweep : 0;
    const double meet = t.parts > 1 ? Meet + MeetColumn * width : 0;
    // Warpgroups that begin together store together.
    const bool apart = t.lead * 4 >= t.blocks * t.taps;
    const double clocks =
        rounds * (main + gap + (apart ? StoreShare : 1) * store) + Fill + meet + store;
    const double read =
        p.r * p.s == 1 ? std::min(double(p.h) * p.w, double(p.p) * p.q) : double(p.h) * p.w;
    const double memory =
        4 * (double(p.n) * p.c * read + pixels(p) * p.k * (p.epilogue.residual ? 2 : 1)) +
        double(plan.packed.lines);
    return ShortLaunchUs + AloneUs +
           norm5(clocks_us(query.device, clocks, TensorClock),
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
    const int64_t room =
        query.device.shared_per_block - StaticShared - LineAlign - Warpgroups * StagedBytes;
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

// What this row makes of a tiling of words; false where it does not fit.
inline bool adapt(const cf_query &query, const Option &option, int sweep, Choice &choice) {
    const cf_problem &p = query.problem;
    choice = {};
    choice.width = option.width;
    choice.lines = option.lines;
    choice.plan.packed = packed_of(p);
    Tiling &t = choice.plan.tiling;
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
    choice.plan.sweep = sweep;
    t.channel_sets /= sweep;
    t.tiles /= sweep;
    t.by_channel_sets = Divisor(t.channel_sets);
    // Columns of products that are no pixels read on behind the last line.
    const int64_t read =
        (int64_t(choice.width / 8 - 1) * t.group_bytes + int64_t(t.tap_rows - 1) * t.tap_row_bytes +
         int64_t(t.tap_columns - 1) * t.tap_bytes) /
            LineBytes +
        8;
    choice.plan.factor_lines =
        int(round_up(std::max<int64_t>(read, t.pixel_stage_bytes / LineBytes), 16));
    if (!share_stages(query, choice))
        return false;
    if (read * LineBytes > int64_t(t.pixel_stage_bytes) + choice.plan.weight_bytes())
        return false;
    // Parts of a sum leave it in the place of stages.
    if (t.parts > t.blocks ||
        (t.parts > 1 &&
         sums_bytes(choice.width) > choice.plan.pixel_bytes() + choice.plan.weight_bytes()))
        return false;
    choice.grid = t.parts > 1 ? option.grid : std::max(std::min(t.tiles, query.device.sm_count), 1);
    // A block has a multiprocessor to itself.
    if (choice.grid > query.device.sm_count)
        return false;
    t.lead = lead_of(choice);
    choice.us = estimate(query, choice);
    return true;
}

// Calls body(choice) for each way to do a problem.
template <class Body>
void for_choices(const cf_query &query, Body body) {
    Choice choice;
    implicit_gemm::for_options(in_words(query), [&](const Option &option) {
        const Tiling &t = option.tiling;
        const bool compiled = implicit_gemm::is_among(NarrowWidths(), option.width) ||
                              implicit_gemm::is_among(WideWidths(), option.width);
        if (!compiled || t.pixel_peers * t.weight_peers > 1)
            return;
        for (const int sweep : Sweeps)
            if (adapt(query, option, sweep, choice))
                body(choice);
    });
}

} // namespace cf::implicit_f32
