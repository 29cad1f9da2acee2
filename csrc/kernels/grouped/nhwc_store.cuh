// From the sums of grouped_nhwc to y: the epilogue on fragments, then, in 16 bits, through shared
// memory, so that whole sectors are stored.
#pragma once

#include "core/fragment_epilogue.cuh"
#include "kernels/grouped/nhwc_load.cuh"
#include "kernels/grouped/nhwc_task.cuh"
#include "ptx/load_store.cuh"

namespace cf::grouped {

#if CF_SM90
// What a warp has of y in a strip: two units of pixels in the channels of a chunk, some of which
// may not exist.
struct WarpPlace {
    const Tiling &tiling;
    int unit;                      // the first
    int channel;                   // of all of y's
    int images, columns, channels; // of the strip, of the strip, from the warp's first on

    __device__ __forceinline__ WarpPlace(const Tiling &tiling, const Strip &strip, int unit,
                                         int channel)
        : tiling(tiling), unit(unit), channel(channel),
          images(min(tiling.images, tiling.n - strip.n)),
          columns(min(tiling.columns, tiling.q - strip.column)), channels(tiling.c - channel) {}
};

// A pixel of the present row and the first of some channels: elements behind the strip's first
// pixel and the warp's first channel.
struct LanePlace {
    uint32_t offset;
    int live; // whether they exist

    __device__ __forceinline__ LanePlace(const WarpPlace &warp, int pixel, int of_chunk) {
        const Tiling &tiling = warp.tiling;
        const int unit = warp.unit + pixel / UnitPixels;
        const int image = tiling.by_units.quotient(unit);
        const int column = (unit - image * tiling.units) * UnitPixels + pixel % UnitPixels;
        offset = (image * tiling.p * tiling.q + column) * tiling.c + of_chunk;
        live = image < warp.images && column < warp.columns && of_chunk < warp.channels;
    }
    // Worked out once.
    __device__ __forceinline__ void keep_both() {
        keep(offset);
        keep(live);
    }
};

// The oldest row of sums, for core/fragment_epilogue.cuh.
template <class Shape>
struct OutputMap {
    Sums<Shape> &sums;
    const WarpPlace &warp;
    int64_t row; // where the strip's row begins in y, at the warp's channels
    int lane;

    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
#pragma unroll
        for (int tile = 0; tile < Shape::Tiles; ++tile)
#pragma unroll
            for (int e = 0; e < 2; ++e)
                body(warp.channel + tile * TileChannels + channel_of_lane(lane) + e, Constant<2>(),
                     [&](int unit) -> float & { return sums.oldest(tile, 2 * unit + e); });
    }
    template <class T, class Body>
    __device__ __forceinline__ void for_runs(T *tensor, Body body) {
#pragma unroll
        for (int unit = 0; unit < 2; ++unit)
#pragma unroll
            for (int tile = 0; tile < Shape::Tiles; ++tile) {
                const LanePlace at(warp, unit * UnitPixels + row_of_lane(lane),
                                   tile * TileChannels + channel_of_lane(lane));
                body(Constant<2>(), tensor + row + at.offset, at.live,
                     [&](int e) -> float & { return sums.oldest(tile, 2 * unit + e); });
            }
    }
};

// A row's stores by a warp. f32 leaves as it is: four lanes have a sector.
template <class Shape, bool Staged = Shape::Size == 2>
struct RowStore {
    using Element = typename Shape::Element;
    LanePlace first, second; // of the first tile

    __device__ __forceinline__ RowStore(const WarpPlace &warp, uint32_t, int lane)
        : first(warp, row_of_lane(lane), channel_of_lane(lane)),
          second(warp, UnitPixels + row_of_lane(lane), channel_of_lane(lane)) {
        first.keep_both();
        second.keep_both();
    }
    __device__ __forceinline__ void store(OutputMap<Shape> map, Element *y) const {
#pragma unroll
        for (int tile = 0; tile < Shape::Tiles; ++tile) {
            const int channel = channel_of_lane(map.lane) + tile * TileChannels;
#pragma unroll
            for (int unit = 0; unit < 2; ++unit) {
                const LanePlace &at = unit ? second : first;
                const float v[2] = {map.sums.oldest(tile, 2 * unit),
                                    map.sums.oldest(tile, 2 * unit + 1)};
                store_neighbours<Element>(
                    reinterpret_cast<char *>(y + map.row + at.offset + tile * TileChannels),
                    at.live && channel < map.warp.channels, v);
            }
        }
    }
};

// 16 bits: a lane stores 16 bytes, of neighbours of a pixel as many as a chunk has.
template <class Shape>
struct RowStore<Shape, true> {
    using Element = typename Shape::Element;
    static constexpr int Tiles = Shape::Tiles, Stores = Tiles / 2;
    static_assert(Tiles == 2 || Tiles == 4, "stmatrix takes two, and a lane stores one or two");
    LanePlace first, last;
    uint32_t to, from; // addresses of stmatrix, of the lane's first 16 bytes

    static __device__ __forceinline__ LanePlace place(const WarpPlace &warp, int i, int lane) {
        return {warp, i * (32 / Tiles) + lane / Tiles, lane % Tiles * TileChannels};
    }
    __device__ __forceinline__ RowStore(const WarpPlace &warp, uint32_t staged, int lane)
        : first(place(warp, 0, lane)), last(place(warp, Stores - 1, lane)),
          to(staged + staged_offset(lane % 16, next_of_lane(lane), Tiles)),
          from(staged + staged_offset(lane / Tiles, lane % Tiles, Tiles)) {
        first.keep_both();
        last.keep_both();
        keep(to);
        keep(from);
    }
    __device__ __forceinline__ void store_piece(const LanePlace &at, uint32_t from,
                                                Element *row) const {
        const uint4 v = load_shared4(from);
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
        store_if(at.live, reinterpret_cast<char *>(row + at.offset), words);
    }
    __device__ __forceinline__ void store(OutputMap<Shape> map, Element *y) const {
#pragma unroll
        for (int tile = 0; tile < Tiles; tile += 2) {
            uint32_t words[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                words[i] = pack<Element>(map.sums.oldest(tile + i / 2, i % 2 * 2),
                                         map.sums.oldest(tile + i / 2, i % 2 * 2 + 1));
            store_matrices(further_piece(to, tile), words);
        }
        __syncwarp();
        store_piece(first, from, y + map.row);
        if constexpr (Stores == 2)
            store_piece(last, from + 32 * PieceBytes, y + map.row);
        __syncwarp();
    }
};

template <class Shape>
__device__ __forceinline__ void finish_row(const RowStore<Shape> &to, OutputMap<Shape> map,
                                           typename Shape::Element *y, const Finish &finish) {
    const Tiling &tiling = map.warp.tiling;
    // One branch where there is nothing to do.
    if (tiling.finishes) {
        finish_fragment<typename Shape::Element>(finish, tiling.c, map);
        map.sums.activate_oldest(tiling.activation);
    }
    to.store(map, y);
}
#endif

} // namespace cf::grouped
