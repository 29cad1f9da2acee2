// The kernel of grouped_nchw: strips go through a ring of stages, are transposed, multiplied, and
// leave from where they came.
#pragma once

#include "kernels/grouped/nchw_store.cuh"
#include "ptx/grid.cuh"

namespace cf::grouped_nchw {

using Launched = cf::Kernel<Tiling, const void *, uint64_t, const void *, void *, Finish>;

#if CF_SM90
// Where a lane reads x for its warp: addresses of ldmatrix.
struct PlanarPixels {
    uint32_t begin; // of its first pixel, in the first piece of its channels
    uint32_t piece_bytes;

    __device__ __forceinline__ uint32_t at(int pixels_behind, int next_piece) const {
        return begin + pixels_behind * PieceBytes + next_piece * piece_bytes;
    }
    __device__ __forceinline__ uint32_t further(uint32_t at, int piece) const {
        return at + piece * piece_bytes;
    }
};

// Those of a warp's two units; lanes whose pixels do not exist read others.
template <class Shape>
__device__ __forceinline__ PlanarPixels planar_pixels(const Tiling &tiling, uint32_t transposed,
                                                      int pair, int chunk, int lane) {
    const int of_pair = pair * 2 + unit_of_lane(lane);
    const int unit = of_pair < tiling.units ? of_pair : 0;
    const int piece = tiling.by_column_units.quotient(unit);
    const int column = (unit - piece * tiling.column_units) * UnitPixels + pixel_of_lane(lane);
    const int pixel = piece * tiling.task_rows * tiling.h_step * tiling.width +
                      min(column, tiling.q - 1) * tiling.w_step;
    const int first = (chunk * tiling.chunk_bytes & ~(Shape::SetBytes - 1)) / PieceBytes;
    return {transposed + first * tiling.piece_bytes + pixel * PieceBytes, tiling.piece_bytes};
}

// Rows of y of two units below each other; finish(row) is called for each.
template <class Shape, class Body>
__device__ __forceinline__ void compute_rows(const Tiling &tiling, const Sliding<Shape> &filter,
                                             const PlanarPixels &pixels, Sums<Shape> &sums,
                                             int lane, Body finish) {
    constexpr int First = Shape::Rows - 1;
    int behind = 0;
#pragma unroll 1
    for (int step = -First; step < tiling.task_rows; ++step) {
        // A branch that is always taken: without it the compiler moves sums down by instructions.
        if (behind >= 0)
            filter.step(sums, pixels, behind, tiling.width, lane);
        behind += Shape::Stride * tiling.width;
        if (step >= 0)
            finish(step);
    }
}
template <class Shape, class Body>
__device__ __forceinline__ void compute_rows(const Tiling &tiling, const Streamed<Shape> &filter,
                                             const PlanarPixels &pixels, Sums<Shape> &sums,
                                             int lane, Body finish) {
#pragma unroll 1
    for (int row = 0; row < tiling.task_rows; ++row) {
        filter.sum_row(sums, pixels, row * tiling.h_step * tiling.width, tiling, lane);
        finish(row);
    }
}

// A block's warps and what they share.
template <class Shape>
struct Block {
    using Element = typename Shape::Element;
    using Filter = std::conditional_t<(Shape::Filter > 0), Sliding<Shape>, Streamed<Shape>>;
    const Tiling &tiling;
    const Strips &strips;
    uint32_t transposed;
    const uint32_t *packed;
    Element *y;
    const Finish &finish;
    int warp, lane;

