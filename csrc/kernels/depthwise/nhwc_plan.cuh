// The planner of depthwise_nhwc: how a problem becomes strips, and what a strip takes.
#pragma once

#include "core/ranking.cuh"
#include "kernels/depthwise/nhwc_tiling.cuh"

namespace cf::depthwise {

constexpr int MaxWarps = 8; // of a block
constexpr int LaneChannels = 2;

// Adjacent columns of y that a thread has sums of.
constexpr int columns_of(int r) { return r == 3 ? 7 : 4; }
// Blocks of so many warps that registers leave room for on a multiprocessor.
constexpr int blocks_of(int r) { return r == 7 ? 1 : 2; }
inline int blocks_of(int r, int warps) { return blocks_of(r) * MaxWarps / warps; }

// A tiling, what it copies, and what its launch takes.
struct Option {
    Tiling tiling;
    Box box;
    int warps, lanes; // of a block; of a channel block
    int blocks;
    double us;
};

// Instructions of a warp for a step, about; of 7x7 those for rows of y that a strip has.
inline double instructions(const cf_problem &p, const Tiling &t) {
    const int columns = columns_of(p.r), width = (columns - 1) * p.stride_w + p.r;
    const int elements = columns * LaneChannels;
    const double steps = t.rows + rows_of(p.r, p.stride_h) - 1;
    const double products = double(p.r) * p.s * elements * (p.r == 7 ? t.rows / steps : 1);
    const int widening = p.storage == CF_STORE_F32 ? 1 : 2;
    return products + p.stride_h * width * 1.5 * widening + elements * 6 + 70;
}
// Clocks of a warp's step by itself, which waits for its loads and products; of an instruction of
// each of many warps; of an item of the ring beside them; until the first one is there, and more
// for each block of a multiprocessor; until any is, where many are on their way. Fitted to
// benches/results/evidence/h200-depthwise-plans.csv, as shares of the memory's bandwidth are, and
// to what was chosen by estimates before (h200-depthwise-grouped.csv).
constexpr double StepAlone = 1000, ClocksOfMany = 0.88, OfItem = 120, Fill = 120, OfBlock = 310,
                 InFlight = 2200;

// What strips beside each other share is read again; a third of it comes from memory.
constexpr double AgainShare = 1 / 3.0;

inline double estimate(const cf_query &query, const Option &option) {
    const cf_problem &p = query.problem;
    const Tiling &t = option.tiling;
    const double halo = std::max(p.r - p.stride_h, 0);
    const double bytes =
        moved_bytes(p, t, std::min<double>((t.row_pieces - 1) * halo, p.h), AgainShare);
    // Of pixels in 64 bytes at a time the memory gives less.
    const bool narrow =
        option.lanes * LaneChannels * element_bytes(p) < 128 && option.lanes * LaneChannels < p.c;
    const double of_sm = double(ceil_div(option.blocks, query.device.sm_count));
    const double step =
        together_us(StepAlone, instructions(p, t) * option.warps * of_sm / 4 * ClocksOfMany);
    return strips_us(query, t, option.blocks, bytes, narrow ? 0.635 : 0.805,
                     {step, OfItem, Fill + of_sm * OfBlock, InFlight});
}

// With so many lanes to a channel block.
inline bool tile(const cf_query &query, int lanes, const StripSize &size, Option &option) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    option = {};
    option.lanes = lanes;
    option.warps = int(ceil_div(size.images * size.tiles, 32 / lanes));
    Tiling &t = option.tiling;
    const StripShape shape = {columns_of(p.r), lanes * LaneChannels, 1, 128};
    if (option.warps > MaxWarps || !tile_strips(p, shape, size, t, option.box))
        return false;
    const int blocks = blocks_of(p.r, option.warps);
    const int64_t room =
        std::min<int64_t>(d.shared_per_sm / blocks - SystemShared, d.shared_per_block) -
        StaticShared;
    t.stages = int(std::min<int64_t>(room / t.stage_bytes, MaxStages));
    if (t.stages < 2)
        return false;
    option.blocks = int(std::min<int64_t>(t.strips, d.sm_count * blocks));
    option.us = estimate(query, option);
    return true;
}

inline void rank_options(const cf_query &query, Ranking<Option> &ranking) {
    const cf_problem &p = query.problem;
    for (int lanes = p.storage == CF_STORE_F32 ? 16 : 32; lanes >= 16; lanes /= 2)
        for_strip_sizes(p, columns_of(p.r), MaxWarps * (32 / lanes), 16384,
                        [&](const StripSize &size, int steps_before) {
                            Option option;
                            if (!tile(query, lanes, size, option))
                                return steps_before;
                            if (option.tiling.steps != steps_before)
                                ranking.meet(option, option.us);
                            return option.tiling.steps;
                        });
}

} // namespace cf::depthwise
