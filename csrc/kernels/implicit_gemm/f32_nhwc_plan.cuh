// The planner of implicit_gemm_f32_nhwc: tiles as implicit_gemm_nhwc cuts them, of lines that are
// two in memory.
#pragma once

#include "kernels/implicit_gemm/f32_plan.cuh"

namespace cf::implicit_f32 {

// The problem as tensor copies see it: two 16-bit elements for each f32, whose lines are as long.
inline cf_query in_words(const cf_query &query) {
    cf_query words = query;
    words.problem.storage = CF_STORE_F16;
    words.problem.c *= 2;
    return words;
}

struct CopiedChoice : Choice {
    Lines lines;
};

// By the layers of one image, of VGG-16 and of ResNet-50, until the first pixels are split by 13 of
// them since loaders begin early (benches/results/evidence/h200-implicit-gemm-begin.csv); and
// numbers that are split in a clock.
constexpr Costs CopiedCosts = {900, 0.55, 3.3, 900, 400, 0.4, 1400, 1.08};
constexpr double SplitValues = 17;

inline double split_clocks(const CopiedChoice &choice) {
    const Tiling &t = choice.plan.tiling;
    const double loads = double(ceil_div(t.blocks, t.parts)) * t.load_rows * t.load_columns;
    return loads * choice.plan.pixel_rings() * t.pixel_bytes / LineBytes * BlockChannels /
           SplitValues;
}

inline bool adapt(const cf_query &query, const Option &option, int sweep, bool own_place,
                  CopiedChoice &choice) {
    const Tiling &t = option.tiling;
    // Columns of products that are no pixels read on behind the last line.
    const int64_t read =
        (int64_t(option.width / 8 - 1) * t.group_bytes + int64_t(t.tap_rows - 1) * t.tap_row_bytes +
         int64_t(t.tap_columns - 1) * t.tap_bytes) /
            LineBytes +
        8;
    choice = {};
    choice.lines = option.lines;
    const PartsPlace parts = {implicit_gemm::parts_bytes(t, option.width), own_place};
    if (!adapt(query, option, sweep, read, Warpgroups * StagedBytes, parts.added(), parts, choice))
        return false;
    choice.us = estimate(query, choice, CopiedCosts, split_clocks(choice));
    return true;
}

// Calls body(choice) for each way to do a problem.
template <class Body>
void for_choices(const cf_query &query, Body body) {
    CopiedChoice choice;
    implicit_gemm::for_options(in_words(query), [&](const Option &option) {
        const Tiling &t = option.tiling;
        const bool compiled = implicit_gemm::is_among(NarrowWidths(), option.width) ||
                              implicit_gemm::is_among(WideWidths(), option.width);
        if (!compiled || t.pixel_peers * t.weight_peers > 1)
            return;
        for (const int sweep : Sweeps)
            for (const bool own_place : {true, false})
                if ((own_place || t.parts > 1) && adapt(query, option, sweep, own_place, choice))
                    body(choice);
    });
}

} // namespace cf::implicit_f32
