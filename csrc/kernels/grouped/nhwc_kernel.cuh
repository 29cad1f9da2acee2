// The kernel of grouped_nhwc: boxes of x go through a ring of stages, and warps slide down over
// them.
#pragma once

#include "kernels/grouped/nhwc_store.cuh"
#include "ptx/grid.cuh"

namespace cf::grouped {

using Launched = cf::Kernel<Tiling, CUtensorMap, const void *, void *, Finish>;

#if CF_SM90
// What a warp knows.
template <class Shape>
struct Warp {
    const Tiling &tiling;
    const Strips &strips;
    const uint32_t *filter;
    typename Shape::Element *y;
    const Finish &finish;
    uint32_t staged; // of the warp
    int number, lane;
};

// Pixels of a warp in an item: lanes whose pixels do not exist read others.
template <class Shape>
__device__ __forceinline__ LanePixels lane_pixels(const Tiling &tiling, int pair, int chunk,
                                                  int lane) {
    const int of_pair = pair * 2 + unit_of_lane(lane);
    const int unit = of_pair < tiling.images * tiling.units ? of_pair : 0;
    const int image = tiling.by_units.quotient(unit);
    const int column = (unit - image * tiling.units) * UnitPixels + pixel_of_lane(lane);
    const int byte = chunk * tiling.chunk_bytes; // of the strip's channels
    return {image * tiling.image + min(column, tiling.columns - 1) * tiling.w_step,
            (byte % PixelBytes & ~(Shape::SetBytes - 1)) / PieceBytes,
            uint32_t(byte / PixelBytes) * tiling.box_bytes};
}

// A warp's way through the items of its block's strips.
template <class Shape>
struct Walk {
    const Strips &strips;
    Turns<MaxStages> turns;

