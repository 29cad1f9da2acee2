// How x comes to shared memory in grouped_planar: each row of a channel at a multiple of 16 bytes.
#pragma once

#include "kernels/grouped/planar_plan.cuh"
#include "pipeline/scheduler.cuh"
#include "ptx/cp_async_bytes.cuh"

#include <climits>

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

// Asks for a strip's rows of x by all warps of the block, a channel by each at a time; those
// outside become zeros.
template <int Vector>
__device__ __forceinline__ void load_by(const Tiling &tiling, const Strip &strip, const char *from,
                                        uint32_t stage, int warp, int lane) {
    const int of_lane = tiling.by_lanes.quotient(lane); // row of those copied at once
    const int above = FilterSide / 2 - strip.row;       // rows above the image
    const int end = of_lane < tiling.at_once ? tiling.in_rows - above : INT_MIN;
    const int step = tiling.at_once, to_step = step * tiling.pitch;
    const int from_step = step * tiling.row_bytes;
    // Rows that are longer than what 32 lanes copy take several turns.
    for (int at = (lane - of_lane * tiling.row_lanes) * Vector; at < tiling.row_bytes;
         at += 32 * Vector) {
        const int first = (of_lane - FilterSide / 2) * int(tiling.row_bytes) + at;
#pragma unroll 1
        for (int channel = warp; channel < tiling.channels; channel += Warps) {
            const int exist = channel < strip.channels ? tiling.h : 0;
            uint32_t to = stage + channel * tiling.plane + of_lane * tiling.pitch + at;
            const char *x = from + int64_t(channel) * tiling.plane_bytes + first;
#pragma unroll 1
            for (int row = of_lane - above; row < end; row += step) {
                copy_async<Vector>(to, x, unsigned(row) < unsigned(exist));
                to += to_step, x += from_step;
            }
        }
    }
}
__device__ __forceinline__ void load_strip(const Tiling &tiling, const Strip &strip,
                                           const char *from, uint32_t stage, int warp, int lane) {
    if (tiling.vector == 16)
        load_by<16>(tiling, strip, from, stage, warp, lane);
    else if (tiling.vector == 8)
        load_by<8>(tiling, strip, from, stage, warp, lane);
    else
        load_by<4>(tiling, strip, from, stage, warp, lane);
}

} // namespace cf::grouped_planar
