// The planner of implicit_gemm_pointwise: how a problem becomes tiles, and their estimates.
#pragma once

#include "core/estimate.cuh"
#include "core/fragment_epilogue.cuh"
#include "core/plan.cuh"
#include "core/tensors.cuh"
#include "kernels/implicit_gemm/pointwise_kernel.cuh"

namespace cf::pointwise {

struct Choice {
    Shape shape;
    int grid; // 0: there is none
    Tiling tiling;
    double us;
};

inline bool is_paired(const cf_problem &p) { return int64_t(p.p) * p.q % 2 == 0; }
inline size_t shared_bytes(const Tiling &t) { return LineAlign + size_t(t.stages) * t.stage_bytes; }

// Clocks around a tile, and for each block of channels; bytes in a clock that L2 and memory give a
// multiprocessor; what of storing the other warpgroup's products do not hide.
constexpr double OfTile = 900, OfBlock = 220, FillBytes = 40, StoreShare = 0.6, FillUs = 1.2;
constexpr double StorePair = 3; // clocks of a warp's store of two pixels

inline double estimate(const cf_query &query, const Choice &choice) {
    const cf_problem &p = query.problem;
    const Tiling &t = choice.tiling;
    const int products = choice.shape.products, columns = choice.shape.columns;
    const double rows = tile_pixels(products);
    const double multiplied = Warpgroups * products * Steps * columns / 2.0;
    const double x = t.images > 0 ? double(t.images) * t.set_bytes : Warpgroups * t.set_bytes;
    const double weights = columns * double(LineBytes);
    const double read = rows * LineBytes * (element_bytes(p) == 2 && !is_paired(p) ? 2 : 1);
    const double port =
        (read + Warpgroups * products * weights + x + weights) / LineBytes;
    const double block = together_us(std::max(multiplied, port), (x + weights) / FillBytes);
    const double main = t.blocks * (block + OfBlock);
    const double store = rows * columns / 64 * StorePair * (is_paired(p) ? 1 : 2);
    const double rounds = double(ceil_div(t.tiles, choice.grid));
    const double tile = OfTile + together_us(main + store * StoreShare, store);
    const double bytes = tensor_bytes(p);
    return ShortLaunchUs + FillUs +
           together_us(clocks_us(query.device, rounds * tile, TensorClock),
                       bytes / (0.85 * query.device.bytes_per_us));
}

// Planes of whole images, or boxes of one.
inline bool tile_of(const cf_query &query, const Shape &shape, bool boxes, Choice &choice) {
    const cf_problem &p = query.problem;
    choice = {shape, 0, {}, 0};
    Tiling &t = choice.tiling;
    const int element = element_bytes(p), rows = tile_pixels(shape.products);
    const int channels = LineBytes / element;
    const int64_t pixels = int64_t(p.p) * p.q;
    t.n = int(p.n), t.pixels = int(pixels), t.k = p.k;
    t.group_k = p.k / p.groups, t.group_c = p.c / p.groups;
    t.x_image = pixels * p.c, t.y_image = pixels * p.k;
    t.blocks = int(ceil_div(t.group_c, channels));
    t.last_channels = t.group_c - (t.blocks - 1) * channels;
    t.images = boxes ? 0 : int(std::min<int64_t>(rows / pixels, std::max<int64_t>(p.n, 1)));
    t.pieces = boxes ? int(ceil_div(pixels, rows)) : 1;
    if (boxes ? pixels * element % 16 != 0 : t.images == 0 || pixels * t.group_c * element % 16 != 0)
        return false;
    t.by_pieces = Divisor(t.pieces), t.by_pixels = Divisor(t.pixels);
    t.pitch = (boxes ? box_pixels(shape.products) : t.pixels) * element;
    t.set_bytes = t.pitch * channels;
    t.pixel_stage_bytes =
        int(round_up(int64_t(t.set_bytes) * (boxes ? Warpgroups : t.images), LineAlign));
    t.stage_bytes = t.pixel_stage_bytes + shape.columns * LineBytes;
    const int64_t room = query.device.shared_per_block - StaticShared - LineAlign;
    t.stages = int(std::min<int64_t>(room / t.stage_bytes, MaxStages));
    t.filter_lines = int(implicit_gemm::filter_lines(p));
    t.group_tiles = int(ceil_div(t.group_k, shape.columns));
    t.channel_tiles = t.group_tiles * p.groups;
    t.by_channel_tiles = Divisor(t.channel_tiles), t.by_group_tiles = Divisor(t.group_tiles);
    const int64_t pixel_tiles = boxes ? p.n * t.pieces : ceil_div(p.n, t.images);
    t.tiles = int(pixel_tiles * t.channel_tiles);
    t.finishes = has_epilogue(p), t.activation = late_activation(p);
    choice.grid = int(std::min<int64_t>(std::max(t.tiles, 1), query.device.sm_count));
    choice.us = estimate(query, choice);
    return t.stages >= 2;
}

// Calls body(choice) for each way to do a problem.
template <class Body>
void for_choices(const cf_query &query, Body body) {
    Choice choice;
    for (const Shape &shape : Shapes)
        for (const bool boxes : {false, true})
            if (tile_of(query, shape, boxes, choice))
                body(choice);
}

} // namespace cf::pointwise
