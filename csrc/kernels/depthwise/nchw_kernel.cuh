// The kernel of depthwise_nchw: planes, or rows of them, go through a ring of stages in shared
// memory, and threads slide down over them.
#pragma once

#include "kernels/depthwise/nchw_plan.cuh"
#include "kernels/depthwise/sums.cuh"
#include "pipeline/ring.cuh"
#include "pipeline/scheduler.cuh"
#include "pipeline/segment.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/grid.cuh"
#include "ptx/load_over.cuh"

namespace cf::depthwise_nchw {

// What a kernel is compiled for: stored elements, filter, stride, and the bytes that rows of x
// begin at multiples of and are multiples of.
template <class StoredOf, int FilterOf, int StrideOf, int VectorOf>
struct Shape {
    using Stored = StoredOf;
    static constexpr int R = FilterOf, Stride = StrideOf, Vector = VectorOf;
    static constexpr int Size = sizeof(Stored), FilterBytes = R * R * Size;
    static constexpr int Columns = columns_of(R, Stride, Size, Vector);
    using Sums = depthwise::Sums<R, Stride, Columns, 1>;
    using Weights = depthwise::Weights<R, 1>;
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
                     shared.ring.full[at], lane);
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

// The window of a thread: its columns of a row of x, as units of up to a word, and which of these x
// has. The others are zero and stay so: nothing is ever loaded over them.
template <class Shape>
class Window {
    static constexpr int Width = Shape::Sums::Width, Size = Shape::Size, Lead = Shape::Lead;
    static constexpr int UnitBytes = Shape::Vector < 4 ? Shape::Vector : 4;
    static constexpr int UnitColumns = UnitBytes / Size;
    // Units in front of the origin, and all.
    static constexpr int Before = units_of(Lead, UnitColumns, Shape::Vector);
    static constexpr int Units = Before + units_of(Width - Lead, UnitColumns, Shape::Vector);
    static_assert(Before * UnitBytes <= ZerosBefore && (Units - Before) * UnitBytes <= ZerosBehind);

    uint32_t unit[Units] = {};
    uint32_t inside = 0; // a bit for each

    template <int I>
    __device__ __forceinline__ void load_from(uint32_t at) {
        if constexpr (I < Units) {
            constexpr int Offset = (I - Before) * UnitBytes;
            constexpr int Count = loaded_together(I - Before, Units - Before, Shape::Vector);
            const uint32_t live = inside & 1u << I;
            if constexpr (Count == 4)
                load_over<Offset>(live, at, unit[I], unit[I + 1], unit[I + 2], unit[I + 3]);
            else if constexpr (Count == 2)
                load_over<Offset>(live, at, unit[I], unit[I + 1]);
            else if constexpr (UnitBytes == 4)
                load_over<Offset>(live, at, unit[I]);
            else
                load_over_u16<Offset>(live, at, unit[I]);
            load_from<I + Count>(at);
        }
    }
    __device__ __forceinline__ float element(int i) const {
        using Stored = typename Shape::Stored;
        const int column = i - Lead + Before * UnitColumns;
        const uint32_t bits = unit[column / UnitColumns];
        if constexpr (Size == 4)
            return __uint_as_float(bits);
        else
            return widen(reinterpret_cast<const Pack<Stored, 2> &>(bits).v[column % UnitColumns]);
    }

  public:
    // From a column of x on, which may lie in the padding.
    __device__ __forceinline__ Window(int first, int columns) {
#pragma unroll
        for (int i = 0; i < Units; ++i)
            if (unsigned(first + Lead + (i - Before) * UnitColumns) < unsigned(columns))
                inside |= 1u << i;
        keep(inside); // or rows would ask anew
    }
    // The row whose origin lies there.
    __device__ __forceinline__ void load(uint32_t at, float (&x)[Width][1]) {
        load_from<0>(at);
#pragma unroll
        for (int i = 0; i < Width; ++i)
            x[i][0] = element(i);
    }
};

// A plane's filter, whose words begin at `at`.
template <class Shape>
__device__ __forceinline__ void load_weights(uint32_t at, typename Shape::Weights &weights) {
#pragma unroll
    for (int tap = 0; tap < Shape::R * Shape::R; ++tap) {
        float &weight = weights.value[tap / Shape::R][tap % Shape::R][0];
        if constexpr (Shape::Size == 4) {
            weight = load_shared_f32(at + tap * 4);
        } else {
            const auto bits = uint16_t(load_shared_u16(at + tap * 2));
            weight = widen(reinterpret_cast<const typename Shape::Stored &>(bits));
        }
    }
}

// The oldest row of sums, for core/fragment_epilogue.cuh, in runs of so many columns.
template <class Shape, int Together>
struct OutputMap {
    typename Shape::Sums &sums;
    int64_t place; // of the first sum in y
    int channel, columns;

    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
        body(channel, Constant<Shape::Columns>(),
             [&](int q) -> float & { return sums.oldest(q, 0); });
    }
    template <class T, class Body>
    __device__ __forceinline__ void for_runs(T *tensor, Body body) {
#pragma unroll
        for (int q = 0; q < Shape::Columns; q += Together)
            body(Constant<Together>(), tensor + place + q, q < columns,
                 [&](int i) -> float & { return sums.oldest(q + i, 0); });
    }
};

