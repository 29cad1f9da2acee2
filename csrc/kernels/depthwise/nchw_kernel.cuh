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

namespace cf::depthwise_nchw {

// What a kernel is compiled for: stored elements, filter and stride.
template <class StoredOf, int FilterOf, int StrideOf>
struct Shape {
    using Stored = StoredOf;
    static constexpr int R = FilterOf, Stride = StrideOf;
    using Sums = depthwise::Sums<R, Stride, Columns, 1>;
    using Weights = depthwise::Weights<R, 1>;
    static constexpr int Size = sizeof(Stored), FilterBytes = R * R * Size;
};

#if CF_SM90
// Planes from `plane` on, and rows of y from `row` on. In x its rows begin at `from`.
struct Strip {
    int plane, planes;
    int row, rows;
    int from, count;
};

// A block's strips, and how they come to shared memory: each with the filters of its planes.
struct Strips {
    const Tiling &tiling;
    SelfLoadingRing<MaxStages> &ring;
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
        return filters(stage) + tiling.filter_bytes + Slack;
    }
    __device__ __forceinline__ int channel(int plane) const {
        return plane - tiling.by_channels.quotient(plane) * tiling.c;
    }
    // Filters of a strip's planes, by a warp: words, of which the first and the last ones may hold
    // a neighbour's element, but none from beside the tensor.
    template <class Shape>
    __device__ __forceinline__ void load_filters(const typename Shape::Stored *w,
                                                 const Strip &strip, int at, int lane) const {
        constexpr int Words = filter_words(Shape::R, Shape::Size);
        const auto begin = reinterpret_cast<uint64_t>(w);
        const uint64_t end = begin + int64_t(tiling.c) * Shape::FilterBytes;
        for (int i = lane; i < strip.planes * Words; i += 32) {
            const int plane = i / Words, word = i - plane * Words;
            const int64_t before = int64_t(channel(strip.plane + plane)) * Shape::FilterBytes;
            const uint64_t from = (begin + before & ~uint64_t(3)) + word * 4;
            const uint32_t to = filters(at) + i * 4;
            if (from >= begin && from + 4 <= end) {
                copy4_async(to, reinterpret_cast<const void *>(from), true);
            } else {
                for (int half = 0; half < 4; half += 2)
                    if (from + half >= begin && from + half + 2 <= end)
                        store_shared_u16(to + half,
                                         *reinterpret_cast<const uint16_t *>(from + half));
            }
        }
        ring.full[at].arrive_after_copies();
    }
    // Strip m, by a warp.
    template <class Shape>
    __device__ __forceinline__ void load(const typename Shape::Stored *x,
                                         const typename Shape::Stored *w, int m, int at,
                                         int lane) const {
        const Strip from = strip<Shape>(m);
        load_filters<Shape>(w, from, at, lane);
        const int rows = from.planes == 1 ? from.count : from.planes * tiling.h;
        load_segment(reinterpret_cast<const uint16_t *>(begin(x, from)),
                     uint32_t(rows) * tiling.w * Shape::Size, 0, this->rows(at), ring.full[at],
                     lane);
    }
};

// The window of a thread: which of its columns x has, as masks.
template <class Shape>
struct Window {
    uint32_t mask[Shape::Sums::Width];

