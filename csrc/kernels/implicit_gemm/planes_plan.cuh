// The planner of implicit_gemm_planes: how a problem becomes tiles, and their estimates.
#pragma once

#include "core/estimate.cuh"
#include "core/fragment_epilogue.cuh"
#include "core/plan.cuh"
#include "core/tensors.cuh"
#include "kernels/implicit_gemm/planes_kernel.cuh"
#include "kernels/implicit_gemm/pointwise_plan.cuh"

#include <algorithm>

namespace cf::planes {

using pointwise::bank_conflicts, pointwise::MaxBox, pointwise::x_pixels, pointwise::y_pixels;

struct Choice {
    Shape shape;
    int grid;       // 0: there is none
    int box_pixels; // 0 where whole planes are copied
    Tiling tiling;
    double us;
};

// Whether boxes of a plane begin where copies may.
inline bool may_be_boxes(const cf_problem &p) { return x_pixels(p) * element_bytes(p) % 16 == 0; }
// Whether one copy takes a group's whole planes.
inline bool may_be_whole(const cf_problem &p) {
    return x_pixels(p) <= tile_pixels(2) &&
           x_pixels(p) * (p.c / p.groups) * element_bytes(p) % 16 == 0;
}
// How lanes load, as implicit_gemm_pointwise calls it.
inline Pairs pairs_of(const cf_problem &p) { return p.stride_w == 1 ? Pairs::Both : Pairs::Steps; }
inline size_t shared_bytes(const Tiling &t) {
    return LineAlign + size_t(t.weight_stages) * t.weight_stage_bytes +
           size_t(t.stages) * t.stage_bytes;
}

// Clocks around a tile, and around a row of taps where the filter moves in steps of 1 and of 2,
// fitted to 108 times on an H200, of which the estimate is off by 5.5 %. The others mean what those
// of implicit_gemm_pointwise do, and were fitted to other times of that row.
constexpr double OfTile = 1200, OfRow = 180, OfSteppedRow = 545, FillBytes = 40, FillUs = 0.88,
                 StorePair = 3.1, PinShare = 0.83;

inline double estimate(const cf_query &query, const Choice &choice) {
    const cf_problem &p = query.problem;
    const Tiling &t = choice.tiling;
    const int products = choice.shape.products, columns = choice.shape.columns;
    const double rows = tile_pixels(products);
    const double weights = columns * double(LineBytes), x = double(t.stage_bytes) / (p.r * Columns);
    // Of a row of taps three words for each two pixels, in steps of 2 the first one in two turns;
    // in f32 four.
    const double words = (p.stride_w == 1 ? 3 : 4) / 3.0 * (element_bytes(p) == 4 ? 2.0 / 3 : 1.0);
    const double read = rows * LineBytes * words * bank_conflicts(p, pairs_of(p), t.pitch, t.order);
    const double port = (read + Warpgroups * products * weights + x + weights) / LineBytes;
    const double tap =
        std::max({pointwise::product_clocks(products, columns), port, (x + weights) / FillBytes});
    const double row = Columns * tap + (p.stride_w == 1 ? OfRow : OfSteppedRow);
    const double store = rows * columns / 64 * StorePair;
    const double rounds = double(ceil_div(t.tiles, choice.grid));
    const double tile = OfTile + t.blocks * p.r * row + store;
    return ShortLaunchUs + FillUs +
           together_us(clocks_us(query.device, rounds * tile, TensorClock),
                       tensor_bytes(p) / (PinShare * query.device.bytes_per_us));
}

// The order of channels in which lanes meet in the fewest banks: of whole planes, whose pitch has
// no choice.
inline int order_of(const cf_problem &p) {
    const int natural = element_bytes(p) == 4 ? 0 : 1;
    if (may_be_boxes(p))
        return 0;
    int best = natural;
    const auto conflicts = [&](int order) {
        return bank_conflicts(p, pairs_of(p), x_pixels(p) * element_bytes(p), order);
    };
    for (int order = 0; order <= (element_bytes(p) == 4 ? 3 : 4); ++order)
        if (conflicts(order) < conflicts(best))
            best = order;
    return best;
}

// Boxes that cover what a tile's taps read of a plane: such a width that lanes meet in no bank, the
// fewest bytes.
inline void cover(const cf_problem &p, Choice &choice) {
    Tiling &t = choice.tiling;
    const int element = element_bytes(p), unit = 8;
    t.run = -int(round_up(p.pad_top * p.w + 1, unit));
    // The last pixels of a tile, and what is under them in the last row of taps.
    const int pixels = Warpgroups * t.piece_pixels - 2;
    const int64_t in_x =
        p.stride_w == 1 ? pixels : 2 * (pixels + int64_t(pixels / p.q) * (p.w - p.q));
    const int64_t last = in_x - t.run + (int64_t(p.r - 1) * p.dilation_h - p.pad_top) * p.w;
    int64_t least = INT64_MAX;
    for (int width = MaxBox - unit; width > 2 * unit; width -= unit) {
        // Lanes' channels are eight words apart, or as good as.
        if (width * element / 4 % 16 != 8)
            continue;
        const int step = width - unit;
        const int64_t boxes = (last - 2) / step + 1;
        if (boxes * width < least && boxes <= 32) {
            least = boxes * width;
            choice.box_pixels = width, t.boxes = int(boxes), t.box_step = step;
        }
    }
    if (t.boxes == 0)
        return;
    t.pitch = choice.box_pixels * element;
    t.box_bytes = t.pitch * LineBytes / element;
    t.by_box_step = Divisor(t.box_step);
    t.stage_bytes = t.boxes * t.box_bytes;
}

inline bool tile_of(const cf_query &query, const Shape &shape, Choice &choice) {
    const cf_problem &p = query.problem;
    choice = {shape, 0, 0, {}, 0};
    Tiling &t = choice.tiling;
    const int element = element_bytes(p), channels = LineBytes / element;
    if (!is_compiled(element, p.stride_w, shape))
        return false;
    t.n = int(p.n), t.pixels = int(y_pixels(p)), t.k = p.k;
    t.width = p.w, t.height = p.h;
    t.rows = p.r, t.row_step = p.dilation_h, t.pad_top = p.pad_top;
    t.group_k = p.k / p.groups, t.group_c = p.c / p.groups;
    t.x_plane = x_pixels(p), t.x_image = t.x_plane * p.c, t.y_image = y_pixels(p) * p.k;
    t.blocks = int(ceil_div(t.group_c, channels));
    t.last_channels = t.group_c - (t.blocks - 1) * channels;
    t.order = order_of(p);
    // In steps of 2 whole rows of y.
    t.row_pixels = p.q, t.piece_pixels = shape.products * ProductRows;
    if (p.stride_w > 1)
        t.piece_pixels = t.piece_pixels / p.q * p.q;
    if (t.piece_pixels == 0)
        return false;
    t.pieces = Warpgroups * int(ceil_div(t.pixels, Warpgroups * t.piece_pixels));
    t.by_pieces = Divisor(t.pieces), t.by_row_pixels = Divisor(p.q);
    if (may_be_boxes(p)) {
        cover(p, choice);
        if (t.boxes == 0)
            return false;
    } else {
        t.pitch = int(x_pixels(p)) * element;
        t.stage_bytes = int(round_up(t.pitch * channels + 2 * Margin, LineBytes));
    }
    for (int i = 0; i < channels / 4; ++i)
        t.channel_bytes[i] = pointwise::channel_of_lane(0, i, t.order) * t.pitch;
    t.filter_lines = int(implicit_gemm::filter_lines(p));
    t.group_tiles = int(ceil_div(t.group_k, shape.columns));
    t.channel_tiles = t.group_tiles * p.groups;
    t.by_channel_tiles = Divisor(t.channel_tiles), t.by_group_tiles = Divisor(t.group_tiles);
    t.tiles = int(p.n * (t.pieces / Warpgroups) * t.channel_tiles);
    t.weight_stage_bytes = shape.columns * LineBytes;
    int64_t room = query.device.shared_per_block - StaticShared - LineAlign;
    // Two stages of planes, where a block has more than one item; then weights, and planes again.
    const int least = t.blocks > 1 || t.tiles > query.device.sm_count ? 2 : 1;
    room -= int64_t(least) * t.stage_bytes;
    if (room < least_weight_stages(shape.products, shape.columns) * t.weight_stage_bytes)
        return false;
    t.weight_stages = int(std::min<int64_t>(room / t.weight_stage_bytes, MaxWeightStages));
    room -= int64_t(t.weight_stages) * t.weight_stage_bytes;
    t.stages = least + int(std::min<int64_t>(room / t.stage_bytes, MaxStages - least));
    t.finishes = has_epilogue(p), t.activation = late_activation(p);
    choice.grid = int(std::min<int64_t>(std::max(t.tiles, 1), query.device.sm_count));
    choice.us = estimate(query, choice);
    return true;
}

} // namespace cf::planes
