// The planner of grouped_planar: how a problem becomes strips, and what a strip takes.
#pragma once

#include "core/evict_first.cuh"
#include "kernels/grouped/nhwc_plan.cuh"
#include "kernels/grouped/planar_fragment.cuh"
#include "pipeline/plane_plan.cuh"

namespace cf::grouped_planar {

using plane_strips::Bulk;

constexpr int MaxChannels = 64; // of a strip

// Blocks that registers leave room for on a multiprocessor, found by compiling: by type, channels
// of a group (4, 8, 16) and tiles of a unit (2, 4, 8).
constexpr int blocks_of(int size, int products, int channels, int tiles) {
    constexpr int Of16Bits[][3] = {{8, 6, 4}, {6, 5, 4}, {4, 3, 0}};
    constexpr int OfTf32[][3] = {{7, 7, 5}, {4, 4, 3}, {3, 2, 0}};
    constexpr int OfFp32[][3] = {{5, 4, 4}, {3, 2, 2}, {0, 0, 0}};
    return (size == 2 ? Of16Bits : products == 1 ? OfTf32 : OfFp32)[channels / 8][tiles / 4];
}

inline int group_channels(const cf_problem &p) { return p.c / p.groups; }

constexpr int most_tiles(int channels) { return channels == 16 ? 4 : 8; }

// Tiles of a unit: a lane's pixels of a row are all there or none, and lie at a multiple of theirs.
inline int tiles_of(const cf_problem &p) {
    int tiles = 2;
    while (tiles < most_tiles(group_channels(p)) && tiles * Columns < p.w && p.w % (2 * tiles) == 0)
        tiles *= 2;
    return tiles;
}

// What a problem's kernel is compiled for: a set has a group's channels, and a unit so many tiles
// of pixels of a row.
inline grouped::Instance instance_of(const cf_problem &p) {
    const int channels = group_channels(p), size = element_bytes(p);
    grouped::Instance instance = {};
    instance.products = p.math == CF_MATH_FP32 ? 3 : 1;
    instance.set_bytes = channels * size;
    instance.tiles = tiles_of(p);
    instance.blocks = blocks_of(size, instance.products, channels, instance.tiles);
    return instance;
}

// A strip is some rows of y, or all, in some groups of an image. A unit of a warp is a pair of rows
// in a group and, where rows are long, in a window of them.
struct Tiling {
    plane_strips::Tiling strips;
    int finishes, activation; // whether there is an epilogue; beyond what cf::Finish does
};

struct Option {
    Tiling tiling;
    int blocks;    // of the launch
    size_t shared; // bytes of a block
    double us;
};

// How often lanes that read at the same time meet in a bank, of a step's first half.
inline int conflicts(const cf_problem &p, const grouped::Instance &instance, uint32_t row_bytes,
                     uint32_t plane) {
    const int size = element_bytes(p), channels = group_channels(p);
    const int bytes = std::min(instance.tiles * size, 16), lanes = 128 / bytes;
    int met[32] = {}, most = 0;
    for (int lane = 0; lane < lanes; ++lane) {
        const int of_sum = lane % 4 * (4 / size);
        const uint32_t at = of_sum % channels * plane + of_sum / channels * row_bytes +
                            uint32_t(lane / 4 * instance.tiles * size);
        for (int word = 0; word < bytes / 4; ++word)
            most = std::max(most, ++met[(at / 4 + word) % 32]);
    }
    return most;
}

// How far apart channels of so many bytes lie so that few of them meet.
inline uint32_t plane_of(const cf_problem &p, const grouped::Instance &instance, uint32_t bytes) {
    const auto row_bytes = uint32_t(p.w * element_bytes(p));
    uint32_t best = bytes;
    int fewest = INT32_MAX;
    for (uint32_t plane = bytes; plane <= bytes + 7 * Bulk; plane += Bulk)
        if (const int met = conflicts(p, instance, row_bytes, plane); met < fewest)
            fewest = met, best = plane;
    return best;
}

// Clocks of a tile: a product takes five of a multiprocessor's quarter; what is read, rounded,
// shifted and stored some for each channel.
inline double tile_clocks(const cf_problem &p, const grouped::Instance &instance) {
    const int channels = group_channels(p);
    const int products = channels == 4 ? 2 : channels == 8 ? 6 : 18;
    const bool is_f32 = element_bytes(p) == 4;
    const double of_channel = !is_f32 ? 1.52 : instance.products == 1 ? 3.7 : 8.8;
    return 5.35 * products * instance.products * (is_f32 ? 2 : 1) + of_channel * channels;
}

// Fitted to 432 times of plans of 18 problems on an H200, fast ones most
// (benches/results/evidence/h200-planar-plans.csv): 11 % off (root of the mean square), 8 % where a
// plan is within 1.35 of the fastest, and the plan that it picks 0.5 % slower than the fastest in
// the mean, 6 % at most.
inline double estimate(const cf_query &query, const grouped::Instance &instance,
                       const Option &option) {
    const double tiles = instance.tiles * tile_clocks(query.problem, instance);
    plane_strips::Costs costs;
    costs.unit = 14 + tiles, costs.unit_alone = 211 + 1.35 * tiles;
    costs.strip = 78, costs.strip_alone = 691;
    costs.loader = 543, costs.copy = 73, costs.segment = 109, costs.kb = 5.7;
    costs.first = 3470;
    costs.bandwidth = 0.927, costs.unbalanced = 1, costs.edges = 0.358;
    return plane_strips::strips_us(query, option.tiling.strips, option.blocks, costs);
}

// Meets the tiling into strips of so many channels and rows of y with each number of blocks.
inline void tile(const cf_query &query, const grouped::Instance &instance, int channels, int rows,
                 Ranking<Option> &ranking) {
    const cf_problem &p = query.problem;
    Option option = {};
    Tiling &t = option.tiling;
    plane_strips::set_problem(p, element_bytes(p), t.strips);
    t.strips.evict_first = evicts_first(query);
    t.finishes = has_epilogue(p), t.activation = late_activation(p);
    const int in_rows = int(round_up(rows, PairRows)) + FilterSide - 1;
    const auto plane = [&](uint32_t bytes) { return plane_of(p, instance, bytes); };
    if (!plane_strips::set_strips(query, channels, rows, in_rows, 0, plane, t.strips))
        return;
    const int tiles = instance.tiles; // windows share two columns
    plane_strips::set_units(PairRows, group_channels(p), Columns * tiles, (Columns - 2) * tiles,
                            t.strips);
    plane_strips::share_multiprocessors(query, instance.blocks, grouped::StaticShared, true, option,
                                        [&](Option &met) {
                                            met.us = estimate(query, instance, met);
                                            ranking.meet(met, met.us);
                                        });
}

inline void rank_options(const cf_query &query, const grouped::Instance &instance,
                         Ranking<Option> &ranking) {
    const cf_problem &p = query.problem;
    if (!plane_strips::is_countable(p, element_bytes(p)))
        return;
    const int most = std::max(std::min(p.c, MaxChannels), group_channels(p));
    for (int channels = group_channels(p); channels <= most; channels *= 2)
        plane_strips::for_heights(
            p.p, PairRows, [&](int rows) { tile(query, instance, channels, rows, ranking); });
}

} // namespace cf::grouped_planar
