// A warp's unit in depthwise_planar: some rows of y of a channel, multiplied tile by tile,
// finished, and put to where they leave from.
//
// A product has rows of y as rows and pixels as columns, and sums over 16 rows of x: for each of
// the filter's columns its weights are a band matrix, and pixels are multiplied as they lie. A unit
// has 8 pixels of a row for each of its tiles. Which of them are a tile's is free: tile t has pixel
// n * tiles + t in column n. So those that a lane reads of a row lie beside each other, those that
// it has sums of as well, and what the filter's next column meets is the next tile: only beside the
// first and the last it is another lane's.
#pragma once

#include "core/fragment_finish.cuh"
#include "kernels/depthwise/planar_filter.cuh"
#include "ptx/from_here.cuh"
#include "ptx/mma.cuh"
#include "ptx/predicated_shared.cuh"

namespace cf::depthwise_planar {

// What a kernel is compiled for.
template <class Element_, int Side_, int Stride_, int Tiles_>
struct Shape {
    using Element = Element_;
    static constexpr int Side = Side_, Pad = Side / 2, Stride = Stride_;
    static constexpr int Tiles = Tiles_, TilesOfY = Tiles / Stride;
    static constexpr int Planes = planes_of(Tiles, Stride);
    static constexpr int Behind = Pad + 1 - Stride; // tiles that are met behind the last
    static constexpr int Runs = 2 / Stride;         // rows of y of which a lane has sums
    static constexpr int Edge = edge_of(Side, Tiles);
};

// A channel's bands.
template <class Shape>
struct Filter {
    uint32_t word[Shape::Side][4];

    // From the channel's packed filter, where the lane's four words lie so far behind the first.
    __device__ __forceinline__ void load(uint32_t packed, const uint32_t (&pairs)[4]) {
#pragma unroll
        for (int column = 0; column < Shape::Side; ++column)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                word[column][i] = load_shared(packed + pairs[i] + column * 4);
    }
};

// Bytes from a packed filter's first place to those of a lane's words: rows of the product below
// each other in a pair of words, then rows of x.
template <class Shape>
__device__ __forceinline__ void set_pairs(const Tiling &tiling, int lane, uint32_t (&pairs)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int row_of_y = lane / 4 + i % 2 * 8;
        const int row_of_x = lane % 4 * tiling.lane_rows + (i < 2 ? 0 : tiling.row_of[1]);
        const int row = row_of_x + tiling.lift - Shape::Stride * row_of_y;
        // Not to be worked out again for each channel.
        pairs[i] = from_here(place_of(row, Shape::Side, tiling.gap) * Shape::Side * 4);
    }
}

// Which lanes have another so many columns before or behind theirs: all bits, or none.
template <class Shape>
struct Neighbours {
    static constexpr int Most = Shape::Edge; // columns away
    uint32_t before[Most], behind[Most];

    // Numbers whose past the compiler does not know: it would branch around the shuffles.
    __device__ __forceinline__ void set(int lane) {
#pragma unroll
        for (int i = 0; i < Most; ++i) {
            before[i] = from_here(lane < 4 * (i + 1) ? 0 : -1);
            behind[i] = from_here(lane < 32 - 4 * (i + 1) ? -1 : 0);
        }
    }
};

// A unit's pixels, as columns of the products, by tile: those of x, and those that are another
// lane's before and behind them.
template <class Shape>
struct Pixels {
    static constexpr int Tiles = Shape::Tiles, Pad = Shape::Pad, Behind = Shape::Behind;
    uint32_t word[Pad + Tiles + Behind][2];

