// The loader of implicit_gemm_mma that gathers pieces of x through registers.
#pragma once

#include "kernels/implicit_gemm/mma_load.cuh"
#include "kernels/implicit_gemm/mma_window.cuh"
#include "ptx/predicated.cuh"

namespace cf::implicit_mma {

// A piece on its way through registers: elements by themselves, pairs of 16 bits where two are read
// at once, or floats.
template <class Shape>
struct Staged {
    using Stored = typename Shape::Stored;
    using Operand = typename Shape::Operand;
    static constexpr int Per = Shape::Per;
    static constexpr bool Floats = sizeof(Stored) == 4;
    uint32_t raw[Per];

    // So many neighbours at a time, of which `left` channels exist.
    template <int Count>
    __device__ __forceinline__ void load(const char *from, bool live, int left, int64_t channel_x) {
#pragma unroll
        for (int i = 0; i < Per; i += Count) {
            const bool exists = live && i < left;
            if constexpr (Count == 1 && Floats) {
                raw[i] = load_if(exists, reinterpret_cast<const uint32_t *>(from + i * channel_x));
            } else if constexpr (Count == 1) {
                raw[i] = load_if(exists, reinterpret_cast<const uint16_t *>(from + i * channel_x));
            } else if constexpr (!Floats) {
                raw[i / 2] = load_if(exists, reinterpret_cast<const uint32_t *>(from) + i / 2);
            } else {
                const uint4 four = load_if(exists, reinterpret_cast<const uint4 *>(from) + i / 4);
                raw[i] = four.x, raw[i + 1] = four.y, raw[i + 2] = four.z, raw[i + 3] = four.w;
            }
        }
    }
    __device__ __forceinline__ uint32_t word(int i, bool pairs) const {
        if constexpr (std::is_same_v<Operand, float>)
            return raw[i];
        else if constexpr (Floats)
            return pack<Operand>(__uint_as_float(raw[2 * i]), __uint_as_float(raw[2 * i + 1]));
        else
            return pairs ? raw[i] : raw[2 * i] | raw[2 * i + 1] << 16;
    }
    __device__ __forceinline__ void store(uint32_t to, bool pairs) const {
        store_shared4(to, word(0, pairs), word(1, pairs), word(2, pairs), word(3, pairs));
    }
};

// Of a thread. In NHWC it has a piece of several pixels' lines, as neighbours in memory are
// channels; in NCHW several pieces of one line.
template <class Shape>
class Gatherer {
    static constexpr int Threads = Shape::Threads;
    static constexpr bool Nchw = Shape::Nchw;
    static constexpr int All = Shape::Pixels * StepPieces / Threads; // pieces of a thread
    static constexpr int Windows = Nchw ? 1 : All, Pieces = Nchw ? All : 1;
    static constexpr int LinesApart = Threads / StepPieces;     // NHWC
    static constexpr int PiecesApart = Threads / Shape::Pixels; // NCHW
    static_assert(LinesApart % 8 == 0, "lines of a thread lie at the same places");
    static_assert(All * Threads == Shape::Pixels * StepPieces, "threads share a stage");

    const Tiling &t;
    const uint32_t table;
    FilterLoader<Shape> filter;
    int block = 0, step = 0; // the next step of a block of channels
    int piece, line;
    Window window[Windows];
    Staged<Shape> staged[All];

    static __device__ __forceinline__ int pixel_of(int i) {
        return Nchw ? neighbour_of(threadIdx.x % Shape::Pixels, Shape::Run)
                    : threadIdx.x / StepPieces + i * LinesApart;
    }
    __device__ __forceinline__ int piece_of(int i) const { return piece + i * PiecesApart; }
    // Where in a stage a thread's piece goes.
    __device__ __forceinline__ uint32_t place(int i) const {
        return Nchw ? place_of(line, piece_of(i))
                    : place_of(line, piece) + i * LinesApart * StepBytes;
    }
    __device__ __forceinline__ Reach reach(int of_step) const {
        const int number = step * StepPieces + of_step, tap = t.by_block.quotient(number);
        const int of_block = number - tap * t.order.block_pieces, r = t.by_s.quotient(tap);
        return {t, r, tap - r * t.order.s, (block * t.order.block_pieces + of_block) * Shape::Per};
    }
    // Channels of a piece that exist, and more.
    __device__ __forceinline__ int left(int of_step) const {
        const int number = step * StepPieces + of_step;
        const int of_block = number - t.by_block.quotient(number) * t.order.block_pieces;
        return t.order.c - (block * t.order.block_pieces + of_block) * Shape::Per;
    }
    template <int Count>
    __device__ __forceinline__ void gather_pieces() {
#pragma unroll
        for (int i = 0; i < Pieces; ++i) {
            const Reach of = reach(piece_of(i));
            const int exist = left(piece_of(i));
#pragma unroll
            for (int j = 0; j < Windows; ++j)
                staged[i + j].template load<Count>(window[j].from + of.behind,
                                                   of.falls_on(window[j]), exist, t.channel_x);
        }
    }
    __device__ __forceinline__ void gather_elements() {
#pragma unroll
        for (int i = 0; i < Pieces; ++i) {
            const uint32_t entries =
                table + (step * StepPieces + piece_of(i)) * (Shape::Per * EntryBytes);
#pragma unroll
            for (int e = 0; e < Shape::Per; ++e) {
                Reach of;
                of.behind = int(load_shared(entries + e * EntryBytes));
                of.tap = load_shared(entries + e * EntryBytes + 4);
#pragma unroll
                for (int j = 0; j < Windows; ++j) {
                    using Word = std::conditional_t<Staged<Shape>::Floats, uint32_t, uint16_t>;
                    staged[i + j].raw[e] =
                        load_if(of.falls_on(window[j]),
                                reinterpret_cast<const Word *>(window[j].from + of.behind));
                }
            }
        }
    }
    __device__ __forceinline__ void gather() {
        if (!t.order.whole)
            gather_elements();
        else if (!Nchw && t.together > 1)
            gather_pieces<Staged<Shape>::Floats ? 4 : 2>();
        else
            gather_pieces<1>();
    }
    template <int... I>
    __device__ __forceinline__ Gatherer(const Tiling &t, const Place &place, const char *x,
                                        const char *packed, uint32_t table,
                                        std::integer_sequence<int, I...>)
        : t(t), table(table), filter(t, place, packed),
          piece(Nchw ? threadIdx.x / Shape::Pixels : threadIdx.x % StepPieces),
          line(Nchw ? threadIdx.x % Shape::Pixels : pixel_of(0)),
          window{Window(t, place, x, pixel_of(I))...} {}

  public:
    __device__ __forceinline__ Gatherer(const Tiling &t, const Place &place, const char *x,
                                        const char *packed, uint32_t table)
        : Gatherer(t, place, x, packed, table, std::make_integer_sequence<int, Windows>()) {}

    // Asks for the next step's lines, if it exists. What goes through registers gets there by
    // `store`.
    __device__ __forceinline__ void load(uint32_t stage, bool live) {
        filter.load(stage, live);
        if (live)
            gather();
        if (++step == t.order.block_steps)
            step = 0, ++block;
    }
    __device__ __forceinline__ void store(uint32_t stage, bool live) const {
        const bool pairs = !Nchw && t.together > 1;
        if (live)
#pragma unroll
            for (int i = 0; i < All; ++i)
                staged[i].store(stage + place(i), pairs);
    }
};

} // namespace cf::implicit_mma
