// The main loop of grouped_nhwc: a warp's sums, of 16 pixels in some tiles of output channels.
#pragma once

#include "core/epilogue.cuh"
#include "kernels/grouped/nhwc_plan.cuh"
#include "ptx/mma_half.cuh"

namespace cf::grouped {

// What a kernel is compiled for. Filter and stride are 0 where they are for any.
template <class ElementOf, int SetBytesOf, int FilterOf, int StrideOf, int ProductsOf = 1,
          int TilesOf = tiles_of(SetBytesOf, FilterOf)>
struct Shape {
    using Element = ElementOf;
    static constexpr int SetBytes = SetBytesOf, Filter = FilterOf, Stride = StrideOf;
    static constexpr int Products = ProductsOf, Parts = parts_of(Products);
    static constexpr int Size = sizeof(Element);
    static constexpr int Tiles = TilesOf;
    static constexpr int TilesOfSet =
        SetBytes / Size / TileChannels < Tiles ? SetBytes / Size / TileChannels : Tiles;
    static constexpr int Sets = Tiles / TilesOfSet, Pieces = SetBytes / PieceBytes;
    static constexpr bool TwoTaps = Pieces == 1; // to a step
    __host__ __device__ static constexpr int next_set(int set) { return Sets > 1 ? set + 1 : set; }
    static constexpr int Rows = Filter ? rows_of(Filter, Stride) : 1;
    static_assert(Sets * TilesOfSet == Tiles && (!TwoTaps || Sets % 2 == 0 || Sets == 1),
                  "the last taps of two sets are loaded together");
    static_assert(Products == 1 || (Size == 4 && !TwoTaps), "three products are of f32");
};

// Pieces beside each other are as many numbers, the first a multiple of how many: each is the first
// one with some bits turned.
__device__ __forceinline__ uint32_t further_piece(uint32_t at, int piece) {
    return at ^ uint32_t(piece * PieceBytes);
}

// Where a lane reads x for its warp: addresses of ldmatrix.
struct LanePixels {
    int pixel;    // of an item, where the warp's row begins
    int piece;    // first of its channels
    uint32_t box; // in shared memory

    __device__ __forceinline__ uint32_t at(int pixels_behind, int next_piece) const {
        return box + piece_offset(pixel + pixels_behind, piece ^ next_piece);
    }
    __device__ __forceinline__ uint32_t further(uint32_t at, int piece) const {
        return further_piece(at, piece);
    }
};

// What an output row takes of a row of x: body(set, piece or column of the filter, matrices) for
// each step, in order, and last(set, matrices) for two sets' last taps, or one's.
template <class Shape, class Pixels, class Step, class Last>
__device__ __forceinline__ void for_taps(const Pixels &lane_pixels, int pixels, int taps,
                                         int tap_step, int lane, Step step, Last last) {
    uint32_t x[4];
    if constexpr (Shape::TwoTaps) {
#pragma unroll
        for (int s = 0; s + 1 < taps; s += 2) {
            const uint32_t at = lane_pixels.at(pixels + (s + next_of_lane(lane)) * tap_step, 0);
#pragma unroll
            for (int set = 0; set < Shape::Sets; ++set) {
                load_matrices(x, lane_pixels.further(at, set));
                step(s, set, 0, x);
            }
        }
        if (taps % 2 == 0)
            return;
        const uint32_t at = lane_pixels.at(pixels + (taps - 1) * tap_step,
                                           Shape::Sets > 1 ? next_of_lane(lane) : 0);
#pragma unroll
        for (int set = 0; set < Shape::Sets; set += 2) {
            load_matrices(x, lane_pixels.further(at, set));
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
                    load_matrices(x, lane_pixels.further(at, set * Shape::Pieces + piece));
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
        if constexpr (Shape::TwoTaps)
            add_half(value[row][set], x[0], x[1], w);
        if constexpr (Shape::TwoTaps && Shape::Sets > 1)
            add_half(value[row][set + 1], x[2], x[3], next_w);
    }
    // What tensor cores summed apart; the first of a step finds the sum one row before.
    __device__ __forceinline__ void add_part(int row, int tile, const Tile &part, bool first) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            value[row][tile].value[i] =
                !first    ? value[row][tile].value[i] + part.value[i]
                : row > 0 ? value[row > 0 ? row - 1 : 0][tile].value[i] + part.value[i]
                          : part.value[i];
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

// Parts of x or the filter: one, or hi, rounded to 11 bits of mantissa by integers, and lo, what is
// left of an f32. Of three products lo lo is left out. The tensor core truncates its sums, so those
// of a few steps are summed there and then added to an f32 sum.
template <int N>
struct Split {
    uint32_t hi[N], lo[N];

    __device__ __forceinline__ Split(const uint32_t (&bits)[N]) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            hi[i] = (bits[i] + 0x1000) & 0xffffe000;
            lo[i] = __float_as_uint(__uint_as_float(bits[i]) - __uint_as_float(hi[i]));
        }
    }
};

// One filter size: the filter is in registers, a row of x is read once, and added to all rows of
// sums that it meets.
template <class Shape>
struct Sliding {
    static constexpr int R = Shape::Filter, Stride = Shape::Stride, Parts = Shape::Parts;
    static constexpr int Pieces = Shape::Pieces, Tiles = Shape::Tiles, Rows = Shape::Rows;
    // Steps of three products that tensor cores sum alone: of short sums each by itself.
    static constexpr int Together = Pieces == 2 ? 1 : 3;
    static_assert(Parts == 1 || R * Pieces / 2 % Together == 0, "a row of the filter ends one");
    uint32_t filter[R][R][Pieces][Tiles][Parts];

