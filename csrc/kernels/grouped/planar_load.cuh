// How x comes to shared memory in grouped_planar: as it lies in memory, by bulk copies.
#pragma once

#include "kernels/grouped/planar_plan.cuh"
#include "pipeline/scheduler.cuh"
#include "ptx/bulk.cuh"

namespace cf::grouped_planar {

// Some rows of some channels of an image.
struct Strip {
    int n, group;          // the first one
    int channel, channels; // the first one; those that exist
    int row, rows;         // of y
};

// A block's strips.
struct Strips {
    const Tiling &tiling;
    StridedTiles mine;
    int count;

    template <int Channels>
    __device__ __forceinline__ Strip strip(int m) const {
        const int number = mine.tile(m), others = tiling.by_channel_blocks.quotient(number);
        Strip strip;
        strip.n = tiling.by_row_strips.quotient(others);
        strip.channel = (number - others * tiling.channel_blocks) * tiling.channels;
        strip.channels = min(tiling.channels, tiling.c - strip.channel);
        strip.group = strip.channel / Channels;
        strip.row = (others - strip.n * tiling.row_strips) * tiling.rows;
        strip.rows = min(tiling.rows, tiling.h - strip.row);
        return strip;
    }
    // Where it begins in a tensor: bytes.
    __device__ __forceinline__ int64_t begin(const Strip &strip) const {
        const int64_t channel = int64_t(strip.n) * tiling.c + strip.channel;
        return channel * tiling.plane_bytes + int64_t(strip.row) * tiling.row_bytes;
    }
};

// What a strip reads of each channel, where each is a copy: its rows and those beside them, as far
// as the image has them, and what else is in the same 16 bytes.
struct StripRows {
    int above;      // whether the row above the strip is there
    uint32_t skew;  // bytes of others before the first row
    uint32_t bytes; // whole 16

    __device__ __forceinline__ StripRows(const Tiling &tiling, const Strip &strip) {
        above = strip.row > 0;
        const int first = strip.row - above;
        const int end = min(strip.row - FilterSide / 2 + tiling.in_rows, tiling.h);
        skew = first * tiling.row_bytes % Bulk;
        bytes = (skew + (end - first) * tiling.row_bytes + Bulk - 1) / Bulk * Bulk;
    }
};

#if CF_SM90
// By a warp, from where the strip begins in x: by channels, or all at once where these are whole.
__device__ __forceinline__ void load_strip(const Tiling &tiling, const Strip &strip, const char *x,
                                           uint32_t stage, Barrier &full, int lane) {
    const StripRows rows(tiling, strip);
    const bool at_once = is_one_copy(tiling);
    const uint32_t bytes = at_once ? strip.channels * tiling.plane_bytes : rows.bytes;
    const int copies = at_once ? 1 : strip.channels;
    const char *from = x - (rows.above ? tiling.row_bytes : 0) - rows.skew;
    if (lane == 0)
        full.arrive_and_expect(bytes * copies);
    __syncwarp();
    for (int i = lane; i < copies; i += 32)
        copy_bulk(stage + i * tiling.plane, from + int64_t(i) * tiling.plane_bytes, bytes, full);
}
#endif

} // namespace cf::grouped_planar
