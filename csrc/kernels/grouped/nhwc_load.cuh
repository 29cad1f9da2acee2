// The loader of grouped_nhwc: a block's strips, and how they come to shared memory.
#pragma once

#include "kernels/grouped/nhwc_plan.cuh"
#include "pipeline/scheduler.cuh"
#include "pipeline/turns.cuh"
#include "ptx/l2_policy.cuh"
#include "ptx/tensor.cuh"

namespace cf::grouped {

#if CF_SM90
// Where a strip begins: in images, in rows and columns of y, and in boxes of channels.
struct Strip {
    int n, row, column, box;
};

// Every strip is as many items of the ring.
struct Strips {
    const Tiling &tiling;
    const CUtensorMap &x;
    Ring<MaxStages> &ring;
    uint32_t stages; // in shared memory
    StridedTiles mine;
    int count;

    __device__ __forceinline__ Strip strip(int m) const {
        int rest = mine.tile(m);
        const auto digit = [&](const Divisor &by, int base) {
            const int others = by.quotient(rest), last = rest - others * base;
            rest = others;
            return last;
        };
        Strip strip;
        strip.box = digit(tiling.by_channel_blocks, tiling.channel_blocks) * tiling.boxes;
        strip.column =
            digit(tiling.by_column_pieces, tiling.column_pieces) * tiling.units * UnitPixels;
        strip.row = digit(tiling.by_row_pieces, tiling.row_pieces) * tiling.rows;
        strip.n = rest * tiling.images;
        return strip;
    }
    __device__ __forceinline__ int items() const { return count * tiling.items; }
    __device__ __forceinline__ uint32_t stage(int stage) const {
        return stages + stage * tiling.stage_bytes;
    }
    // Item number `item` of the block, by one lane. What lies outside of x comes as zeros.
    template <int Size> // of an element
    __device__ __forceinline__ void load(int item, int at) const {
        const int m = tiling.by_items.quotient(item);
        const Strip from = strip(m);
        const int row = from.row + (item - m * tiling.items) * tiling.steps;
        ring.full[at].arrive_and_expect(tiling.copied_bytes);
#pragma unroll 1
        for (int b = 0; b < tiling.boxes; ++b)
            copy_box(stage(at) + b * tiling.box_bytes, x, (from.box + b) * (PixelBytes / Size),
                     from.column * tiling.w_step - tiling.pad_left,
                     row * tiling.h_step - tiling.pad_top, from.n, ring.full[at],
                     tiling.evict_first);
    }
};
#endif

} // namespace cf::grouped
