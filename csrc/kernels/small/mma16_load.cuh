// How threads of small_mma16 load x into shared memory: through registers, rounded to 16 bits, or
// from an image that a bulk copy loaded, and in NCHW with channels beside each other.
#pragma once

#include "core/element.cuh"
#include "kernels/small/mma16_tiling.cuh"
#include "ptx/arch.cuh"
#include "ptx/predicated.cuh"
#include "ptx/shared.cuh"

#include <type_traits>

namespace cf::small16 {

#if CF_SM90
__device__ __forceinline__ float first_of(uint32_t v) { return __uint_as_float(v); }
__device__ __forceinline__ float first_of(uint2 v) { return __uint_as_float(v.x); }
__device__ __forceinline__ float second_of(uint2 v) { return __uint_as_float(v.y); }

// What a lane of a producer warp copies in one piece. T is what x holds: float, or uint16_t for the
// bits of an Element.
template <class Element, class T, Copy Kind>
struct Elements {
    static constexpr bool Floats = std::is_same_v<T, float>;
    static constexpr int Count = Kind == Word                        ? 2
                                 : Kind == Threes                    ? 3
                                 : Kind == Column || Kind == Columns ? 4
                                                                     : 1;
    using One = std::conditional_t<Floats, uint32_t, uint16_t>;
    using Two = std::conditional_t<Floats, uint2, uint32_t>;
    using Four = std::conditional_t<Floats, uint4, uint2>;
    using Load = std::conditional_t<Kind == Whole || Kind == Threes, Four,
                                    std::conditional_t<Kind == Line || Kind == Columns, Two, One>>;
    using Register = std::conditional_t<std::is_same_v<Load, uint16_t>, uint32_t, Load>;
    Register value[Count];

