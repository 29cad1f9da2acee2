// The kernel of depthwise_mma: rows of x stream through a ring of stages, warps slide down over
// them, and rows of y leave from slots.
#pragma once

#include "kernels/depthwise/mma_task.cuh"
#include "pipeline/turns.cuh"
#include "ptx/grid.cuh"
#include "ptx/load_store.cuh"

namespace cf::depthwise_mma {

#if CF_SM90
// A warp: four channels of a strip.
template <class Shape>
__device__ __forceinline__ void compute(const Strips<Shape> &strips, RowsOfY &y, int warp, int lane,
                                        const Finish &finish) {
    constexpr int First = Shape::Rows - 1; // steps until a row of y is whole
    const depthwise::Tiling &tiling = strips.tiling;
    const Pixels<Shape> pixels(tiling, warp, lane);
    Bands<Shape::R> bands[WarpChannels];
    Sums<Shape> sums;
    const auto load = [&](int item, int stage) { strips.load(item, stage); };
    Turns<MaxStages> turns(strips.ring, tiling.stages, strips.items(), warp, lane);
    turns.begin(load);
    for (int m = 0; m < strips.count; ++m) {
        const Strip strip = strips.strip(m);
        turns.enter(load);
        load_bands<Shape>(strips.stage(turns.stage()), warp, lane, bands);
        turns.leave_before_use();
        const int rows = min(tiling.rows, tiling.p - strip.row);
        int step = -First; // row of y that it completes
        for (int box = 1; box < tiling.items; ++box) {
            turns.enter(load);
            uint32_t from = strips.stage(turns.stage());
            const int first = max(step, 0), end = min(step + tiling.steps, rows);
            if (first < end)
                y.enter();
#pragma unroll 1
            for (; step < end; ++step) {
                sums.step(bands, pixels, from, tiling.pitch);
                from += Shape::Stride * tiling.pitch;
                if (step < first)
                    continue;
                if (tiling.finishes)
                    finish_row(tiling, sums, strip, strip.row + step, warp, lane, finish);
                sums.store(y.row(step - first), pixels);
            }
            turns.leave();
            if (first < end)
                y.leave(strip, first, end - first);
        }
    }
    y.end();
}
#endif

template <class Shape>
__global__ void __launch_bounds__(Warps * 32, blocks_of(Shape::R))
    depthwise_mma_kernel(const __grid_constant__ Tiling tiling,
                         const __grid_constant__ CUtensorMap x,
                         const __grid_constant__ CUtensorMap y,
                         const typename Shape::Stored *__restrict__ w,
                         const __grid_constant__ Finish finish) {
#if CF_SM90
    extern __shared__ __align__(128) unsigned char dynamic[];
    __shared__ Ring<MaxStages> ring;
    __shared__ OutputRing<Slots> output;
    static_assert(sizeof(ring) + sizeof(output) <= StaticShared, "the plan leaves room for them");
    uint32_t stages = (shared_address(dynamic) + (HalfLineAlign - 1)) & ~(HalfLineAlign - 1);
    keep(stages); // or each use reads a special register anew
    const auto mine = StridedTiles::of_block();
    const Strips<Shape> strips = {
        tiling, x, w, ring, stages, mine, mine.count(tiling.strips), Shape::Channels};
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        prefetch_map(x);
        prefetch_map(y);
    }
    if (warp == 0) {
        ring.init(tiling.stages, 1, Warps, lane);
        output.init(Slots, Warps * 32, 1, lane);
        publish_barriers();
    }
    __syncthreads();
    let_next_kernel_begin();
    wait_for_kernels_before();
    RowsOfY rows(tiling, y, output, stages + tiling.first_slot, warp, lane);
    compute<Shape>(strips, rows, warp, lane, finish);
#else
    not_compiled();
#endif
}

using Launched = Kernel<Tiling, CUtensorMap, CUtensorMap, const void *, Finish>;

// The kernel of an option. The files of mma/ compile those of one type of elements.
template <class Stored>
Launched kernel_for(const cf_problem &p, const Option &option);

template <class Stored>
Launched kernel_among(const cf_problem &p, const Option &option) {
    Launched kernel;
    for_filter(p, [&](auto r, auto stride) {
        kernel = kernel_of(depthwise_mma_kernel<Shape<Stored, r.value, stride.value>>,
                           unsigned(option.blocks), unsigned(Warps) * 32, option.shared, true);
    });
    return kernel;
}

} // namespace cf::depthwise_mma
