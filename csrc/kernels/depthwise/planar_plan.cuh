// The planner of depthwise_planar: how a problem becomes strips and units, and what these take.
#pragma once

#include "core/evict_first.cuh"
#include "core/fragment_epilogue.cuh"
#include "core/ranking.cuh"
#include "kernels/depthwise/family.cuh"
#include "pipeline/plane_plan.cuh"

namespace cf::depthwise_planar {

constexpr int Columns = 8, SumRows = 16; // columns of a product, and rows of x that it sums over
constexpr int Size = 2;                  // bytes of an element
constexpr int StaticShared = 256;        // bytes beside what a tiling takes
constexpr int MaxChannels = 64;          // of a strip

// Bytes of a channel's packed filter (planar_filter.cuh).
inline int filter_bytes(int side, int gap) {
    return int(round_up(int64_t(side + gap + 1) * side * 4, plane_strips::Bulk));
}

// A unit has so many tiles of y: where rows are short, of as many channels as make them.
constexpr int UnitTiles = 8;
constexpr int planes_of(int tiles, int stride) { return UnitTiles * stride / tiles; }

// Tiles of x in a unit's rows: a lane's pixels of a row are all there or none, and lie at a
// multiple of theirs; a stride of 2 takes two of them to a tile of y.
inline int tiles_of(const cf_problem &p) {
    int tiles = 2;
    while (tiles < UnitTiles && tiles * Columns < p.w && p.w % (2 * tiles) == 0)
        tiles *= 2;
    return tiles;
}

// Rows of y that a product has sums of, where an image has more than 16.
inline int unit_rows(const cf_problem &p) { return (SumRows - p.r) / p.stride_h + 1; }

// Columns at the ends of a window that have sums over pixels outside it.
constexpr int edge_of(int side, int tiles) { return (side / 2 + tiles - 1) / tiles; }

// A strip is some rows of y, or all, in some channels of an image. A unit of a warp is some of
// these rows in a channel, or in several where rows are short, and in a window of long rows.
struct Tiling {
    plane_strips::Tiling strips;
    int lift;                 // rows of x from where a unit's sums would begin to where they do
    int lane_rows;            // rows of x from lane to lane
    int row_of[3];            // and from a lane's first to its others,
    uint32_t bytes_to[3];     // the same in bytes
    int gap;                  // of these to the second
    int finishes, activation; // whether there is an epilogue; beyond what cf::Finish does
};

struct Option {
    Tiling tiling;
    int blocks;    // of the launch
    size_t shared; // bytes of a block
    double us;
};

// How often lanes that read at the same time meet in a bank.
inline int conflicts(uint32_t row_bytes, int tiles, int lane_rows) {
    const int bytes = tiles * Size, lanes = 128 / bytes;
    int met[32] = {}, most = 0;
    for (int lane = 0; lane < lanes; ++lane) {
        const uint32_t at = lane % 4 * lane_rows * row_bytes + uint32_t(lane / 4 * bytes);
        for (int word = 0; word < bytes / 4; ++word)
            most = std::max(most, ++met[(at / 4 + word) % 32]);
    }
    return most;
}

// Which rows of x a lane multiplies is free: those with which lanes meet least.
inline void set_lane_rows(const cf_problem &p, Tiling &t) {
    int fewest = INT32_MAX;
    for (const int rows : {2, 4, 1})
        if (const int met = conflicts(t.strips.row_bytes, tiles_of(p), rows); met < fewest)
            fewest = met, t.lane_rows = rows;
    const int pair = std::min(t.lane_rows, 2);
    t.gap = pair == 2 ? 1 : 4;
    for (int i = 1; i < 4; ++i) {
        t.row_of[i - 1] = i % pair + i / pair * (t.lane_rows == 4 ? 2 : t.lane_rows == 2 ? 8 : 4);
        t.bytes_to[i - 1] = t.row_of[i - 1] * t.strips.row_bytes;
    }
}

// Blocks that registers leave room for on a multiprocessor, found by compiling: by the filter,
// stride and tiles of x.
constexpr int blocks_of(int side, int stride, int tiles) {
    constexpr int Blocks[][2][3] = {
        {{5, 5, 5}, {4, 4, 4}}, {{4, 4, 5}, {4, 4, 4}}, {{4, 4, 4}, {3, 3, 4}}};
    return Blocks[side / 2 - 1][stride - 1][tiles / 4];
}

// Fitted to 1461 times of plans on an H200, fast ones most
// (benches/results/evidence/h200-depthwise-planar-plans.csv and h200-planar-plans.csv, but for a
// shape of heldout): 12 % off (root of the mean square), 9 % where a plan is within 1.35 of the
// fastest, and the plan that it picks 1.8 % slower than the fastest in the mean of 65 sweeps of
// 27 problems, 10 % at most.
inline double estimate(const cf_query &query, const Option &option) {
    const cf_problem &p = query.problem;
    // Of a unit's products with all tiles, and of its channels.
    const double products = 43.8 * p.s + 51.3 * planes_of(tiles_of(p), p.stride_h);
    plane_strips::Costs costs;
    costs.unit = 60 + products, costs.unit_alone = 60 + 2.17 * products;
    costs.strip = 13, costs.strip_alone = 589;
    costs.loader = 734, costs.copy = 70, costs.segment = 121, costs.kb = 9.35;
    costs.first = 2250;
    costs.bandwidth = 0.869, costs.unbalanced = 0.74, costs.edges = 0.256;
    return plane_strips::strips_us(query, option.tiling.strips, option.blocks, costs);
}

// Meets the tilings into strips of so many channels and rows of y; what of an option is the same in
// all is there.
inline void tile(const cf_query &query, Option option, int channels, int rows,
                 Ranking<Option> &ranking) {
    const cf_problem &p = query.problem;
    Tiling &t = option.tiling;
    // Where a product sums over all rows of the image, rows outside it need not be among them.
    t.lift = rows == p.p && p.h <= SumRows ? p.r / 2 : 0;
    const int of_unit = t.lift > 0 ? p.p : unit_rows(p);
    const int before_last = (int(ceil_div(rows, of_unit)) - 1) * of_unit * p.stride_h;
    const auto plane = [](uint32_t bytes) { return bytes; };
    if (!plane_strips::set_strips(query, channels, rows, before_last + t.lift + SumRows,
                                  filter_bytes(p.s, t.gap), plane, t.strips))
        return;
    const int tiles = tiles_of(p);
    const int step = Columns - 2 * edge_of(p.s, tiles); // windows share columns
    plane_strips::set_units(of_unit, planes_of(tiles, p.stride_h), Columns * tiles, step * tiles,
                            t.strips);
    plane_strips::share_multiprocessors(query, blocks_of(p.s, p.stride_h, tiles), StaticShared,
                                        false, option, [&](Option &met) {
                                            met.us = estimate(query, met);
                                            ranking.meet(met, met.us);
                                        });
}

inline void rank_options(const cf_query &query, Ranking<Option> &ranking) {
    const cf_problem &p = query.problem;
    if (!plane_strips::is_countable(p, Size))
        return;
    Option option = {};
    Tiling &t = option.tiling;
    plane_strips::set_problem(p, Size, t.strips);
    t.strips.evict_first = evicts_first(query);
    set_lane_rows(p, t);
    t.finishes = has_epilogue(p), t.activation = late_activation(p);
    const int least = planes_of(tiles_of(p), p.stride_h);
    for (int channels = least; channels <= std::max(std::min(p.c, MaxChannels), least);
         channels += least)
        plane_strips::for_heights(p.p, unit_rows(p),
                                  [&](int rows) { tile(query, option, channels, rows, ranking); });
}

} // namespace cf::depthwise_planar
