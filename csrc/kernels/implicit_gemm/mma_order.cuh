// In which order implicit_gemm_mma takes the products of a sum, and how it packs a filter for that.
//
// A piece is 16 bytes of operands, 8 channels of 16 bits or 4 of 32; a step along the sum is four
// pieces, a line of 64 bytes. Pieces are numbered by tap and then by channel, in blocks of some
// channels, so that taps read the same lines of x one soon after the other. Where groups have fewer
// channels than a piece, it has those of neighbouring taps as well.
#pragma once

#include "core/element.cuh"
#include "core/launch.cuh"

namespace cf::implicit_mma {

constexpr int PieceBytes = 16;
constexpr int StepPieces = 4, StepBytes = StepPieces * PieceBytes;
constexpr int Lines = 32;        // of the packed filter: a multiple
constexpr int MostFilters = 128; // output channels of a tile
// Of a block of channels under all taps, as a table in shared memory lists them.
constexpr int MostBlockPieces = 1024;

// What tensor cores multiply.
enum Product { F16, Bf16, Tf32 };

// Where math wants f16 sums, they are in fp32 as well.
inline Product product_of(const cf_problem &p) {
    return p.math == CF_MATH_TF32 ? Tf32 : p.math == CF_MATH_BF16 ? Bf16 : F16;
}

// Neighbours in y that a lane has of a row of sums and stores together, 16 bytes: four lanes beside
// each other leave 64, in whole sectors of memory.
constexpr int run_of(int element_bytes) { return 16 / element_bytes; }

// Which neighbour a column of the product is: of 4 `run`, column 8 j + 2 t + e, which the lanes
// number t of four have, is neighbour run t + 2 j + e.
__host__ __device__ __forceinline__ int neighbour_of(int column, int run) {
    const int together = 4 * run;
    return column / together * together + column % 8 / 2 * run + column % together / 8 * 2 +
           column % 2;
}

// Pieces of a line change places in a stage, so that those of eight neighbouring lines lie in all
// banks. The same in both directions.
__host__ __device__ __forceinline__ constexpr int exchanged_piece(int line, int piece) {
    return (piece ^ line >> 1) & 3;
}

// Knows filter and layout, and nothing of the batch: filters are packed by it.
struct Order {
    int groups;
    int c, k, r, s;   // of a group: channels, output channels, taps
    int per;          // channels of a piece
    int lines;        // output channels with those that fill the last 32
    bool whole;       // pieces have channels of one tap
    int run;          // of output channels, where they are columns of the product; else 0
    int block_pieces; // channels of a block, in pieces
    int block_steps, steps;

    Order() = default;
    Order(const cf_problem &p, bool near);
    // The packed filter: lines by group, step and output channel, as they lie in a stage. Tiles
    // read as many channels as they have, also where the filter has not: as many lines as these are
    // lie behind the last group.
    __host__ __device__ __forceinline__ int64_t group_words() const {
        return int64_t(steps) * lines * (StepBytes / 4);
    }
    int64_t packed_words() const {
        return group_words() * groups + int64_t(MostFilters - Lines) * StepBytes / 4;
    }
};

// Of a block of so many pieces.
inline int steps_of_block(int taps, int pieces) {
    return int(ceil_div(int64_t(taps) * pieces, StepPieces));
}

// `near` says that all of a window lies within 31 bits, as a table of taps wants.
inline Order::Order(const cf_problem &p, bool near)
    : groups(p.groups), c(p.c / p.groups), k(p.k / p.groups), r(p.r), s(p.s),
      per(PieceBytes / (product_of(p) == Tf32 ? 4 : 2)), lines(int(round_up(k, Lines))),
      whole(true), run(p.layout == CF_NHWC ? run_of(element_bytes(p)) : 0) {
    const int pieces = int(ceil_div(c, per)), taps = r * s;
    const auto all = [&](int of_block) {
        return ceil_div(pieces, of_block) * steps_of_block(taps, of_block);
    };
    const int most = std::clamp(MostBlockPieces / taps, 1, 16);
    block_pieces = std::min(8, most);
    for (int of_block = 1; of_block <= most; ++of_block)
        if (all(of_block) < all(block_pieces))
            block_pieces = of_block;
    block_steps = steps_of_block(taps, block_pieces);
    steps = int(all(block_pieces));
    const auto mixed = int(ceil_div(int64_t(c) * taps, per * StepPieces));
    if (near && c < per && mixed < steps)
        whole = false, steps = block_steps = mixed;
}

// An element of the filter; none if not live.
struct FilterPlace {
    bool live;
    int k; // of all groups
    int c, r, s;
};

// Product e of a piece of a step.
__host__ __device__ __forceinline__ FilterPlace product_at(const Order &of, int step, int piece,
                                                           int e) {
    FilterPlace at = {};
    int tap;
    if (of.whole) {
        const int number = step % of.block_steps * StepPieces + piece;
        tap = number / of.block_pieces;
        at.c = (step / of.block_steps * of.block_pieces + number % of.block_pieces) * of.per + e;
    } else {
        const int number = (step * StepPieces + piece) * of.per + e;
        tap = number / of.c, at.c = number % of.c;
    }
    at.r = tap / of.s, at.s = tap % of.s;
    at.live = at.r < of.r && at.c < of.c;
    return at;
}

// Element e of a word of the packed filter.
__host__ __device__ __forceinline__ FilterPlace filter_place(const Order &of, int64_t word, int e) {
    constexpr int Words = StepBytes / 4, PieceWords = PieceBytes / 4;
    const auto of_line = int(word % Words);
    const auto line = int(word / Words % of.lines);
    const int64_t group = word / of.group_words();
    const auto step = int(word % of.group_words() / Words / of.lines);
    FilterPlace at = product_at(of, step, exchanged_piece(line, of_line / PieceWords),
                                of_line % PieceWords * (of.per / PieceWords) + e);
    const int k = of.run ? neighbour_of(line, of.run) : line;
    at.k = int(group * of.k + k);
    at.live = at.live && k < of.k && group < of.groups;
    return at;
}

} // namespace cf::implicit_mma
