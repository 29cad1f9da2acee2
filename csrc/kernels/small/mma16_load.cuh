// How small_mma16 brings x into shared memory: rounded to 16 bits, and in NCHW with channels beside
// each other.
#pragma once

#include "core/element.cuh"
#include "ptx/mma.cuh"
#include "ptx/pipeline.cuh"
#include "kernels/small/mma16_plan.cuh"

#include <type_traits>

namespace cf::small16 {

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void store_shared(uint32_t at, uint32_t v) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(v) : "memory");
}

__device__ __forceinline__ void store_shared2(uint32_t at, uint32_t a, uint32_t b) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(at), "r"(a), "r"(b) : "memory");
}

__device__ __forceinline__ uint4 load_shared4(uint32_t at) {
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}

// The offset is part of the instruction: the compiler would add it to each address by itself.
__device__ __forceinline__ uint32_t load_shared_16_behind(uint32_t at) {
    uint32_t v;
    asm volatile("ld.shared.b32 %0, [%1 + 16];" : "=r"(v) : "r"(at) : "memory");
    return v;
}

// Two elements in a register, the first in its lower half.
template <class Element>
__device__ __forceinline__ uint32_t pack(float first, float second) {
    if constexpr (std::is_same_v<Element, __half>) {
        const __half2 two = __floats2half2_rn(first, second);
        return reinterpret_cast<const uint32_t &>(two);
    } else {
        const __nv_bfloat162 two = __floats2bfloat162_rn(first, second);
        return reinterpret_cast<const uint32_t &>(two);
    }
}

// Loads that are zero where `live` is false. A predicate instead of a branch, so that many of them
// are under way at once.
__device__ __forceinline__ uint32_t load_if(bool live, const uint16_t *from) {
    uint32_t v;
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %2, 0;\n"
                 "mov.b32 %0, 0;\n"
                 "@live ld.global.nc.u16 %0, [%1];\n}"
                 : "=r"(v)
                 : "l"(from), "r"(int(live)));
    return v;
}
__device__ __forceinline__ uint32_t load_if(bool live, const uint32_t *from) {
    uint32_t v;
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %2, 0;\n"
                 "mov.b32 %0, 0;\n"
                 "@live ld.global.nc.b32 %0, [%1];\n}"
                 : "=r"(v)
                 : "l"(from), "r"(int(live)));
    return v;
}
__device__ __forceinline__ uint2 load_if(bool live, const uint2 *from) {
    uint2 v;
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %3, 0;\n"
                 "mov.b32 %0, 0;\n"
                 "mov.b32 %1, 0;\n"
                 "@live ld.global.nc.v2.b32 {%0, %1}, [%2];\n}"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(from), "r"(int(live)));
    return v;
}
__device__ __forceinline__ uint4 load_if(bool live, const uint4 *from) {
    uint4 v;
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %5, 0;\n"
                 "mov.b32 %0, 0;\n"
                 "mov.b32 %1, 0;\n"
                 "mov.b32 %2, 0;\n"
                 "mov.b32 %3, 0;\n"
                 "@live ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from), "r"(int(live)));
    return v;
}
__device__ __forceinline__ float first_of(uint32_t v) { return __uint_as_float(v); }
__device__ __forceinline__ float first_of(uint2 v) { return __uint_as_float(v.x); }
__device__ __forceinline__ float second_of(uint2 v) { return __uint_as_float(v.y); }

// What a lane of a loading warp brings at once. T is what x holds: float, or uint16_t for the bits
// of an Element.
template <class Element, class T, Piece Kind>
struct Elements {
    static constexpr bool Floats = std::is_same_v<T, float>;
    static constexpr int Count = Kind == Word                        ? 2
                                 : Kind == Threes                    ? 3
                                 : Kind == Column || Kind == Columns ? 4
                                                                     : 1;
    using One = std::conditional_t<Floats, uint32_t, uint16_t>;
    using Two = std::conditional_t<Floats, uint2, uint32_t>;
    using Four = std::conditional_t<Floats, uint4, uint2>;
    using Unit = std::conditional_t<Kind == Whole || Kind == Threes, Four,
                                    std::conditional_t<Kind == Line || Kind == Columns, Two, One>>;
    using Register = std::conditional_t<std::is_same_v<Unit, uint16_t>, uint32_t, Unit>;
    Register value[Count];

