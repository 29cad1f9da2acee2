// The kernel of small_mma16: which warp of a block does what, and how strips stream through its
// shared memory.
#pragma once

#include "core/launch.cuh"
#include "kernels/small/mma16_load.cuh"
#include "kernels/small/mma16_product.cuh"
#include "kernels/small/mma16_store.cuh"
#include "pipeline/ring.cuh"
#include "pipeline/scheduler.cuh"
#include "pipeline/segment.cuh"
#include "ptx/bar.cuh"
#include "ptx/bulk.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/grid.cuh"

namespace cf::small16 {

constexpr int Threads = Warps * 32;

using Kernel = cf::Kernel<Tiling, const void *, const void *, void *, Finish>;

#if CF_SM90
// Shared memory of a block, as shared_bytes() counts it.
struct SharedMemory {
    uint32_t weights, out_stages, stages, planar;

    __device__ __forceinline__ SharedMemory(const Tiling &tiling, const void *shared)
        : weights(shared_address(shared)), out_stages(weights + tiling.weight_bytes),
          stages(out_stages + tiling.out_stages * tiling.out_stage_bytes),
          planar(stages + tiling.stages * tiling.stage_bytes) {}
};

struct Barriers {
    Ring<MaxStages> input;
    Ring<MaxOutStages> output;
    Barrier planar_full[PlanarBuffers];

    // By a warp.
    __device__ __forceinline__ void init(const Tiling &tiling, int lane) {
        input.init(tiling.stages, tiling.producers * 32, Consumers * 32, lane);
        output.init(tiling.out_stages, Consumers * 32, 32, lane);
        if (lane < PlanarBuffers)
            planar_full[lane].init(32);
        publish_barriers();
    }
};

// A block's sets of strips that share an output stage: all of their tasks, or where strips are few
// a share of one.
struct BlockStrips {
    const Tiling &tiling;
    StridedTiles sets;
    int rows;  // of y in a row tile
    int share; // of blocks_per_strip
    int count;

    __device__ __forceinline__ BlockStrips(const Tiling &tiling, int rows)
        : tiling(tiling), rows(rows) {
        const int first = tiling.by_blocks.quotient(int(blockIdx.x));
        sets = {first, int(gridDim.x)};
        share = int(blockIdx.x) - first * tiling.blocks_per_strip;
        count =
            sets.count(tiling.by_out_stage.quotient(tiling.strips)) * tiling.strips_per_out_stage;
    }
    __device__ __forceinline__ Place place(int m) const {
        const int each = tiling.strips_per_out_stage, set = tiling.by_out_stage.quotient(m);
        const int strip = sets.tile(set) * each + m - set * each;
        const int n = tiling.by_image.quotient(strip);
        return {n, (strip - n * tiling.strips_per_image) * tiling.row_tiles * rows};
    }
};

// What all roles know.
struct Block {
    const Tiling &tiling;
    const void *x;
    SharedMemory memory;
    Barriers &barriers;
    BlockStrips strips;
    int warp, lane;

