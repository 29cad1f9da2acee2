// Which element lies where in grouped_nhwc: in x's boxes, in fragments, in the packed filter, in
// what is staged of y. Arithmetic on numbers, the same on the host.
//
// A product's rows are pixels, its columns 8 output channels: a tile. The sums of a tile run over a
// set of neighbouring input channels: those of its group or, where groups have fewer than 8, of the
// groups that its 8 output channels belong to, with zeros in the filter between them. A set has 16
// bytes of a pixel (8 channels of 16 bits), 32, 64 or 128; tiles of one group share a set.
//
// A step of a product takes 32 bytes of each row: two neighbouring taps of a set of 16, a tap's 32
// bytes of a wider one. Where a filter has an odd number of columns, the last tap of 16 bytes is
// half a step.
#pragma once

#include <cstdint>

namespace cf::grouped {

constexpr int TileChannels = 8;
constexpr int UnitPixels = 8;   // neighbours in a row of y: half of a product's rows
constexpr int PixelBytes = 128; // of a pixel in a box
constexpr int PieceBytes = 16;  // what ldmatrix reads of a row

// Where a piece of a pixel lies, behind the beginning of its box (core/swizzled_map.cuh).
__host__ __device__ __forceinline__ uint32_t piece_offset(int pixel, int piece) {
    return uint32_t(pixel) * PixelBytes + uint32_t((piece ^ pixel) & 7) * PieceBytes;
}

// Lanes 8 i to 8 i + 7 give the rows of matrix i, which are pixels of a unit: of the first unit,
// of the second, and the same of what a step has next along the sum.
__host__ __device__ __forceinline__ int unit_of_lane(int lane) { return lane / 8 % 2; }
__host__ __device__ __forceinline__ int pixel_of_lane(int lane) { return lane % 8; }
__host__ __device__ __forceinline__ int next_of_lane(int lane) { return lane / 16; }

// Of the sums, of which a lane has the same of both units: a pixel's place in its unit, and the
// first of two neighbouring channels of a tile.
__host__ __device__ __forceinline__ int row_of_lane(int lane) { return lane / 4; }
__host__ __device__ __forceinline__ int channel_of_lane(int lane) { return lane % 4 * 2; }

// The words of a filter that a lane holds for a warp's tiles, in the order of their numbers: by row
// of the filter, column, 16 bytes of the set, tile, part: a weight of three products is two numbers
// of tf32. In memory the same word of all lanes lies together.
struct FilterWords {
    int r, s, set_bytes, tiles, size; // of an element
    int parts;

    __host__ __device__ __forceinline__ int pieces() const { return set_bytes / PieceBytes; }
    __host__ __device__ __forceinline__ int count() const {
        return r * s * pieces() * tiles * parts;
    }
    __host__ __device__ __forceinline__ int chunk_channels() const { return tiles * TileChannels; }
    // The first channel of the set that an output channel is a sum over.
    __host__ __device__ __forceinline__ int set_channel(int k) const {
        const int channels = set_bytes / size;
        return k / channels * channels;
    }
};

// An element of the filter.
struct FilterPlace {
    int k, c, r, s; // c among all input channels
};

// Element e of word `word` that a lane holds for chunk number `chunk`, so many neighbouring tiles.
__host__ __device__ __forceinline__ FilterPlace filter_place(const FilterWords &of, int chunk,
                                                             int word, int lane, int e) {
    FilterPlace place;
    word /= of.parts;
    const int tile = word % of.tiles, tap = word / of.tiles / of.pieces();
    const int piece = word / of.tiles % of.pieces();
    place.k = chunk * of.chunk_channels() + tile * TileChannels + lane / 4;
    place.c = of.set_channel(place.k) + (piece * PieceBytes + lane % 4 * 4) / of.size + e;
    place.r = tap / of.s, place.s = tap % of.s;
    return place;
}

// Where 8 channels of a pixel lie in what a warp stages of y: 16 pixels of so many tiles, each
// eight of which, next to each other in pixels or in tiles, lie in all banks.
__host__ __device__ __forceinline__ uint32_t staged_offset(int pixel, int tile, int tiles) {
    const int swapped = tile ^ (pixel * tiles / 8 & (tiles - 1));
    return uint32_t(pixel * tiles + swapped) * PieceBytes;
}

} // namespace cf::grouped