    // Units begin .. end, `step` apart.
    __device__ __forceinline__ void load(const T *from, int step, int begin, int end) {
#pragma unroll
        for (int i = 0; i < Count; ++i)
            value[i] =
                load_if(i >= begin && i < end, reinterpret_cast<const Unit *>(from + i * step));
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

// The threads of the loading warps bring rows top, top + 1, ... of an image into a slot.
template <class Element, class T, Piece Kind>
__device__ __noinline__ void load_unit(const Cut &cut, const T *image, int top, uint32_t slot,
                                       int thread, int threads) {
    using Got = Elements<Element, T, Kind>;
    constexpr int Batch = sizeof(Got) > 32 ? 4 : sizeof(Got) > 16 ? 8 : 16;
    const int h = cut.h, w = cut.w, c = cut.c, pieces = cut.pieces, items = cut.items;
    const int parts = cut.parts, pitch = int(cut.pitch), column_bytes = cut.pixel * 2;
    const int area = h * w, pad_left = cut.pad_left, nchw = cut.nchw && c > 1;
    const cf::Divisor by_parts = cut.by_parts;
    int line = cut.by_items.quotient(thread), item = thread - line * items;
    const int lines = cut.by_items.quotient(threads), rest = threads - lines * items;
#pragma unroll 1
    for (int first = thread; first < pieces; first += Batch * threads) {
        Got got[Batch];
        uint32_t to[Batch];
#pragma unroll
        for (int b = 0; b < Batch; ++b) {
            const int e = first + b * threads;
            int begin = 0, end = e < pieces ? Got::Count : 0, from, step = 1;
            if constexpr (Kind == Whole) {
                from = e * 4;
                to[b] = slot + e * 8;
            } else {
                int row = line;
                if constexpr (Kind == Line) {
                    from = 2 * item;
                    to[b] = pad_left * column_bytes + item * 4;
                } else if constexpr (Kind == Threes) {
                    from = 12 * item;
                    step = 4;
                    to[b] = (pad_left + 4 * item) * column_bytes;
                } else if (nchw) {
                    row = by_parts.quotient(line);
                    const int part = line - row * parts, column = Kind == Columns ? 2 * item : item;
                    from = Got::Count * part * area + column;
                    step = area;
                    end = min(end, c - Got::Count * part);
                    to[b] = (pad_left + column) * column_bytes + part * (Got::Count * 2);
                } else if (c == 1) { // one of the two may lie in the padding
                    const int column = 2 * item - pad_left;
                    from = column;
                    begin = max(-column, 0);
                    end = min(end, w - column);
                    to[b] = item * 4;
                } else {
                    const int column = by_parts.quotient(item), part = item - column * parts;
                    from = column * c + 2 * part;
                    end = min(end, c - 2 * part);
                    to[b] = (pad_left + column) * column_bytes + part * 4;
                }
                if (unsigned(top + row) >= unsigned(h))
                    end = 0;
                from += (top + row) * w * (nchw ? 1 : c);
                to[b] += slot + row * pitch;
                line += lines, item += rest;
                if (item >= items)
                    item -= items, ++line;
            }
            got[b].load(image + from, step, begin, end);
        }
#pragma unroll
        for (int b = 0; b < Batch; ++b)
            if (first + b * threads < pieces)
                got[b].store(to[b], column_bytes);
    }
}

template <class Element, class T>
__device__ __forceinline__ void load_unit(const Cut &cut, const T *image, int top, uint32_t slot,
                                          int thread, int threads) {
    switch (cut.piece) {
    case Whole:
        return load_unit<Element, T, Whole>(cut, image, top, slot, thread, threads);
    case Line:
        return load_unit<Element, T, Line>(cut, image, top, slot, thread, threads);
    case Threes:
        return load_unit<Element, T, Threes>(cut, image, top, slot, thread, threads);
    case Columns:
        return load_unit<Element, T, Columns>(cut, image, top, slot, thread, threads);
    case Column:
        return load_unit<Element, T, Column>(cut, image, top, slot, thread, threads);
    default:
        return load_unit<Element, T, Word>(cut, image, top, slot, thread, threads);
    }
}

__device__ __forceinline__ void store_shared_16(uint32_t at, uint32_t v) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"(uint16_t(v)) : "memory");
}

__device__ __forceinline__ uint32_t load_shared_16(uint32_t at) {
    uint16_t v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(at) : "memory");
    return v;
}

