// A ring of stages in which consumers of inputs gather their outputs, and from which storing warps
// let them leave by bulk copies (pipeline/segment.cuh). Rows of y that are no whole sectors of 32
// bytes are worth it: two warps would write to one sector, which costs the memory far more than its
// bytes.
//
// Where outputs come in the order of inputs, a Ring is enough, with its roles exchanged. This one
// is for output tiles that are gathered by several warps, out of order: a tile is known by its
// number, and a warp that is ahead waits for the stages of all tiles that it writes to.
#pragma once

#include "pipeline/ring.cuh"

namespace cf {

#if CF_SM90
// A barrier shows one bit: with `Empties` of them for each stage, used alternately, a warp may be
// 2 * Empties - 1 rounds ahead of the oldest tile that was not stored yet.
template <int MaxStages, int Empties = 1>
struct OutputRing {
    static_assert(MaxStages <= 32, "a lane for each");
    Barrier full[MaxStages], empty[Empties][MaxStages];

    // By a warp. A tile is whole after so many arrivals, and stored after so many.
    __device__ __forceinline__ void init(int stages, uint32_t gathered, uint32_t stored, int lane) {
        if (lane < stages) {
            full[lane].init(gathered);
            for (auto &of_rounds : empty)
                of_rounds[lane].init(stored);
        }
    }
    __device__ __forceinline__ void wait_full(RingPosition at) { full[at.stage].wait(at.parity()); }
    __device__ __forceinline__ void release(RingPosition at) {
        empty[at.round % Empties][at.stage].arrive();
    }
    // Until the tile of the round before was stored.
    __device__ __forceinline__ void wait_empty(RingPosition at) {
        const int before = at.round - 1;
        if (before >= 0)
            empty[before % Empties][at.stage].wait(before / Empties & 1);
    }
};
#endif

} // namespace cf
