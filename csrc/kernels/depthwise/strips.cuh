// The strips of depthwise_nhwc, depthwise_rows and depthwise_mma: filters and rows of x stream to
// shared memory.
#pragma once

#include "kernels/depthwise/tiling.cuh"
#include "pipeline/ring.cuh"
#include "pipeline/scheduler.cuh"
#include "ptx/bulk.cuh"
#include "ptx/shared.cuh"
#include "ptx/tensor.cuh"

namespace cf::depthwise {

#if CF_SM90
// Where a strip begins in y.
struct Strip {
    int n, row, column, channel;
};

// A block's strips, and how they come to shared memory: a strip is as many items of the ring, first
// its filters, then boxes of x.
template <class Shape>
struct Strips {
    const Tiling &tiling;
    const CUtensorMap &x;
    const typename Shape::Stored *w;
    Ring<MaxStages> &ring;
    uint32_t stages; // in shared memory
    StridedTiles mine;
    int count;
    int channels;      // of a strip
    int log_group = 0; // of pixels that are copied as one

    __device__ __forceinline__ Strip strip(int m) const {
        int rest = mine.tile(m);
        const auto digit = [&](const Divisor &by, int base) {
            const int others = by.quotient(rest), last = rest - others * base;
            rest = others;
            return last;
        };
        Strip strip;
        strip.channel = digit(tiling.by_channel_blocks, tiling.channel_blocks) * channels;
        strip.column =
            digit(tiling.by_column_pieces, tiling.column_pieces) * tiling.tiles * Shape::Columns;
        strip.row = digit(tiling.by_row_pieces, tiling.row_pieces) * tiling.rows;
        strip.n = rest * tiling.images;
        return strip;
    }
    __device__ __forceinline__ int items() const { return count * tiling.items; }
    __device__ __forceinline__ uint32_t stage(int stage) const {
        return stages + stage * tiling.stage_bytes;
    }
    // Item number `item` of the block, by one lane. What lies outside of x comes as zeros.
    __device__ __forceinline__ void load(int item, int at) const {
        const int m = tiling.by_items.quotient(item), box = item - m * tiling.items - 1;
        const Strip from = strip(m);
        const uint32_t to = stage(at);
        if (box < 0) {
            constexpr int Taps = Shape::R * Shape::R, FilterBytes = Taps * int(sizeof(*w));
            const uint32_t bytes = min(channels, tiling.c - from.channel) * FilterBytes;
            load_filters(to, w + int64_t(from.channel) * Taps, bytes, ring.full[at]);
            return;
        }
        ring.full[at].arrive_and_expect(tiling.box_bytes);
        const int column = from.column * Shape::Stride - tiling.pad_left;
        const int row = (from.row + box * tiling.steps) * Shape::Stride - tiling.pad_top;
        if constexpr (Shape::OfPlanes)
            copy_box(to, x, column, row, from.channel, from.n, ring.full[at]);
        else
            copy_box(to, x, from.channel, column >> log_group, row, from.n, ring.full[at]);
    }

  private:
    // Copies are whole pieces of 16 bytes; what the last filters have beyond these comes by words.
    __device__ __forceinline__ static void load_filters(uint32_t to, const void *from,
                                                        uint32_t bytes, Barrier &full) {
        const uint32_t copied = Shape::AnyChannels ? bytes / 16 * 16 : bytes;
        if (Shape::AnyChannels && copied < bytes) {
#pragma unroll 1 // three words at most
            for (uint32_t at = copied; at < bytes; at += 4)
                store_shared(to + at, __ldg(reinterpret_cast<const uint32_t *>(from) + at / 4));
            publish_to_bulk_copies(); // one of which comes here later
        }
        full.arrive_and_expect(copied);
        copy_bulk(to, from, copied, full);
    }
};
#endif

} // namespace cf::depthwise
