// The planner of implicit_gemm_nchw: how a problem becomes tiles, and what of x and y a warp moves
// at a time.
#pragma once

#include "kernels/implicit_gemm/nchw_tiling.cuh"
#include "kernels/implicit_gemm/nhwc_plan.cuh"

namespace cf::implicit_nchw {

// What a load has of x.
enum Reading {
    Halo,    // for all taps
    Rows,    // for those of a row of the filter
    Taps,    // for one
    Straight // for the only one, as it lies in memory
};
constexpr const char *ReadingNames[] = {"halo", "rows", "taps", "straight"};

struct Choice {
    Reading reading;
    Option option;
    Planes planes;
};

// Pixels of x and y: those of a channel are one row where a filter reads each by itself.
struct View {
    int64_t n;
    int h, w, p, q, r, s;
    int stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left;
    int over; // columns behind x that taps reach; negative where they do not reach all of x
};

inline View planes_of(const cf_problem &p) {
    View v = {p.n,        p.h,        p.w,          p.p,          p.q,       p.r,        p.s,
              p.stride_h, p.stride_w, p.dilation_h, p.dilation_w, p.pad_top, p.pad_left, 0};
    if (p.r * p.s == 1 && p.stride_h == 1 && p.stride_w == 1 && p.pad_top == 0 && p.pad_left == 0 &&
        p.p == p.h && p.q == p.w && int64_t(p.h) * p.w < INT32_MAX / 2) {
        v.w = v.q = p.h * p.w;
        v.h = v.p = 1;
    }
    v.over = v.q + (v.s - 1) * v.dilation_w - v.pad_left - v.w;
    return v;
}

inline uint32_t shared_bytes(const Choice &choice) {
    const Tiling &t = choice.option.tiling;
    return LineAlign + pixel_ring_bytes(t) + weight_ring_bytes(t) +
           uint32_t(staging_bytes(choice.option.width)) +
           (t.parts_replace ? 0 : slices_bytes(t, choice.option.width));
}

// Vectors of so many bytes at most for which the fewest batches do, batches_of(vectors, pixels of
// one), or longer ones for some more: they take fewer instructions.
template <class BatchesOf>
void choose_vectors(const cf_problem &p, const View &v, const Tiling &t, int height,
                    Reading reading, int most_bytes, BatchesOf batches_of, Planes &planes) {
    const int element = element_bytes(p);
    const int row_pixels = t.pitch << planes.halves;
    planes.batches = INT32_MAX / 16;
    for (int vector = 1; vector * element <= std::min(p.align, most_bytes) && v.w % vector == 0;
         vector *= 2) {
        if (vector > 1 && planes.step > 1)
            break;
        const bool aligned = (t.column_pieces == 1 || t.columns * v.stride_w % vector == 0) &&
                             (reading != Taps || v.s == 1);
        const int skew = aligned ? -v.pad_left & (vector - 1) : vector - 1;
        const int row_vectors = int(ceil_div(row_pixels + skew, vector));
        const int vectors = row_vectors * height * t.images;
        const int batches = batches_of(vectors, vector);
        if (batches * 10 <= planes.batches * 11) {
            planes.vector = vector, planes.row_vectors = row_vectors;
            planes.vectors = vectors, planes.batches = batches;
        }
    }
    planes.by_row_vectors = Divisor(planes.row_vectors);
    planes.c = p.c, planes.h = v.h, planes.w = v.w;
    planes.x_plane = int64_t(v.h) * v.w, planes.x_image = planes.x_plane * p.c;
}

inline bool may_be_straight(const cf_problem &p, const View &v) {
    return v.h == 1 && v.p == 1 && v.r * v.s == 1 && v.stride_w == 1 && v.pad_top == 0 &&
           v.pad_left == 0 && v.w == v.q && v.w % 8 == 0 && element_bytes(p) == 2 && p.align >= 16;
}

// As many neighbours as every run of y that a tile has is made of.
inline void choose_units(const cf_problem &p, const View &v, const Tiling &t, Planes &planes) {
    const int element = element_bytes(p);
    planes.y_plane = int64_t(v.p) * v.q, planes.y_image = planes.y_plane * p.k;
    planes.tile_pixels = t.rows * t.columns;
    planes.by_tile_pixels = Divisor(planes.tile_pixels), planes.by_columns = Divisor(t.columns);
    const bool whole = t.columns == v.q;
    const auto together = [&](int unit) {
        return planes.y_plane % unit == 0 && planes.tile_pixels % unit == 0 &&
               unit * element <= p.align && (whole || (t.columns % unit == 0 && v.q % unit == 0));
    };
    planes.unit = 16 / element;
    while (!together(planes.unit))
        planes.unit /= 2;
    planes.units = t.images * planes.tile_pixels / planes.unit;
    planes.paired = t.pitch % 2 == 0 && t.columns % 2 == 0;
    // In f32, where pairs are at even places of y, and near each other in it.
    planes.direct = element == 4 && t.parts == 1 && planes.paired && planes.unit >= 2 &&
                    double(t.images) * double(planes.y_image) < INT32_MAX;
}

// Stages, in what the store leaves of shared memory. Parts of sums have a place of their own, or
// that of the stages.
inline bool share_memory(const cf_query &query, Choice &choice) {
    Tiling &t = choice.option.tiling;
    const int64_t bytes = int64_t(query.device.shared_per_block) -
                          staging_bytes(choice.option.width) + Warpgroups * StagedBytes;
    if (!share_stages(query, bytes, choice.option))
        return false;
    t.by_clusters = Divisor(choice.option.grid / cluster_size(t));
    // Boxes of both rings come in turns: one may not be more than its stages ahead.
    t.lead = std::max(std::min(t.lead, (t.pixel_stages - 1) * t.tap_rows * t.tap_columns), 1);
    t.parts_replace = 0;
    t.parts_replace = shared_bytes(choice) + StaticShared > query.device.shared_per_block;
    return !t.parts_replace ||
           slices_bytes(t, choice.option.width) <= pixel_ring_bytes(t) + weight_ring_bytes(t);
}

// Lines from a row of a box to the next.
inline int64_t pitch_of(const View &v, int columns, Reading reading) {
    const int64_t reach = int64_t(v.s - 1) * v.dilation_w;
    if (reading != Halo)
        return columns + (reading == Rows ? reach / v.stride_w : 0);
    // Zeros in front of a row are those behind the one before, too.
    const int64_t plain = columns + reach;
    const int64_t folded = int64_t(v.w) + std::max({v.pad_left, v.over, 0});
    return columns == v.q && folded >= v.q ? std::min(folded, plain) : plain;
}

// Boxes of x, and what reads them.
inline bool tile_planes(const cf_query &query, const View &v, const TilePixels &tile,
                        Reading reading, const Sharing &sharing, Choice &choice) {
    const cf_problem &p = query.problem;
    choice = {};
    choice.reading = reading;
    Option &option = choice.option;
    Planes &planes = choice.planes;
    const int64_t reach = int64_t(v.s - 1) * v.dilation_w;
    const int64_t pitch = pitch_of(v, tile.columns, reading);
    const int64_t zeros = reading == Halo ? tile.columns + reach - pitch : 0;
    const int64_t height = tile.rows + (reading == Halo ? int64_t(v.r - 1) * v.dilation_h : 0);
    const int64_t used = (int64_t(tile.rows) * tile.images - 1) * pitch + tile.columns;
    planes.step = reading == Taps ? v.stride_w : 1;
    planes.halves = reading == Rows && v.stride_w == 2;
    planes.last_half = planes.halves && v.s > 1 && v.dilation_w % 2 == 1;
    if (reading == Straight && (tile.images > 1 || tile.rows > 1))
        return false;
    const int64_t most = query.device.shared_per_block / LineBytes;
    if (used > tile.width || pitch > most || height > most)
        return false;
    const int64_t half = pitch * tile.images * height, box = half << planes.last_half;
    if (box > most)
        return false;
    planes.half_lines = int(half);
    planes.straight = reading == Straight;
    const double pieces = double(ceil_div(v.q, tile.columns)) * double(ceil_div(v.p, tile.rows)) *
                          double(ceil_div(v.n, tile.images));
    if (!countable(p, pieces) || !describe(p, sharing, tile.width, int64_t(pieces), option))
        return false;
    Tiling &t = option.tiling;
    t.load_rows = reading == Halo ? 1 : v.r, t.load_columns = reading == Taps ? v.s : 1;
    t.tap_rows = reading == Halo ? v.r : 1, t.tap_columns = reading == Taps ? 1 : v.s;
    t.row_offset = v.dilation_h, t.column_offset = v.dilation_w;
    t.tap_row_bytes = tap_distance(t.tap_rows, int64_t(v.dilation_h) * tile.images * pitch);
    t.group_bytes = LineAlign;
    t.column_pieces = int(ceil_div(v.q, tile.columns));
    t.row_pieces = int(ceil_div(v.p, tile.rows));
    t.n = int(v.n), t.p = v.p, t.q = v.q;
    t.images = tile.images, t.rows = tile.rows, t.columns = tile.columns;
    t.pitch = int(pitch);
    t.stride_h = v.stride_h, t.stride_w = v.stride_w;
    t.pad_top = v.pad_top, t.pad_left = v.pad_left;
    t.by_column_pieces = Divisor(t.column_pieces), t.by_row_pieces = Divisor(t.row_pieces);
    t.by_pitch = Divisor(t.pitch), t.by_images = Divisor(t.images);
    t.pixel_bytes = planes.straight ? uint32_t(ceil_div(tile.width, StraightPixels) * StraightBytes)
                                    : uint32_t(box * LineBytes);
    t.zero_bytes = uint32_t(zeros) * LineBytes;
    t.pixel_stage_bytes = uint32_t(round_up(int64_t(t.pixel_bytes) + t.zero_bytes, LineAlign));
    if (!share_memory(query, choice))
        return false;
    // Columns of products that are no pixels read on behind the last stage.
    const int64_t of_columns = t.tap_columns > 1 ? reach >> planes.halves : 0;
    const int64_t last = tile.width + (box - half) + of_columns +
                         int64_t(t.tap_rows - 1) * t.tap_row_bytes / LineBytes;
    if (last * LineBytes > int64_t(t.pixel_stage_bytes) + weight_ring_bytes(t))
        return false;
    planes.loaders = loader_warps(tile.width) - t.reload_weights;
    // Of vectors of 32 pixels in all.
    const auto batches_of = [&](int vectors, int vector) {
        return int(ceil_div(int64_t(vectors) * vector, 32)) * LinePieces / vector /
               pieces_in_flight(vector, element_bytes(p));
    };
    if (!planes.straight)
        choose_vectors(p, v, t, int(height), reading, 16, batches_of, planes);
    choose_units(p, v, t, planes);
    return true;
}

constexpr Sharing PlaneSharings[] = {{false, 1, 1, 1}, {false, 1, 1, 2}, {false, 1, 1, 4},
                                     {false, 1, 1, 8}, {true, 1, 1, 1},  {true, 1, 1, 2},
                                     {true, 1, 1, 4},  {true, 1, 1, 8}};

// Calls body(choice) for each way to do a problem in products of these widths.
template <class Widths, class Body>
void for_choices(const cf_query &query, const Widths &widths, Body body) {
    const View v = planes_of(query.problem);
    Choice choice;
    const auto consider = [&](const TilePixels &tile, Reading reading) {
        for (const Sharing &sharing : PlaneSharings)
            if (tile_planes(query, v, tile, reading, sharing, choice))
                body(choice);
    };
    // As many rows, and images of all their rows, as a product has columns for.
    const auto with_columns = [&](int width, int columns, Reading reading) {
        const int64_t pitch = pitch_of(v, columns, reading);
        const int most = int((width + pitch - columns) / pitch);
        if (most < 1)
            return;
        const int pieces = int(ceil_div(v.p, std::min(most, v.p)));
        consider({width, 1, int(ceil_div(v.p, pieces)), columns, false}, reading);
        if (most >= 2 * v.p && v.n > 1)
            consider({width, int(std::min<int64_t>(most / v.p, v.n)), v.p, columns, false},
                     reading);
    };
    const bool steps = v.stride_h > 1 || v.stride_w > 1;
    for (const int width : widths)
        for (const Reading reading : {Halo, Rows, Taps, Straight}) {
            if ((reading == Straight &&
                 (!is_among(StraightWidths(), width) || !may_be_straight(query.problem, v))) ||
                (reading == Halo && steps) ||
                (reading == Rows && (v.r == 1 || v.stride_w > 2) && !(steps && v.stride_w <= 2)) ||
                (reading == Taps && v.s == 1 && v.stride_w <= 2))
                continue;
            for (int64_t pieces = ceil_div(v.q, width); pieces <= v.q;) {
                const int64_t some = round_up(ceil_div(v.q, pieces), 8);
                const int64_t columns = pieces == 1 ? v.q : std::min<int64_t>(some, v.q);
                with_columns(width, int(columns), reading);
                if (columns <= 8 || columns * 4 < width)
                    break;
                // More pieces come to the same columns, of a long row of y millions.
                pieces = std::max(pieces + 1, ceil_div(v.q, columns - 8));
            }
        }
}

} // namespace cf::implicit_nchw