    // Of these Count, those from begin to end exist; they lie `step` apart.
    __device__ __forceinline__ void load(const T *from, int step, int begin, int end) {
#pragma unroll
        for (int i = 0; i < Count; ++i)
            value[i] =
                load_if(i >= begin && i < end, reinterpret_cast<const Load *>(from + i * step));
    }
    __device__ __forceinline__ void store(uint32_t to, int column_bytes) const {
        if constexpr (Kind == Whole && Floats) {
            const uint4 v = value[0];
            store_shared2(to, pack<Element>(__uint_as_float(v.x), __uint_as_float(v.y)),
                          pack<Element>(__uint_as_float(v.z), __uint_as_float(v.w)));
        } else if constexpr (Kind == Whole) {
            store_shared2(to, value[0].x, value[0].y);
        } else if constexpr (Kind == Threes) {
            uint32_t word[6]; // two elements each, of 12
#pragma unroll
            for (int i = 0; i < 3; ++i) {
                if constexpr (Floats) {
                    const uint4 v = value[i];
                    word[2 * i] = pack<Element>(__uint_as_float(v.x), __uint_as_float(v.y));
                    word[2 * i + 1] = pack<Element>(__uint_as_float(v.z), __uint_as_float(v.w));
                } else {
                    word[2 * i] = value[i].x, word[2 * i + 1] = value[i].y;
                }
            }
#pragma unroll
            for (int i = 0; i < 6; i += 3) { // two columns in three words
                store_shared2(to, word[i], word[i + 1] & 0xffff);
                store_shared2(to + column_bytes, __byte_perm(word[i + 1], word[i + 2], 0x5432),
                              word[i + 2] >> 16);
                to += 2 * column_bytes;
            }
        } else if constexpr (Kind == Line && Floats) {
            store_shared(to, pack<Element>(first_of(value[0]), second_of(value[0])));
        } else if constexpr (Kind == Line) {
            store_shared(to, value[0]);
        } else if constexpr (Floats) {
            uint32_t word[Count / 2];
#pragma unroll
            for (int i = 0; i < Count / 2; ++i)
                word[i] = pack<Element>(first_of(value[2 * i]), first_of(value[2 * i + 1]));
            store_words(to, word);
            if constexpr (Kind == Columns) {
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    word[i] = pack<Element>(second_of(value[2 * i]), second_of(value[2 * i + 1]));
                store_words(to + column_bytes, word);
            }
        } else {
            uint32_t word[Count / 2];
#pragma unroll
            for (int i = 0; i < Count / 2; ++i)
                word[i] = __byte_perm(value[2 * i], value[2 * i + 1], 0x5410);
            store_words(to, word);
            if constexpr (Kind == Columns) {
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    word[i] = __byte_perm(value[2 * i], value[2 * i + 1], 0x7632);
                store_words(to + column_bytes, word);
            }
        }
    }
    static __device__ __forceinline__ void store_words(uint32_t to, const uint32_t (&word)[1]) {
        store_shared(to, word[0]);
    }
    static __device__ __forceinline__ void store_words(uint32_t to, const uint32_t (&word)[2]) {
        store_shared2(to, word[0], word[1]);
    }
};

// Where a piece comes from and goes to: elements of x from an image's beginning, bytes of a stage.
struct Piece {
    int from, step; // to the first of its elements, and from one to the next
    int begin, end; // those that exist
    uint32_t to;
};

// Piece number `piece` of line number `line` of a strip whose first row is `top`. A line is a row
// of x, in NCHW of some channels.
template <Copy Kind, int Count, bool Single>
__device__ __forceinline__ Piece piece_of(const Tiling &tiling, int top, int line, int piece) {
    const int w = tiling.w, c = Single ? 1 : tiling.c, parts = tiling.channel_parts;
    const int column_bytes = tiling.pixel_elements * 2;
    const bool planar = !Single && tiling.nchw;
    Piece at = {0, 1, 0, Count, 0};
    int row = line;
    if constexpr (Kind == Line) {
        at.from = 2 * piece;
        at.to = tiling.pad_left * column_bytes + piece * 4;
    } else if constexpr (Kind == Threes) {
        at.from = 12 * piece, at.step = 4;
        at.to = (tiling.pad_left + 4 * piece) * column_bytes;
    } else if constexpr (Single) { // one of the two may lie in the padding
        at.from = 2 * piece - tiling.pad_left;
        at.begin = max(-at.from, 0), at.end = min(Count, w - at.from);
        at.to = piece * 4;
    } else if (planar) {
        row = tiling.by_parts.quotient(line);
        const int part = line - row * parts, column = Kind == Columns ? 2 * piece : piece;
        at.from = Count * part * (tiling.h * w) + column, at.step = tiling.h * w;
        at.end = min(Count, c - Count * part);
        at.to = (tiling.pad_left + column) * column_bytes + part * (Count * 2);
    } else {
        const int column = tiling.by_parts.quotient(piece), part = piece - column * parts;
        at.from = column * c + 2 * part;
        at.end = min(Count, c - 2 * part);
        at.to = (tiling.pad_left + column) * column_bytes + part * 4;
    }
    if (unsigned(top + row) >= unsigned(tiling.h))
        at.end = 0; // `from` may overflow then, and is not read
    at.from += (top + row) * w * (planar ? 1 : c);
    at.to += row * int(tiling.pitch);
    return at;
}

// So many threads load rows top, top + 1, ... of an image into a stage, some pieces at a time.
template <class Element, class T, Copy Kind, bool Single>
__device__ __noinline__ void load_strip(const Tiling &tiling, const T *image, int top,
                                        uint32_t stage, int thread, int threads) {
    using Copied = Elements<Element, T, Kind>;
    constexpr int Batch = sizeof(Copied) > 32 ? 4 : sizeof(Copied) > 16 ? 8 : 16;
    // Read once: between loads and stores it would keep the loads from being together on their way.
    const int copies = tiling.copies, per_line = tiling.copies_per_line;
    const int column_bytes = tiling.pixel_elements * 2;
    int line = tiling.by_line.quotient(thread), in_line = thread - line * per_line;
    const int lines = tiling.by_line.quotient(threads), rest = threads - lines * per_line;
#pragma unroll 1
    for (int first = thread; first < copies; first += Batch * threads) {
        Copied copied[Batch];
        uint32_t to[Batch];
#pragma unroll
        for (int b = 0; b < Batch; ++b) {
            const int e = first + b * threads;
            Piece piece = {e * 4, 1, 0, Copied::Count, uint32_t(e) * 8};
            if constexpr (Kind != Whole) {
                piece = piece_of<Kind, Copied::Count, Single>(tiling, top, line, in_line);
                line += lines, in_line += rest;
                if (in_line >= per_line)
                    in_line -= per_line, ++line;
            }
            to[b] = stage + piece.to;
            copied[b].load(image + piece.from, piece.step, piece.begin, e < copies ? piece.end : 0);
        }
#pragma unroll
        for (int b = 0; b < Batch; ++b)
            if (first + b * threads < copies)
                copied[b].store(to[b], column_bytes);
    }
}

template <class Element, bool Single, class T>
__device__ __forceinline__ void load_strip(const Tiling &tiling, const T *image, int top,
                                           uint32_t stage, int thread, int threads) {
    const auto load = [&](auto kind) {
        load_strip<Element, T, Copy(kind.value), Single>(tiling, image, top, stage, thread,
                                                         threads);
    };
    switch (tiling.copy) {
    case Whole:
        return load(Constant<Whole>());
    case Line:
        return load(Constant<Line>());
    default:
        if constexpr (!Single) { // copies of one channel are no others
            if (tiling.copy == Threes)
                return load(Constant<Threes>());
            if (tiling.copy == Columns)
                return load(Constant<Columns>());
            if (tiling.copy == Column)
                return load(Constant<Column>());
        }
        return load(Constant<Word>());
    }
}

// The channels of an image from four planes of x at a time, which lie one behind the other, to
// beside each other, two pixels in one step. The first plane begins with a word; of an odd
// area every other one does not.
template <bool Odd>
__device__ __forceinline__ void interleave_pairs(const Tiling &tiling, uint32_t planes,
                                                 uint32_t stage, int thread, int threads) {
    const int area = tiling.h * tiling.w, pixel_bytes = tiling.pixel_elements * 2;
    for (int part = 0; part < tiling.channel_parts; ++part) {
        const int channels = tiling.c - part * 4;
        uint32_t from = planes + part * area * 8 + thread * 4;
        uint32_t to = stage + part * 8 + thread * 2 * pixel_bytes;
#pragma unroll 2
        for (int i = thread; i < area / 2; i += threads) {
            uint32_t two[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const uint32_t at = from + j * area * 2;
                if (j >= channels)
                    two[j] = 0;
                else if (Odd && j % 2)
                    two[j] = __byte_perm(load_shared_u16(at), load_shared_u16(at + 2), 0x5410);
                else
                    two[j] = load_shared(at);
            }
            store_shared2(to, __byte_perm(two[0], two[1], 0x5410),
                          __byte_perm(two[2], two[3], 0x5410));
            store_shared2(to + pixel_bytes, __byte_perm(two[0], two[1], 0x7632),
                          __byte_perm(two[2], two[3], 0x7632));
            from += threads * 4, to += threads * 2 * pixel_bytes;
        }
        if (Odd && thread < min(channels, 4)) // the last pixel
            store_shared_u16(stage + part * 8 + thread * 2 + (area - 1) * pixel_bytes,
                             load_shared_u16(planes + ((part * 4 + thread + 1) * area - 1) * 2));
    }
}

// The same from Count planes, one pixel at a time.
template <int Count>
__device__ __forceinline__ void interleave(const Tiling &tiling, uint32_t planes, uint32_t stage,
                                           int thread, int threads) {
    const int area = tiling.h * tiling.w, pixel_bytes = tiling.pixel_elements * 2;
    for (int part = 0; part < tiling.channel_parts; ++part) {
        const int channels = tiling.c - part * Count;
        uint32_t from = planes + part * Count * area * 2 + thread * 2;
        uint32_t to = stage + part * Count * 2 + thread * pixel_bytes;
#pragma unroll 4
        for (int i = thread; i < area; i += threads) {
            uint32_t word[Count / 2];
#pragma unroll
            for (int j = 0; j < Count; j += 2) {
                const uint32_t a = j < channels ? load_shared_u16(from + j * area * 2) : 0;
                const uint32_t b =
                    j + 1 < channels ? load_shared_u16(from + (j + 1) * area * 2) : 0;
                word[j / 2] = a | b << 16;
            }
            if constexpr (Count == 4)
                store_shared2(to, word[0], word[1]);
            else
                store_shared(to, word[0]);
            from += threads * 2, to += threads * pixel_bytes;
        }
    }
}
#endif

} // namespace cf::small16
