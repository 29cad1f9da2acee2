// How a warp of depthwise_nhwc and depthwise_rows slides down over the rows of x of a strip.
#pragma once

#include "kernels/depthwise/strips.cuh"
#include "pipeline/turns.cuh"

namespace cf::depthwise {

#if CF_SM90
// Over all boxes of a strip: load_row(from, window) brings the row of x whose lane begins there,
// `offset` bytes into a stage for the first one, and finish() stores the oldest row of sums.
template <class Shape, class Load, class LoadRow, class FinishRow>
__device__ __forceinline__ void
slide(const Strips<Shape> &strips, const Strip &strip, Turns<MaxStages> &turns, Load load,
      uint32_t offset, const typename Shape::Weights &weights, typename Shape::Sums &sums,
      LoadRow load_row, FinishRow finish) {
    const Tiling &tiling = strips.tiling;
    // Of y, from the first row that the strip's first row of x meets on.
    const int rows = min(tiling.rows, tiling.p - strip.row);
    constexpr int First = Shape::Sums::Rows - 1;
    int row = 0;
    for (int box = 1; box < tiling.items; ++box) {
        turns.enter(load);
        uint32_t from = strips.stage(turns.stage()) + offset;
#pragma unroll 1
        for (int step = 0; step < tiling.steps; ++step, ++row) {
            const auto row_of = [&](int i, auto &x) { load_row(from + i * tiling.pitch, x); };
            if (!Shape::Asks || (row >= First && row < rows))
                sums.template step<false>(weights, 0, First, row_of);
            else
                sums.template step<true>(weights, row - rows + 1, row, row_of);
            from += Shape::Stride * tiling.pitch;
            if (row >= First && row < First + rows)
                finish();
        }
        turns.leave();
    }
}
#endif

} // namespace cf::depthwise
