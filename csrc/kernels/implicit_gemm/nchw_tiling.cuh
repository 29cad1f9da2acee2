// What a tile of implicit_gemm_nchw is beside the family's: its loaders, its stores, and what a
// warp moves at a time. Planners fill it in, kernels read it. Tiles, rings and the filter's lines
// are those of implicit_gemm_nhwc.
#pragma once

#include "kernels/implicit_gemm/tiling.cuh"

namespace cf::implicit_nchw {

using namespace implicit_gemm;

constexpr int ConsumerWarps = Warpgroups * Warpgroup / 32;
// Warps that bring x, of one or two warpgroups: two where sums leave them registers. The last one
// asks for weights; where a block keeps these, it brings x as well.
constexpr int ManyLoaders = 200;
__host__ __device__ constexpr int loader_warps(int width) { return width <= ManyLoaders ? 8 : 4; }
constexpr int StraightLoaders = 4; // of which most do nothing: registers move by warpgroups
__host__ __device__ constexpr int threads_of(int loaders) { return (ConsumerWarps + loaders) * 32; }
constexpr int LinePieces = LineBytes / 16;
constexpr int BatchWords = 32; // that a lane of a loader holds of x

// Pixels of a product that kernels are compiled for: sums beside what stores them have fewer
// registers than in NHWC.
using WideWidths = std::integer_sequence<int, 176, 192, 200, 208, 216, 224, 232>;
// Those of x as it lies.
using StraightWidths = std::integer_sequence<int, 32, 64, 96, 128, 160, 192, 200, 224>;

// What a loader and the store know beside the tiling. A vector is some neighbours in a row of x,
// which begin at a multiple of their number; a lane loads those of the channels of 16 bytes of a
// line, and turns them.
struct Planes {
    // x: rows of boxes as vectors, of whose pixels some may lie in front of the row, and behind.
    int vector, row_vectors, vectors, batches;
    Divisor by_row_vectors;
    int loaders;            // warps that bring them
    int step;               // in a row of x, from column to column of a box
    int halves, half_lines; // 1 where even and odd columns lie apart; lines from those to these
    int last_half;          // 1 where both are there
    int c, h, w;
    int64_t x_plane, x_image; // elements
    // y: elements of a channel of a tile that are neighbours there, and are stored together.
    int unit, units;
    Divisor by_tile_pixels, by_columns; // of an image's part of the tile, of a row of it
    int tile_pixels;
    int64_t y_plane, y_image;
    int straight; // x is multiplied as it lies in memory
    int paired;   // whether neighbours in a product's columns are neighbours at an even place
    int direct;   // pairs of them are stored from registers
};

// Where the lines of a tap begin that is so many pixels to the right.
__host__ __device__ __forceinline__ uint32_t tap_line(const Planes &planes, int behind) {
    return uint32_t((behind & planes.halves) * planes.half_lines + (behind >> planes.halves)) *
           LineBytes;
}

// Of all sums of 8 channels by a warp in 16 bits, 4 in f32. Rows of channels are an odd number of
// 16 bytes apart, of 32 in f32: fragments lie in all banks.
__host__ __device__ constexpr int staged_bytes(int width) { return (width / 8 | 1) * LineBytes; }
// And where each column of a product goes there, in words of two, a row for each lane that has
// others: of an odd number of 16 bytes, to lie in other banks.
__host__ __device__ constexpr int places_bytes(int width) { return ((width / 8 + 3) / 4 | 1) * 16; }
// Of a pair of a product's columns that is stored from registers.
constexpr int PairPlaceBytes = 8;
// All of it lies behind the weights, and rows of a product that are no channels read on into it.
__host__ __device__ constexpr int staging_bytes(int width) {
    const int staged = ConsumerWarps * staged_bytes(width) + 4 * places_bytes(width);
    return staged > RowChannels * LineBytes ? staged : RowChannels * LineBytes;
}
// Where parts of sums meet: slices of a warpgroup's channels, of each 8 columns of a product by 8,
// two of these by a warp.
constexpr int SliceChannels = 8, Slices = RowChannels / SliceChannels, SliceShift = 3;
static_assert(1 << SliceShift == Slices, "its logarithm");
constexpr int PairBytes = 32 * 16;
__host__ __device__ constexpr int eight_pairs(int width) { return (width / 8 + 1) / 2; }
inline uint32_t slices_bytes(const Tiling &t, int width) {
    return t.parts > 1 ? Slices * Warpgroups * eight_pairs(width) * PairBytes : 0;
}
// 16 bytes of a line that a lane loads at a time, in vectors of so many pixels.
__host__ __device__ constexpr int pieces_in_flight(int vector, int element) {
    const int words = 16 / element * (vector * element < 4 ? 1 : vector * element / 4);
    return LinePieces / vector * words < BatchWords ? LinePieces / vector : BatchWords / words;
}

// Boxes of x that are multiplied as they lie: 64 pixels of 64 channels.
constexpr int StraightPixels = 64, StraightBytes = StraightPixels * LineBytes;

} // namespace cf::implicit_nchw
