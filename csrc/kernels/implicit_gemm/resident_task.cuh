// The main loop of implicit_gemm_resident: a warpgroup's sums, of a row of a tile.
#pragma once

#include "kernels/implicit_gemm/resident_load.cuh"
#include "ptx/wgmma_shared.cuh"

namespace cf::implicit_resident {

#if CF_SM90A
// Sums under each column of taps, of columns of x.
template <int N>
using Sums = float[Taps][N / 2];

// A row of taps, asked for as a group. Its three taps multiply the same columns of x. The number of
// steps is compiled in: beside a loop over them ptxas has too few registers, and spills sums.
template <class Element, int N, int Depth>
__device__ __forceinline__ void multiply_row(const Block &block, int r, uint32_t stage,
                                             Sums<N> &sums) {
    const WgmmaLines weights(block.filter + r * Taps * TapBytes, LineAlign);
    const WgmmaPlanes columns(stage, Depth * StripStepBytes);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < Depth; ++i)
#pragma unroll
        for (int s = 0; s < Taps; ++s)
            wgmma_shared<Element, N, true>(sums[s], weights.behind(s * TapBytes + i * StepBytes),
                                           columns.behind(i * StripStepBytes), i > 0 || r > 0);
    wgmma_commit();
}

// Adds to each column of `to` its neighbour in `from`, that on the left or, with Side = 1, on the
// right. A lane has two neighbours of eight columns; the one beside them is in another lane, for
// the outermost lane of the eight beside. Outside of the tile, and of a strip that lies apart, are
// zeros.
template <int Side, int N>
__device__ __forceinline__ void add_beside(const float (&from)[N / 2], bool apart, int lane,
                                           float (&to)[N / 2]) {
    constexpr int Eights = N / 8, Strip = StripColumns / 8;
    const int other = (lane & ~3) | ((lane + (Side == 0 ? 3 : 1)) & 3);
    const bool outermost = lane % 4 == (Side == 0 ? 0 : 3);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float before = 0; // from the eight before, for the outermost lane
#pragma unroll
        for (int i = 0; i < Eights; ++i) {
            const int eight = Side == 0 ? i : Eights - 1 - i, first = eight * 4 + half * 2;
            if (eight == Strip - Side && apart)
                before = 0;
            const float turned = __shfl_sync(~0u, from[first + 1 - Side], other);
            to[first + Side] += outermost ? before : turned;
            to[first + 1 - Side] += from[first + Side];
            before = turned;
        }
    }
}

// The rows of x that a warp has waited for and not handed back.
class HeldRows {
    Ring<MaxStages> &ring;
    const int stages;
    const bool arrives; // a lane of the warp
    RingPosition ready_at, released_at;
    int ready = 0, released = 0;

    __device__ __forceinline__ void wait_next() {
        ring.wait_full(ready_at);
        ready_at.next(stages), ++ready;
    }

  public:
    __device__ __forceinline__ HeldRows(const Block &block, int lane)
        : ring(block.shared.rows), stages(block.tiling.stages), arrives(lane == 0) {}

    __device__ __forceinline__ void wait_through(int row) {
        while (ready <= row)
            wait_next();
    }
    // An arrival for a row that is not there yet would count for the one before it in its stage.
    __device__ __forceinline__ void release_before(int row) {
        while (released < row) {
            if (ready == released)
                wait_next();
            if (arrives)
                ring.release(released_at);
            released_at.next(stages), ++released;
        }
    }
    // Of the first row that is not handed back.
    __device__ __forceinline__ int first_stage() const { return released_at.stage; }
};

// Who multiplies: the warpgroups by turns, each a row of y. So one has the tensor cores while the
// other one stores.
template <class Element, int N, int Depth>
class Multiplier {
    const Block &block;
    const int warpgroup, lane;
    HeldRows held;
    int turn = 0;

    // Until the other warpgroup has asked for all products of the row before. Nobody did before the
    // first one.
    __device__ __forceinline__ void wait_for_turn() {
        block.shared.asked[1 - warpgroup].wait((turn + 1 - warpgroup) & 1);
    }
    __device__ __forceinline__ void pass_turn() {
        if (lane == 0)
            block.shared.asked[warpgroup].arrive();
        ++turn;
    }

  public:
    __device__ __forceinline__ Multiplier(const Block &block, int warpgroup, int lane)
        : block(block), warpgroup(warpgroup), lane(lane), held(block, lane) {}

    // The row of y that reads row number `item` of the block's and some behind it; those before are
    // not read any more.
    __device__ __forceinline__ void multiply(int item, Sums<N> &sums) {
        const Tiling &t = block.tiling;
        held.release_before(item);
        wait_for_turn();
        int stage = held.first_stage();
#pragma unroll 1
        for (int r = 0; r < t.rows; ++r) {
            if (turn == 0)
                block.shared.filter[r].wait(0);
            held.wait_through(item + r * t.row_step);
            multiply_row<Element, N, Depth>(block, r, block.stage(stage), sums);
            wgmma_wait<1>(); // when the turn passes, no more than a row of taps is left to do
            stage += t.row_step;
            if (stage >= t.stages)
                stage -= t.stages;
        }
        pass_turn();
        wgmma_wait<0>();
#pragma unroll
        for (int s = 0; s < Taps; ++s)
#pragma unroll
            for (int i = 0; i < N / 2; ++i)
                settle(sums[s][i]);
        add_beside<0, N>(sums[0], t.strip_rows > 0, lane, sums[1]);
        add_beside<1, N>(sums[2], t.strip_rows > 0, lane, sums[1]);
    }
    __device__ __forceinline__ void release_before(int item) { held.release_before(item); }
};
#endif

} // namespace cf::implicit_resident