// Where a task's rows of y go.
struct Output {
    int64_t place; // of its first element in y
    uint32_t at;   // in shared memory, where the strip's are gathered
    int channel, columns, rows;
};

// The oldest row of sums, the task's row number `row` of y.
template <int Together, class Shape>
__device__ __forceinline__ void finish_row(const Tiling &tiling, const Output &output, int row,
                                           typename Shape::Sums &sums, const Finish &finish) {
    using Stored = typename Shape::Stored;
    static_assert(Shape::Columns % Together == 0, "whole runs");
    const int columns = row < output.rows ? output.columns : 0;
    // By itself, so that it costs one branch where there is none.
    if (tiling.finishes) {
        const OutputMap<Shape, Together> map = {sums, output.place + int64_t(row) * tiling.q,
                                                output.channel, columns};
        finish_fragment<Stored>(finish, tiling.c, map);
        sums.activate_oldest(tiling.activation);
    }
#pragma unroll
    for (int q = 0; q < Shape::Columns; q += Together) {
        float v[Together];
#pragma unroll
        for (int i = 0; i < Together; ++i)
            v[i] = sums.oldest(q + i, 0);
        store_neighbours<Stored>(output.at + q * Shape::Size, q < columns, v);
    }
}

// A thread's task of a strip: as many rows of y as `tiling` says in adjacent columns, the first of
// which meets row `row` of the strip's `count` rows of x, that at `at`.
template <int Together, class Shape>
__device__ __forceinline__ void compute_task(const Tiling &tiling, Window<Shape> &window, int row,
                                             int count, uint32_t at, uint32_t zeros,
                                             const typename Shape::Weights &weights, Output output,
                                             const Finish &finish) {
    const uint32_t pitch = tiling.w * Shape::Size;
    typename Shape::Sums sums = {};
    const int first = Shape::Sums::Rows - 1;
#pragma unroll 1
    for (int step = 0; step < tiling.rows + first; ++step) {
        const auto load = [&](int, float(&x)[Shape::Sums::Width][1]) {
            window.load(unsigned(row) < unsigned(count) ? at : zeros, x);
            ++row;
            at += pitch;
        };
        const int least = step - tiling.rows + 1;
        if (step >= first && least <= 0)
            sums.template step<false>(weights, 0, first, load);
        else
            sums.template step<true>(weights, least, step, load);
        if (step < first)
            continue;
        finish_row<Together, Shape>(tiling, output, step - first, sums, finish);
        output.at += tiling.q * Shape::Size;
    }
}

