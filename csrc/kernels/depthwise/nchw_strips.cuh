// The strips of depthwise_nchw: planes, or rows of them, come to shared memory with their filters,
// and leave it as y, but where threads store that themselves (Shape::StoresDirectly).
#pragma once

#include "kernels/depthwise/nchw_plan.cuh"
#include "kernels/depthwise/sums.cuh"
#include "pipeline/ring.cuh"
#include "pipeline/scheduler.cuh"
#include "pipeline/segment.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/l2_policy.cuh"

namespace cf::depthwise_nchw {

// What a kernel is compiled for: stored elements, filter, stride, the bytes that rows of x begin at
// multiples of and are multiples of, a thread's columns, and whether tensor cores multiply.
template <class StoredOf, int FilterOf, int StrideOf, int VectorOf, int ColumnsOf, bool OnBandsOf>
struct Shape {
    using Stored = StoredOf;
    static constexpr bool OnBands = OnBandsOf;
    static constexpr int R = FilterOf, Stride = StrideOf, Vector = VectorOf;
    static constexpr int Size = sizeof(Stored), FilterBytes = R * R * Size;
    static constexpr int Columns = ColumnsOf;
    using Sums = depthwise::Sums<R, Stride, Columns, 1>;
    using Weights = depthwise::Weights<R, 1>;
    static constexpr bool StoresDirectly = stores_directly(R, Size, Vector);
    // Whether each step asks which rows of sums a task has. Elsewhere a step that does not is
    // beside one that does, for a task's edges; for large filters the two were slower than one
    // (docs/notes/depthwise.md).
    static constexpr bool AsksAlways = R > 3 && Stride == 1;
    // Columns of a window in front of its origin, which is where it is read from: where padding is
    // as wide as half of the filter, the origin is so many tiles from the row's beginning, so
    // where a vector begins. Single elements need no such place.
    static constexpr int Lead = Vector > Size ? R / 2 : 0;
    static_assert(Columns * Stride * Size % Vector == 0, "tiles begin where vectors do");
};

#if CF_SM90
// Planes from `plane` on, and rows of y from `row` on. In x its rows begin at `from`.
struct Strip {
    int plane, planes;
    int row, rows;
    int from, count;
};

// The ring that strips go through, and for each stage a barrier that ends a phase when all warps
// have gathered their rows of y there. A count says who is the last, and the order of counts would
// do for the rest; but racecheck follows barriers only, on which every lane arrives.
struct Stages {
    SelfLoadingRing<MaxStages> ring;
    Barrier gathered[MaxStages];

    __device__ __forceinline__ void init(int stages, int lane) {
        ring.init(stages, 65, lane); // of the filters' copies, of the rows, and of y
        if (lane < stages)
            gathered[lane].init(Warps * 32);
    }
    // By all warps, when they have gathered theirs. Says whether this one is the last, and then all
    // of y is there.
    __device__ __forceinline__ bool leave(RingPosition at, int lane) {
        gathered[at.stage].arrive();
        __syncwarp();
        int last = 0;
        if (lane == 0)
            last = ring.release(at, Warps);
        last = __shfl_sync(~0u, last, 0);
        if (last)
            gathered[at.stage].wait(at.parity()); // it does not wait: all have arrived that counted
        return last;
    }
};

// A block's strips, and how they come to shared memory: each with the filters of its planes.
struct Strips {
    const Tiling &tiling;
    Stages &shared;
    uint32_t stages; // in shared memory
    StridedTiles mine;
    int count;