    template <class Tiling>
    __device__ __forceinline__ void load(const Tiling &, const uint32_t *packed, int chunk,
                                         int lane) {
        constexpr int Words = R * R * Pieces * Tiles * Parts;
        const uint32_t *from = packed + int64_t(chunk) * (Words * 32) + lane;
        uint32_t *to = &filter[0][0][0][0][0];
#pragma unroll
        for (int i = 0; i < Words; ++i)
            to[i] = __ldg(from + i * 32);
    }
    // The words of B in a step.
    template <class Body>
    __device__ __forceinline__ void with_words(int r, int s, int piece, int tile, int part,
                                               Body body) const {
        const uint32_t w[2] = {filter[r][s][piece][tile][part],
                               Shape::TwoTaps ? filter[r][s + 1][piece][tile][part]
                                              : filter[r][s][piece + 1][tile][part]};
        body(w);
    }
    // Calls body(row of sums, filter row) for those that row i of a step meets, the oldest first.
    template <class Body>
    static __device__ __forceinline__ void for_rows(int i, Body body) {
#pragma unroll
        for (int a = Rows - 1; a >= 0; --a)
            if (Stride * a + i < R)
                body(a, Stride * a + i);
    }
    // A step of one product.
    __device__ __forceinline__ void add_one(Sums<Shape> &sums, int i, int s, int set, int piece,
                                            const uint32_t (&x)[4]) const {
        for_rows(i, [&](int a, int r) {
#pragma unroll
            for (int j = 0; j < Shape::TilesOfSet; ++j) {
                const int tile = set * Shape::TilesOfSet + j;
                const bool first = i == 0 && s == 0 && piece == 0;
                auto sum = !first  ? sums.value[a][tile]
                           : a > 0 ? sums.value[a > 0 ? a - 1 : 0][tile]
                                   : typename Sums<Shape>::Tile();
                with_words(r, s, piece, tile, 0, [&](const uint32_t(&w)[2]) { sum.add(x, w); });
                sums.value[a][tile] = sum;
            }
        });
    }
    // A step of three products, and the sums of the last few steps where these end.
    __device__ __forceinline__ void add_three(Sums<Shape> &sums, Sums<Shape> &part, int i, int s,
                                              int set, int piece, const uint32_t (&x)[4]) const {
        const Split<4> of_x(x);
        const int number = (s * Pieces + piece) / 2;
        const bool begins = number % Together == 0, ends = number % Together == Together - 1;
#pragma unroll
        for (int kind = 0; kind < 3; ++kind) // lo hi, hi lo, hi hi
            for_rows(i, [&](int a, int r) {
#pragma unroll
                for (int j = 0; j < Shape::TilesOfSet; ++j) {
                    auto &to = part.value[a][set * Shape::TilesOfSet + j];
                    if (begins && kind == 0)
                        to = {};
                    with_words(
                        r, s, piece, set * Shape::TilesOfSet + j, kind == 1,
                        [&](const uint32_t(&w)[2]) { to.add(kind == 0 ? of_x.lo : of_x.hi, w); });
                }
            });
        if (!ends)
            return;
        for_rows(i, [&](int a, int) {
#pragma unroll
            for (int j = 0; j < Shape::TilesOfSet; ++j) {
                const int tile = set * Shape::TilesOfSet + j;
                sums.add_part(a, tile, part.value[a][tile], i == 0 && number == Together - 1);
            }
        });
    }
    // The next rows of x, as many as the stride, from pixel `pixels` of the item on. Rows of sums
    // move up by one with the first product of each, which writes to the next one's registers; the
    // oldest is whole behind it.
    template <class Pixels>
    __device__ __forceinline__ void step(Sums<Shape> &sums, const Pixels &lane_pixels, int pixels,
                                         int width, int lane) const {
#pragma unroll
        for (int i = 0; i < Stride; ++i) {
            [[maybe_unused]] Sums<Shape> part; // of three products
            for_taps<Shape>(
                lane_pixels, pixels + i * width, R, 1, lane,
                [&](int s, int set, int piece, const uint32_t(&x)[4]) {
                    if constexpr (Shape::Products == 3)
                        add_three(sums, part, i, s, set, piece, x);
                    else
                        add_one(sums, i, s, set, piece, x);
                },
                [&](int s, int set, const uint32_t(&x)[4]) {
                    for_rows(i, [&](int a, int r) {
                        sums.add_last(a, set, x, filter[r][s][0][set][0],
                                      filter[r][s][0][Shape::next_set(set)][0]);
                    });
                });
        }
    }
};

// Any filter: a row of y by itself, with the filter's fragments from memory.
template <class Shape>
struct Streamed {
    static constexpr int Parts = Shape::Parts;
    static constexpr int TileWords = Parts * 32, PieceWords = Shape::Tiles * TileWords;
    static constexpr int ColumnWords = Shape::Pieces * PieceWords; // of all lanes
    const uint32_t *filter;