    __device__ __forceinline__ Walk(const Warp<Shape> &warp)
        : strips(warp.strips),
          turns(strips.ring, warp.tiling.stages, strips.items(), warp.number, warp.lane) {
        turns.begin(load());
    }
    __device__ __forceinline__ auto load() const {
        return [&](int item, int stage) { strips.load<Shape::Size>(item, stage); };
    }
    // Waits for the next item and answers where it lies.
    __device__ __forceinline__ uint32_t enter() {
        turns.enter(load());
        return strips.stage(turns.stage());
    }
    __device__ __forceinline__ void leave() { turns.leave(); }
};

// One filter size. Rows are counted in steps of the strip; `y_row` is where the next one begins in
// y.
template <class Shape>
__device__ __forceinline__ void compute_strip(const Warp<Shape> &warp, const Strip &strip,
                                              const WarpPlace &place, const Sliding<Shape> &filter,
                                              LanePixels pixels, int64_t y_row, Walk<Shape> &walk) {
    const Tiling &tiling = warp.tiling;
    const RowStore<Shape> to(place, warp.staged, warp.lane);
    const uint32_t box = pixels.box;
    const int first = Shape::Rows - 1;
    const int x_row = strip.row * Shape::Stride - tiling.pad_top;
    int last = first + min(tiling.rows, tiling.p - strip.row);
    int above = x_row + Shape::Stride - 1; // of a step that meets x, not negative
    int below = min(last, (tiling.h - x_row + Shape::Stride - 1) / Shape::Stride);
    keep(last);
    keep(above);
    keep(below);
    Sums<Shape> sums = {};
    const auto finish = [&] {
        finish_row<Shape>(to, {sums, place, y_row, warp.lane}, warp.y, warp.finish);
        y_row += int64_t(tiling.q) * tiling.c;
    };
    int row = 0;
    for (int i = 0; i < tiling.items; ++i) {
        pixels.box = box + walk.enter();
        keep(pixels.box);
        int behind = 0; // pixels of the item
        const int end = min((i + 1) * tiling.steps, below);
#pragma unroll 1
        for (; row < end; ++row) {
            // Above x nothing is added, but a row that was finished leaves.
            if (above >= 0)
                filter.step(sums, pixels, behind, tiling.width, warp.lane);
            else
                sums.move_up();
            above += Shape::Stride;
            behind += Shape::Stride * tiling.width;
            if (row >= first)
                finish();
        }
        walk.leave();
    }
    // Rows of y that meet nothing of x any more.
#pragma unroll 1
    for (; row < last; ++row) {
        sums.move_up();
        if (row >= first)
            finish();
    }
}

// Any filter.
template <class Shape>
__device__ __forceinline__ void compute_strip(const Warp<Shape> &warp, const Strip &strip,
                                              const WarpPlace &place, const Streamed<Shape> &filter,
                                              LanePixels pixels, int64_t y_row, Walk<Shape> &walk) {
    const Tiling &tiling = warp.tiling;
    const int rows = min(tiling.rows, tiling.p - strip.row);
    const RowStore<Shape> to(place, warp.staged, warp.lane);
    pixels.box += walk.enter();
#pragma unroll 1
    for (int row = 0; row < rows; ++row) {
        Sums<Shape> sums;
        filter.sum_row(sums, pixels, row * tiling.h_step * tiling.width, tiling, warp.lane);
        finish_row<Shape>(to, {sums, place, y_row, warp.lane}, warp.y, warp.finish);
        y_row += int64_t(tiling.q) * tiling.c;
    }
    walk.leave();
}

template <class Shape>
__device__ __forceinline__ void compute(const Warp<Shape> &warp) {
    const Tiling &tiling = warp.tiling;
    const int pair = tiling.by_chunks.quotient(warp.number);
    const int chunk = warp.number - pair * tiling.chunks;
    const LanePixels pixels = lane_pixels<Shape>(tiling, pair, chunk, warp.lane);
    std::conditional_t<(Shape::Filter > 0), Sliding<Shape>, Streamed<Shape>> filter;
    Walk<Shape> walk(warp);
    int loaded = -1;
    for (int m = 0; m < warp.strips.count; ++m) {
        const Strip strip = warp.strips.strip(m);
        const int channel =
            strip.box * (PixelBytes / Shape::Size) + chunk * (Shape::Tiles * TileChannels);
        // Of a box that is not there any chunk will do.
        const int of_all = min(channel / (Shape::Tiles * TileChannels), tiling.all_chunks - 1);
        const WarpPlace place(tiling, strip, pair * 2, channel);
        const int64_t y_row =
            ((int64_t(strip.n) * tiling.p + strip.row) * tiling.q + strip.column) * tiling.c +
            channel;
        if (of_all != loaded)
            filter.load(tiling, warp.filter, of_all, warp.lane);
        loaded = of_all;
        compute_strip<Shape>(warp, strip, place, filter, pixels, y_row, walk);
    }
}
#endif

template <class Element, int Products, int SetBytes, int Filter, int Stride>
__global__ void __launch_bounds__(warps_of(SetBytes, Filter, Products) * 32,
                                  blocks_of(SetBytes, Filter, Products))
    grouped_nhwc_kernel(const __grid_constant__ Tiling tiling,
                        const __grid_constant__ CUtensorMap x, const uint32_t *__restrict__ filter,
                        Element *__restrict__ y, const __grid_constant__ Finish finish) {
#if CF_SM90
    using Shape = Shape<Element, SetBytes, Filter, Stride, Products>;
    extern __shared__ __align__(1024) unsigned char dynamic[];
    __shared__ Ring<MaxStages> ring;
    static_assert(sizeof(ring) <= StaticShared, "the plan leaves room for it");
    const auto mine = StridedTiles::of_block();
    const uint32_t stages = (shared_address(dynamic) + (SwizzleAlign - 1)) & ~(SwizzleAlign - 1);
    const Strips strips = {tiling, x, ring, stages, mine, mine.count(tiling.strips)};
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (warp == 0) {
        ring.init(tiling.stages, 1, blockDim.x / 32, lane);
        publish_barriers();
    }
    __syncthreads();
    let_next_kernel_begin();
    wait_for_kernels_before();
    const uint32_t staged = stages + tiling.stages * tiling.stage_bytes +
                            warp * (2 * UnitPixels * Shape::Tiles * PieceBytes);
    compute<Shape>({tiling, strips, filter, y, finish, staged, warp, lane});
#else
    not_compiled();
#endif
}

// The kernel of an instance, whose threads and shared memory the plan adds. The files of nhwc/
// compile those of one type of elements and number of products.
template <class Element, int Products = 1>
Launched kernel_for(const Instance &instance, dim3 grid, dim3 block, size_t shared);

template <class Element, int Products, int... SetBytes>
Launched kernel_among(const Instance &instance, dim3 grid, dim3 block, size_t shared) {
    Launched kernel;
    for_instance<SetBytes...>(instance, [&](auto set_bytes, auto filter, auto stride) {
        kernel = kernel_of(
            grouped_nhwc_kernel<Element, Products, set_bytes.value, filter.value, stride.value>,
            grid, block, shared, true);
    });
    return kernel;
}

} // namespace cf::grouped
