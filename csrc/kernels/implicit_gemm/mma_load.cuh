// The loaders of implicit_gemm_mma that copy as things lie in memory: a step's lines of the filter,
// and its pieces of x.
#pragma once

#include "kernels/implicit_gemm/mma_product.cuh"
#include "kernels/implicit_gemm/mma_window.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mad.cuh"

namespace cf::implicit_mma {

// Lines are packed as they lie in a stage. Each warp copies some that follow each other, so that
// places of a thread's pieces differ by constants that instructions hold.
template <class Shape>
class FilterLoader {
    static constexpr int Pieces = Shape::Channels * StepPieces / Shape::Threads; // of a thread
    static constexpr int PiecesApart = 32 * PieceBytes;
    static_assert(Pieces * Shape::Threads == Shape::Channels * StepPieces, "threads share a stage");

    const char *from;
    const uint32_t to; // in a stage
    const int step_bytes;

    static __device__ __forceinline__ int first() {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        return warp * Pieces * PiecesApart + lane * PieceBytes;
    }

  public:
    __device__ __forceinline__ FilterLoader(const Tiling &t, const Place &place, const char *packed)
        : from(packed + place.group * t.order.group_words() * 4 + place.filter * StepBytes +
               first()),
          to(Shape::FilterAt + first()), step_bytes(t.order.lines * StepBytes) {}

    __device__ __forceinline__ void load(uint32_t stage, bool live) {
#pragma unroll
        for (int i = 0; i < Pieces; ++i)
            copy16_async(stage + to + i * PiecesApart, from + i * PiecesApart, live);
        from += step_bytes;
    }
};

// A thread's pieces of x, step by step: the table's entries of a block of channels, over and over,
// then those of the last block.
class PieceWalk {
    uint32_t at;
    const uint32_t end;
    int channels = 0; // in front of the block, in pieces
    const int of_block, last, table_bytes;

  public:
    int behind;   // where the next step's lies behind a window's beginning, in pieces
    uint32_t tap; // and its tap

    __device__ __forceinline__ PieceWalk(const Tiling &t, uint32_t table, int piece)
        : at(table + piece * EntryBytes), end(at + t.order.block_steps * StepPieces * EntryBytes),
          of_block(t.order.block_pieces),
          last((t.order.steps / t.order.block_steps - 1) * of_block),
          table_bytes(t.order.block_steps * StepPieces * EntryBytes) {
        read();
    }
    __device__ __forceinline__ void next() {
        at += StepPieces * EntryBytes;
        if (at == end) {
            channels += of_block;
            if (channels < last)
                at -= table_bytes;
        }
        read();
    }

  private:
    __device__ __forceinline__ void read() {
        const uint2 entry = load_shared2(at);
        behind = int(entry.x) + channels, tap = entry.y;
    }
};

// By itself the compiler would add up all three places in four instructions.
__device__ __forceinline__ const char *pieces_behind(const char *from, int pieces) {
    return multiply_add<PieceBytes>(pieces, from);
}

// A thread copies the same piece of several pixels' lines. What it takes beside the copies is an
// addition and a comparison for each.
template <class Shape>
class Copier {
    static constexpr int LinesApart = Shape::Threads / StepPieces;
    static constexpr int Windows = Shape::Pixels / LinesApart;
    static_assert(LinesApart % 8 == 0, "lines of a thread lie at the same places");
    static_assert(Windows * LinesApart == Shape::Pixels, "threads share a stage");

    FilterLoader<Shape> filter;
    PieceWalk piece;
    const char *const from;    // x, from the first image and channel on
    const uint32_t to;         // in a stage
    int at[Windows];           // pieces from there to where a window begins
    uint32_t outside[Windows]; // taps that do not fall on x

  public:
    __device__ __forceinline__ Copier(const Tiling &t, const Place &place, const char *x,
                                      const char *packed, uint32_t table)
        : filter(t, place, packed), piece(t, table, threadIdx.x % StepPieces),
          from(x + place.image * t.image_x + int64_t(place.group) * t.order.c * t.channel_x),
          to(place_of(threadIdx.x / StepPieces, threadIdx.x % StepPieces)) {
#pragma unroll
        for (int i = 0; i < Windows; ++i) {
            const Window window(t, place, x, threadIdx.x / StepPieces + i * LinesApart);
            at[i] = int((window.from - from) / PieceBytes);
            outside[i] = ~window.inside;
        }
    }

    // Copies the next step's lines, if it exists. It does not branch, so that it stands among
    // products.
    __device__ __forceinline__ void load(uint32_t stage, bool live) {
        filter.load(stage, live);
        const char *const first = pieces_behind(from, piece.behind);
#pragma unroll
        for (int i = 0; i < Windows; ++i)
            copy16_async(stage + to + i * LinesApart * StepBytes, pieces_behind(first, at[i]),
                         !(outside[i] & piece.tap));
        piece.next();
    }
    __device__ __forceinline__ void store(uint32_t, bool) const {}
};

} // namespace cf::implicit_mma
