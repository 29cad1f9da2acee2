// The planner of implicit_gemm_pointwise: how a problem becomes tiles, and their estimates.
#pragma once

#include "core/estimate.cuh"
#include "core/fragment_epilogue.cuh"
#include "core/plan.cuh"
#include "core/tensor_map.cuh"
#include "core/tensors.cuh"
#include "kernels/implicit_gemm/pointwise_kernel.cuh"

#include <algorithm>
#include <climits>

namespace cf::pointwise {

struct Choice {
    Shape shape;
    int grid; // 0: there is none
    Pairs pairs;
    Box box; // of x; none where whole planes are copied
    Tiling tiling;
    double us;
};

// Pixels of a plane of x and of y.
inline int64_t x_pixels(const cf_problem &p) { return int64_t(p.h) * p.w; }
inline int64_t y_pixels(const cf_problem &p) { return int64_t(p.p) * p.q; }
// From pixel to pixel of y, in x.
inline int step_h(const cf_problem &p) { return p.p > 1 ? p.stride_h : 1; }
inline int step_w(const cf_problem &p) { return p.q > 1 ? p.stride_w : 1; }
// Whether y has a pixel for each of x.
inline bool is_dense(const cf_problem &p) { return p.p == p.h && p.q == p.w; }
// Whether an image's part of a tile is contiguous in y, as copies take it.
inline bool may_be_staged(const cf_problem &p) {
    return y_pixels(p) * (p.k / p.groups) * element_bytes(p) % 16 == 0;
}
// Of boxes, or of whole planes.
inline Pairs pairs_of(const cf_problem &p, bool boxes) {
    if (is_dense(p) && y_pixels(p) % 2 == 0)
        return Pairs::Both;
    const bool aligned = boxes || (x_pixels(p) % 4 == 0 && int64_t(p.w) * step_h(p) % 4 == 0);
    if (step_w(p) == 2 && p.q % 2 == 0 && aligned)
        return Pairs::Steps;
    return !boxes && may_be_staged(p) ? Pairs::Staged : Pairs::None;
}

// Whether a tile of so many products has room for an image's planes, and copies take those of a
// group's channels.
inline bool may_be_planes(const cf_problem &p, int products) {
    return y_pixels(p) <= tile_pixels(products) &&
           x_pixels(p) * (p.c / p.groups) * element_bytes(p) % 16 == 0;
}
inline size_t shared_bytes(const Tiling &t) {
    return LineAlign + size_t(t.stages) * t.stage_bytes + size_t(t.images) * t.staged_bytes;
}
// Words of shared memory that a lane loads at a time.
inline int loaded_words(const cf_problem &p, Pairs pairs) {
    const int both = element_bytes(p) / 2; // words of two neighbours
    return !loads_both(pairs) ? 1 : pairs == Pairs::Both ? both : 2 * both;
}

// In how many turns the lanes of a warp load, 1 where none meet in a bank of shared memory: where a
// channel is so many bytes from the next, and the fragment has this order. Of pixels of one row.
inline int bank_conflicts(const cf_problem &p, Pairs pairs, int64_t pitch, int order) {
    // 64 bits are loaded by half a warp at a time, 128 by a quarter.
    const int words = loaded_words(p, pairs), count = 32 / words;
    const int64_t pixel = int64_t(element_bytes(p)) * step_w(p);
    int64_t loaded[32];
    int loads[32] = {}, all = 0, most = 0;
    for (int lane = 0; lane < count; ++lane)
        for (int i = 0; i < words; ++i) {
            const int64_t word = ((pitch * (lane % 4) << order) + lane / 4 * 2 * pixel) / 4 + i;
            if (std::find(loaded, loaded + all, word) != loaded + all)
                continue;
            loaded[all++] = word;
            most = std::max(most, ++loads[word % 32]);
        }
    return most;
}

// Clocks around a tile, and around a block where the filter moves in steps; what a product takes of
// its rows, which come from registers, beside the half a clock of each column; bytes in a clock
// that L2 gives a multiprocessor; what comes before the first block; clocks of a warp's store of
// two pixels of a channel: as one word, of whole planes each byte of an element, as two words, and
// as two by way of shared memory; what x and y reach of the memory's pins. Fitted to 111 times on
// an H200, of which they are off by 8.5 %.
constexpr double OfTile = 610, OfSteps = 560, RowClocks = 40, FillBytes = 47, FillUs = 0.92,
                 StorePair = 2.6, StorePlane = 2.2, StoreTwo = 19, StoreStaged = 9, PinShare = 0.83;

// Of both warpgroups' products, so many beside each other, along whole lines.
inline double product_clocks(int products, int columns) {
    return Warpgroups * products * Steps * std::hypot(columns / 2.0, RowClocks);
}
inline double store_clocks(Pairs pairs, bool planes, int element) {
    switch (pairs) {
    case Pairs::None:
        return StoreTwo;
    case Pairs::Staged:
        return StoreStaged;
    default:
        return planes ? StorePlane * element : StorePair;
    }
}

inline double estimate(const cf_query &query, const Choice &choice) {
    const cf_problem &p = query.problem;
    const Tiling &t = choice.tiling;
    const int products = choice.shape.products, columns = choice.shape.columns;
    const double rows = tile_pixels(products);
    const double x = double(t.images > 0 ? t.images : Warpgroups) * t.set_bytes;
    const double weights = columns * double(LineBytes);
    const Pairs pairs = choice.pairs;
    // Lanes' two pixels of a channel are a word in 16 bits, two in f32.
    const double words = loaded_words(p, pairs) * (loads_both(pairs) ? 1.0 : 2.0);
    const double read = rows * LineBytes * bank_conflicts(p, pairs, t.pitch, t.order) * words * 2 /
                        element_bytes(p);
    const double port = (read + Warpgroups * products * weights + x + weights) / LineBytes;
    const double block =
        together_us(std::max(product_clocks(products, columns), port), (x + weights) / FillBytes) +
        (pairs == Pairs::Steps ? OfSteps : 0);
    const double store = rows * columns / 64 * store_clocks(pairs, t.images > 0, element_bytes(p));
    const double rounds = double(ceil_div(t.tiles, choice.grid));
    const double tile = OfTile + t.blocks * block + store;
    return ShortLaunchUs + FillUs +
           together_us(clocks_us(query.device, rounds * tile, TensorClock),
                       tensor_bytes(p) / (PinShare * query.device.bytes_per_us));
}

constexpr int MaxBox = 256; // elements along a side

// What a piece of an image copies, for a product's rows: neighbouring pixels of a plane; of planes
// that are not read whole some rows of y, as rows of x that many apart. None where copies take no
// such box.
inline bool box_of(const cf_problem &p, int rows, int order, Box &box) {
    const int element = element_bytes(p), unit = 16 / element, step = step_h(p);
    const uint32_t channels = uint32_t(LineBytes / element);
    const auto images = uint64_t(std::max<int64_t>(p.n, 1)); // a batch may be empty
    box = {element, {uint64_t(x_pixels(p)), 1, uint64_t(p.c), images}, {0, 1, channels, 1}};
    int64_t columns = rows;
    if (!is_dense(p)) {
        if (p.h % step != 0 || p.q > rows)
            return false;
        box.tensor[0] = uint64_t(p.w) * step, box.tensor[1] = uint64_t(p.h / step);
        box.box[1] = uint32_t(std::min(rows / p.q, p.p));
        columns = round_up(int64_t(p.q - 1) * step_w(p) + 1, unit);
    }
    if (box.tensor[0] * element % 16 != 0 || x_pixels(p) * element % 16 != 0)
        return false;
    // With some that no product reads rows of channels meet in the fewest banks.
    int least = INT_MAX;
    for (int gap = is_dense(p) ? unit : 0; gap <= 4 * unit && columns + gap <= MaxBox;
         gap += unit) {
        const int conflicts =
            bank_conflicts(p, pairs_of(p, true), (columns + gap) * box.box[1] * element, order);
        if (conflicts < least)
            least = conflicts, box.box[0] = uint32_t(columns + gap);
    }
    return box.box[0] > 0;
}

// The order of channels that x is read in with the fewest conflicts: planes, or boxes of rows,
// whose pitch hardly has a choice. It has nothing to do with the number of images, as the filter is
// packed in it.
inline int order_of(const cf_problem &p) {
    const int element = element_bytes(p), natural = element == 4 ? 0 : 1;
    const bool boxes = !may_be_planes(p, 2);
    Box box;
    if (boxes && (is_dense(p) || !box_of(p, ProductRows, natural, box)))
        return natural;
    const int64_t pitch = (boxes ? int64_t(box.box[0]) * box.box[1] : x_pixels(p)) * element;
    const auto conflicts = [&](int order) {
        return bank_conflicts(p, pairs_of(p, boxes), pitch, order);
    };
    int best = natural;
    for (int order = 0; order <= (element == 4 ? 3 : 4); ++order)
        if (conflicts(order) < conflicts(best))
            best = order;
    return best;
}

// Where pixels lie in a stage: in whole planes, or in this box.
inline void place_pixels(const cf_problem &p, int rows, const Box &box, Tiling &t) {
    const int element = element_bytes(p);
    const bool boxes = t.images == 0, dense = is_dense(p);
    const int64_t line = boxes ? box.box[0] : int64_t(p.w) * step_h(p);
    t.pitch = int((boxes ? line * box.box[1] : t.x_plane) * element);
    t.pixel_bytes = element * step_w(p);
    t.row_pixels = dense ? tile_pixels(2) : p.q;
    t.row_bytes = dense ? 0 : int(line * element);
    t.by_row_pixels = Divisor(t.row_pixels);
    t.piece_pixels = !boxes ? t.pixels : dense ? rows : p.q * int(box.box[1]);
    t.piece_column = dense ? rows : 0;
    t.piece_row = dense ? 0 : int(box.box[1]);
    t.pieces = int(ceil_div(t.pixels, t.piece_pixels));
    t.by_pieces = Divisor(t.pieces), t.by_pixels = Divisor(t.pixels);
}

// Planes of whole images, or boxes of one.
inline bool tile_of(const cf_query &query, const Shape &shape, bool boxes, int order,
                    Choice &choice) {
    const cf_problem &p = query.problem;
    choice = {shape, 0, pairs_of(p, boxes), {}, {}, 0};
    Tiling &t = choice.tiling;
    const int element = element_bytes(p), rows = shape.products * ProductRows;
    const int channels = LineBytes / element;
    if (!is_compiled(shape, choice.pairs) ||
        (boxes ? !box_of(p, rows, order, choice.box) : !may_be_planes(p, shape.products)))
        return false;
    t.n = int(p.n), t.pixels = int(y_pixels(p)), t.k = p.k;
    t.group_k = p.k / p.groups, t.group_c = p.c / p.groups;
    t.x_plane = x_pixels(p), t.x_image = t.x_plane * p.c, t.y_image = y_pixels(p) * p.k;
    t.blocks = int(ceil_div(t.group_c, channels));
    t.last_channels = t.group_c - (t.blocks - 1) * channels;
    t.order = order;
    t.images = boxes ? 0
                     : int(std::min<int64_t>(tile_pixels(shape.products) / t.pixels,
                                             std::max<int64_t>(p.n, 1)));
    place_pixels(p, rows, choice.box, t);
    for (int i = 0; i < channels / 4; ++i)
        t.channel_bytes[i] = channel_of_lane(0, i, order) * t.pitch;
    t.set_bytes = t.pitch * channels;
    if (choice.pairs == Pairs::Staged)
        t.staged_bytes = shape.columns * t.pixels * element;
    const int64_t room = query.device.shared_per_block - StaticShared - LineAlign -
                         int64_t(t.images) * t.staged_bytes;
    const int64_t sets = int64_t(t.set_bytes) * (boxes ? Warpgroups : t.images);
    if (sets > room)
        return false;
    t.pixel_stage_bytes = int(round_up(sets, LineAlign));
    t.stage_bytes = t.pixel_stage_bytes + shape.columns * LineBytes;
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