    // The tasks of this warp.
    __device__ __forceinline__ void compute(const Strip &strip, uint32_t stage, Filter &filter,
                                            int &loaded) const {
        const uint32_t staged = stage + (uint32_t(strips.y_begin(y, strip)) & 15);
#pragma unroll 1
        for (int task = warp; task < tiling.tasks; task += Warps) {
            const int pair = tiling.by_chunks.quotient(task), chunk = task - pair * tiling.chunks;
            // Of channels that are not there any chunk will do.
            const int of_all = min(strip.block * tiling.chunks + chunk, tiling.all_chunks - 1);
            if (of_all != loaded)
                filter.load(tiling, packed, of_all, lane);
            loaded = of_all;
            const int channel = chunk * (Shape::Tiles * TileChannels);
            UnitPlace unit[2] = {{tiling, strip, pair * 2, channel, staged, Shape::Size, lane},
                                 {tiling, strip, pair * 2 + 1, channel, staged, Shape::Size, lane}};
            const PlanarPixels pixels = planar_pixels<Shape>(tiling, transposed, pair, chunk, lane);
            Sums<Shape> sums = {};
            const int first = strip.channel + channel + channel_of_lane(lane);
            compute_rows<Shape>(tiling, filter, pixels, sums, lane, [&](int row) {
                finish_row<Shape>({sums, tiling, unit, first, row}, finish);
                for (UnitPlace &place : unit)
                    place.staged += tiling.q * Shape::Size;
            });
        }
    }
    __device__ __forceinline__ void run(const Element *x, uint64_t elements) const {
        Filter filter;
        int loaded = -1;
        RingPosition at, before;
        for (int m = 0; m < strips.count; ++m, at.next(tiling.stages)) {
            const Strip strip = strips.strip(m);
            const uint32_t stage = strips.stage(at.stage);
            strips.full[at.stage].wait(at.parity());
            transpose<Element>(tiling, strip, stage + (uint32_t(strips.x_begin(x, strip)) & 15),
                               transposed, threadIdx.x);
            __syncthreads();
            if (warp == Loader && m > 0) {
                // The stage before this one has been stored meanwhile, and takes the next strip.
                wait_for_stores_to_read();
                __syncwarp();
                const int next = m - 1 + tiling.stages;
                if (next < strips.count)
                    load_strip(strips, x, elements, next, before.stage, lane);
            }
            compute(strip, stage, filter, loaded);
            publish_to_bulk_copies();
            __syncthreads();
            if (warp == Loader)
                store_strip<Element>(strips, strip, y, at.stage, lane);
            before = at;
        }
        if (warp == Loader)
            wait_for_stores_to_read();
    }
};
#endif

template <class Element, int Products, int SetBytes, int Filter, int Stride>
using ShapeOf = Shape<Element, SetBytes, Filter, Stride, Products,
                      tiles_of(SetBytes, sizeof(Element), Products)>;

template <class Element, int Products, int SetBytes, int Filter, int Stride>
__global__ void __launch_bounds__(Warps * 32,
                                  blocks_of(SetBytes, sizeof(Element), Filter, Products))
    grouped_nchw_kernel(const __grid_constant__ Tiling tiling, const Element *__restrict__ x,
                        uint64_t elements, const uint32_t *__restrict__ filter,
                        Element *__restrict__ y, const __grid_constant__ Finish finish) {
#if CF_SM90
    using Shape = ShapeOf<Element, Products, SetBytes, Filter, Stride>;
    extern __shared__ __align__(128) unsigned char dynamic[];
    __shared__ Barrier full[MaxStages];
    static_assert(sizeof(full) <= StaticShared, "the plan leaves room for it");
    const auto mine = StridedTiles::of_block();
    const uint32_t transposed = shared_address(dynamic);
    const Strips strips = {tiling, full, transposed + tiling.pieces * tiling.piece_bytes, mine,
                           mine.count(tiling.strips)};
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (threadIdx.x < tiling.stages)
        full[threadIdx.x].init(32);
    if (warp == 0)
        publish_barriers();
    __syncthreads();
    let_next_kernel_begin();
    wait_for_kernels_before();
    if (warp == Loader)
        for (int m = 0; m < min(strips.count, tiling.stages); ++m)
            load_strip(strips, x, elements, m, m, lane);
    __syncwarp();
    Block<Shape>{tiling, strips, transposed, filter, y, finish, warp, lane}.run(x, elements);
#else
    not_compiled();
#endif
}

// The kernel of an instance, whose threads and shared memory the plan adds. The files of nchw/
// compile those of one type of elements and number of products.
template <class Element, int Products = 1>
Launched kernel_for(const Instance &instance, dim3 grid, size_t shared);

template <class Element, int Products, int... SetBytes>
Launched kernel_among(const Instance &instance, dim3 grid, size_t shared) {
    Launched kernel;
    for_instance<SetBytes...>(instance, [&](auto set_bytes, auto filter, auto stride) {
        kernel = kernel_of(
            grouped_nchw_kernel<Element, Products, set_bytes.value, filter.value, stride.value>,
            grid, Warps * 32, shared, true);
    });
    return kernel;
}

} // namespace cf::grouped_nchw
