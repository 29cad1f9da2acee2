// What a warp computes of a strip of planes (plane_strips.cuh), unit by unit.
#pragma once

#include "pipeline/plane_strips.cuh"
#include "ptx/arch.cuh"

namespace cf::plane_strips {

struct Strip {
    int n, channel, channels; // the first one; those that exist
    int row, rows;            // of y
};

#if CF_SM90
// What a strip reads of each channel, where each is a copy: its rows of x as far as the image has
// them, and what else is in the same 16 bytes.
struct StripRows {
    int first;      // of the image
    int outside;    // rows above the image
    uint32_t skew;  // bytes of others before the first row
    uint32_t bytes; // whole 16

    __device__ __forceinline__ StripRows(const Tiling &tiling, const Strip &strip) {
        const int begin = strip.row * tiling.stride - tiling.pad;
        first = max(begin, 0);
        outside = first - begin;
        const int end = min(begin + tiling.in_rows, tiling.h);
        skew = first * tiling.row_bytes % Bulk;
        bytes = (skew + (end - first) * tiling.row_bytes + Bulk - 1) / Bulk * Bulk;
    }
};

// What a warp computes at a time: some rows of y in a channel, or in a group of them, and in a
// window of columns.
struct Unit {
    int channel, row; // of the strip
    int column;       // of y
    uint32_t x, y;    // where its first pixels lie in shared memory
    bool is_first;    // that the warp has of the channel
    bool is_last;     // window of a row
};

// Calls body(unit) for a warp's units of a strip, which lie behind each other: windows of rows,
// rows of a group of so many channels, of which the last may not all be there. A window has so many
// columns of y, and the next begins `step` behind it. x is where a lane reads the strip's first
// unit, y where it puts that one's first pixel.
template <int Channels, int Stride, int Size, class Body>
__device__ __forceinline__ void for_units(const Tiling &tiling, const Strip &strip, int warp,
                                          int columns, int step, uint32_t x, uint32_t y,
                                          Body body) {
    const int first = warp * tiling.warp_units;
    const int groups = (strip.channels + Channels - 1) / Channels;
    const int end = min(first + tiling.warp_units, groups * tiling.units);
    const int group = tiling.by_units.quotient(first), number = first - group * tiling.units;
    Unit unit = {group * Channels, number * tiling.unit_rows, 0, x, y, true, false};
    unit.x += number * tiling.x_unit + unit.channel * tiling.plane;
    unit.y += number * tiling.y_unit + unit.channel * tiling.y_pitch;
#pragma unroll 1
    for (int left = end - first; left > 0;) {
        unit.is_last = unit.column + columns >= tiling.q;
        body(unit);
        unit.is_first = false;
        const int skipped = unit.is_last ? -unit.column : step;
        unit.column += skipped;
        unit.x += skipped * Stride * Size, unit.y += skipped * Size;
        if (!unit.is_last)
            continue;
        --left;
        unit.row += tiling.unit_rows, unit.x += tiling.x_unit, unit.y += tiling.y_unit;
        if (unit.row < tiling.group_rows)
            continue;
        unit.channel += Channels, unit.row = 0, unit.is_first = true;
        unit.x += tiling.x_group, unit.y += tiling.y_group;
    }
}
#endif

} // namespace cf::plane_strips