    // From where the lane's first row has its first pixel; that row is `row` of the image. What is
    // above and below the image is zero.
    __device__ __forceinline__ void load(const Tiling &tiling, uint32_t from, int row,
                                         const Neighbours<Shape> &neighbours) {
        load_half<0>(tiling, from, row);
        load_half<1>(tiling, from, row);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int i = 0; i < Pad; ++i) {
                const int columns = (Pad - i + Tiles - 1) / Tiles; // before the lane's
                word[i][half] = __shfl_up_sync(~0u, word[i + columns * Tiles][half], 4 * columns) &
                                neighbours.before[columns - 1];
            }
#pragma unroll
            for (int i = 0; i < Behind; ++i) {
                const int columns = i / Tiles + 1;
                word[Pad + Tiles + i][half] =
                    __shfl_down_sync(~0u, word[Pad + i % Tiles][half], 4 * columns) &
                    neighbours.behind[columns - 1];
            }
        }
    }

  private:
    template <int Half>
    __device__ __forceinline__ void load_half(const Tiling &tiling, uint32_t from, int row) {
        constexpr int Words = Tiles / 2;
        const auto read = [&](int i, uint32_t(&v)[Words]) {
            const int below = i > 0 ? tiling.row_of[i - 1] : 0;
            const bool live = unsigned(row + below) < unsigned(tiling.strips.h);
            load_shared_if(live, from + (i > 0 ? tiling.bytes_to[i - 1] : 0), v);
        };
        uint32_t first[Words], second[Words];
        read(2 * Half, first);
        read(2 * Half + 1, second);
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile)
            word[Pad + tile][Half] =
                __byte_perm(first[tile / 2], second[tile / 2], tile % 2 == 0 ? 0x5410 : 0x7632);
    }
};

// Of a unit's channels.
template <class Shape>
struct Sums {
    Fragment<typename Shape::Element, float> tile[Shape::Planes][Shape::TilesOfY];

    __device__ __forceinline__ void multiply(int plane, const Filter<Shape> &filter,
                                             const Pixels<Shape> &pixels) {
#pragma unroll
        for (int column = 0; column < Shape::Side; ++column)
#pragma unroll
            for (int i = 0; i < Shape::TilesOfY; ++i)
                tile[plane][i].add(filter.word[column], pixels.word[i * Shape::Stride + column]);
    }
};

// Where a lane's part of a unit lies.
template <class Shape>
struct UnitPlace {
    int image, channel, channels; // the first one; those that exist
    int row, column;              // of y: the unit's first
    bool live_rows[Shape::Runs];  // whether a run is the unit's to store,
    bool live_columns[2];         // and a column of a run
    uint32_t to;                  // the first run of the first channel, in shared memory
};

// A lane's finished sums, for core/fragment_epilogue.cuh: of a channel's run two columns, with a
// pixel of each tile.
template <class Shape>
struct OutputMap {
    static constexpr int Planes = Shape::Planes, Tiles = Shape::TilesOfY, Runs = Shape::Runs;
    static constexpr int RowsOfRun = 8;
    Sums<Shape> &sums;
    const Tiling &tiling;
    const UnitPlace<Shape> &unit;
    int lane;

    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
#pragma unroll
        for (int plane = 0; plane < Planes; ++plane)
            body(from_here(unit.channel) + plane, Constant<Tiles * Runs * 2>(),
                 [&](int i) -> float & {
                     return sums.tile[plane][i / (Runs * 2)].value[i % (Runs * 2)];
                 });
    }
    // Calls body(plane, run, column, live).
    template <class Body>
    __device__ __forceinline__ void for_columns(Body body) const {
#pragma unroll
        for (int plane = 0; plane < Planes; ++plane)
#pragma unroll
            for (int run = 0; run < Runs; ++run)
#pragma unroll
                for (int column = 0; column < 2; ++column)
                    body(plane, run, column,
                         plane < unit.channels && unit.live_rows[run] && unit.live_columns[column]);
    }
    template <class T, class Body>
    __device__ __forceinline__ void for_runs(T *tensor, Body body) {
        const plane_strips::Tiling &strips = tiling.strips;
        const int64_t first = int64_t(unit.image) * strips.c + from_here(unit.channel);
        for_columns([&](int plane, int run, int column, bool live) {
            const int64_t row = (first + plane) * strips.p + unit.row + lane / 4 + run * RowsOfRun;
            T *from = tensor + row * strips.q + unit.column + (lane % 4 * 2 + column) * Tiles;
            body(Constant<Tiles>(), from, live,
                 [&](int i) -> float & { return sums.tile[plane][i].value[run * 2 + column]; });
        });
    }
    __device__ __forceinline__ void store() const {
        const plane_strips::Tiling &strips = tiling.strips;
        for_columns([&](int plane, int run, int column, bool live) {
            float v[Tiles];
#pragma unroll
            for (int tile = 0; tile < Tiles; ++tile)
                v[tile] = sums.tile[plane][tile].value[run * 2 + column];
            store_neighbours<typename Shape::Element>(unit.to + plane * strips.y_pitch +
                                                          run * RowsOfRun * strips.y_row_bytes +
                                                          column * Tiles * Size,
                                                      live, v);
        });
    }
};

} // namespace cf::depthwise_planar
