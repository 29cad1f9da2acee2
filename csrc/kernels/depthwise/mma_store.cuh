// How rows of y leave a strip of depthwise_mma: from slots in shared memory, by tensor copies.
#pragma once

#include "kernels/depthwise/mma_plan.cuh"
#include "kernels/depthwise/strips.cuh"
#include "pipeline/output_ring.cuh"
#include "ptx/tensor_store.cuh"

namespace cf::depthwise_mma {

#if CF_SM90
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
    int reading = 0; // and until what it has stored has to have been read
    RingPosition at, stored;

    __device__ __forceinline__ void end_store() {
        if (lane == 0) {
            wait_for_stores_to_read();
            ring.release(stored);
        }
        reading = 0;
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
        if (reading == 1)
            end_store();
        else if (reading)
            --reading;
        publish_to_bulk_copies();
        ring.full[at.stage].arrive();
        if (turn == 0) {
            ring.wait_full(at);
            if (lane == 0)
                for (int i = 0; i < rows; ++i)
                    store_box(row(i), y, strip.channel, strip.column, strip.row + first + i,
                              strip.n);
            stored = at, reading = Slots - 1, turn = Warps;
            __syncwarp();
        }
        --turn;
        at.next(Slots);
    }
    // Shared memory has to be there until all of it was read.
    __device__ __forceinline__ void end() {
        if (reading)
            end_store();
    }
};
#endif

} // namespace cf::depthwise_mma
