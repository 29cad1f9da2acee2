// The planner of implicit_gemm_nhwc: how a problem becomes tiles.
#pragma once

#include "kernels/implicit_gemm/tiling.cuh"

#include <algorithm>

namespace cf::implicit_gemm {

// Pixels of x and y as boxes see them: of 1x1 filters only what they read, one row where nothing is
// between rows.
struct View {
    bool boxes; // whether there are any
    int64_t n;
    int p, q;
    uint64_t tensor[4], pitch[3]; // channels, columns, images, rows
    int r, s, dilation_h, dilation_w;
    int pad_top, pad_left;
    int over; // columns behind x that taps reach; negative where they do not reach all of x
};

inline View view_of(const cf_problem &p) {
    View v = {};
    const uint64_t pixel = uint64_t(p.c) * element_bytes(p), row = pixel * p.w, image = row * p.h;
    const int64_t n = std::max<int64_t>(p.n, 1); // a batch may be empty, a tensor not
    v.n = p.n, v.p = p.p, v.q = p.q;
    v.r = p.r, v.s = p.s, v.dilation_h = p.dilation_h, v.dilation_w = p.dilation_w;
    v.pad_top = p.pad_top, v.pad_left = p.pad_left;
    v.tensor[0] = p.c;
    const bool inside = p.r == 1 && p.s == 1 && p.pad_top == 0 && p.pad_left == 0 &&
                        int64_t(p.p - 1) * p.stride_h < p.h && int64_t(p.q - 1) * p.stride_w < p.w;
    const bool dense = p.stride_h == 1 && p.stride_w == 1;
    if (inside && dense && p.p == p.h && p.q == p.w && n * p.h * p.w <= INT32_MAX / 2) {
        const int64_t all = n * p.h * p.w;
        v.n = p.n > 0, v.p = 1, v.q = int(all);
        v.tensor[1] = all, v.tensor[2] = v.tensor[3] = 1;
        v.pitch[0] = pixel, v.pitch[1] = v.pitch[2] = pixel * all;
        v.boxes = true;
    } else if (inside || dense) {
        v.tensor[1] = inside ? p.q : p.w, v.tensor[2] = n, v.tensor[3] = inside ? p.p : p.h;
        v.pitch[0] = pixel * (inside ? p.stride_w : 1), v.pitch[1] = image;
        v.pitch[2] = row * (inside ? p.stride_h : 1);
        v.boxes = true;
    }
    v.over = v.q + (v.s - 1) * v.dilation_w - v.pad_left - int(v.tensor[1]);
    return v;
}

// Parts of sums have a place of their own, or that of the stages.
inline bool share_memory(const cf_query &query, int64_t bytes, Option &option) {
    Tiling &t = option.tiling;
    if (!share_stages(query, bytes, option))
        return false;
    t.by_clusters = Divisor(option.grid / cluster_size(t));
    t.parts_replace = 0;
    t.parts_replace = shared_bytes(t, option.width) + StaticShared > bytes;
    return !t.parts_replace ||
           parts_bytes(t, option.width) <= pixel_ring_bytes(t) + weight_ring_bytes(t);
}
// Half of it, where another launch's block may begin beside this one, which has one tile, and that
// is enough, for a place of parts of sums, too.
inline bool share_memory(const cf_query &query, Option &option) {
    Tiling &t = option.tiling;
    t.near = (double(t.images) * t.p + t.rows) * t.q * t.k < INT32_MAX / 2;
    option.beside = blocks_beside(option.width) > 1 &&
                    share_memory(query, query.device.shared_per_sm / 2 - ReservedShared, option) &&
                    t.tiles <= option.grid / cluster_size(t) && !t.parts_replace;
    return option.beside || share_memory(query, query.device.shared_per_block, option);
}

// Boxes of x, each for all taps.
inline bool tile_boxes(const cf_query &query, const View &v, const TilePixels &tile,
                       const Sharing &sharing, Option &option) {
    const cf_problem &p = query.problem;
    option = {};
    const int64_t reach = int64_t(v.s - 1) * v.dilation_w;
    const bool whole = tile.columns == v.q && !tile.strips;
    // Zeros in front of a row are those behind the one before, too.
    const int64_t plain = tile.columns + reach;
    const int64_t folded = int64_t(v.tensor[1]) + std::max({v.pad_left, v.over, 0});
    const int64_t pitch = whole && folded >= v.q ? std::min(folded, plain) : plain;
    const int64_t height = tile.rows + int64_t(v.r - 1) * v.dilation_h;
    const int64_t used = tile.strips
                             ? int64_t(tile.rows) * tile.images * 8
                             : (int64_t(tile.rows) * tile.images - 1) * pitch + tile.columns;
    if (pitch > MaxBox || height > MaxBox || tile.images > MaxBox || used > tile.width)
        return false;
    const double pieces = double(ceil_div(v.q, tile.columns)) * double(ceil_div(v.p, tile.rows)) *
                          double(ceil_div(v.n, tile.images));
    if (!countable(p, pieces))
        return false;
    if (!describe(p, sharing, tile.width, int64_t(pieces), option))
        return false;
    Tiling &t = option.tiling;
    t.load_rows = t.load_columns = 1;
    t.tap_rows = v.r, t.tap_columns = v.s;
    t.tap_row_bytes = tap_distance(v.r, int64_t(v.dilation_h) * tile.images * pitch);
    t.tap_bytes = tap_distance(v.s, v.dilation_w);
    t.group_bytes = int(tile.strips ? pitch : 8) * LineBytes;
    t.column_pieces = int(ceil_div(v.q, tile.columns));
    t.row_pieces = int(ceil_div(v.p, tile.rows));
    t.n = int(v.n), t.p = v.p, t.q = v.q;
    t.images = tile.images, t.rows = tile.rows, t.columns = tile.columns;
    t.pitch = int(tile.strips ? 8 : pitch);
    t.pad_top = v.pad_top, t.pad_left = v.pad_left;
    t.by_column_pieces = Divisor(t.column_pieces), t.by_row_pieces = Divisor(t.row_pieces);
    t.by_pitch = Divisor(t.pitch), t.by_images = Divisor(t.images);
    t.p_real = v.p, t.q_real = v.q;
    const int64_t box = pitch * tile.images * height;
    t.pixel_bytes = uint32_t(box * LineBytes);
    t.zero_bytes = uint32_t(plain - pitch) * LineBytes;
    t.pixel_stage_bytes = uint32_t(round_up(int64_t(t.pixel_bytes) + t.zero_bytes, LineAlign));
    option.lines.element = element_bytes(p);
    std::copy(v.tensor, v.tensor + 4, option.lines.tensor);
    std::copy(v.pitch, v.pitch + 3, option.lines.pitch);
    option.lines.box[0] = uint32_t(pitch), option.lines.box[1] = uint32_t(tile.images);
    option.lines.box[2] = uint32_t(height);
    if (!share_memory(query, option))
        return false;
    // Columns of products that are no pixels read on behind the last stage, whatever is there.
    const int64_t groups = tile.width / 8 - 1;
    const int64_t last = groups * t.group_bytes / LineBytes + 8 +
                         int64_t(v.r - 1) * t.tap_row_bytes / LineBytes + reach;
    return last * LineBytes <=
           int64_t(t.pixel_stage_bytes) + weight_ring_bytes(t) + Warpgroups * StagedBytes;
}

// Lines of neighbouring pixels of y, each for one tap.
inline bool tile_im2col(const cf_query &query, int width, const Sharing &sharing, Option &option) {
    const cf_problem &p = query.problem;
    option = {};
    const double all = double(p.n) * p.p * p.q;
    const int64_t lower[2] = {-p.pad_left, -p.pad_top};
    const int64_t upper[2] = {int64_t(p.q - 1) * p.stride_w + 1 - p.w - p.pad_left,
                              int64_t(p.p - 1) * p.stride_h + 1 - p.h - p.pad_top};
    const auto corner = [](const int64_t(&c)[2]) {
        return std::min(c[0], c[1]) >= -128 && std::max(c[0], c[1]) <= 127;
    };
    if (all > INT32_MAX / 2 || !countable(p, all / width + 2) || !corner(lower) || !corner(upper) ||
        p.stride_h > 8 || p.stride_w > 8 || int64_t(p.r - 1) * p.dilation_h > 255 ||
        int64_t(p.s - 1) * p.dilation_w > 255)
        return false;
    if (!describe(p, sharing, width, ceil_div(int64_t(all), width), option))
        return false;
    Tiling &t = option.tiling;
    t.im2col = 1;
    t.load_rows = p.r, t.load_columns = p.s;
    t.row_offset = p.dilation_h, t.column_offset = p.dilation_w;
    t.tap_rows = t.tap_columns = 1;
    t.group_bytes = LineAlign;
    t.column_pieces = t.pixel_tiles, t.row_pieces = 1;
    t.n = p.n > 0, t.p = 1, t.q = int(all);
    t.images = t.rows = 1, t.columns = t.pitch = width;
    t.stride_h = p.stride_h, t.stride_w = p.stride_w;
    t.pad_top = p.pad_top, t.pad_left = p.pad_left;
    t.by_column_pieces = Divisor(std::max(t.column_pieces, 1)), t.by_row_pieces = Divisor(1);
    t.by_pitch = Divisor(t.pitch), t.by_images = Divisor(1);
    t.p_real = p.p, t.q_real = p.q;
    t.by_p_real = Divisor(p.p), t.by_q_real = Divisor(p.q);
    t.pixel_bytes = uint32_t(width) * LineBytes;
    t.pixel_stage_bytes = uint32_t(round_up(t.pixel_bytes, LineAlign));
    const uint64_t pixel = uint64_t(p.c) * element_bytes(p);
    option.lines = {
        element_bytes(p),
        {uint64_t(p.c), uint64_t(p.w), uint64_t(p.h), uint64_t(std::max<int64_t>(p.n, 1))},
        {pixel, pixel * p.w, pixel * p.w * p.h},
        {},
        true,
        uint32_t(width),
        {int32_t(lower[0]), int32_t(lower[1])},
        {int32_t(upper[0]), int32_t(upper[1])},
        {uint32_t(p.stride_w), uint32_t(p.stride_h)}};
    return share_memory(query, option);
}

// Calls body(option) for each way to do a problem.
template <class Body>
void for_options(const cf_query &query, Body body) {
    const View v = view_of(query.problem);
    Option option;
    const auto consider = [&](const TilePixels &tile) {
        for (const Sharing &sharing : Sharings)
            if (tile_boxes(query, v, tile, sharing, option))
                body(option);
    };
    // As many rows, and images of all their rows, as a product has columns for.
    const auto with_columns = [&](int width, int columns, bool strips) {
        const int64_t pitch =
            strips ? 8
                   : std::min<int64_t>(
                         columns + int64_t(v.s - 1) * v.dilation_w,
                         std::max<int64_t>(int64_t(v.tensor[1]) + std::max({v.pad_left, v.over, 0}),
                                           columns));
        const int most = int(std::min<int64_t>((width + pitch - columns) / pitch, MaxBox));
        if (most < 1)
            return;
        const int pieces = int(ceil_div(v.p, std::min(most, v.p)));
        consider({width, 1, int(ceil_div(v.p, pieces)), columns, strips});
        if (most >= 2 * v.p && v.n > 1)
            consider({width, int(std::min<int64_t>(most / v.p, v.n)), v.p, columns, strips});
    };
    for (const int width : all_widths(NarrowWidths(), WideWidths())) {
        if (v.boxes) {
            if (v.q > 8)
                with_columns(width, 8, true);
            if (v.p == 1 && v.n <= 1)
                with_columns(width, std::min(width, v.q), false);
            else
                for (int pieces = 1, last = 0; pieces <= v.q; ++pieces) {
                    const int columns = int(ceil_div(v.q, pieces));
                    // Where taps reach no further columns these are the strips above.
                    const bool are_strips = columns == 8 && v.q > 8 && v.s == 1;
                    if (columns <= width && columns != last && !are_strips)
                        with_columns(width, columns, false);
                    last = columns;
                    if (columns * 4 < width)
                        break;
                }
        }
        // The same of pixels that are one row.
        if (v.boxes && v.p == 1 && v.r * v.s == 1)
            continue;
        for (const Sharing &sharing : Sharings)
            if (tile_im2col(query, width, sharing, option))
                body(option);
    }
}

} // namespace cf::implicit_gemm
