// The kernel of depthwise_rows: rows of several planes stream through a ring of stages, and warps
// slide down over them.
#pragma once

#include "core/fragment_epilogue.cuh"
#include "kernels/depthwise/rows_plan.cuh"
#include "kernels/depthwise/slide.cuh"
#include "kernels/depthwise/sums.cuh"
#include "ptx/grid.cuh"
#include "ptx/load_store.cuh"

namespace cf::depthwise_rows {

#if CF_SM90
template <int FilterOf>
struct Shape {
    using Stored = float;
    static constexpr int R = FilterOf, Stride = 1, Columns = depthwise_rows::Columns;
    static constexpr bool OfPlanes = true, AnyChannels = false;
    // A lane's columns are two halves, each beside those of other lanes: so a warp stores whole
    // sectors, and its lanes of a plane read from different banks.
    static constexpr int Halves = 2, Half = Columns / Halves;
    using Sums = depthwise::Sums<R, Stride, Half, Halves>;
    using Weights = depthwise::Weights<R, Halves>;
    static constexpr int Before = Margin - R / 2; // columns that lie in front of a window
    static constexpr int Vectors = (Before + Sums::Width + 3) / 4;
    static constexpr bool Asks = true; // which rows of sums a strip has, at its edges
};

// The oldest row of sums, for core/fragment_epilogue.cuh.
template <class Shape>
struct HalvesOutputMap {
    typename Shape::Sums &sums;
    int64_t place;               // of the first sum in y
    int channel, columns, apart; // columns from here to the right edge of y, and between halves

    __device__ __forceinline__ float &sum(int q) const {
        return sums.oldest(q % Shape::Half, q / Shape::Half);
    }
    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
        body(channel, Constant<Shape::Columns>(), [&](int q) -> float & { return sum(q); });
    }
    template <class T, class Body>
    __device__ __forceinline__ void for_runs(T *tensor, Body body) {
#pragma unroll
        for (int half = 0; half < Shape::Halves; ++half)
            body(Constant<Shape::Half>(), tensor + place + half * apart, half * apart < columns,
                 [&](int i) -> float & { return sum(half * Shape::Half + i); });
    }
};

template <class Map>
__device__ __forceinline__ void finish_row(const Tiling &tiling, Map map, float *y,
                                           const Finish &finish) {
    // By itself, so that it costs one branch where there is none.
    if (__builtin_expect(tiling.finishes, 0)) {
        finish_fragment<float>(finish, tiling.c, map);
        map.sums.activate_oldest(tiling.activation);
    }
    map.for_runs(y, [](auto count, float *to, bool live, auto value) {
        float v[count.value];
#pragma unroll
        for (int i = 0; i < count.value; ++i)
            v[i] = value(i);
        store_neighbours<float>(reinterpret_cast<char *>(to), live, v);
    });
}

// The columns of a row that both windows need. The first window's first vector begins at `at`, the
// other's so many bytes behind it.
template <class Shape>
__device__ __forceinline__ void load_windows(uint32_t at, uint32_t apart_bytes,
                                             float (&x)[Shape::Sums::Width][Shape::Halves]) {
#pragma unroll
    for (int half = 0; half < Shape::Halves; ++half)
#pragma unroll
        for (int v = 0; v < Shape::Vectors; ++v) {
            const float4 four = load_shared_f32x4(at + half * apart_bytes + v * 16);
            const float value[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (const int column = v * 4 + i - Shape::Before;
                    column >= 0 && column < Shape::Sums::Width)
                    x[column][half] = value[i];
        }
}

// A warp: two halves of a column tile of a plane to each lane, tiles of planes one behind the
// other.
template <class Shape>
__device__ __forceinline__ void compute(const Strips<Shape> &strips, const RowsTiling &tiling,
                                        int warp, int lane, float *y, const Finish &finish) {
    constexpr int R = Shape::R;
    const int thread = warp * 32 + lane;
    const bool busy = thread < tiling.planes * tiling.tiles;
    const int unit = busy ? thread : 0;
    const int plane = tiling.by_tiles.quotient(unit), tile = unit - plane * tiling.tiles;
    const int apart = tiling.tiles * Shape::Half; // columns from a lane's first half to its second
    const uint32_t offset = plane * tiling.plane + tile * (Shape::Half * 4);
    typename Shape::Weights weights;
    typename Shape::Sums sums = {};
    const auto load = [&](int item, int stage) { strips.load(item, stage); };
    Turns<MaxStages> turns(strips.ring, tiling.stages, strips.items(), warp, lane);
    turns.begin(load);
    for (int m = 0; m < strips.count; ++m) {
        const Strip strip = strips.strip(m);
        turns.enter(load);
        const uint32_t filter = strips.stage(turns.stage()) + plane * (R * R * 4);
#pragma unroll
        for (int tap = 0; tap < R * R; ++tap)
            weights.value[tap / R][tap % R][0] = weights.value[tap / R][tap % R][1] =
                load_shared_f32(filter + tap * 4);
        turns.leave_before_use();
        const int channel = strip.channel + plane, q = strip.column + tile * Shape::Half;
        const bool live = busy && channel < tiling.c;
        HalvesOutputMap<Shape> map = {
            sums, ((int64_t(strip.n) * tiling.c + channel) * tiling.p + strip.row) * tiling.q + q,
            channel, live ? tiling.q - q : 0, apart};
        const auto load_row = [&](uint32_t from, auto &x) {
            load_windows<Shape>(from, apart * 4, x);
        };
        slide(strips, strip, turns, load, offset, weights, sums, load_row, [&] {
            finish_row(tiling, map, y, finish);
            map.place += tiling.q;
        });
    }
}
#endif

template <int R>
__global__ void __launch_bounds__(MostWarps * 32, 1)
    depthwise_rows_kernel(const __grid_constant__ RowsTiling tiling,
                          const __grid_constant__ CUtensorMap x, const float *__restrict__ w,
                          float *__restrict__ y, const __grid_constant__ Finish finish) {
#if CF_SM90
    extern __shared__ __align__(128) unsigned char dynamic[];
    __shared__ Ring<MaxStages> ring;
    static_assert(sizeof(ring) <= RingShared, "the plan leaves room for it");
    const auto mine = StridedTiles::of_block();
    const Strips<Shape<R>> strips = {
        tiling,       x, w, ring, shared_address(dynamic), mine, mine.count(tiling.strips),
        tiling.planes};
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (warp == 0) {
        ring.init(tiling.stages, 1, blockDim.x / 32, lane);
        publish_barriers();
    }
    __syncthreads();
    let_next_kernel_begin();
    wait_for_kernels_before();
    compute<Shape<R>>(strips, tiling, warp, lane, y, finish);
#else
    not_compiled();
#endif
}

} // namespace cf::depthwise_rows
