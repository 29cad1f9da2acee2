// The strips of depthwise_mma: filters and rows of x stream to shared memory, and rows of y leave
// it.
#pragma once

#include "kernels/depthwise/mma_plan.cuh"
#include "pipeline/output_ring.cuh"
#include "pipeline/scheduler.cuh"
#include "pipeline/turns.cuh"
#include "ptx/bulk.cuh"
#include "ptx/tensor.cuh"
#include "ptx/tensor_store.cuh"

namespace cf::depthwise_mma {

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

    __device__ __forceinline__ Strip strip(int m) const {
        int rest = mine.tile(m);
        const auto digit = [&](const Divisor &by, int base) {
            const int others = by.quotient(rest), last = rest - others * base;
            rest = others;
            return last;
        };
        Strip strip;
        strip.channel = digit(tiling.by_channel_blocks, tiling.channel_blocks) * Channels;
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
        if (box < 0) {
            constexpr int Taps = Shape::R * Shape::R;
            const uint32_t bytes = min(Channels, tiling.c - from.channel) * (Taps * 2);
            ring.full[at].arrive_and_expect(bytes);
            copy_bulk(stage(at), w + int64_t(from.channel) * Taps, bytes, ring.full[at]);
            return;
        }
        ring.full[at].arrive_and_expect(tiling.box_bytes);
        copy_box(stage(at), x, from.channel, from.column * Shape::Stride - tiling.pad_left,
                 (from.row + box * tiling.steps) * Shape::Stride - tiling.pad_top, from.n,
                 ring.full[at]);
    }
};

// How rows of y leave: warps gather those that a stage completes in a slot, and one of them, each
// in its turn, stores them when all have. A store waits behind the copies of x that were asked for
// before it, so that its slot is asked for as late as can be.
class RowsOfY {
    const Tiling &tiling;
    const CUtensorMap &y;
    OutputRing<Slots> &ring;
    const uint32_t slots; // in shared memory
    const int lane;
    int turn;        // how many slots are gathered until this warp stores one
    int unended = 0; // and until what it has stored has to have been read
    RingPosition at, stored;

    __device__ __forceinline__ void end_store() {
        if (lane == 0) {
            wait_for_stores_to_read();
            ring.release(stored);
        }
        unended = 0;
    }

  public:
    __device__ __forceinline__ RowsOfY(const Tiling &tiling, const CUtensorMap &y,
                                       OutputRing<Slots> &ring, uint32_t slots, int warp, int lane)
        : tiling(tiling), y(y), ring(ring), slots(slots), lane(lane), turn(warp) {}
    __device__ __forceinline__ void enter() { ring.wait_empty(at); }
    __device__ __forceinline__ uint32_t row(int row) const {
        return slots + at.stage * tiling.slot_bytes + row * tiling.row_bytes;
    }
    // So many rows are in the slot, from row `first` of the strip on.
    __device__ __forceinline__ void leave(const Strip &strip, int first, int rows) {
        if (unended == 1)
            end_store();
        else if (unended)
            --unended;
        publish_to_bulk_copies();
        ring.full[at.stage].arrive();
        if (turn == 0) {
            ring.wait_full(at);
            if (lane == 0)
                for (int i = 0; i < rows; ++i)
                    store_box(row(i), y, strip.channel, strip.column, strip.row + first + i,
                              strip.n);
            stored = at, unended = Slots - 1, turn = Warps;
            __syncwarp();
        }
        --turn;
        at.next(Slots);
    }
    // Shared memory has to be there until all of it was read.
    __device__ __forceinline__ void end() {
        if (unended)
            end_store();
    }
};
#endif

} // namespace cf::depthwise_mma
