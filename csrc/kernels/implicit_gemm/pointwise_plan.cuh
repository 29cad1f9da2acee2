// The planner of implicit_gemm_pointwise: how a problem becomes tiles, and their estimates.
#pragma once

#include "core/estimate.cuh"
#include "core/fragment_epilogue.cuh"
#include "core/plan.cuh"
#include "core/tensors.cuh"
#include "kernels/implicit_gemm/pointwise_kernel.cuh"

#include <algorithm>

namespace cf::pointwise {

struct Choice {
    Shape shape;
    int grid;       // 0: there is none
    int box_pixels; // 0 where whole planes are copied
    Tiling tiling;
    double us;
};

// Whether a tile of so many products has room for an image's planes, and copies take those of a
// group's channels.
inline bool may_be_planes(const cf_problem &p, int products) {
    const int64_t pixels = int64_t(p.p) * p.q;
    return pixels <= tile_pixels(products) &&
           pixels * (p.c / p.groups) * element_bytes(p) % 16 == 0;
}
inline bool is_paired(const cf_problem &p) { return int64_t(p.p) * p.q % 2 == 0; }
inline size_t shared_bytes(const Tiling &t) { return LineAlign + size_t(t.stages) * t.stage_bytes; }

// In how many turns the lanes of a warp load, 1 where none meet in a bank of shared memory: where a
// channel is so many bytes from the next and the fragment has this order.
inline int bank_conflicts(int element, bool paired, int64_t pitch, int order) {
    // 64 bits are loaded by half a warp at a time.
    const bool wide = element == 4 && paired;
    const int count = wide ? 16 : 32, words = wide ? 2 : 1;
    int64_t loaded[32];
    int loads[32] = {}, all = 0, most = 0;
    for (int lane = 0; lane < count; ++lane)
        for (int i = 0; i < words; ++i) {
            const int64_t word = ((pitch * (lane % 4) << order) + lane / 4 * 2 * element) / 4 + i;
            if (std::find(loaded, loaded + all, word) != loaded + all)
                continue;
            loaded[all++] = word;
            most = std::max(most, ++loads[word % 32]);
        }
    return most;
}

// Clocks around a tile; bytes in a clock that L2 gives a multiprocessor; what comes before the
// first block; clocks of a warp's store of two pixels of a channel, as one word and as two; what x
// and y reach of the memory's pins. Fitted to 131 times on an H200.
constexpr double OfTile = 470, FillBytes = 40, FillUs = 0.88, StorePair = 3.1, StoreTwo = 19,
                 PinShare = 0.83;

inline double estimate(const cf_query &query, const Choice &choice) {
    const cf_problem &p = query.problem;
    const Tiling &t = choice.tiling;
    const int products = choice.shape.products, columns = choice.shape.columns;
    const double rows = tile_pixels(products);
    const double multiplied = Warpgroups * products * Steps * columns / 2.0;
    const double x = double(t.images > 0 ? t.images : Warpgroups) * t.set_bytes;
    const double weights = columns * double(LineBytes);
    const int conflicts = bank_conflicts(element_bytes(p), is_paired(p), t.pitch, t.order);
    const double read =
        rows * LineBytes * conflicts * (element_bytes(p) == 2 && !is_paired(p) ? 2 : 1);
    const double port = (read + Warpgroups * products * weights + x + weights) / LineBytes;
    const double block = together_us(std::max(multiplied, port), (x + weights) / FillBytes);
    const double store = rows * columns / 64 * (is_paired(p) ? StorePair : StoreTwo);
    const double rounds = double(ceil_div(t.tiles, choice.grid));
    const double tile = OfTile + t.blocks * block + store;
    return ShortLaunchUs + FillUs +
           together_us(clocks_us(query.device, rounds * tile, TensorClock),
                       tensor_bytes(p) / (PinShare * query.device.bytes_per_us));
}

// The order of channels that planes are read in with the fewest conflicts; it has nothing to do
// with the number of images, as the filter is packed in it.
inline int order_of(const cf_problem &p) {
    const int element = element_bytes(p), natural = element == 4 ? 0 : 1;
    int best = natural;
    const auto conflicts = [&](int order) {
        return bank_conflicts(element, is_paired(p), int64_t(p.p) * p.q * element, order);
    };
    for (int order = 0; order <= (element == 4 ? 3 : 4) && may_be_planes(p, 2); ++order)
        if (conflicts(order) < conflicts(best))
            best = order;
    return best;
}

// Pixels of a box that no product reads: with them rows of channels meet in the fewest banks.
inline int box_gap(const cf_problem &p, int rows, int order) {
    const int element = element_bytes(p), unit = 16 / element;
    int best = unit;
    const auto conflicts = [&](int gap) {
        return bank_conflicts(element, true, int64_t(rows + gap) * element, order);
    };
    for (int gap = unit; gap <= 4 * unit; gap += unit)
        if (conflicts(gap) < conflicts(best))
            best = gap;
    return best;
}

// Planes of whole images, or boxes of one.
inline bool tile_of(const cf_query &query, const Shape &shape, bool boxes, int order,
                    Choice &choice) {
    const cf_problem &p = query.problem;
    choice = {shape, 0, 0, {}, 0};
    Tiling &t = choice.tiling;
    const int element = element_bytes(p), rows = shape.products * ProductRows;
    const int channels = LineBytes / element;
    const int64_t pixels = int64_t(p.p) * p.q;
    if (boxes ? pixels * element % 16 != 0 : !may_be_planes(p, shape.products))
        return false;
    t.n = int(p.n), t.pixels = int(pixels), t.k = p.k;
    t.group_k = p.k / p.groups, t.group_c = p.c / p.groups;
    t.x_image = pixels * p.c, t.y_image = pixels * p.k;
    t.blocks = int(ceil_div(t.group_c, channels));
    t.last_channels = t.group_c - (t.blocks - 1) * channels;
    t.order = order;
    choice.box_pixels = boxes ? rows + box_gap(p, rows, order) : 0;
    t.images = boxes ? 0
                     : int(std::min<int64_t>(tile_pixels(shape.products) / pixels,
                                             std::max<int64_t>(p.n, 1)));
    t.pieces = int(ceil_div(pixels, rows));
    t.by_pieces = Divisor(t.pieces), t.by_pixels = Divisor(t.pixels);
    t.pitch = (boxes ? choice.box_pixels : t.pixels) * element;
    for (int i = 0; i < channels / 4; ++i)
        t.channel_bytes[i] = channel_of_lane(0, i, order) * t.pitch;
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
    t.tiles = int((boxes ? ceil_div(p.n * t.pieces, Warpgroups) : ceil_div(p.n, t.images)) *
                  t.channel_tiles);
    t.finishes = has_epilogue(p), t.activation = late_activation(p);
    choice.grid = int(std::min<int64_t>(std::max(t.tiles, 1), query.device.sm_count));
    choice.us = estimate(query, choice);
    return t.stages >= 2;
}

// Calls body(choice) for each way to do a problem.
template <class Body>
void for_choices(const cf_query &query, Body body) {
    Choice choice;
    const int order = order_of(query.problem);
    for (const Shape &shape : Shapes)
        for (const bool boxes : {false, true})
            if (tile_of(query, shape, boxes, order, choice))
                body(choice);
}

} // namespace cf::pointwise
