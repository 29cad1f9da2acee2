// The loader of implicit_gemm_mma: a step's lines of x and of the filter into a stage of shared
// memory.
#pragma once

#include "kernels/implicit_gemm/mma_plan.cuh"
#include "kernels/implicit_gemm/mma_product.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/cp_async_cached.cuh"

namespace cf::implicit_mma {

// What a block works on.
struct Place {
    int group, filter; // the first output channel, of the group
    int64_t pixel;     // the first, of all; the others follow, from image to image
    int64_t image;
    int first, left; // the first pixel, of its image; pixels that exist from there on

    __device__ __forceinline__ Place(const Tiling &t, int number, int channels, int pixels) {
        const int others = t.by_filter_tiles.quotient(number);
        filter = (number - others * t.filter_tiles) * channels;
        const int block = t.by_groups.quotient(others);
        group = others - block * t.groups;
        pixel = int64_t(block) * pixels;
        image = pixel / t.plane;
        first = int(pixel - image * t.plane);
        left = int(min(t.pixels - pixel, int64_t(pixels)));
    }
};

// The window of x under an output pixel: where it begins, perhaps outside of x, and which rows and
// columns of taps fall on x, a bit each. Bit 31 is of no tap.
struct Window {
    const char *from;
    uint32_t inside;

    __device__ __forceinline__ Window(const Tiling &t, const Place &place, const char *x,
                                      int pixel) {
        const int number = place.first + pixel, image = t.by_plane.quotient(number);
        const int of_image = number - image * t.plane, p = t.by_q.quotient(of_image);
        const int top = p * t.stride_h - t.pad_top;
        const int left = (of_image - p * t.q) * t.stride_w - t.pad_left;
        from = x + (place.image + image) * t.image_x + top * t.row_x + left * t.column_x +
               int64_t(place.group) * t.order.c * t.channel_x;
        inside = 0;
        for (int r = 0; r < t.order.r; ++r)
            inside |= uint32_t(unsigned(top + r * t.dilation_h) < unsigned(t.h)) << r;
        for (int s = 0; s < t.order.s; ++s)
            inside |= uint32_t(unsigned(left + s * t.dilation_w) < unsigned(t.w))
                      << (t.order.r + s);
        if (pixel >= place.left)
            inside = 0;
    }
};

// Where a piece or an element lies behind a window's beginning, and the bits of its tap.
struct Reach {
    int64_t behind;
    uint32_t tap;

    Reach() = default;
    __device__ __forceinline__ Reach(const Tiling &t, int r, int s, int c)
        : behind(r * t.tap_row + s * t.tap_column + c * t.channel_x),
          tap(r < t.order.r && c < t.order.c ? 1u << r | 1u << (t.order.r + s) : 1u << 31) {}
    __device__ __forceinline__ bool falls_on(const Window &window) const {
        return (window.inside & tap) == tap;
    }
};

// The table of elements, for pieces that have several taps.
__device__ __forceinline__ void list_elements(const Tiling &t, uint32_t table) {
    for (int i = threadIdx.x; i < t.entries; i += blockDim.x) {
        const FilterPlace at = product_at(t.order, 0, 0, i);
        const Reach reach(t, at.r, at.s, at.c);
        store_shared2(table + i * EntryBytes, uint32_t(reach.behind), reach.tap);
    }
}

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
class Loader {
    static constexpr int Threads = Shape::Threads;
    static constexpr bool Nchw = Shape::Nchw;
    static constexpr int All = Shape::Pixels * StepPieces / Threads; // pieces of a thread
    static constexpr int Windows = Nchw ? 1 : All, Pieces = Nchw ? All : 1;
    static constexpr int LinesApart = Threads / StepPieces;      // NHWC, and of the filter
    static constexpr int PiecesApart = Threads / Shape::Pixels;  // NCHW
    static constexpr int Filters = Shape::Channels / LinesApart; // lines of a thread
    static_assert(LinesApart % Together == 0, "lines of a thread lie at the same places");
    static_assert(Shape::Channels % LinesApart == 0 && All * Threads == Shape::Pixels * StepPieces,
                  "threads share a stage");
    static constexpr int Staging = Shape::Copied ? 1 : All;

    const Tiling &t;
    const uint32_t table;
    const char *filter;
    uint32_t filter_to;      // in a stage
    int block = 0, step = 0; // the next step of a block of channels
    int piece, line;
    Window window[Windows];
    Staged<Shape> staged[Staging];

    static __device__ __forceinline__ int pixel_of(int i) {
        return Nchw ? threadIdx.x % Shape::Pixels : threadIdx.x / StepPieces + i * LinesApart;
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
    __device__ __forceinline__ void copy_filter(uint32_t stage, bool live) {
#pragma unroll
        for (int i = 0; i < Filters; ++i)
            copy16_async(stage + filter_to + i * LinesApart * StepBytes,
                         filter + i * LinesApart * StepBytes, live);
        filter += t.order.lines * StepBytes;
    }
    __device__ __forceinline__ void copy_pixels(uint32_t stage, bool live) {
        const Reach of = reach(piece);
#pragma unroll
        for (int i = 0; i < Windows; ++i)
            copy16_cached_async(stage + place(i), window[i].from + of.behind,
                                live && of.falls_on(window[i]));
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
    __device__ __forceinline__ Loader(const Tiling &t, const Place &place, const char *x,
                                      const char *packed, uint32_t table,
                                      std::integer_sequence<int, I...>)
        : t(t), table(table), piece(Nchw ? threadIdx.x / Shape::Pixels : threadIdx.x % StepPieces),
          line(Nchw ? exchanged(pixel_of(0)) : pixel_of(0)),
          window{Window(t, place, x, pixel_of(I))...} {
        filter = packed + place.group * t.order.group_words() * 4 + place.filter * StepBytes +
                 threadIdx.x * PieceBytes;
        filter_to = Shape::FilterAt + place_of(threadIdx.x / StepPieces, threadIdx.x % StepPieces);
    }

  public:
    __device__ __forceinline__ Loader(const Tiling &t, const Place &place, const char *x,
                                      const char *packed, uint32_t table)
        : Loader(t, place, x, packed, table, std::make_integer_sequence<int, Windows>()) {}

    // Asks for the next step's lines, if it exists. What goes through registers gets there by
    // `store`. Copies do not branch, so that they stand among products.
    __device__ __forceinline__ void load(uint32_t stage, bool live) {
        copy_filter(stage, live);
        if constexpr (Shape::Copied)
            copy_pixels(stage, live);
        else if (live)
            gather();
        if (++step == t.order.block_steps)
            step = 0, ++block;
    }
    __device__ __forceinline__ void store(uint32_t stage, bool live) const {
        if constexpr (!Shape::Copied) {
            const bool pairs = !Nchw && t.together > 1;
            if (live)
#pragma unroll
                for (int i = 0; i < All; ++i)
                    staged[i].store(stage + place(i), pairs);
        }
    }
};

} // namespace cf::implicit_mma
