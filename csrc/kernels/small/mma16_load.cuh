// How small_mma16 loads x into shared memory: rounded to 16 bits, and in NCHW with channels beside
// each other.
#pragma once

#include "core/element.cuh"
#include "kernels/small/mma16_plan.cuh"
#include "ptx/bar.cuh"
#include "ptx/bulk.cuh"
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

// So many threads load rows top, top + 1, ... of an image into a stage.
template <class Element, class T, Copy Kind>
__device__ __noinline__ void load_strip(const Tiling &tiling, const T *image, int top,
                                        uint32_t stage, int thread, int threads) {
    using Got = Elements<Element, T, Kind>;
    constexpr int Batch = sizeof(Got) > 32 ? 4 : sizeof(Got) > 16 ? 8 : 16;
    const int h = tiling.h, w = tiling.w, c = tiling.c;
    const int copies = tiling.copies, per_line = tiling.copies_per_line;
    const int parts = tiling.channel_parts, pitch = int(tiling.pitch);
    const int column_bytes = tiling.pixel_elements * 2;
    const int area = h * w, pad_left = tiling.pad_left, nchw = tiling.nchw && c > 1;
    const Divisor by_parts = tiling.by_parts;
    int line = tiling.by_line.quotient(thread), in_line = thread - line * per_line;
    const int lines = tiling.by_line.quotient(threads), rest = threads - lines * per_line;
#pragma unroll 1
    for (int first = thread; first < copies; first += Batch * threads) {
        Got got[Batch];
        uint32_t to[Batch];
#pragma unroll
        for (int b = 0; b < Batch; ++b) {
            const int e = first + b * threads;
            int begin = 0, end = e < copies ? Got::Count : 0, from, step = 1;
            if constexpr (Kind == Whole) {
                from = e * 4;
                to[b] = stage + e * 8;
            } else {
                int row = line;
                if constexpr (Kind == Line) {
                    from = 2 * in_line;
                    to[b] = pad_left * column_bytes + in_line * 4;
                } else if constexpr (Kind == Threes) {
                    from = 12 * in_line;
                    step = 4;
                    to[b] = (pad_left + 4 * in_line) * column_bytes;
                } else if (nchw) {
                    row = by_parts.quotient(line);
                    const int part = line - row * parts,
                              column = Kind == Columns ? 2 * in_line : in_line;
                    from = Got::Count * part * area + column;
                    step = area;
                    end = min(end, c - Got::Count * part);
                    to[b] = (pad_left + column) * column_bytes + part * (Got::Count * 2);
                } else if (c == 1) { // one of the two may lie in the padding
                    const int column = 2 * in_line - pad_left;
                    from = column;
                    begin = max(-column, 0);
                    end = min(end, w - column);
                    to[b] = in_line * 4;
                } else {
                    const int column = by_parts.quotient(in_line), part = in_line - column * parts;
                    from = column * c + 2 * part;
                    end = min(end, c - 2 * part);
                    to[b] = (pad_left + column) * column_bytes + part * 4;
                }
                if (unsigned(top + row) >= unsigned(h))
                    end = 0; // `from` may overflow then, and is not read
                from += (top + row) * w * (nchw ? 1 : c);
                to[b] += stage + row * pitch;
                line += lines, in_line += rest;
                if (in_line >= per_line)
                    in_line -= per_line, ++line;
            }
            got[b].load(image + from, step, begin, end);
        }
#pragma unroll
        for (int b = 0; b < Batch; ++b)
            if (first + b * threads < copies)
                got[b].store(to[b], column_bytes);
    }
}

template <class Element, class T>
__device__ __forceinline__ void load_strip(const Tiling &tiling, const T *image, int top,
                                           uint32_t stage, int thread, int threads) {
    switch (tiling.copy) {
    case Whole:
        return load_strip<Element, T, Whole>(tiling, image, top, stage, thread, threads);
    case Line:
        return load_strip<Element, T, Line>(tiling, image, top, stage, thread, threads);
    case Threes:
        return load_strip<Element, T, Threes>(tiling, image, top, stage, thread, threads);
    case Columns:
        return load_strip<Element, T, Columns>(tiling, image, top, stage, thread, threads);
    case Column:
        return load_strip<Element, T, Column>(tiling, image, top, stage, thread, threads);
    default:
        return load_strip<Element, T, Word>(tiling, image, top, stage, thread, threads);
    }
}

// A warp copies `bytes` bytes to where they lie as far behind a multiple of 16 as in x, and `zeros`
// bytes of zeros behind them: whole 16 bytes by a bulk copy, elements before and behind one by one.
// `full` expects an arrival of each lane.
__device__ __forceinline__ void load_bulk(const uint16_t *from, uint32_t bytes, uint32_t zeros,
                                          uint32_t to, Barrier &full, int lane) {
    const auto begin = reinterpret_cast<uint64_t>(from);
    const uint32_t skew = begin & 15, end = skew + bytes; // behind `to`
    const uint32_t first = min((skew + 15) & ~15u, end), last = max(end & ~15u, first);
    const uint16_t *base = from - skew / 2; // only compared and added to
    const uint32_t head = skew + 2 * lane, tail = last + 2 * lane;
    const uint32_t before = load_if(head < first, base + head / 2);
    const uint32_t behind = load_if(tail < end, base + tail / 2);
    publish_to_bulk_copies(); // what was written here before
    __syncwarp();
    if (lane == 0 && last > first) {
        full.expect(last - first);
        copy_bulk(to + first, base + first / 2, last - first, full);
    }
    if (head < first)
        store_shared_u16(to + head, before);
    for (uint32_t at = tail; at < end + zeros; at += 64)
        store_shared_u16(to + at, at == tail ? behind : 0);
    full.arrive();
}

// All threads of the producer warps meet.
__device__ __forceinline__ void wait_for_producers(int threads) { wait_at_bar<1>(threads); }

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
