// The main loop of grouped_nhwc: a warp's sums, of 16 pixels in some tiles of output channels.
#pragma once

#include "core/epilogue.cuh"
#include "kernels/grouped/nhwc_plan.cuh"
#include "ptx/load_store.cuh"
#include "ptx/mma_half.cuh"

namespace cf::grouped {

// What a kernel is compiled for. Filter and stride are 0 where they are for any.
template <class ElementOf, int SetBytesOf, int FilterOf, int StrideOf>
struct Shape {
    using Element = ElementOf;
    static constexpr int SetBytes = SetBytesOf, Filter = FilterOf, Stride = StrideOf;
    static constexpr int Size = sizeof(Element);
    static constexpr int Tiles = tiles_of(SetBytes, Filter);
    static constexpr int TilesOfSet =
        SetBytes / Size / TileChannels < Tiles ? SetBytes / Size / TileChannels : Tiles;
    static constexpr int Sets = Tiles / TilesOfSet, Pieces = SetBytes / PieceBytes;
    static constexpr bool TwoTaps = Pieces == 1; // to a step
    static constexpr int Rows = Filter ? rows_of(Filter, Stride) : 1;
    static_assert(Sets * TilesOfSet == Tiles && (!TwoTaps || Sets % 2 == 0),
                  "the last taps of two sets are loaded together");
};

// Where a lane reads x for its warp: addresses of ldmatrix.
struct LanePixels {
    int pixel;    // of an item, where the warp's row begins
    int piece;    // first of its channels
    uint32_t box; // in shared memory

    __device__ __forceinline__ uint32_t at(int pixels_behind, int next_piece) const {
        return box + piece_offset(pixel + pixels_behind, piece ^ next_piece);
    }
};

// Pieces beside each other are as many numbers, the first a multiple of how many: each is the first
// one with some bits turned.
__device__ __forceinline__ uint32_t further_piece(uint32_t at, int piece) {
    return at ^ uint32_t(piece * PieceBytes);
}

// What an output row takes of a row of x: body(set, piece or column of the filter, matrices) for
// each step, in order, and last(set, matrices) for two sets' last taps.
template <class Shape, class Step, class Last>
__device__ __forceinline__ void for_taps(const LanePixels &lane_pixels, int pixels, int taps,
                                         int tap_step, int lane, Step step, Last last) {
    uint32_t x[4];
    if constexpr (Shape::TwoTaps) {
#pragma unroll
        for (int s = 0; s + 1 < taps; s += 2) {
            const uint32_t at = lane_pixels.at(pixels + (s + next_of_lane(lane)) * tap_step, 0);
#pragma unroll
            for (int set = 0; set < Shape::Sets; ++set) {
                load_matrices(x, further_piece(at, set));
                step(s, set, 0, x);
            }
        }
        if (taps % 2 == 0)
            return;
        const uint32_t at = lane_pixels.at(pixels + (taps - 1) * tap_step, next_of_lane(lane));
#pragma unroll
        for (int set = 0; set < Shape::Sets; set += 2) {
            load_matrices(x, further_piece(at, set));
            last(taps - 1, set, x);
        }
    } else {
#pragma unroll
        for (int s = 0; s < taps; ++s) {
            const uint32_t at = lane_pixels.at(pixels + s * tap_step, next_of_lane(lane));
#pragma unroll
            for (int set = 0; set < Shape::Sets; ++set)
#pragma unroll
                for (int piece = 0; piece < Shape::Pieces; piece += 2) {
                    load_matrices(x, further_piece(at, set * Shape::Pieces + piece));
                    step(s, set, piece, x);
                }
        }
    }
}

// The sums of a warp in the rows of y that the present rows of x meet, the oldest row last.
template <class Shape>
struct Sums {
    using Tile = Fragment<typename Shape::Element, float>;
    static constexpr int Rows = Shape::Rows, Tiles = Shape::Tiles;
    Tile value[Rows][Tiles];

    __device__ __forceinline__ float &oldest(int tile, int i) {
        return value[Rows - 1][tile].value[i];
    }
    // What the next rows of x do if they are zeros.
    __device__ __forceinline__ void move_up() {
#pragma unroll
        for (int a = Rows - 1; a >= 0; --a)
#pragma unroll
            for (int tile = 0; tile < Tiles; ++tile)
                value[a][tile] = a > 0 ? value[a > 0 ? a - 1 : 0][tile] : Tile();
    }
    // The last taps of two sets that have one to half a step.
    __device__ __forceinline__ void add_last(int row, int set, const uint32_t (&x)[4], uint32_t w,
                                             uint32_t next_w) {
        if constexpr (Shape::TwoTaps) {
            add_half(value[row][set], x[0], x[1], w);
            add_half(value[row][set + 1], x[2], x[3], next_w);
        }
    }
    // Other activations than limits.
    __device__ __forceinline__ void activate_oldest(int activation) {
        if (activation == CF_ACT_NONE)
            return;
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                oldest(tile, i) = activate_keeping_nan(activation, oldest(tile, i));
    }
};

// One filter size: the filter is in registers, a row of x is read once, and added to all rows of
// sums that it meets.
template <class Shape>
struct Sliding {
    static constexpr int R = Shape::Filter, Stride = Shape::Stride;
    static constexpr int Pieces = Shape::Pieces, Tiles = Shape::Tiles, Rows = Shape::Rows;
    uint32_t filter[R][R][Pieces][Tiles];

