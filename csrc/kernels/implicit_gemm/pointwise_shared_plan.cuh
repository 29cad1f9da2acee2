// The planner of implicit_gemm_pointwise_shared: how a problem becomes tiles, and their estimates.
#pragma once

#include "core/estimate.cuh"
#include "core/fragment_epilogue.cuh"
#include "core/line_map.cuh"
#include "core/plan.cuh"
#include "core/tensor_map.cuh"
#include "core/tensors.cuh"
#include "kernels/implicit_gemm/pointwise_shared_kernel.cuh"

#include <algorithm>

namespace cf::pointwise_shared {

struct Choice {
    Shape shape;
    int grid; // 0: there is none
    Tiling tiling;
    double us;
};

inline int64_t plane(const cf_problem &p) { return int64_t(p.h) * p.w; }
inline int parities(const cf_problem &p) { return plane(p) % PiecePixels == 0 ? 1 : 2; }
inline uint64_t images(const cf_problem &p) {
    return uint64_t(std::max<int64_t>(p.n, 1)); // a batch may be empty
}
// Of x: pixels of as many planes as there are parities; what a copy brings, of a parity: a strip by
// itself, or those beside each other that one block asks for.
inline Box strip_box(const cf_problem &p) {
    const auto parity = uint64_t(parities(p));
    return {element_bytes(p),
            {uint64_t(plane(p)) * parity, uint64_t(p.c) / parity, images(p), 1},
            {StripPixels, uint32_t(BlockChannels / parity), 1, 1}};
}
inline Lines strip_lines(const cf_problem &p, int all, int strips) {
    const Box box = strip_box(p);
    const uint64_t pixel = box.element, row = box.tensor[0] * pixel;
    return {box.element,
            {box.tensor[0], box.tensor[1], uint64_t(all), box.tensor[2]},
            {row, StripPixels * pixel, box.tensor[1] * row},
            {box.box[1], uint32_t(strips), 1}};
}
// Of y: pixels, output channels of a group, groups of all images; what a warpgroup stores.
inline Box y_box(const cf_problem &p, int columns) {
    return {element_bytes(p),
            {uint64_t(plane(p)), uint64_t(p.k / p.groups), images(p) * uint64_t(p.groups), 1},
            {uint32_t(columns), RowChannels, 1, 1}};
}

// Clocks of a block of channels beside what its products take, with two parities as well; of each
// column of a tile, which is stored; bytes of a block that come in a clock; what comes before the
// first block, with peers as well; what x and y reach of the memory's pins. As numbers that fit
// best together, not each by itself, to 63 times of 24 problems on an H200: off by 5 %.
constexpr double OfBlock = 88, OfParity = 385, OfColumn = 6.9, FillBytes = 59, FillUs = 0.97,
                 PeersUs = 0.28, PinShare = 0.92;

inline double estimate(const cf_query &query, const Choice &choice) {
    const Tiling &t = choice.tiling;
    const double columns = choice.shape.columns, weights = TileChannels * double(LineBytes);
    const double products = Warpgroups * Steps * columns / 2;
    const double block = OfBlock + (choice.shape.parities - 1) * OfParity +
                         together_us(products, (t.pixel_bytes / t.peers + weights) / FillBytes);
    const double tiles = double(ceil_div(t.tiles, choice.grid));
    return ShortLaunchUs + FillUs + (t.peers - 1) * PeersUs +
           together_us(clocks_us(query.device, tiles * (t.blocks * block + OfColumn * columns),
                                 TensorClock),
                       tensor_bytes(query.problem) / (PinShare * query.device.bytes_per_us));
}

inline bool tile_of(const cf_query &query, const Shape &shape, int peers, Choice &choice) {
    const cf_problem &p = query.problem;
    choice = {shape, 0, {}, 0};
    Tiling &t = choice.tiling;
    const bool planes = shape.parities == 2;
    t.pixels = int(plane(p));
    if (shape.parities != parities(p) || (planes && t.pixels + Shift > shape.columns))
        return false;
    t.blocks = int(implicit_gemm::blocks_of(p));
    t.n = int(p.n), t.k = p.k, t.groups = p.groups, t.peers = peers;
    t.group_k = p.k / p.groups, t.group_c = p.c / p.groups;
    t.piece_pixels = planes ? t.pixels : shape.columns;
    t.pieces = int(ceil_div(t.pixels, t.piece_pixels));
    t.by_pieces = Divisor(t.pieces);
    t.parity_pixels = planes ? t.pixels - Shift : 0;
    t.row_pixels = t.pixels * shape.parities;
    t.edge_images = int(ceil_div(strips_of(shape.columns) * StripPixels + t.parity_pixels,
                                 int64_t(p.c) * t.pixels));
    t.filter_lines = int(implicit_gemm::filter_lines(p));
    t.group_tiles = int(ceil_div(t.group_k, TileChannels));
    t.channel_tiles = t.group_tiles * p.groups;
    t.by_channel_tiles = Divisor(t.channel_tiles), t.by_group_tiles = Divisor(t.group_tiles);
    t.tiles = int(p.n * t.pieces * t.channel_tiles);
    t.pixel_bytes = strips_of(shape.columns) * StripBytes;
    t.stage_bytes = t.pixel_bytes + TileChannels * LineBytes;
    t.staged_pitch = t.piece_pixels * element_bytes(p);
    t.finishes = has_epilogue(p), t.activation = late_activation(p);
    const int64_t room =
        int64_t(query.device.shared_per_block) - StaticShared - int64_t(shared_bytes(t));
    t.stages = int(std::min<int64_t>(room / t.stage_bytes, MaxStages));
    choice.grid = std::min(std::max(t.tiles, peers), query.device.sm_count / peers * peers);
    if (t.stages < 2 || t.group_tiles % peers != 0)
        return false;
    choice.us = estimate(query, choice);
    return true;
}

// Calls body(choice) for each way to do a problem.
template <class Body>
void for_choices(const cf_query &query, Body body) {
    Choice choice;
    for (const Shape &shape : Shapes)
        for (const int peers : {1, 2})
            if (tile_of(query, shape, peers, choice))
                body(choice);
}

} // namespace cf::pointwise_shared
