// How small_mma16 finishes sums and stores y: from registers to where it belongs, or into a stage
// in shared memory, from which bulk copies bring it there.
#pragma once

#include "core/element.cuh"
#include "kernels/small/mma16_plan.cuh"
#include "kernels/small/mma16_load.cuh"

#include <type_traits>

namespace cf::small16 {

#if __CUDA_ARCH__ >= 900
// What lies there, or zero where `live` is false.
__device__ __forceinline__ float value_if(bool live, const float *from) {
    return __uint_as_float(load_if(live, reinterpret_cast<const uint32_t *>(from)));
}
template <class Element>
__device__ __forceinline__ float value_if(bool live, const Element *from) {
    const auto bits = uint16_t(load_if(live, reinterpret_cast<const uint16_t *>(from)));
    return cf::widen(reinterpret_cast<const Element &>(bits));
}

// A place in a ring of `count`, and the parity of the turn.
struct Turn {
    int count, at = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ void next() {
        if (++at == count)
            at = 0, parity ^= 1;
    }
};

// Where a unit lies.
struct Place {
    int n, row; // image, first row of y
};
__device__ __forceinline__ Place place_of(const Cut &cut, int unit, int rows) {
    const int n = cut.by_strips.quotient(unit);
    return {n, (unit - n * cut.strips) * cut.row_tiles * rows};
}

// Address in y of a segment of the unit at `place`.
__device__ __forceinline__ uint64_t segment_of(const Cut &cut, const char *y, Place place,
                                               int segment) {
    const int64_t area = int64_t(cut.p) * cut.q, row = int64_t(place.row) * cut.q;
    const int64_t before = cut.nchw ? segment * area + row : row * cut.k;
    return reinterpret_cast<uint64_t>(y + (place.n * area * cut.k + before) * (cut.wide ? 4 : 2));
}

// Stores a gathered unit, a segment per lane: whole 16 bytes by a bulk copy, elements before and
// behind one by one.
__device__ __noinline__ void store_unit(const Cut &cut, const char *y, Place place, int rows,
                                        const char *stage, int lane) {
    const int64_t part = int64_t(min(cut.joined * cut.row_tiles * rows, cut.p - place.row)) * cut.q;
    const uint64_t bytes = part * (cut.segments > 1 ? 1 : cut.k) * (cut.wide ? 4 : 2);
    for (int s = lane; s < cut.segments; s += 32) {
        const uint64_t begin = segment_of(cut, y, place, s), end = begin + bytes;
        const uint64_t first = (begin + 15) & ~uint64_t(15), last = end & ~uint64_t(15);
        const char *from = stage + s * cut.segment + (begin & 15);
        if (first < last)
            cf::store_bulk(first, cf::shared_address(from + (first - begin)),
                           uint32_t(last - first));
        for (uint64_t at = begin; at < min(first, end); at += 2)
            *reinterpret_cast<uint16_t *>(at) =
                *reinterpret_cast<const uint16_t *>(from + (at - begin));
        for (uint64_t at = max(first, last); at < end; at += 2)
            *reinterpret_cast<uint16_t *>(at) =
                *reinterpret_cast<const uint16_t *>(from + (at - begin));
    }
    cf::wait_for_stores_to_read();
}

// Stores that do nothing where `live` is false, to a global address or into shared memory.
#define CF_STORE_IF(Space, Address, Constraint)                                                    \
    __device__ __forceinline__ void store_if(bool live, Address to, uint16_t v) {                  \
        asm volatile("{\n.reg .pred live;\n"                                                       \
                     "setp.ne.s32 live, %2, 0;\n"                                                  \
                     "@live st." Space ".u16 [%0], %1;\n}" ::Constraint(to),                       \
                     "h"(v), "r"(int(live))                                                        \
                     : "memory");                                                                  \
    }                                                                                              \
    __device__ __forceinline__ void store_if(bool live, Address to, const uint32_t(&v)[1]) {       \
        asm volatile("{\n.reg .pred live;\n"                                                       \
                     "setp.ne.s32 live, %2, 0;\n"                                                  \
                     "@live st." Space ".b32 [%0], %1;\n}" ::Constraint(to),                       \
                     "r"(v[0]), "r"(int(live))                                                     \
                     : "memory");                                                                  \
    }                                                                                              \
    __device__ __forceinline__ void store_if(bool live, Address to, const uint32_t(&v)[2]) {       \
        asm volatile("{\n.reg .pred live;\n"                                                       \
                     "setp.ne.s32 live, %3, 0;\n"                                                  \
                     "@live st." Space ".v2.b32 [%0], {%1, %2};\n}" ::Constraint(to),              \
                     "r"(v[0]), "r"(v[1]), "r"(int(live))                                          \
                     : "memory");                                                                  \
    }                                                                                              \
    __device__ __forceinline__ void store_if(bool live, Address to, const uint32_t(&v)[4]) {       \
        asm volatile("{\n.reg .pred live;\n"                                                       \
                     "setp.ne.s32 live, %5, 0;\n"                                                  \
                     "@live st." Space ".v4.b32 [%0], {%1, %2, %3, %4};\n}" ::Constraint(to),      \
                     "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]), "r"(int(live))                    \
                     : "memory");                                                                  \
    }
CF_STORE_IF("global", char *, "l")
CF_STORE_IF("shared", uint32_t, "r")
#undef CF_STORE_IF

// Stores Count neighbours, of which `live` exist, as Output: one by one, or at once where all do or
// none does.
template <class Output, bool Together, class Address, int Count>
__device__ __forceinline__ void store_run(Address to, const float (&v)[Count], int live) {
    constexpr bool Floats = std::is_same_v<Output, float>;
    if constexpr (!Together) {
#pragma unroll
        for (int i = 0; i < Count; ++i) {
            if constexpr (Floats) {
                const uint32_t word[1] = {__float_as_uint(v[i])};
                store_if(i < live, to + i * 4, word);
            } else {
                const Output narrow = cf::narrow<Output>(v[i]);
                store_if(i < live, to + i * 2, reinterpret_cast<const uint16_t &>(narrow));
            }
        }
    } else {
        constexpr int Words = Floats ? Count : Count / 2;
        constexpr int Vector = Words % 4 == 0 ? 4 : Words % 2 == 0 ? 2 : 1;
#pragma unroll
        for (int i = 0; i < Words; i += Vector) {
            uint32_t word[Vector];
#pragma unroll
            for (int j = 0; j < Vector; ++j)
                word[j] = Floats ? __float_as_uint(v[i + j])
                                 : pack<Output>(v[2 * (i + j)], v[2 * (i + j) + 1]);
            store_if(live > 0, to + i * 4, word);
        }
    }
}
#endif

} // namespace cf::small16