    __device__ __forceinline__ uint32_t stage(int number) const {
        return memory.stages + number * tiling.stage_bytes;
    }
    __device__ __forceinline__ uint32_t out_stage(int number) const {
        return memory.out_stages + number * tiling.out_stage_bytes;
    }
    // Of 16-bit elements.
    __device__ __forceinline__ const uint16_t *image(int n) const {
        return static_cast<const uint16_t *>(x) + int64_t(n) * tiling.c * tiling.h * tiling.w;
    }
};

// Columns of padding, and what is read beyond rows, are written only here.
__device__ __forceinline__ void clear_stages(const Tiling &tiling, const SharedMemory &memory) {
    for (uint32_t i = threadIdx.x * 16; i < tiling.stages * tiling.stage_bytes; i += Threads * 16)
        store_shared4(memory.stages + i, 0, 0, 0, 0);
    publish_to_bulk_copies();
}

__device__ __forceinline__ void load_weights(const Tiling &tiling, const SharedMemory &memory,
                                             const uint4 *filter) {
    for (uint32_t i = threadIdx.x * 16; i < tiling.weight_bytes; i += Threads * 16)
        copy16_async(memory.weights + i, reinterpret_cast<const char *>(filter) + i, true);
    end_of_group();
}

// So many threads load strip m through registers.
template <class Shape>
__device__ __forceinline__ void load_strip(const Block &block, int m, uint32_t stage, int thread,
                                           int threads) {
    using Element = typename Shape::Element;
    const Tiling &tiling = block.tiling;
    const Place place = block.strips.place(m);
    const int top = place.row * tiling.stride_h - tiling.pad_top;
    const int64_t before = place.n * (int64_t(tiling.c) * tiling.h * tiling.w);
    if (tiling.from_floats)
        load_strip<Element, Shape::Single>(tiling, static_cast<const float *>(block.x) + before,
                                           top, stage, thread, threads);
    else
        load_strip<Element, Shape::Single>(tiling, static_cast<const uint16_t *>(block.x) + before,
                                           top, stage, thread, threads);
}

// All warps load all strips of the block, as many warps for each.
template <class Shape>
__device__ __forceinline__ void preload(const Block &block) {
    const int warps = Warps / block.strips.count, m = block.warp / warps;
    if (m < block.strips.count)
        load_strip<Shape>(block, m, block.stage(m), int(threadIdx.x) - m * warps * 32, warps * 32);
}

// A warp loads rows of x as they are to lie in shared memory.
__device__ __forceinline__ void load_rows(const Block &block, int m, RingPosition at) {
    const Tiling &tiling = block.tiling;
    const Place place = block.strips.place(m);
    const int row = tiling.w * tiling.c, top = place.row * tiling.stride_h;
    load_segment(block.image(place.n) + top * row, min(tiling.input_rows, tiling.h - top) * row * 2,
                 tiling.zero_bytes, block.stage(at.stage), block.barriers.input.full[at.stage],
                 block.lane);
}

// A warp loads an image as it is in x.
__device__ __forceinline__ void load_image(const Block &block, int m) {
    const Tiling &tiling = block.tiling;
    load_segment(block.image(block.strips.place(m).n), uint32_t(tiling.c * tiling.h * tiling.w * 2),
                 0, block.memory.planar + m % PlanarBuffers * tiling.planar_bytes,
                 block.barriers.planar_full[m % PlanarBuffers], block.lane);
}

// All producers put the channels of an image beside each other.
__device__ __forceinline__ void interleave_image(const Block &block, int m, uint32_t to, int thread,
                                                 int threads) {
    const Tiling &tiling = block.tiling;
    block.barriers.planar_full[m % PlanarBuffers].wait(m / PlanarBuffers & 1);
    const auto skew =
        uint32_t(reinterpret_cast<uint64_t>(block.image(block.strips.place(m).n)) & 15);
    const uint32_t planes = block.memory.planar + m % PlanarBuffers * tiling.planar_bytes + skew;
    if (tiling.pixel_elements % 4)
        interleave<2>(tiling, planes, to, thread, threads);
    else if (planes % 4)
        interleave<4>(tiling, planes, to, thread, threads);
    else if (tiling.h * tiling.w % 2)
        interleave_pairs<true>(tiling, planes, to, thread, threads);
    else
        interleave_pairs<false>(tiling, planes, to, thread, threads);
}

// Producers: strips into the ring.
template <class Shape>
__device__ __forceinline__ void produce(const Block &block) {
    const Tiling &tiling = block.tiling;
    const bool first_warp = block.warp == Consumers;
    const int thread = int(threadIdx.x) - Consumers * 32, threads = tiling.producers * 32;
    const int strips = block.strips.count;
    if (!Shape::Single && tiling.copy == Planes && first_warp)
        for (int m = 0; m < min(strips, PlanarBuffers); ++m)
            load_image(block, m);
    RingPosition at;
    for (int m = 0; m < strips; ++m, at.next(tiling.stages)) {
        block.barriers.input.wait_empty(at);
        if (tiling.copy == Direct) {
            load_rows(block, m, at);
            continue;
        }
        if (!Shape::Single && tiling.copy == Planes)
            interleave_image(block, m, block.stage(at.stage), thread, threads);
        else
            load_strip<Shape>(block, m, block.stage(at.stage), thread, threads);
        block.barriers.input.full[at.stage].arrive();
        if (!Shape::Single && tiling.copy == Planes) {
            wait_at_bar<1>(threads); // all have read
            if (m + PlanarBuffers < strips && first_warp)
                load_image(block, m + PlanarBuffers);
        }
    }
}

// A warp: what was gathered to y.
__device__ __forceinline__ void store_strips(const Block &block, char *y) {
    const Tiling &tiling = block.tiling;
    RingPosition at;
    for (int m = 0; m < block.strips.count;
         m += tiling.strips_per_out_stage, at.next(tiling.out_stages)) {
        block.barriers.output.wait_full(at);
        store_stage(tiling, y, block.strips.place(m), block.strips.rows, block.out_stage(at.stage),
                    block.lane);
        block.barriers.output.release(at);
    }
}

// How a consumer walks the strips. Every warp enters and leaves every strip, in order, so that
// no arrival counts for another.
struct StripWalk {
    const Tiling &tiling;
    Barriers &barriers;
    RingPosition in, out;
    int strip = 0, of_set = 0;
    bool inside;

