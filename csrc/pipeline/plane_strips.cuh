// Strips of planes, where a channel's pixels lie beside each other (NCHW): some rows of y, or all,
// in some channels of an image. What a strip reads of x comes to a stage of a ring as it lies in
// memory, by bulk copies, and y leaves from one of up to two slots in the same way: nothing is
// turned.
//
// This header has how strips lie, for planners and kernels; plane_plan.cuh what planners choose by,
// plane_units.cuh what warps compute of strips, plane_ring.cuh how they stream.
#pragma once

#include "core/divisor.cuh"
#include "core/plan.cuh"

#include <algorithm>

namespace cf::plane_strips {

constexpr int Warps = 4;     // of a block
constexpr int MaxStages = 3; // strips of x that a block has at a time
constexpr int Slots = 2;     // of strips of y that leave, at most
constexpr int Bulk = 16;     // bytes that bulk copies take multiples of

// Offsets in shared memory are bytes.
struct Tiling {
    int c, h, w, p, q;           // of the problem
    int stride, pad;             // of rows
    int channels, rows, in_rows; // of a strip: rows of y, and of x
    int whole;                   // whether a strip has all rows
    bool evict_first;            // whether lines of x leave the cache first (core/evict_first.cuh)
    int strips, channel_blocks, row_strips; // all of them; in an image
    int stages, slots;                      // of a block's ring; of its strips of y
    uint32_t row_bytes, plane_bytes;        // of x
    uint32_t y_row_bytes, y_plane_bytes;
    uint32_t plane, y_pitch;        // from channel to channel in a stage; in a slot
    uint32_t filters, filter_bytes; // where they lie in a stage; of a channel, or none
    uint32_t stage_bytes, y_bytes;  // of a stage; of a slot
    int unit_rows, units, windows;  // rows of y; units of a group; windows of a row
    int group_rows;                 // rows of a group's units
    int strip_units, warp_units;    // of a strip, and of each warp but the last that has any
    uint32_t x_unit, y_unit;        // bytes from unit to unit, in a stage and in a slot
    uint32_t x_group, y_group;      // from behind the last of a group to the next group
    Divisor by_channel_blocks, by_row_strips, by_units;
};

// Whether a strip's channels lie behind each other in shared memory as in x.
__host__ __device__ __forceinline__ bool is_one_copy(const Tiling &t) {
    return t.whole && t.plane == t.plane_bytes;
}

// Whether rows and planes of x and y are counted in 31 bits.
inline bool is_countable(const cf_problem &p, int size) {
    return std::max(int64_t(p.h) * p.w, int64_t(p.p) * p.q) * size <= INT32_MAX;
}

inline void set_problem(const cf_problem &p, int size, Tiling &t) {
    t.c = p.c, t.h = p.h, t.w = p.w, t.p = p.p, t.q = p.q;
    t.stride = p.stride_h, t.pad = p.pad_top;
    t.row_bytes = uint32_t(p.w * size), t.y_row_bytes = uint32_t(p.q * size);
    t.plane_bytes = uint32_t(int64_t(p.h) * t.row_bytes);
    t.y_plane_bytes = uint32_t(int64_t(p.p) * t.y_row_bytes);
}

// Sets strips of so many channels and rows of y, whose x has so many rows, with so many bytes of
// filters for each channel. `plane_of` says how far apart channels of so many bytes, at least, are
// to lie. False where they cannot be copied so, or are too much for shared memory or for counting.
template <class PlaneOf>
bool set_strips(const cf_query &query, int channels, int rows, int in_rows, int filter_bytes,
                PlaneOf plane_of, Tiling &t) {
    t.channels = channels, t.rows = rows, t.in_rows = in_rows;
    t.row_strips = int(ceil_div(t.p, rows)), t.channel_blocks = int(ceil_div(t.c, channels));
    t.whole = t.row_strips == 1;
    const double strips = double(query.problem.n) * t.row_strips * t.channel_blocks;
    const int64_t x_rows = int64_t(t.whole ? t.h : std::min(in_rows, t.h)) * t.row_bytes;
    const int64_t y_rows = int64_t(rows) * t.y_row_bytes;
    const double least = double(x_rows + y_rows) * channels;
    if (strips > INT32_MAX / 2 || least > query.device.shared_per_block)
        return false;
    t.strips = int(strips);
    const auto is_copied = [&](int channels) {
        return int64_t(channels) * t.plane_bytes % Bulk == 0;
    };
    t.plane = t.plane_bytes;
    if (is_copied(1))
        t.plane = plane_of(uint32_t(round_up(x_rows + (t.whole ? 0 : Bulk), Bulk)));
    else if (!t.whole || !is_copied(channels) || !is_copied(t.c % channels))
        return false;
    // As far behind a multiple of 16 bytes as in the tensor.
    const int64_t apart = t.whole ? 0 : ((t.y_plane_bytes - y_rows) % Bulk + Bulk) % Bulk;
    t.y_pitch = uint32_t(y_rows + apart);
    t.filters = uint32_t(round_up(int64_t(t.plane) * channels, Bulk));
    t.filter_bytes = uint32_t(filter_bytes);
    t.stage_bytes = t.filters + uint32_t(channels * filter_bytes);
    t.y_bytes = uint32_t(round_up(int64_t(t.y_pitch) * channels + 2 * Bulk, Bulk));
    t.by_channel_blocks = Divisor(t.channel_blocks), t.by_row_strips = Divisor(t.row_strips);
    return int64_t(t.stage_bytes) + int64_t(t.y_bytes) <= query.device.shared_per_block;
}

// Sets units of so many rows of y in groups of so many channels, when strips are set, and windows
// of a row: of so many pixels of x, that far apart, where one does not do. How warps share them is
// the plan's.
inline void set_units(int unit_rows, int group, int pixels, int step, Tiling &t) {
    t.unit_rows = unit_rows, t.units = int(ceil_div(t.rows, unit_rows));
    t.group_rows = t.units * unit_rows;
    t.windows = t.w <= pixels ? 1 : int(1 + ceil_div(t.w - pixels, step));
    t.strip_units = int(ceil_div(t.channels, group)) * t.units;
    t.x_unit = t.unit_rows * t.stride * t.row_bytes, t.y_unit = t.unit_rows * t.y_row_bytes;
    t.x_group = group * t.plane - t.units * t.x_unit;
    t.y_group = group * t.y_pitch - t.units * t.y_unit;
    t.by_units = Divisor(t.units);
}

// Shared memory that a launch takes.
inline size_t shared_bytes(const Tiling &t) {
    return size_t(t.y_bytes) * t.slots + size_t(t.stages) * t.stage_bytes;
}

} // namespace cf::plane_strips
