// A segment, contiguous bytes of a tensor, between global and shared memory at any address: bulk
// copies take whole 16 bytes at multiples of 16, so that the elements before and behind these go
// one by one. In shared memory a segment lies as far behind a multiple of 16 bytes as in the
// tensor.
#pragma once

#include "ptx/bulk.cuh"
#include "ptx/l2_policy.cuh"
#include "ptx/load_store.cuh"
#include "ptx/predicated.cuh"

#include <cstdint>

namespace cf {

#if CF_SM90
template <class Element>
__device__ __forceinline__ void copy_element(uint64_t to, uint32_t from) {
    static_assert(sizeof(Element) == 4 || sizeof(Element) == 2, "written for these");
    if constexpr (sizeof(Element) == 4)
        store_global(to, load_shared_f32(from));
    else
        store_global(to, uint16_t(load_shared_u16(from)));
}

// So many lanes store a segment to the global address `begin` from `staged` in shared memory. Whole
// pieces go in bulk: of 16 bytes, or of 32, a sector, where others store beside the segment at the
// same time. Whoever wrote `staged` has published it to bulk copies, and writes there again when
// the lanes have waited (wait_for_stores_to_read).
template <class Element, int Piece, int Lanes>
__device__ __forceinline__ void store_segment(uint64_t begin, uint32_t bytes, uint32_t staged,
                                              int lane) {
    constexpr int Size = sizeof(Element), Stride = Lanes * Size;
    const uint64_t end = begin + bytes;
    const uint64_t first = (begin + (Piece - 1)) & ~uint64_t(Piece - 1);
    const uint64_t last = end & ~uint64_t(Piece - 1);
    const uint32_t from = staged - uint32_t(begin); // added to an address in the tensor
    const auto copy_elements = [&](uint64_t at, uint64_t end) {
        if constexpr (Stride + Size >= Piece) { // one for each lane at most
            if (at < end)
                copy_element<Element>(at, from + uint32_t(at));
        } else {
            for (; at < end; at += Stride)
                copy_element<Element>(at, from + uint32_t(at));
        }
    };
    if (lane == 0 && first < last)
        store_bulk(first, from + uint32_t(first), uint32_t(last - first));
    copy_elements(begin + lane * Size, min(first, end));
    copy_elements(max(first, last) + lane * Size, end);
}

// A warp loads a segment of 16-bit elements to `to`, a multiple of 16 bytes, plus what `from` lies
// behind one, and writes so many bytes of zeros behind it. `full` expects an arrival of each lane.
// `evict_first` says whether its lines leave the cache before others (ptx/l2_policy.cuh).
__device__ __forceinline__ void load_segment(const uint16_t *from, uint32_t bytes, uint32_t zeros,
                                             uint32_t to, Barrier &full, int lane,
                                             bool evict_first = false) {
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
        copy_bulk(to + first, base + first / 2, last - first, full, evict_first);
    }
    if (head < first)
        store_shared_u16(to + head, before);
    for (uint32_t at = tail; at < end + zeros; at += 64)
        store_shared_u16(to + at, at == tail ? behind : 0);
    full.arrive();
}

// One lane asks for as many bytes of each of some planes, `area` elements apart and `plane` bytes
// apart in shared memory, all multiples of 16 bytes. `full` expects an arrival for all of them.
template <class Element>
__device__ __forceinline__ void load_planes(uint32_t to, uint32_t plane, const Element *from,
                                            int64_t area, uint32_t bytes, int planes,
                                            Barrier &full) {
    full.arrive_and_expect(bytes * planes);
#pragma unroll 1
    for (int c = 0; c < planes; ++c)
        copy_bulk(to + c * plane, from + c * area, bytes, full);
}
#endif

} // namespace cf
