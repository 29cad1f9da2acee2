// The kernel of depthwise_nhwc: rows of x stream through a ring of stages, and warps slide down
// over them.
#pragma once

#include "core/fragment_epilogue.cuh"
#include "kernels/depthwise/nhwc_plan.cuh"
#include "kernels/depthwise/slide.cuh"
#include "kernels/depthwise/sums.cuh"
#include "ptx/from_here.cuh"
#include "ptx/grid.cuh"
#include "ptx/load_store.cuh"

namespace cf::depthwise {

// What a kernel is compiled for: stored elements, filter, stride, and what its lanes have.
template <class StoredOf, int FilterOf, int StrideOf, PerLane LaneOf>
struct Shape {
    using Stored = StoredOf;
    static constexpr int R = FilterOf, Stride = StrideOf, Size = sizeof(Stored);
    static constexpr bool OfPlanes = false; // but of pixels
    static constexpr int LaneChannels = channels_of(LaneOf);
    // Whether pixels and filters may be no whole pieces of 16 bytes.
    static constexpr bool AnyChannels = LaneOf == PerLane::Pairs;
    static constexpr int Columns = columns_of(R, LaneOf);
    using Sums = depthwise::Sums<R, Stride, Columns, LaneChannels>;
    using Weights = depthwise::Weights<R, LaneChannels>;
    static constexpr int Rows = Sums::Rows;
    static constexpr int LaneBytes = LaneChannels * Size;
    // Lanes of a channel block, and bytes of a pixel. Where products bind the compiler knows them,
    // so that a load takes no addition.
    static constexpr bool KnowsLanes = LaneOf == PerLane::Singles;
    __device__ static __forceinline__ int lanes(const NhwcTiling &tiling) {
        return KnowsLanes ? SingleLanes : tiling.channels / LaneChannels;
    }
    __device__ static __forceinline__ uint32_t pixel(const NhwcTiling &tiling) {
        return KnowsLanes ? SingleLanes * LaneBytes : tiling.pixel;
    }
    // Which of the block's column tiles a thread has, of all images, and which lane of it it is.
    __device__ static __forceinline__ int2 unit_and_lane(const NhwcTiling &tiling, int thread) {
        if (KnowsLanes)
            return {thread / SingleLanes, thread % SingleLanes};
        const int unit = tiling.by_lanes.quotient(thread);
        return {unit, thread - unit * lanes(tiling)};
    }
    // Whether rows of sums that a strip does not have are left out at its edges, which takes a step
    // of its own: asked everywhere it would cost more than it gains.
    static constexpr bool Asks = R > 3;
    // Whether warps whose columns all exist store them without asking for each, which costs
    // instructions of every step. In f16 the one layer that was timed became 1 % slower.
    static constexpr bool StoresWhole = Size == 4;
};

#if CF_SM90
// One or two channels of a pixel in shared memory.
template <class Stored, int Offset>
__device__ __forceinline__ void load_pixel(uint32_t at, float (&v)[1]) {
    static_assert(std::is_same_v<Stored, float>, "in 16 bits they come by pairs");
    v[0] = __uint_as_float(load_shared_behind<Offset>(at));
}
template <class Stored, int Offset>
__device__ __forceinline__ void load_pixel(uint32_t at, float (&v)[2]) {
    if constexpr (std::is_same_v<Stored, float>) {
        const float2 two = load_shared_f32x2<Offset>(at);
        v[0] = two.x, v[1] = two.y;
    } else {
        const uint32_t word = load_shared_behind<Offset>(at);
        widen_pair<Stored>(word, v);
    }
}

// A lane's filters in shared memory, those of its channels one after the other.
template <class Shape, int... Load>
__device__ __forceinline__ void load_weights(uint32_t at, typename Shape::Weights &weights,
                                             std::integer_sequence<int, Load...>) {
    constexpr int R = Shape::R, Taps = R * R, Together = Shape::LaneChannels;
    const auto load = [&](auto number) {
        constexpr int First = Together * decltype(number)::value;
        float v[Together];
        load_pixel<typename Shape::Stored, First * Shape::Size>(at, v);
#pragma unroll
        for (int i = 0; i < Together; ++i)
            weights.value[(First + i) % Taps / R][(First + i) % R][(First + i) / Taps] = v[i];
    };
    (load(Constant<Load>()), ...);
}

// The window's pixels of a row, which begin at `at`.
template <class Shape, int... Pixel>
__device__ __forceinline__ void load_row(uint32_t at, uint32_t pixel,
                                         float (&x)[Shape::Sums::Width][Shape::LaneChannels],
                                         std::integer_sequence<int, Pixel...>) {
    if constexpr (Shape::KnowsLanes)
        (load_pixel<typename Shape::Stored, Pixel * SingleLanes * Shape::LaneBytes>(at, x[Pixel]),
         ...);
    else
        (load_pixel<typename Shape::Stored, 0>(at + Pixel * pixel, x[Pixel]), ...);
}

// The oldest row of sums, for core/fragment_epilogue.cuh.
template <class Shape>
struct OutputMap {
    typename Shape::Sums &sums;
    int64_t place; // of the first sum in y
    int channel, channels;
    int columns; // that exist
    bool whole;  // all of them do, in all lanes of the warp; asked if Shape::StoresWhole

    __device__ __forceinline__ float &value(int q, int e) const { return sums.oldest(q, e); }
    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
#pragma unroll
        for (int e = 0; e < Shape::LaneChannels; ++e)
            body(channel + e, Constant<Shape::Columns>(),
                 [&](int q) -> float & { return value(q, e); });
    }
    template <class T, class Body>
    __device__ __forceinline__ void for_runs(T *tensor, Body body) {
        T *at = tensor + place;
#pragma unroll
        for (int q = 0; q < Shape::Columns; ++q, at += channels)
            body(Constant<Shape::LaneChannels>(), at, q < columns,
                 [&](int e) -> float & { return value(q, e); });
    }
};

