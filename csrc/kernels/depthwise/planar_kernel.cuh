// The kernel of depthwise_planar: strips of x stream through shared memory, are multiplied by
// bands, and y leaves in bulk.
#pragma once

#include "kernels/depthwise/planar_task.cuh"
#include "pipeline/plane_ring.cuh"
#include "ptx/grid.cuh"

#include <climits>

namespace cf::depthwise_planar {

using plane_strips::Warps;
using Launched = cf::Kernel<Tiling, const void *, const void *, void *, Finish>;

#if CF_SM90
// A warp, and what it computes.
template <class Shape>
struct Warp {
    const Tiling &tiling;
    const Finish &finish;
    int number, lane;
    uint32_t pairs[4]; // where the lane's words lie in a packed filter
    Neighbours<Shape> neighbours;

    __device__ __forceinline__ void compute(const plane_strips::Strip &strip, uint32_t stage,
                                            uint32_t out) const {
        constexpr int Step = (Columns - 2 * Shape::Edge) * Shape::TilesOfY; // windows share columns
        const plane_strips::Tiling &strips = tiling.strips;
        const plane_strips::StripRows rows(strips, strip);
        const uint32_t filters = stage + strips.filters;
        const int lane_row = lane % 4 * tiling.lane_rows + tiling.lift;
        const uint32_t x = stage + rows.skew + (lane_row - rows.outside) * strips.row_bytes +
                           lane / 4 * Shape::Tiles * Size;
        const uint32_t y =
            out + lane / 4 * strips.y_row_bytes + lane % 4 * 2 * Shape::TilesOfY * Size;
        Filter<Shape> filter;
        plane_strips::for_units<Shape::Planes, Shape::Stride, Size>(
            strips, strip, number, Columns * Shape::TilesOfY, Step, x, y,
            [&](const plane_strips::Unit &unit) {
                compute(strip, unit, filters + unit.channel * strips.filter_bytes, filter,
                        lane_row);
            });
    }

  private:
    // What of a unit is there, and is its own to store: the sums of a window's outer columns are
    // not all in it, but at the ends of a row.
    __device__ __forceinline__ UnitPlace<Shape> place_of(const plane_strips::Strip &strip,
                                                         const plane_strips::Unit &unit) const {
        constexpr int Edge = Shape::Edge;
        UnitPlace<Shape> place = {};
        place.image = strip.n, place.channel = strip.channel + unit.channel;
        place.channels = strip.channels - unit.channel;
        place.row = strip.row + unit.row, place.column = unit.column, place.to = unit.y;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int column = lane % 4 * 2 + i;
            place.live_columns[i] = (column >= Edge || unit.column == 0) &&
                                    (column < Columns - Edge || unit.is_last) &&
                                    unit.column + column * Shape::TilesOfY < tiling.strips.q;
        }
        const int end = min(strip.rows - unit.row, tiling.strips.unit_rows);
#pragma unroll
        for (int run = 0; run < Shape::Runs; ++run)
            place.live_rows[run] = lane / 4 + run * 8 < end;
        return place;
    }
    // `filters` are those of the unit's channels, `filter` is the last one's that was loaded.
    __device__ __forceinline__ void compute(const plane_strips::Strip &strip,
                                            const plane_strips::Unit &unit, uint32_t filters,
                                            Filter<Shape> &filter, int lane_row) const {
        const plane_strips::Tiling &strips = tiling.strips;
        const UnitPlace<Shape> place = place_of(strip, unit);
        // Where there are no pixels there is no row of them either.
        const int pixel = unit.column * Shape::Stride + lane / 4 * Shape::Tiles;
        const int row = place.row * Shape::Stride - strips.pad + lane_row;
        const int row_of_x = pixel < strips.w ? row : INT_MAX / 2;
        Sums<Shape> sums;
#pragma unroll
        for (int plane = 0; plane < Shape::Planes; ++plane) {
            if (Shape::Planes > 1 || unit.is_first)
                filter.load(filters + plane * strips.filter_bytes, pairs);
            Pixels<Shape> pixels;
            pixels.load(tiling, unit.x + plane * strips.plane, row_of_x, neighbours);
            sums.multiply(plane, filter, pixels);
        }
        finish_and_store<typename Shape::Element>(tiling.finishes, finish, tiling.activation,
                                                  tiling.strips.c,
                                                  OutputMap<Shape>{sums, tiling, place, lane});
    }
};
#endif

template <class Element, int Side, int Stride, int Tiles>
__global__ void __launch_bounds__(Warps * 32, blocks_of(Side, Stride, Tiles))
    depthwise_planar_kernel(const __grid_constant__ Tiling tiling, const void *__restrict__ x,
                            const void *__restrict__ filter, void *__restrict__ y,
                            const __grid_constant__ Finish finish) {
#if CF_SM90
    using Compiled = Shape<Element, Side, Stride, Tiles>;
    extern __shared__ __align__(128) unsigned char dynamic[];
    __shared__ plane_strips::Barriers barriers;
    static_assert(sizeof(barriers) <= StaticShared, "the plan leaves room");
    const plane_strips::Stream<Element> stream(tiling.strips, barriers, x, filter, y,
                                               shared_address(dynamic));
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    Warp<Compiled> self = {tiling, finish, warp, lane, {}, {}};
    set_pairs<Compiled>(tiling, lane, self.pairs);
    self.neighbours.set(lane);
    stream.begin();
    let_next_kernel_begin();
    wait_for_kernels_before();
    if (warp == 0)
        stream.begin_loads(lane);
    stream.run(warp, lane, [&](const plane_strips::Strip &strip, uint32_t stage, uint32_t out) {
        self.compute(strip, stage, out);
    });
#else
    not_compiled();
#endif
}

// The kernel of a problem. The files of planar/ compile those of one type of elements.
template <class Element>
Launched kernel_for(const cf_problem &p, dim3 grid, size_t shared);

template <class Element>
Launched kernel_among(const cf_problem &p, dim3 grid, size_t shared) {
    Launched kernel;
    depthwise::for_filter(p, [&](auto side, auto stride) {
        for_value<2, 4, 8>(tiles_of(p) / 4, [&](auto tiles) {
            kernel =
                kernel_of(depthwise_planar_kernel<Element, side.value, stride.value, tiles.value>,
                          grid, Warps * 32, shared, true);
        });
    });
    return kernel;
}

} // namespace cf::depthwise_planar
