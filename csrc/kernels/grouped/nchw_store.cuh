// From the sums of grouped_nchw to y: the epilogue on fragments, rows of channels in the stage that
// x came through, from where they leave by bulk copies.
#pragma once

#include "core/fragment_epilogue.cuh"
#include "kernels/grouped/nchw_load.cuh"
#include "kernels/grouped/nhwc_task.cuh"

namespace cf::grouped_nchw {

#if CF_SM90
// Where a lane's sums of a unit go: a pixel of y, and the first of its channels.
struct UnitPlace {
    uint32_t staged; // in shared memory
    int64_t y;       // elements behind y's first
    int rows;        // how many there are below each other

    __device__ __forceinline__ UnitPlace(const Tiling &tiling, const Strip &strip, int unit,
                                         int channel, uint32_t stage, int size, int lane) {
        const int piece = tiling.by_column_units.quotient(unit);
        const int column = (unit - piece * tiling.column_units) * UnitPixels + row_of_lane(lane);
        const int row = piece * tiling.task_rows;
        const bool live = unit < tiling.units && column < tiling.q;
        rows = live ? min(tiling.task_rows, strip.rows - row) : 0;
        channel += channel_of_lane(lane);
        staged = stage + channel * tiling.y_pitch + (row * tiling.q + column) * size;
        const int64_t plane = int64_t(strip.n) * tiling.c + strip.channel + channel;
        y = (plane * tiling.p + strip.row + row) * tiling.q + column;
    }
};

// The oldest row of sums, for core/fragment_epilogue.cuh.
template <class Shape>
struct OutputMap {
    Sums<Shape> &sums;
    const Tiling &tiling;
    const UnitPlace (&unit)[2];
    int channel; // of the first tile
    int row;     // of the units' rows

    __device__ __forceinline__ bool live(int u) const { return row < unit[u].rows; }

    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
#pragma unroll
        for (int tile = 0; tile < Shape::Tiles; ++tile)
#pragma unroll
            for (int e = 0; e < 2; ++e)
                body(channel + tile * TileChannels + e, Constant<2>(),
                     [&](int u) -> float & { return sums.oldest(tile, 2 * u + e); });
    }
    template <class T, class Body>
    __device__ __forceinline__ void for_runs(T *tensor, Body body) {
        const int64_t plane = int64_t(tiling.p) * tiling.q;
#pragma unroll
        for (int u = 0; u < 2; ++u)
#pragma unroll
            for (int tile = 0; tile < Shape::Tiles; ++tile)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const int further = tile * TileChannels + e;
                    body(Constant<1>(), tensor + unit[u].y + row * tiling.q + further * plane,
                         live(u) && channel + further < tiling.c,
                         [&](int) -> float & { return sums.oldest(tile, 2 * u + e); });
                }
    }
};

template <class Shape>
__device__ __forceinline__ void finish_row(OutputMap<Shape> map, const Finish &finish) {
    using Element = typename Shape::Element;
    const Tiling &tiling = map.tiling;
    // One branch where there is nothing to do.
    if (tiling.finishes) {
        finish_fragment<Element>(finish, tiling.c, map);
        map.sums.activate_oldest(tiling.activation);
    }
#pragma unroll
    for (int tile = 0; tile < Shape::Tiles; ++tile)
#pragma unroll
        for (int e = 0; e < 2; ++e)
#pragma unroll
            for (int u = 0; u < 2; ++u) {
                const float v[1] = {map.sums.oldest(tile, 2 * u + e)};
                store_neighbours<Element>(map.unit[u].staged +
                                              (tile * TileChannels + e) * tiling.y_pitch,
                                          map.live(u), v);
            }
}

// A strip of y leaves its stage, by a warp; everybody has published what he wrote there.
template <class Element>
__device__ __forceinline__ void store_strip(const Strips &strips, const Strip &strip, Element *y,
                                            int at, int lane) {
    constexpr int Lanes = 8; // of a segment
    const Tiling &tiling = strips.tiling;
    const uint64_t begin = strips.y_begin(y, strip);
    const uint32_t from = strips.stage(at) + (uint32_t(begin) & 15);
    const int segments = tiling.whole ? 1 : strip.channels;
    const uint32_t bytes =
        strip.rows * tiling.q * uint32_t(sizeof(Element)) * (tiling.whole ? strip.channels : 1);
    for (int i = lane / Lanes; i < segments; i += 32 / Lanes)
        store_segment<Element, 32, Lanes>(begin + uint64_t(i) * tiling.y_plane, bytes,
                                          from + i * tiling.y_pitch, lane % Lanes);
}
#endif

} // namespace cf::grouped_nchw
