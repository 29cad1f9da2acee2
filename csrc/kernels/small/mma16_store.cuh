// How small_mma16 stores y: from registers to where it belongs, or into an output stage in shared
// memory, from which bulk copies take it there.
#pragma once

#include "core/element.cuh"
#include "kernels/small/mma16_load.cuh"
#include "kernels/small/mma16_plan.cuh"
#include "ptx/predicated.cuh"

#include <type_traits>

namespace cf::small16 {

#if CF_SM90
// What lies there, or zero where `live` is false.
__device__ __forceinline__ float value_if(bool live, const float *from) {
    return __uint_as_float(load_if(live, reinterpret_cast<const uint32_t *>(from)));
}
template <class Element>
__device__ __forceinline__ float value_if(bool live, const Element *from) {
    const auto bits = uint16_t(load_if(live, reinterpret_cast<const uint16_t *>(from)));
    return widen(reinterpret_cast<const Element &>(bits));
}

// A stage of a ring, and the parity of the barriers' phase there.
struct PipelineState {
    int stages, index = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ void next() {
        if (++index == stages)
            index = 0, parity ^= 1;
    }
};

// Where a strip lies.
struct Place {
    int n, row; // image, first row of y
};
__device__ __forceinline__ Place place_of(const Tiling &tiling, int strip, int rows) {
    const int n = tiling.by_image.quotient(strip);
    return {n, (strip - n * tiling.strips_per_image) * tiling.row_tiles * rows};
}

// Address in y of a segment of the strip at `place`.
__device__ __forceinline__ uint64_t segment_of(const Tiling &tiling, const char *y, Place place,
                                               int segment) {
    const int64_t area = int64_t(tiling.p) * tiling.q, row = int64_t(place.row) * tiling.q;
    const int64_t before = tiling.nchw ? segment * area + row : row * tiling.k;
    return reinterpret_cast<uint64_t>(y + (place.n * area * tiling.k + before) *
                                              (tiling.to_floats ? 4 : 2));
}

// A warp stores what an output stage holds, a segment per lane: whole 16 bytes by a bulk copy,
// elements before and behind one by one.
__device__ __noinline__ void store_strip(const Tiling &tiling, const char *y, Place place, int rows,
                                         const char *stage, int lane) {
    const int64_t part =
        int64_t(min(tiling.strips_per_out_stage * tiling.row_tiles * rows, tiling.p - place.row)) *
        tiling.q;
    const uint64_t bytes = part * (tiling.segments > 1 ? 1 : tiling.k) * (tiling.to_floats ? 4 : 2);
    for (int s = lane; s < tiling.segments; s += 32) {
        const uint64_t begin = segment_of(tiling, y, place, s), end = begin + bytes;
        const uint64_t first = (begin + 15) & ~uint64_t(15), last = end & ~uint64_t(15);
        const char *from = stage + s * tiling.segment_bytes + (begin & 15);
        if (first < last)
            store_bulk(first, shared_address(from + (first - begin)), uint32_t(last - first));
        for (uint64_t at = begin; at < min(first, end); at += 2)
            *reinterpret_cast<uint16_t *>(at) =
                *reinterpret_cast<const uint16_t *>(from + (at - begin));
        for (uint64_t at = max(first, last); at < end; at += 2)
            *reinterpret_cast<uint16_t *>(at) =
                *reinterpret_cast<const uint16_t *>(from + (at - begin));
    }
    wait_for_stores_to_read();
}

// Stores Count neighbours, of which `live` exist, as Output: one by one, or as vectors where all do
// or none does.
template <class Output, bool Vectors, class Address, int Count>
__device__ __forceinline__ void store_run(Address to, const float (&v)[Count], int live) {
    constexpr bool Floats = std::is_same_v<Output, float>;
    if constexpr (!Vectors) {
#pragma unroll
        for (int i = 0; i < Count; ++i) {
            if constexpr (Floats) {
                const uint32_t word[1] = {__float_as_uint(v[i])};
                store_if(i < live, to + i * 4, word);
            } else {
                const Output stored = narrow<Output>(v[i]);
                store_if(i < live, to + i * 2, reinterpret_cast<const uint16_t &>(stored));
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
