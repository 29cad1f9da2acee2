// A ring of stages in shared memory, through which items (tiles, strips of images) stream from
// producers to consumers. Each stage has two barriers: `full` ends a phase when an item is there,
// `empty` when all consumers have handed it back. Item number m of a block lies in stage m % stages
// in round m / stages.
//
//     Ring<MaxStages> ring;                          // __shared__
//     ring.init(stages, arrivals, consumers, lane);  // by one warp, then publish_barriers
//
//     // Producers                                   // Consumers
//     RingPosition at;                               RingPosition at;
//     for (...; at.next(stages)) {                   for (...; at.next(stages)) {
//         ring.wait_empty(at);                           ring.wait_full(at);
//         copy into stage at.stage,                      read stage at.stage
//         arrive on ring.full[at.stage]                  ring.release(at);
//     }                                              }
//
// A barrier shows one bit, the parity of its phase. So nobody may be two phases ahead of another:
// all who arrive or wait go through all items, in order.
#pragma once

#include "core/divisor.cuh"
#include "ptx/atom.cuh"
#include "ptx/mbarrier.cuh"

namespace cf {

#if CF_SM90
// Where an item lies, walked from item to item.
struct RingPosition {
    int stage = 0, round = 0;

    // Of the item behind so many, at most a round of them.
    static __device__ __forceinline__ RingPosition behind(int items, int stages) {
        return items == stages ? RingPosition{0, 1} : RingPosition{items, 0};
    }
    __device__ __forceinline__ void next(int stages) {
        if (++stage == stages)
            stage = 0, ++round;
    }
    // Of the barriers' phase in this round.
    __device__ __forceinline__ uint32_t parity() const { return round & 1; }
};

// The same of any item, by its number.
__device__ __forceinline__ RingPosition ring_position(int item, int stages,
                                                      const Divisor &by_stages) {
    const int round = by_stages.quotient(item);
    return {item - round * stages, round};
}

template <int MaxStages>
struct Ring {
    static_assert(MaxStages <= 32, "a lane for each");
    Barrier full[MaxStages], empty[MaxStages];

    // By a warp. An item is there after so many arrivals (and the bytes that they expect), and is
    // handed back by so many.
    __device__ __forceinline__ void init(int stages, uint32_t filled, uint32_t released, int lane) {
        if (lane < stages)
            init_stage(lane, filled, released);
    }
    // One stage, by a thread: lanes of a warp would do so one after another.
    __device__ __forceinline__ void init_stage(int stage, uint32_t filled, uint32_t released) {
        full[stage].init(filled);
        empty[stage].init(released);
    }
    // Until the item of the round before was handed back; in the first round nobody waits.
    __device__ __forceinline__ void wait_empty(RingPosition at) {
        empty[at.stage].wait(at.parity() ^ 1);
    }
    __device__ __forceinline__ void wait_full(RingPosition at) { full[at.stage].wait(at.parity()); }
    __device__ __forceinline__ void release(RingPosition at) { empty[at.stage].arrive(); }
};

// The items that a warp of consumers holds where a task may touch several: it waits for each and
// hands each back, in order.
template <int MaxStages>
class RingWindow {
    Ring<MaxStages> &ring;
    const int stages;
    const Divisor by_stages;
    int ready = 0, released = 0; // items that were waited for, and that were handed back

    __device__ __forceinline__ void wait_next() {
        ring.wait_full(ring_position(ready, stages, by_stages));
        ++ready;
    }

  public:
    __device__ __forceinline__ RingWindow(Ring<MaxStages> &ring, int stages,
                                          const Divisor &by_stages)
        : ring(ring), stages(stages), by_stages(by_stages) {}

    __device__ __forceinline__ void wait_through(int item) {
        while (ready <= item)
            wait_next();
    }
    // An arrival for an item that is not there yet would count for the one before it in its stage.
    __device__ __forceinline__ void release_before(int item) {
        while (released < item) {
            if (ready == released)
                wait_next();
            ring.release(ring_position(released, stages, by_stages));
            ++released;
        }
    }
};

// A ring without producers: who is the last to be done with an item loads another one into its
// stage.
template <int MaxStages>
struct SelfLoadingRing {
    static_assert(MaxStages <= 32, "a lane for each");
    Barrier full[MaxStages];
    int done[MaxStages]; // parts of the stage's items

    __device__ __forceinline__ void init(int stages, uint32_t filled, int lane) {
        if (lane < stages) {
            full[lane].init(filled);
            done[lane] = 0;
        }
    }
    __device__ __forceinline__ void wait_full(RingPosition at) { full[at.stage].wait(at.parity()); }
    // Hands back one of the parts that each item is read in; says whether it was the last.
    __device__ __forceinline__ bool release(RingPosition at, int parts) {
        return count_shared(done[at.stage]) % parts == parts - 1;
    }
};
#endif

} // namespace cf