    __device__ __forceinline__ StripWalk(const Block &block)
        : tiling(block.tiling), barriers(block.barriers), inside(block.tiling.preloaded) {}
    __device__ __forceinline__ void enter() {
        if (inside)
            return;
        barriers.input.wait_full(in);
        if (tiling.staged)
            barriers.output.wait_empty(out);
        inside = true;
    }
    __device__ __forceinline__ void leave() {
        if (!tiling.preloaded) {
            enter();
            barriers.input.release(in);
            if (tiling.staged && ++of_set == tiling.strips_per_out_stage) {
                barriers.output.full[out.stage].arrive();
                out.next(tiling.out_stages);
                of_set = 0;
            }
            inside = false;
        }
        in.next(tiling.stages);
        ++strip;
    }
};

// One task of the strip that `walk` is in.
template <class Shape>
__device__ __forceinline__ void compute_task(const Block &block, const StripWalk &walk, int task,
                                             const uint4 *filter, char *y, const Finish &finish) {
    const Tiling &tiling = block.tiling;
    const int row_of_tasks = tiling.by_groups.quotient(task);
    const int group = task - row_of_tasks * tiling.groups;
    const Place strip = block.strips.place(walk.strip);
    // Of the strip in its stage, which a bulk copy keeps.
    const uint32_t skew =
        tiling.copy == Direct
            ? uint32_t(reinterpret_cast<uint64_t>(block.x)) +
                      (uint32_t(strip.n) * tiling.h + strip.row * tiling.stride_h) * tiling.w *
                          tiling.c * 2 &
                  15
            : 0;
    const LanePositions lanes =
        lane_positions<Shape>(tiling, row_of_tasks, block.stage(walk.in.stage) + skew, block.lane);
    Accumulators<Shape> sum;
    if constexpr (Shape::R > 0)
        multiply_rows<Shape>(tiling, block.memory.weights + block.lane * 16, group, lanes.at, sum);
    else
        multiply_any<Shape>(tiling, filter + block.lane, group, lanes.at, sum);
    TaskMap<Shape> map(tiling, sum, strip, group, lanes, block.lane);
    finish_task(finish, map, y, block.out_stage(walk.out.stage));
}

// Consumers: tasks are counted from the strip on that the walk is at.
template <class Shape>
__device__ __forceinline__ void consume(const Block &block, const uint4 *filter, char *y,
                                        const Finish &finish) {
    const Tiling &tiling = block.tiling;
    const int workers = (tiling.preloaded ? Warps : Consumers) * tiling.blocks_per_strip;
    StripWalk walk(block);
    for (int task = block.warp * tiling.blocks_per_strip + block.strips.share;; task += workers) {
        for (; walk.strip < block.strips.count && task >= tiling.tasks; task -= tiling.tasks)
            walk.leave();
        if (walk.strip == block.strips.count)
            return;
        walk.enter();
        compute_task<Shape>(block, walk, task, filter, y, finish);
    }
}
#endif

template <class Shape>
__device__ __forceinline__ void run_block(const Tiling &tiling, const void *x, const uint4 *filter,
                                          char *y, const Finish &finish) {
#if CF_SM90
    extern __shared__ __align__(128) char shared[];
    __shared__ Barriers barriers;
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const Block block = {
        tiling, x,   SharedMemory(tiling, shared), barriers, BlockStrips(tiling, Shape::Rows),
        warp,   lane};
    if (warp == 0)
        barriers.init(tiling, lane);
    clear_stages(tiling, block.memory);
    __syncthreads();
    let_next_kernel_begin();
    wait_for_kernels_before();
    load_weights(tiling, block.memory, filter);
    if (tiling.preloaded)
        preload<Shape>(block);
    wait_for_groups<0>(); // the weights are there
    __syncthreads();
    if (tiling.preloaded || warp < Consumers)
        consume<Shape>(block, filter, y, finish);
    else if (warp < Consumers + tiling.producers)
        produce<Shape>(block);
    else if (warp == Consumers + tiling.producers && tiling.staged)
        store_strips(block, y);
#else
    not_compiled();
#endif
}

template <class Element, int R, int Stride, int Tiles, bool Single>
__global__ void __launch_bounds__(Threads, 1)
    small_mma16_kernel(const __grid_constant__ Tiling tiling, const void *x, const uint4 *filter,
                       char *y, const __grid_constant__ Finish finish) {
    run_block<TaskShape<Element, R, Stride, Tiles, Single>>(tiling, x, filter, y, finish);
}

// Where sums are most. With all 128 registers the compiler would leave the walk over tasks in
// vector ones; short of some, it finds the uniform ones.
template <class Element, int R, bool Residual>
__global__ void __maxnreg__(118)
    small_mma16_most_sums_kernel(const __grid_constant__ Tiling tiling, const void *x,
                                 const uint4 *filter, char *y,
                                 const __grid_constant__ Finish finish) {
    run_block<TaskShape<Element, R, 1, MaxTiles, false, Residual>>(tiling, x, filter, y, finish);
}

// Where sums are most and a residual in NCHW is f32. The kernel above is quicker to ask for more of
// it, by which the memory is slower.
template <class Element, int R>
__global__ void __launch_bounds__(Threads, 1)
    small_mma16_apart_kernel(const __grid_constant__ Tiling tiling, const void *x,
                             const uint4 *filter, char *y, const __grid_constant__ Finish finish) {
    run_block<TaskShape<Element, R, 1, MaxTiles, false, true, true>>(tiling, x, filter, y, finish);
}

template <class Element, int R, int Stride, int Tiles, bool Single>
Kernel kernel_for(dim3 grid, size_t shared) {
    return kernel_of(small_mma16_kernel<Element, R, Stride, Tiles, Single>, grid, Threads, shared,
                     true);
}

// The kernel that keeps its weights in shared memory, for filters of R rows. Defined and compiled
// in the files of mma16/, which take minutes together.
template <class Element, int R>
Kernel unrolled_kernel(const Tiling &tiling, bool residual, dim3 grid, size_t shared);

} // namespace cf::small16