    __device__ __forceinline__ void load(const Tiling &, const uint32_t *packed, int chunk,
                                         int lane) {
        const uint32_t *from = packed + int64_t(chunk) * (R * R * Pieces * Tiles * 32) + lane;
        uint32_t *to = &filter[0][0][0][0];
#pragma unroll
        for (int i = 0; i < R * R * Pieces * Tiles; ++i)
            to[i] = __ldg(from + i * 32);
    }
    // The next rows of x, as many as the stride, from pixel `pixels` of the item on. Rows of sums
    // move up by one with the first product of each, which writes to the next one's registers; the
    // oldest is whole behind it.
    __device__ __forceinline__ void step(Sums<Shape> &sums, const LanePixels &lane_pixels,
                                         int pixels, int width, int lane) const {
#pragma unroll
        for (int i = 0; i < Stride; ++i) {
            for_taps<Shape>(
                lane_pixels, pixels + i * width, R, 1, lane,
                [&](int s, int set, int piece, const uint32_t(&x)[4]) {
#pragma unroll
                    for (int a = Rows - 1; a >= 0; --a) {
                        const int r = Stride * a + i;
                        if (r >= R)
                            continue;
#pragma unroll
                        for (int j = 0; j < Shape::TilesOfSet; ++j) {
                            const int tile = set * Shape::TilesOfSet + j;
                            const bool first = i == 0 && s == 0 && piece == 0;
                            auto sum = !first  ? sums.value[a][tile]
                                       : a > 0 ? sums.value[a > 0 ? a - 1 : 0][tile]
                                               : typename Sums<Shape>::Tile();
                            const uint32_t w[2] = {filter[r][s][piece][tile],
                                                   Shape::TwoTaps ? filter[r][s + 1][piece][tile]
                                                                  : filter[r][s][piece + 1][tile]};
                            sum.add(x, w);
                            sums.value[a][tile] = sum;
                        }
                    }
                },
                [&](int s, int set, const uint32_t(&x)[4]) {
#pragma unroll
                    for (int a = Rows - 1; a >= 0; --a) {
                        const int r = Stride * a + i;
                        if (r >= R)
                            continue;
                        sums.add_last(a, set, x, filter[r][s][0][set], filter[r][s][0][set + 1]);
                    }
                });
        }
    }
};

// Any filter: a row of y by itself, with the filter's fragments from memory.
template <class Shape>
struct Streamed {
    static constexpr int ColumnWords = Shape::Pieces * Shape::Tiles * 32; // of all lanes
    const uint32_t *filter;

    __device__ __forceinline__ void load(const Tiling &tiling, const uint32_t *packed, int chunk,
                                         int lane) {
        filter = packed + int64_t(chunk) * (tiling.r * tiling.s * ColumnWords) + lane;
    }
    __device__ __forceinline__ void sum_row(Sums<Shape> &sums, const LanePixels &lane_pixels,
                                            int pixels, const Tiling &tiling, int lane) const {
        sums = {};
        const uint32_t *row = filter;
#pragma unroll 1
        for (int r = 0; r < tiling.r; ++r) {
            for_taps<Shape>(
                lane_pixels, pixels, tiling.s, tiling.tap_step, lane,
                [&](int s, int set, int piece, const uint32_t(&x)[4]) {
                    const uint32_t *from = row + s * ColumnWords + piece * Shape::Tiles * 32;
                    const int next = Shape::TwoTaps ? ColumnWords : Shape::Tiles * 32;
#pragma unroll
                    for (int j = 0; j < Shape::TilesOfSet; ++j) {
                        const int tile = set * Shape::TilesOfSet + j;
                        const uint32_t w[2] = {__ldg(from + tile * 32),
                                               __ldg(from + tile * 32 + next)};
                        sums.value[0][tile].add(x, w);
                    }
                },
                [&](int s, int set, const uint32_t(&x)[4]) {
                    const uint32_t *from = row + s * ColumnWords + set * 32;
                    sums.add_last(0, set, x, __ldg(from), __ldg(from + 32));
                });
            row += tiling.s * ColumnWords;
            pixels += tiling.row_step;
        }
    }
};

} // namespace cf::grouped
