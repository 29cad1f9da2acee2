// A ring without a producer: the warps that read its items take turns at loading them. A warp whose
// turn it is loads the item that comes into the stage of one that it left an item or two before;
// nearly always all others have left that one as well, and it does not wait.
//
//     ring.init(stages, 1, warps, lane);  // by one warp, then publish_barriers
//     Turns<MaxStages> turns(ring, stages, items, warp, lane);
//     turns.begin(load);                  // load(item, stage), by one lane
//     for (each item) {
//         turns.enter(load);
//         read stage turns.stage()
//         use what was read, turns.leave()    // where all of it was used; or leave_before_use()
//     }
#pragma once

#include "pipeline/ring.cuh"
#include "ptx/finish_loads.cuh"

namespace cf {

#if CF_SM90
template <int MaxStages>
class Turns {
    Ring<MaxStages> &ring;
    const int stages, items, lane, warps;
    int turn; // the item in whose place this warp loads next
    int item = 0;
    RingPosition at, next; // of the item; of the one that is to be loaded

  public:
    __device__ __forceinline__ Turns(Ring<MaxStages> &ring, int stages, int items, int warp,
                                     int lane)
        : ring(ring), stages(stages), items(items), lane(lane), warps(int(blockDim.x) / 32),
          turn(warp) {
        next.round = 1;
    }
    // The first items, as many as there are stages, by the first warp.
    template <class Load>
    __device__ __forceinline__ void begin(Load load) {
        if (turn == 0 && lane == 0)
            for (int first = 0; first < min(items, stages); ++first)
                load(first, first);
        __syncwarp();
    }
    // Waits for the next item.
    template <class Load>
    __device__ __forceinline__ void enter(Load load) {
        const int lag = stages > 4 ? 2 : 1, left = item - lag;
        if (left >= 0 && left + stages < items) {
            if (left == turn) {
                ring.wait_empty(next); // by all lanes, as a barrier is waited for
                if (lane == 0)
                    load(left + stages, next.stage);
                __syncwarp();
                turn += warps;
            }
            next.next(stages);
        }
        ring.wait_full(at);
    }
    __device__ __forceinline__ int stage() const { return at.stage; }
    __device__ __forceinline__ void leave() {
        __syncwarp();
        if (lane == 0)
            ring.release(at);
        at.next(stages);
        ++item;
    }
    __device__ __forceinline__ void leave_before_use() {
        finish_loads_before_copies();
        leave();
    }
};
#endif

} // namespace cf
