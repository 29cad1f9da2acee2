// Which element of the filter lies where in grouped_any: groups side by side, and what a lane
// holds. Arithmetic on numbers, the same on the host.
//
// A piece is 16 bytes of a pixel's operands: 8 channels of 16 bits, 4 of 32. A tile is 8 output
// channels. The word of a lane is what mma.sync wants of a piece and a tile: in output channel
// lane / 4 the channels of unit lane % 4, which has two of 16 bits or one of 32.
#pragma once

#include "core/launch.cuh"

namespace cf::grouped_any {

constexpr int PieceBytes = 16;
constexpr int TileChannels = 8;
constexpr int Lanes = 32;   // words of a piece and a tile
constexpr int MaxTiles = 4; // of a warp

// How operands are multiplied: in fp32 by FMA, or on tensor cores.
enum Product { Fp32, Tf32, F16, Bf16 };

// Where math wants f16 sums, they are in fp32 as well.
inline Product product_of(const cf_problem &p) {
    switch (p.math) {
    case CF_MATH_FP32:
        return Fp32;
    case CF_MATH_TF32:
        return Tf32;
    case CF_MATH_BF16:
        return Bf16;
    default:
        return F16;
    }
}
inline int operand_bytes(Product product) { return product >= F16 ? 2 : 4; }
inline int channels_of_piece(Product product) { return PieceBytes / operand_bytes(product); }

// Neighbouring groups that are multiplied as one, with zeros in the filter between them.
struct Sets {
    int groups, channels, filters; // of a set; output channels
    int pieces, tiles;             // of a set
    int count;                     // sets of the problem; the last may have fewer groups

    Sets() = default;
    Sets(const cf_problem &p, Product product, int groups)
        : groups(groups), channels(p.c / p.groups * groups), filters(p.k / p.groups * groups),
          pieces(int(ceil_div(channels, channels_of_piece(product)))),
          tiles(int(ceil_div(filters, TileChannels))), count(int(ceil_div(p.groups, groups))) {}
};

// As many groups to a set as take least for each: groups of few channels would leave most of a
// piece, or of a tile, empty. Knows filter and layout, and nothing of the batch: filters are packed
// by it.
inline Sets sets_of(const cf_problem &p) {
    constexpr int Most = 32; // channels of several groups
    const Product product = product_of(p);
    const int per = channels_of_piece(product);
    const double taps = double(p.r) * p.s;
    const auto clocks = [&](const Sets &s) {
        // Of 16 pixels: reading a piece and multiplying it, staging it, storing a tile.
        const double products = product == Fp32 ? 16 : 5;
        const double loads = p.layout == CF_NCHW     ? per
                             : s.channels % per == 0 ? 1
                             : s.channels % 2 == 0   ? per / 2
                                                     : per;
        return (taps * s.pieces * (4 + products * s.tiles) + s.pieces * (6 + 2 * loads) +
                20 * s.tiles) /
               s.groups;
    };
    Sets best(p, product, 1);
    for (int groups = 2; groups <= std::min(p.groups, Most); ++groups) {
        const Sets next(p, product, groups);
        if (next.channels > Most || next.filters > Most)
            break;
        if (clocks(next) < clocks(best))
            best = next;
    }
    return best;
}

// The packed filter: words by row, column and piece, of all tiles of a set, and behind them a piece
// of zeros; set by set. A warp reads its tiles at constant distances, also those that a set has
// not: as many words as these are lie behind the last set.
struct Packed {
    Sets sets;
    int c, k, r, s, group_channels, group_filters;
    int per; // channels of a piece

    Packed() = default;
    Packed(const cf_problem &p, const Sets &sets)
        : sets(sets), c(p.c), k(p.k), r(p.r), s(p.s), group_channels(p.c / p.groups),
          group_filters(p.k / p.groups), per(channels_of_piece(product_of(p))) {}
    __host__ __device__ __forceinline__ int zero_piece() const { return r * s * sets.pieces; }
    __host__ __device__ __forceinline__ int piece_words() const { return sets.tiles * Lanes; }
    __host__ __device__ __forceinline__ int64_t set_words() const {
        return (int64_t(zero_piece()) + 1) * piece_words();
    }
    __host__ __device__ __forceinline__ int64_t words() const {
        return set_words() * sets.count + (MaxTiles - 1) * Lanes;
    }
};

// An element of the filter, c among the channels of its group; none if not live.
struct FilterPlace {
    bool live;
    int k, c, r, s;
};

// Element e of a word.
__host__ __device__ __forceinline__ FilterPlace filter_place(const Packed &of, int64_t word,
                                                             int e) {
    const int lane = int(word % Lanes);
    const int64_t set = word / of.set_words();
    const auto number = int(word % of.set_words() / of.piece_words());
    const int tile = int(word / Lanes % of.sets.tiles);
    const int piece = number % of.sets.pieces, tap = number / of.sets.pieces;
    // In the set.
    const int filter = tile * TileChannels + lane / 4;
    const int channel = piece * of.per + lane % 4 * (of.per / 4) + e;
    FilterPlace place;
    place.k = int(set * of.sets.filters + filter);
    place.c = channel % of.group_channels;
    place.r = tap / of.s, place.s = tap % of.s;
    place.live = set < of.sets.count && number < of.zero_piece() && filter < of.sets.filters &&
                 channel < of.sets.channels && place.k < of.k &&
                 channel / of.group_channels == filter / of.group_filters;
    return place;
}

} // namespace cf::grouped_any