template <class Shape>
__device__ __forceinline__ void store_row(OutputMap<Shape> map, typename Shape::Stored *y) {
    using Stored = typename Shape::Stored;
    map.for_runs(y, [](auto count, Stored *to, bool live, auto value) {
        float v[Shape::LaneChannels];
#pragma unroll
        for (int e = 0; e < Shape::LaneChannels; ++e)
            v[e] = value(e);
        store_neighbours<Stored>(reinterpret_cast<char *>(to), live, v);
    });
}

template <class Shape>
__device__ __forceinline__ void store_columns(OutputMap<Shape> map, typename Shape::Stored *y) {
    if constexpr (Shape::StoresWhole) {
        if (map.whole) {
            map.columns = Shape::Columns;
            return store_row<Shape>(map, y);
        }
        // Otherwise predicates of columns would be worked out ahead, and held in every step.
        map.columns = from_here(map.columns);
    }
    store_row<Shape>(map, y);
}

template <class Shape>
__device__ __forceinline__ void finish_row(const NhwcTiling &tiling, OutputMap<Shape> map,
                                           typename Shape::Stored *y, const Finish &finish) {
    // By itself, so that it costs one branch where there is none.
    if (__builtin_expect(!tiling.finishes, 1))
        return store_columns<Shape>(map, y);
    finish_fragment<typename Shape::Stored>(finish, tiling.c, map);
    map.sums.activate_oldest(tiling.activation);
    store_columns<Shape>(map, y);
}

// A warp: columns of an image, or of as many as channel blocks fit into it.
template <class Shape>
__device__ __forceinline__ void compute(const Strips<Shape> &strips, const NhwcTiling &tiling,
                                        int warp, int lane, typename Shape::Stored *y,
                                        const Finish &finish) {
    constexpr int FilterBytes = Shape::R * Shape::R * Shape::LaneBytes; // of a lane
    // Units are column tiles of images. Lanes without one read the first one's.
    const int thread = warp * 32 + lane;
    const auto [number, of_lane] = Shape::unit_and_lane(tiling, thread);
    const bool busy = number < tiling.images * tiling.tiles;
    const int unit = busy ? number : 0;
    const int image = tiling.by_tiles.quotient(unit), tile = unit - image * tiling.tiles;
    const uint32_t pixel = Shape::pixel(tiling);
    const uint32_t offset = tiling.before + image * tiling.image +
                            tile * (Shape::Columns * Shape::Stride * pixel) +
                            of_lane * Shape::LaneBytes;
    typename Shape::Weights weights;
    typename Shape::Sums sums = {};
    const auto load = [&](int item, int stage) { strips.load(item, stage); };
    Turns<MaxStages> turns(strips.ring, tiling.stages, strips.items(), warp, lane);
    turns.begin(load);
    for (int m = 0; m < strips.count; ++m) {
        const Strip strip = strips.strip(m);
        turns.enter(load);
        load_weights<Shape>(strips.stage(turns.stage()) + of_lane * FilterBytes, weights,
                            std::make_integer_sequence<int, Shape::R * Shape::R>());
        turns.leave_before_use();
        const int channel = strip.channel + of_lane * Shape::LaneChannels;
        const int n = strip.n + image, q = strip.column + tile * Shape::Columns;
        const bool live = busy && n < tiling.n && channel < tiling.c;
        OutputMap<Shape> map = {sums,
                                ((int64_t(n) * tiling.p + strip.row) * tiling.q + q) * tiling.c +
                                    channel,
                                channel,
                                tiling.c,
                                live ? tiling.q - q : 0,
                                false};
        if constexpr (Shape::StoresWhole)
            map.whole = __all_sync(~0u, map.columns >= Shape::Columns);
        const auto load_window = [&](uint32_t from, auto &x) {
            load_row<Shape>(from, pixel, x, std::make_integer_sequence<int, Shape::Sums::Width>());
        };
        slide(strips, strip, turns, load, offset, weights, sums, load_window, [&] {
            finish_row<Shape>(tiling, map, y, finish);
            map.place += int64_t(tiling.q) * tiling.c;
        });
    }
}
#endif

template <class Stored, int R, int Stride, PerLane OfLane>
__global__ void __launch_bounds__(most_warps(R, OfLane) * 32, 1)
    depthwise_nhwc_kernel(const __grid_constant__ NhwcTiling tiling,
                          const __grid_constant__ CUtensorMap x, const Stored *__restrict__ w,
                          Stored *__restrict__ y, const __grid_constant__ Finish finish) {
#if CF_SM90
    using Shape = Shape<Stored, R, Stride, OfLane>;
    extern __shared__ __align__(128) unsigned char dynamic[];
    __shared__ Ring<MaxStages> ring;
    static_assert(sizeof(ring) <= RingShared, "the plan leaves room for it");
    const auto mine = StridedTiles::of_block();
    const int channels = Shape::lanes(tiling) * Shape::LaneChannels;
    const Strips<Shape> strips = {tiling,
                                  x,
                                  w,
                                  ring,
                                  shared_address(dynamic),
                                  mine,
                                  mine.count(tiling.strips),
                                  channels,
                                  tiling.log_group};
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (warp == 0) {
        ring.init(tiling.stages, 1, blockDim.x / 32, lane);
        publish_barriers();
    }
    __syncthreads();
    let_next_kernel_begin();
    wait_for_kernels_before();
    compute<Shape>(strips, tiling, warp, lane, y, finish);
#else
    not_compiled();
#endif
}

} // namespace cf::depthwise
