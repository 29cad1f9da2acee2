// How blocks share work: persistent ones, as many as run at a time, or one for each tile, which the
// hardware gives out in order.
#pragma once

namespace cf {

// Over the grid, by stride: a block's tiles are first, first + step, ... of those of the launch.
// Blocks beside each other have tiles beside each other, at about the same time.
struct StridedTiles {
    int first, step;

    static __device__ __forceinline__ StridedTiles of_block() {
        return {int(blockIdx.x), int(gridDim.x)};
    }
    __device__ __forceinline__ int count(int tiles) const {
        return (tiles - first + step - 1) / step;
    }
    // This block's tile number m.
    __device__ __forceinline__ int tile(int m) const { return first + m * step; }
};

// Inside a block, by a counter in shared memory: a warp takes the next task when it has done one,
// so that no warp waits for a slower one.
struct TaskCounter {
    int next;

    // The next task, the same in all lanes of a warp. A reduction's result is known to be, and the
    // compiler keeps what follows from it in uniform registers.
    __device__ __forceinline__ int take(int lane) {
        int task = 0;
        if (lane == 0)
            task = atomicAdd(&next, 1);
        return int(__reduce_max_sync(~0u, unsigned(task)));
    }
};

} // namespace cf