    template <class Shape>
    __device__ __forceinline__ Strip strip(int m) const {
        const int number = mine.tile(m), set = tiling.by_row_strips.quotient(number);
        Strip strip;
        strip.plane = set * tiling.set;
        strip.planes = min(tiling.set, tiling.planes - strip.plane);
        strip.row = (number - set * tiling.row_strips) * tiling.strip_rows;
        strip.rows = min(tiling.strip_rows, tiling.p - strip.row);
        strip.from = 0, strip.count = tiling.h;
        if (tiling.row_strips > 1) { // what a filter that hangs over an edge meets
            const int first = strip.row * Shape::Stride - tiling.pad_top;
            const int end = first + (strip.rows - 1) * Shape::Stride + Shape::R;
            strip.from = min(max(first, 0), tiling.h);
            strip.count = max(min(end, tiling.h) - strip.from, 0);
        }
        return strip;
    }
    // Where the rows of a strip lie in its stage: as far behind a multiple of 16 as in x.
    template <class Stored>
    __device__ __forceinline__ const Stored *begin(const Stored *x, const Strip &strip) const {
        return x + (int64_t(strip.plane) * tiling.h + strip.from) * tiling.w;
    }
    __device__ __forceinline__ uint32_t filters(int stage) const {
        return stages + stage * tiling.stage_bytes;
    }
    __device__ __forceinline__ uint32_t rows(int stage) const {
        return filters(stage) + tiling.filter_bytes;
    }
    // Where its rows of y are gathered: as far behind a multiple of 16 as in y.
    template <class Stored>
    __device__ __forceinline__ Stored *output(Stored *y, const Strip &strip) const {
        return y + (int64_t(strip.plane) * tiling.p + strip.row) * tiling.q;
    }
    template <class Stored>
    __device__ __forceinline__ uint32_t gathered(Stored *output, int stage) const {
        return filters(stage) + tiling.output + uint32_t(reinterpret_cast<uint64_t>(output) & 15);
    }
    // Where a plane's filter begins in its stage.
    template <class Shape>
    __device__ __forceinline__ uint32_t filter(const typename Shape::Stored *w, int stage,
                                               int plane, int channel) const {
        const auto all = uint32_t(reinterpret_cast<uint64_t>(w));
        const uint32_t beside = all + uint32_t(channel) * Shape::FilterBytes & 3;
        return filters(stage) + plane * (filter_words(Shape::R, Shape::Size) * 4) + beside;
    }
    __device__ __forceinline__ int channel(int plane) const {
        return plane - tiling.by_channels.quotient(plane) * tiling.c;
    }
    // Filters of a strip's planes, one by a lane: words, of which the first and the last ones may
    // hold a neighbour's element, but none from beside the tensor.
    template <class Shape>
    __device__ __forceinline__ void load_filters(const typename Shape::Stored *w,
                                                 const Strip &strip, int at, int lane) const {
        constexpr int Words = filter_words(Shape::R, Shape::Size);
        const auto begin = reinterpret_cast<uint64_t>(w);
        const uint64_t end = begin + int64_t(tiling.c) * Shape::FilterBytes;
        for (int plane = lane; plane < strip.planes; plane += 32) {
            const uint64_t from =
                begin + int64_t(channel(strip.plane + plane)) * Shape::FilterBytes;
            const uint64_t first = from & ~uint64_t(3);
            const uint32_t to = filters(at) + plane * (Words * 4);
            if (first >= begin && first + Words * 4 <= end) {
#pragma unroll
                for (int i = 0; i < Words; ++i)
                    copy4_async(to + i * 4, reinterpret_cast<const void *>(first + i * 4), true);
            } else {
                for (int i = 0; i < Shape::FilterBytes; i += 2)
                    store_shared_u16(to + uint32_t(from - first) + i,
                                     *reinterpret_cast<const uint16_t *>(from + i));
            }
        }
        shared.ring.full[at].arrive_after_copies();
    }
    // Strip m, by a warp. The stage is full when its rows of y, too, may be written: when those
    // that this warp has stored from there were read.
    template <class Shape>
    __device__ __forceinline__ void load(const typename Shape::Stored *x,
                                         const typename Shape::Stored *w, int m, int at,
                                         int lane) const {
        const Strip from = strip<Shape>(m);
        load_filters<Shape>(w, from, at, lane);
        const int rows = from.planes == 1 ? from.count : from.planes * tiling.h;
        load_segment(reinterpret_cast<const uint16_t *>(begin(x, from)),
                     uint32_t(rows) * tiling.w * Shape::Size, 0, this->rows(at),
                     shared.ring.full[at], lane, tiling.evict_first);
        if (lane == 0) {
            wait_for_stores_to_read();
            shared.ring.full[at].arrive();
        }
    }
    // A strip's rows of y, by a warp, when all of them were gathered and published.
    template <class Stored>
    __device__ __forceinline__ void store(Stored *y, const Strip &strip, int at, int lane) const {
        using Element = std::conditional_t<sizeof(Stored) == 4, float, uint16_t>;
        Stored *const to = output(y, strip);
        store_segment<Element, 32, 32>(reinterpret_cast<uint64_t>(to),
                                       uint32_t(strip.planes * strip.rows) * tiling.q *
                                           uint32_t(sizeof(Stored)),
                                       gathered(to, at), lane);
    }
};
#endif

} // namespace cf::depthwise_nchw