// A warp brings `bytes` bytes to where they lie as far behind a multiple of 16 as in x, and `fill`
// bytes of zeros behind them: whole 16 bytes by a bulk copy, elements before and behind one by one.
// `full` expects an arrival of each lane.
__device__ __forceinline__ void bring(const uint16_t *from, uint32_t bytes, uint32_t fill,
                                      uint32_t to, cf::Barrier &full, int lane) {
    const auto begin = reinterpret_cast<uint64_t>(from);
    const uint32_t skew = begin & 15, end = skew + bytes; // behind `to`
    const uint32_t first = min((skew + 15) & ~15u, end), last = max(end & ~15u, first);
    const uint16_t *base = from - skew / 2; // only compared and added to
    const uint32_t head = skew + 2 * lane, tail = last + 2 * lane;
    const uint32_t before = load_if(head < first, base + head / 2);
    const uint32_t behind = load_if(tail < end, base + tail / 2);
    cf::publish_to_bulk_copies(); // what was written here before
    __syncwarp();
    if (lane == 0 && last > first) {
        full.expect(last - first);
        cf::copy_bulk(to + first, base + first / 2, last - first, full);
    }
    if (head < first)
        store_shared_16(to + head, before);
    for (uint32_t at = tail; at < end + fill; at += 64)
        store_shared_16(to + at, at == tail ? behind : 0);
    full.arrive();
}

// All threads of the loading warps meet.
__device__ __forceinline__ void wait_for_loading_warps(int threads) {
    asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
}

// The channels of an image from four planes of x at a time, which lie one behind the other, to
// beside each other, two pixels at once. The first plane begins with a word; of an odd
// area every other one does not.
template <bool Odd>
__device__ __forceinline__ void interleave_pairs(const Cut &cut, uint32_t raw, uint32_t slot,
                                                 int thread, int threads) {
    const int area = cut.h * cut.w, pixel_bytes = cut.pixel * 2;
    for (int part = 0; part < cut.parts; ++part) {
        const int channels = cut.c - part * 4;
        uint32_t from = raw + part * area * 8 + thread * 4;
        uint32_t to = slot + part * 8 + thread * 2 * pixel_bytes;
#pragma unroll 2
        for (int i = thread; i < area / 2; i += threads) {
            uint32_t two[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const uint32_t at = from + j * area * 2;
                if (j >= channels)
                    two[j] = 0;
                else if (Odd && j % 2)
                    two[j] = __byte_perm(load_shared_16(at), load_shared_16(at + 2), 0x5410);
                else
                    two[j] = cf::load_shared(at);
            }
            store_shared2(to, __byte_perm(two[0], two[1], 0x5410),
                          __byte_perm(two[2], two[3], 0x5410));
            store_shared2(to + pixel_bytes, __byte_perm(two[0], two[1], 0x7632),
                          __byte_perm(two[2], two[3], 0x7632));
            from += threads * 4, to += threads * 2 * pixel_bytes;
        }
        if (Odd && thread < min(channels, 4)) // the last pixel
            store_shared_16(slot + part * 8 + thread * 2 + (area - 1) * pixel_bytes,
                            load_shared_16(raw + ((part * 4 + thread + 1) * area - 1) * 2));
    }
}

// The same from Count planes, one pixel at a time.
template <int Count>
__device__ __forceinline__ void interleave(const Cut &cut, uint32_t raw, uint32_t slot, int thread,
                                           int threads) {
    const int area = cut.h * cut.w, pixel_bytes = cut.pixel * 2;
    for (int part = 0; part < cut.parts; ++part) {
        const int channels = cut.c - part * Count;
        uint32_t from = raw + part * Count * area * 2 + thread * 2;
        uint32_t to = slot + part * Count * 2 + thread * pixel_bytes;
#pragma unroll 4
        for (int i = thread; i < area; i += threads) {
            uint32_t word[Count / 2];
#pragma unroll
            for (int j = 0; j < Count; j += 2) {
                const uint32_t a = j < channels ? load_shared_16(from + j * area * 2) : 0;
                const uint32_t b = j + 1 < channels ? load_shared_16(from + (j + 1) * area * 2) : 0;
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
