// The kernel of grouped_planar: strips of x stream through shared memory, are multiplied, and y
// leaves in bulk.
#pragma once

#include "kernels/grouped/planar_task.cuh"
#include "pipeline/plane_ring.cuh"
#include "ptx/grid.cuh"

#include <climits>

namespace cf::grouped_planar {

using Launched = cf::Kernel<Tiling, const void *, const void *, void *, Finish>;

#if CF_SM90
// A warp, and what it computes.
template <class Shape>
struct Warp {
    const Tiling &tiling;
    const uint4 *packed;
    const Finish &finish;
    int number, lane;
    Filter<Shape> filter;
    int loaded; // the group that it is of

    // The filter of the strip's first unit, before that is there.
    __device__ __forceinline__ void begin(const plane_strips::Strip &strip) {
        const int group = tiling.strips.by_units.quotient(number * tiling.strips.warp_units);
        // Of channels that are not there any group will do.
        loaded =
            min(strip.channel / Shape::Channels + group, tiling.strips.c / Shape::Channels - 1);
        filter.load(packed, loaded, lane);
    }
    __device__ __forceinline__ void compute(const plane_strips::Strip &strip, uint32_t stage,
                                            uint32_t out) {
        constexpr int Channels = Shape::Channels, Tiles = Shape::Tiles;
        constexpr int Step = (Columns - 2) * Tiles; // windows share two columns
        const plane_strips::Tiling &strips = tiling.strips;
        const plane_strips::StripRows rows(strips, strip);
        const uint32_t x = stage + rows.skew - rows.outside * strips.row_bytes +
                           Pixels<Shape>::place(tiling, lane);
        const uint32_t y = out + channel_of<Channels>(0, lane) * strips.y_pitch +
                           row_of<Channels>(0, lane) * strips.y_row_bytes +
                           lane % 4 * 2 * Tiles * Shape::Size;
        plane_strips::for_units<Channels, 1, Shape::Size>(
            strips, strip, number, Columns * Tiles, Step, x, y,
            [&](const plane_strips::Unit &unit) {
                if (unit.is_first)
                    load_filter((strip.channel + unit.channel) / Channels);
                compute(strip, unit);
            });
    }

  private:
    __device__ __forceinline__ void load_filter(int group) {
        if (group == loaded)
            return;
        filter.load(packed, group, lane);
        loaded = group;
    }
    // What of a unit is there, and is its own to store: the sums of a window's outer columns are
    // not all in it, but at the ends of a row.
    __device__ __forceinline__ UnitPlace<Shape> place_of(const plane_strips::Strip &strip,
                                                         const plane_strips::Unit &unit) const {
        UnitPlace<Shape> place = {};
        place.image = strip.n, place.channel = strip.channel + unit.channel;
        place.row = strip.row + unit.row, place.column = unit.column, place.to = unit.y;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int column = lane % 4 * 2 + i;
            place.live_columns[i] = (column > 0 || unit.column == 0) &&
                                    (column < Columns - 1 || unit.is_last) &&
                                    unit.column + column * Shape::Tiles < tiling.strips.w;
        }
#pragma unroll
        for (int run = 0; run < Shape::Of::Runs; ++run)
            place.live_rows[run] = unit.row + row_of<Shape::Channels>(run, lane) < strip.rows;
        return place;
    }
    __device__ __forceinline__ void compute(const plane_strips::Strip &strip,
                                            const plane_strips::Unit &unit) const {
        const UnitPlace<Shape> place = place_of(strip, unit);
        // Where there are no pixels there is no row of them either.
        const int pixel = unit.column + lane / 4 * Shape::Tiles;
        const int row = place.row + Pixels<Shape>::row(lane) - tiling.strips.pad;
        const int row_of_x = pixel < tiling.strips.w ? row : INT_MAX / 2;
        Sums<Shape> sums[Shape::Tiles];
        for_each_constant<0, Shape::Of::Steps>([&](auto step) {
            Pixels<Shape> pixels;
            pixels.template load<step.value>(tiling, unit.x, row_of_x);
#pragma unroll
            for (int tile = 0; tile < Shape::Tiles; ++tile)
                sums[tile].template multiply<step.value>(filter, pixels.word[tile]);
        });
        shift<Shape>(sums, lane);
        finish_and_store<typename Shape::Element>(tiling.finishes, finish, tiling.activation,
                                                  tiling.strips.c,
                                                  OutputMap<Shape>{sums, tiling, place, lane});
    }
};
#endif

template <class Element, int Products, int Channels, int Tiles>
__global__ void __launch_bounds__(plane_strips::Warps * 32,
                                  blocks_of(sizeof(Element), Products, Channels, Tiles))
    grouped_planar_kernel(const __grid_constant__ Tiling tiling, const void *__restrict__ x,
                          const void *__restrict__ filter, void *__restrict__ y,
                          const __grid_constant__ Finish finish) {
#if CF_SM90
    extern __shared__ __align__(128) unsigned char dynamic[];
    __shared__ plane_strips::Barriers barriers;
    static_assert(sizeof(barriers) <= grouped::StaticShared, "the plan leaves room");
    const plane_strips::Stream<Element> stream(tiling.strips, barriers, x, nullptr, y,
                                               shared_address(dynamic));
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int number = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    Warp<Shape<Element, Products, Channels, Tiles>> warp = {
        tiling, static_cast<const uint4 *>(filter), finish, number, lane, {}, 0};
    stream.begin();
    let_next_kernel_begin();
    wait_for_kernels_before();
    warp.begin(stream.strip(0));
    if (number == 0)
        stream.begin_loads(lane);
    stream.run(number, lane, [&](const plane_strips::Strip &strip, uint32_t stage, uint32_t out) {
        warp.compute(strip, stage, out);
    });
#else
    not_compiled();
#endif
}

// The kernel of an instance. The files of planar/ compile those of one type of elements and number
// of products.
template <class Element, int Products = 1>
Launched kernel_for(const grouped::Instance &instance, dim3 grid, size_t shared);

template <class Element, int Products, int... Channels>
Launched kernel_among(const grouped::Instance &instance, dim3 grid, size_t shared) {
    Launched kernel;
    const int channels = instance.set_bytes / int(sizeof(Element));
    for_value<Channels...>(channels / 8, [&](auto channels) {
        for_value<2, 4, 8>(instance.tiles / 4, [&](auto tiles) {
            if constexpr (tiles.value <= most_tiles(channels.value))
                kernel =
                    kernel_of(grouped_planar_kernel<Element, Products, channels.value, tiles.value>,
                              grid, plane_strips::Warps * 32, shared, true);
        });
    });
    return kernel;
}

} // namespace cf::grouped_planar