    __device__ __forceinline__ Window(int first, int columns) {
#pragma unroll
        for (int i = 0; i < Shape::Sums::Width; ++i) {
            mask[i] = unsigned(first + i) < unsigned(columns) ? ~0u : 0;
            keep(mask[i]);
        }
    }
    template <int I>
    __device__ __forceinline__ float element(uint32_t at) const {
        using Stored = typename Shape::Stored;
        if constexpr (Shape::Size == 4) {
            return __uint_as_float(load_shared_behind<I * 4>(at) & mask[I]);
        } else {
            const auto bits = uint16_t(load_shared_u16(at + I * 2) & mask[I]);
            return widen(reinterpret_cast<const Stored &>(bits));
        }
    }
    template <int... I>
    __device__ __forceinline__ void load(uint32_t at, float (&x)[Shape::Sums::Width][1],
                                         std::integer_sequence<int, I...>) const {
        ((x[I][0] = element<I>(at)), ...);
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

// The oldest row of sums, for core/fragment_epilogue.cuh: as a pair, or one by one.
template <class Shape, int Together>
struct OutputMap {
    typename Shape::Sums &sums;
    int64_t place; // of the first sum in y
    int channel, columns;

    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
        body(channel, Constant<Columns>(), [&](int q) -> float & { return sums.oldest(q, 0); });
    }
    template <class T, class Body>
    __device__ __forceinline__ void for_runs(T *tensor, Body body) {
#pragma unroll
        for (int q = 0; q < Columns; q += Together)
            body(Constant<Together>(), tensor + place + q, q < columns,
                 [&](int i) -> float & { return sums.oldest(q + i, 0); });
    }
};

template <class Shape, int Together>
__device__ __forceinline__ void store_row(OutputMap<Shape, Together> map,
                                          typename Shape::Stored *y) {
    using Stored = typename Shape::Stored;
    map.for_runs(y, [](auto count, Stored *to, bool live, auto value) {
        float v[count.value];
#pragma unroll
        for (int i = 0; i < count.value; ++i)
            v[i] = value(i);
        store_neighbours<Stored>(reinterpret_cast<char *>(to), live, v);
    });
}

template <class Shape, int Together>
__device__ __forceinline__ void finish_row(const Tiling &tiling, OutputMap<Shape, Together> map,
                                           typename Shape::Stored *y, const Finish &finish) {
    // By itself, so that it costs one branch where there is none.
    if (!tiling.finishes)
        return store_row(map, y);
    finish_fragment<typename Shape::Stored>(finish, tiling.c, map);
    map.sums.activate_oldest(tiling.activation);
    store_row(map, y);
}

// A thread's task of a strip, whose first row of x lies at `strip_at`.
template <class Shape>
__device__ __forceinline__ void
compute_task(const Strips &strips, const Strip &strip, uint32_t strip_at, uint32_t zeros,
             const typename Shape::Weights &weights, int channel, int plane, int piece, int tile,
             bool live, typename Shape::Stored *y, const Finish &finish) {
    const Tiling &tiling = strips.tiling;
    const int q = tile * Columns, column = q * Shape::Stride - tiling.pad_left;
    const int p = strip.row + piece * tiling.rows;
    const int below = min(tiling.rows, strip.row + strip.rows - p); // rows of y
    const Window<Shape> window(column, tiling.w);
    // A window that lies in the padding alone is read from beside the plane.
    const int from = min(max(column, -Shape::Sums::Width), tiling.w);
    int row = p * Shape::Stride - tiling.pad_top;
    const uint32_t pitch = tiling.w * Shape::Size;
    uint32_t at =
        strip_at + ((plane * tiling.h + row - strip.from) * tiling.w + from) * Shape::Size;
    typename Shape::Sums sums = {};
    const int64_t place = (int64_t(strip.plane + plane) * tiling.p + p) * tiling.q + q;
    const int columns = live ? tiling.q - q : 0;
    OutputMap<Shape, 2> pairs = {sums, place, channel, columns};
    OutputMap<Shape, 1> singles = {sums, place, channel, columns};
    const int first = Shape::Sums::Rows - 1;
#pragma unroll 1
    for (int step = 0; step < tiling.rows + first; ++step) {
        sums.step(weights, step - tiling.rows + 1, step,
                  [&](int, float(&x)[Shape::Sums::Width][1]) {
                      const bool inside = unsigned(row - strip.from) < unsigned(strip.count);
                      window.load(inside ? at : zeros, x,
                                  std::make_integer_sequence<int, Shape::Sums::Width>());
                      ++row;
                      at += pitch;
                  });
        if (step < first)
            continue;
        const int existing = step - first < below ? columns : 0;
        if (tiling.paired) {
            pairs.columns = existing;
            finish_row(tiling, pairs, y, finish);
            pairs.place += tiling.q;
        } else {
            singles.columns = existing;
            finish_row(tiling, singles, y, finish);
            singles.place += tiling.q;
        }
    }
}

template <class Shape>
__device__ __forceinline__ void
compute(const Strips &strips, int warp, int lane, uint32_t zeros, const typename Shape::Stored *x,
        const typename Shape::Stored *w, typename Shape::Stored *y, const Finish &finish) {
    const Tiling &tiling = strips.tiling;
    const int sets = (tiling.tasks + 31) / 32; // of tasks, for a warp each
    RingPosition at;
    int set = warp; // counted on from strip to strip, so that warps share the sets evenly
    for (int m = 0; m < strips.count; ++m, at.next(tiling.stages)) {
        const Strip strip = strips.strip<Shape>(m);
        const auto skew = uint32_t(reinterpret_cast<uint64_t>(strips.begin(x, strip)) & 15);
        strips.ring.wait_full(at);
        for (; set < sets; set += Warps) {
            const int number = min(set * 32 + lane, tiling.tasks - 1);
            const int line = tiling.by_tiles.quotient(number), tile = number - line * tiling.tiles;
            const int of_plane = tiling.by_pieces.quotient(line);
            const int piece = line - of_plane * tiling.pieces;
            const bool live = set * 32 + lane < tiling.tasks && of_plane < strip.planes;
            const int plane = live ? of_plane : 0;
            const int channel = strips.channel(strip.plane + plane);
            const auto filters = uint32_t(reinterpret_cast<uint64_t>(w));
            const uint32_t beside = filters + uint32_t(channel) * Shape::FilterBytes & 3;
            typename Shape::Weights weights;
            load_weights<Shape>(strips.filters(at.stage) +
                                    plane * (filter_words(Shape::R, Shape::Size) * 4) + beside,
                                weights);
            compute_task<Shape>(strips, strip, strips.rows(at.stage) + skew, zeros, weights,
                                channel, plane, piece, tile, live, y, finish);
        }
        set -= sets;
        // The last warp to leave a stage loads the next strip in its place.
        __syncwarp();
        if (m + tiling.stages < strips.count) {
            int last = 0;
            if (lane == 0)
                last = strips.ring.release(at, Warps);
            if (__shfl_sync(~0u, last, 0))
                strips.load<Shape>(x, w, m + tiling.stages, at.stage, lane);
        }
        __syncwarp();
    }
    wait_for_copies(); // nobody leaves before its own have arrived
}
#endif

template <class Stored, int R, int Stride>
__global__ void __launch_bounds__(Warps * 32, blocks_of(R))
    depthwise_nchw_kernel(const __grid_constant__ Tiling tiling, const Stored *__restrict__ x,
                          const Stored *__restrict__ w, Stored *__restrict__ y,
                          const __grid_constant__ Finish finish) {
#if CF_SM90
    using Shape = Shape<Stored, R, Stride>;
    extern __shared__ __align__(128) unsigned char dynamic[];
    __shared__ SelfLoadingRing<MaxStages> ring;
    static_assert(sizeof(ring) <= StaticShared, "the plan leaves room for it");
    uint32_t zeros = shared_address(dynamic);
    keep(zeros); // or each use reads a special register anew
    const auto mine = StridedTiles::of_block();
    const Strips strips = {tiling, ring, zeros + ZeroBytes, mine, mine.count(tiling.strips)};
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (warp == 0) {
        ring.init(tiling.stages, 64, lane); // of the filters' copies, and of the rows'
        publish_barriers();
    }
    if (threadIdx.x < ZeroBytes / 4)
        store_shared(zeros + threadIdx.x * 4, 0);
    __syncthreads();
    let_next_kernel_begin();
    wait_for_kernels_before();
    for (int m = warp; m < min(strips.count, tiling.stages); m += Warps)
        strips.load<Shape>(x, w, m, m, lane);
    __syncwarp();
    compute<Shape>(strips, warp, lane, zeros, x, w, y, finish);
#else
    not_compiled();
#endif
}

} // namespace cf::depthwise_nchw