// Task `number` of a strip in stage `stage`, whose first row of x lies at `rows`.
template <class Shape>
__device__ __forceinline__ void
compute_task(const Strips &strips, const Strip &strip, int stage, uint32_t rows, uint32_t gathered,
             int number, uint32_t scratch, const typename Shape::Stored *w, const Finish &finish) {
    const Tiling &tiling = strips.tiling;
    const int task = min(number, tiling.tasks - 1);
    const int line = tiling.by_tiles.quotient(task), tile = task - line * tiling.tiles;
    const int of_plane = tiling.by_pieces.quotient(line);
    const int piece = line - of_plane * tiling.pieces;
    const bool live = number < tiling.tasks && of_plane < strip.planes;
    const int plane = live ? of_plane : 0;
    const int channel = strips.channel(strip.plane + plane);
    const auto filters = uint32_t(reinterpret_cast<uint64_t>(w));
    const uint32_t beside = filters + uint32_t(channel) * Shape::FilterBytes & 3;
    typename Shape::Weights weights;
    load_weights<Shape>(strips.filters(stage) + plane * (filter_words(Shape::R, Shape::Size) * 4) +
                            beside,
                        weights);
    const int q = tile * Shape::Columns, p = piece * tiling.rows; // the latter in the strip
    const int column = q * Shape::Stride - tiling.pad_left;
    const int row = (strip.row + p) * Shape::Stride - tiling.pad_top - strip.from;
    Window<Shape> window(column, tiling.w);
    const uint32_t at =
        rows + ((plane * tiling.h + row) * tiling.w + column + Shape::Lead) * Shape::Size;
    Output output;
    output.place = (int64_t(strip.plane + plane) * tiling.p + strip.row + p) * tiling.q + q;
    output.at = gathered + ((plane * strip.rows + p) * tiling.q + q) * Shape::Size;
    output.channel = channel;
    output.columns = live ? tiling.q - q : 0;
    output.rows = strip.rows - p;
    const auto compute = [&](auto together) {
        compute_task<together.value>(tiling, window, row, strip.count, at, scratch + ZerosBefore,
                                     weights, output, finish);
    };
    constexpr int Most = most_together(Shape::Columns, Shape::Vector, Shape::Size);
    if (Most > 2 && tiling.together == Most)
        compute(Constant<Most>());
    else if (Most > 1 && tiling.together * 2 >= Most)
        compute(Constant<(Most + 1) / 2>());
    else
        compute(Constant<1>());
}

template <class Shape>
__device__ __forceinline__ void
compute(const Strips &strips, int warp, int lane, uint32_t scratch, const typename Shape::Stored *x,
        const typename Shape::Stored *w, typename Shape::Stored *y, const Finish &finish) {
    const Tiling &tiling = strips.tiling;
    const int sets = (tiling.tasks + 31) / 32; // of tasks, for a warp each
    RingPosition at;
    int set = warp; // counted on from strip to strip, so that warps share the sets evenly
    for (int m = 0; m < strips.count; ++m, at.next(tiling.stages)) {
        const Strip strip = strips.strip<Shape>(m);
        const auto skew = uint32_t(reinterpret_cast<uint64_t>(strips.begin(x, strip)) & 15);
        const uint32_t gathered = strips.gathered(strips.output(y, strip), at.stage);
        strips.shared.ring.wait_full(at);
        for (; set < sets; set += Warps)
            compute_task<Shape>(strips, strip, at.stage, strips.rows(at.stage) + skew, gathered,
                                set * 32 + lane, scratch, w, finish);
        set -= sets;
        // The last warp to leave a stage stores what all have gathered, and loads the next strip.
        publish_to_bulk_copies();
        if (strips.shared.leave(at, lane)) {
            strips.store(y, strip, at.stage, lane);
            if (m + tiling.stages < strips.count)
                strips.load<Shape>(x, w, m + tiling.stages, at.stage, lane);
        }
        __syncwarp();
    }
    wait_for_copies(); // nobody leaves before its own have arrived, and its stores have read
    wait_for_stores_to_read();
}
#endif

template <class Stored, int R, int Stride, int Vector>
__global__ void __launch_bounds__(Warps * 32,
                                  blocks_of(R, columns_of(R, Stride, sizeof(Stored), Vector)))
    depthwise_nchw_kernel(const __grid_constant__ Tiling tiling, const Stored *__restrict__ x,
                          const Stored *__restrict__ w, Stored *__restrict__ y,
                          const __grid_constant__ Finish finish) {
#if CF_SM90
    using Shape = Shape<Stored, R, Stride, Vector>;
    extern __shared__ __align__(128) unsigned char dynamic[];
    __shared__ Stages shared;
    static_assert(sizeof(shared) <= StaticShared, "the plan leaves room for it");
    uint32_t scratch = shared_address(dynamic);
    keep(scratch); // or each use reads a special register anew
    const auto mine = StridedTiles::of_block();
    const Strips strips = {tiling, shared, scratch + ZeroBytes, mine, mine.count(tiling.strips)};
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (warp == 0) {
        shared.init(tiling.stages, lane);
        publish_barriers();
    }
    if (threadIdx.x < ZeroBytes / 4)
        store_shared(scratch + threadIdx.x * 4, 0);
    __syncthreads();
    let_next_kernel_begin();
    wait_for_kernels_before();
    for (int m = warp; m < min(strips.count, tiling.stages); m += Warps)
        strips.load<Shape>(x, w, m, m, lane);
    __syncwarp();
    compute<Shape>(strips, warp, lane, scratch, x, w, y, finish);
#else
    not_compiled();
#endif
}

} // namespace cf::depthwise_nchw
