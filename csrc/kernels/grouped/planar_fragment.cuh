// Which element lies where in grouped_planar: in the products' sums, and in the packed filter.
//
// A product has output channels as rows and pixels as columns, which is how planes lie. It
// multiplies a filter's columns one by one by the same pixels, and the sums of a column belong to
// pixels beside these: what is shifted are sums, once, when all rows and channels are in them.
//
// A unit has 8 pixels of a row for each of its tiles. Which of them are a tile's is free: tile t
// has pixel n * tiles + t in column n, so that those that a lane reads, of a channel, lie beside
// each other, and those that it has sums of as well. Only at the ends of these a sum is another
// lane's.
//
// Two rows of y below each other, a pair, are sums over four rows of x. Where a group has fewer
// channels than a product has rows, the pair's rows lie below each other in it, and below these, in
// groups of 4, another of the filter's columns. A sum runs over the group's channels in a row of x,
// then over those in the next row, as many as an instruction takes at a time: a step.
#pragma once

#include "core/element.cuh"

#include <cstdint>

namespace cf::grouped_planar {

constexpr int FilterSide = 3, PairRows = 2, PairRowsOfX = PairRows + FilterSide - 1;
constexpr int Columns = 8; // of a product

// Of elements of so many bytes in groups of so many channels.
template <int Size, int Channels>
struct ProductLayout {
    static constexpr int Step = 32 / Size; // of a sum that one instruction adds up
    static constexpr int Steps = Channels * PairRowsOfX / Step;
    // Of a row of x, in groups of 16.
    static constexpr int StepsOfRow = Channels == 16 ? Channels / Step : 1;
    // Fragments of sums, of a tile of pixels: of the filter's outer columns, and of the middle one.
    static constexpr int Middle = Channels == 16 ? PairRows : 1;
    static constexpr int Outer = Channels == 4 ? 1 : 2 * Middle;
    // A lane's sums of one of the filter's columns, by rows of the products: two of each tile.
    static constexpr int Runs = Channels / 4;
    // Fragments of the filter: by fragment of sums and step, or by column, row and step of a row.
    static constexpr int Fragments =
        Channels == 16 ? FilterSide * FilterSide * StepsOfRow : (Outer + Middle) * Steps;
};

// An element of the filter; `r` or `s` may not exist.
struct FilterPlace {
    int k, c, r, s; // of the group's channels
};

// The filter's columns in the order in which they are multiplied. None is the last of groups of 4.
__host__ __device__ __forceinline__ int column_of(int place) {
    return place == 0 ? 0 : place == 1 ? 2 : place == 2 ? 1 : FilterSide;
}

// Row m of the products and element `at` of a step, in a fragment.
template <int Size, int Channels>
__host__ __device__ __forceinline__ FilterPlace filter_place(int fragment, int m, int at) {
    using Of = ProductLayout<Size, Channels>;
    if constexpr (Channels == 16) {
        const int tap = fragment / Of::StepsOfRow;
        return {m, fragment % Of::StepsOfRow * Of::Step + at, tap % FilterSide,
                column_of(tap / FilterSide)};
    } else {
        const int of_sum = fragment % Of::Steps * Of::Step + at;
        const int pair_row = m / Channels % PairRows;
        const int column = Channels == 4 ? fragment / Of::Steps * 2 + m / 8 : fragment / Of::Steps;
        return {m % Channels, of_sum % Channels, of_sum / Channels - pair_row, column_of(column)};
    }
}

// Where a lane's run of sums belongs: an output channel of the group, a row of the pair.
template <int Channels>
__host__ __device__ __forceinline__ int channel_of(int run, int lane) {
    return Channels == 4 ? lane / 4 % 4 : Channels == 8 ? lane / 4 : lane / 4 + run % 2 * 8;
}
template <int Channels>
__host__ __device__ __forceinline__ int row_of(int run, int lane) {
    return Channels == 4 ? lane / 16 : Channels == 8 ? run : run / 2;
}

} // namespace cf::grouped_planar
