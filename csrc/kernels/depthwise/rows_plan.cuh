// The planner of depthwise_rows: how a problem becomes strips, and what a strip takes.
#pragma once

#include "core/ranking.cuh"
#include "kernels/depthwise/tiling.cuh"

namespace cf::depthwise_rows {

using namespace depthwise;

constexpr int Columns = 8;    // of a thread: two vectors of 16 bytes
constexpr int Margin = 4;     // columns of a box in front of its tiles, and as many behind them
constexpr int MostWarps = 12; // of a block, and of a multiprocessor

// A strip is of one image, its channels are so many planes beside each other in memory.
struct RowsTiling : Tiling {
    int planes;
    uint32_t plane; // bytes from one to the next in a stage
};

struct Option {
    RowsTiling tiling;
    Box box;
    int warps, blocks;
    size_t shared;
    double us;
};

// Fitted by scripts/fit_strips.py to 216 plans of five problems
// (benches/results/evidence/h200-depthwise-forms.csv), as depthwise_nhwc's: 7 % off, the plan that
// it picks 2 % slower than the fastest in the mean and 4 % at most. Clocks of a row of a plane that
// is copied, and a step's instructions beside its products, and what these wait.
constexpr double StepAlone = 579, ClocksOfMany = 0.7707, OfItem = 720, OfBlock = 911,
                 InFlight = 4272, StreamShare = 0.7834, AgainShare = 0.64, RowClocks = 14.7,
                 StepSlots = 238;

inline double estimate(const cf_query &query, const Option &option) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const RowsTiling &t = option.tiling;
    const double of_sm = double(ceil_div(option.blocks, d.sm_count));
    const double steps = (t.items - 1.0) * t.steps;
    const double rows_again = std::min((t.row_pieces - 1) * (steps - t.rows), double(p.h));
    const double slots = double(p.r) * p.s * Columns * t.rows / steps + StepSlots;
    const double step = together_us(StepAlone, slots * option.warps * of_sm / 4 * ClocksOfMany);
    // Rows of planes are copied one after the other.
    const double copied = double(ceil_div(t.strips, option.blocks)) * of_sm * steps * t.planes;
    return std::max(clocks_us(d, copied * RowClocks, FmaClock),
                    strips_us(query, t, option.blocks, moved_bytes(p, t, rows_again, AgainShare),
                              StreamShare, {step, OfItem, of_sm * OfBlock, InFlight}));
}

// All but what depends on the number of blocks.
inline bool tile(const cf_query &query, int planes, const StripSize &size, Option &option) {
    const cf_problem &p = query.problem;
    option = {};
    option.warps = int(ceil_div(planes * size.tiles, 32));
    RowsTiling &t = option.tiling;
    // A box reaches as far beyond its tiles as 5x5 and 7x7 need, rounded up.
    const StripShape shape = {Columns, planes, 2 * Margin, 128};
    if (option.warps > MostWarps || planes > MaxBox || !tile_strips(p, shape, size, t, option.box))
        return false;
    const uint32_t width = option.box.box[1];
    t.pad_left = Margin;
    t.planes = planes, t.pitch = width * 4, t.plane = t.pitch * t.steps;
    option.box = {
        4,
        {uint64_t(p.w), uint64_t(p.h), uint64_t(p.c), uint64_t(std::max<int64_t>(p.n, 1))},
        {width, uint32_t(t.steps), uint32_t(planes), 1}};
    return true;
}

inline void rank_options(const cf_query &query, Ranking<Option> &ranking) {
    const cf_problem &p = query.problem;
    // Where there are few strips more blocks are no others.
    const auto take = [&](Option option) {
        const int needed = int(ceil_div(option.tiling.strips, query.device.sm_count));
        const int most = std::min(MostWarps / option.warps, needed);
        for (int blocks = 1; blocks <= most && place(query, blocks, option); ++blocks)
            ranking.meet(option, option.us);
    };
    // Filters of four planes are whole pieces of 16 bytes.
    for (int most = 4, before = 0; most <= std::min(MaxBox, MostWarps * 32); most += 4) {
        const int planes = int(round_up(ceil_div(p.c, ceil_div(p.c, most)), 4));
        if (planes == before)
            continue;
        before = planes;
        const auto tiled = [&](const StripSize &size, Option &option) {
            return tile(query, planes, size, option);
        };
        for_strips<Option>(p, Columns, {MostWarps * 32 / planes, 1, 65536}, tiled, take);
    }
}

} // namespace cf::depthwise_rows