    template <class Tiling>
    __device__ __forceinline__ void load(const Tiling &tiling, const uint32_t *packed, int chunk,
                                         int lane) {
        filter = packed + int64_t(chunk) * (tiling.r * tiling.s * ColumnWords) + lane;
    }
    // Of three products, those of a step are summed apart.
    static __device__ __forceinline__ void add(Sums<Shape> &sums, int tile, const uint32_t (&x)[4],
                                               const uint32_t *from) {
        const int next = Shape::TwoTaps ? ColumnWords : PieceWords;
        const uint32_t hi[2] = {__ldg(from), __ldg(from + next)};
        if constexpr (Parts == 1) {
            sums.value[0][tile].add(x, hi);
        } else {
            const uint32_t lo[2] = {__ldg(from + 32), __ldg(from + next + 32)};
            const Split<4> of_x(x);
            typename Sums<Shape>::Tile part;
            part.add(of_x.lo, hi);
            part.add(of_x.hi, lo);
            part.add(of_x.hi, hi);
            sums.add_part(0, tile, part, false);
        }
    }
    template <class Pixels, class Tiling>
    __device__ __forceinline__ void sum_row(Sums<Shape> &sums, const Pixels &lane_pixels,
                                            int pixels, const Tiling &tiling, int lane) const {
        sums = {};
        const uint32_t *row = filter;
#pragma unroll 1
        for (int r = 0; r < tiling.r; ++r) {
            for_taps<Shape>(
                lane_pixels, pixels, tiling.s, tiling.tap_step, lane,
                [&](int s, int set, int piece, const uint32_t(&x)[4]) {
                    const uint32_t *from = row + s * ColumnWords + piece * PieceWords;
#pragma unroll
                    for (int j = 0; j < Shape::TilesOfSet; ++j) {
                        const int tile = set * Shape::TilesOfSet + j;
                        add(sums, tile, x, from + tile * TileWords);
                    }
                },
                [&](int s, int set, const uint32_t(&x)[4]) {
                    const uint32_t *from = row + s * ColumnWords;
                    sums.add_last(0, set, x, __ldg(from + set * TileWords),
                                  __ldg(from + Shape::next_set(set) * TileWords));
                });
            row += tiling.s * ColumnWords;
            pixels += tiling.row_step;
        }
    }
};

} // namespace cf::grouped
