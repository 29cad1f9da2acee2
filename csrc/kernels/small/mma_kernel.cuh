// The kernel of small_mma: which warp of a block does what, and how strips stream through its
// shared memory.
#pragma once

#include "core/fragment_epilogue.cuh"
#include "kernels/small/mma_store.cuh"
#include "kernels/small/mma_task.cuh"
#include "pipeline/ring.cuh"
#include "pipeline/scheduler.cuh"
#include "pipeline/segment.cuh"
#include "ptx/bulk.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/load_store.cuh"
#include "ptx/registers.cuh"

namespace cf::small_mma {

#if CF_SM90A
// What all roles know. Shared memory: the ring of strips | the output ring | the filter, if it is
// there | the table of places of inputs. The first three are bytes behind `shared`.
struct Block {
    const Tiling &tiling;
    unsigned char *shared;
    uint32_t base, outputs, weights;
    int *places;
    Ring<MaxStages> &ring;
    Outputs &out;
    TaskCounter &counter;
    StridedTiles tiles;
    int strips; // of the block
    int warp, lane;

    __device__ __forceinline__ Block(const Tiling &tiling, unsigned char *shared,
                                     Ring<MaxStages> &ring, Outputs &out, TaskCounter &counter)
        : tiling(tiling), shared(shared), base(shared_address(shared)),
          outputs(tiling.stages * tiling.stage_bytes),
          weights(outputs + tiling.output_stages * tiling.output_stage_bytes),
          places(reinterpret_cast<int *>(shared + weights + tiling.weight_bytes)), ring(ring),
          out(out), counter(counter), tiles(StridedTiles::of_block()) {
        // Reductions tell the compiler that all lanes have the same.
        warp = int(__reduce_max_sync(~0u, threadIdx.x / 32));
        lane = threadIdx.x % 32;
        strips = int(__reduce_max_sync(~0u, tiles.count(tiling.strips)));
    }
};

// One row of a strip after the other, a warp for each, by copies of 4 or 16 bytes.
__device__ __forceinline__ void load_rows(const Tiling &tiling, const float *image, int top,
                                          uint32_t to, int producer, int lane) {
    const float *const x = image; // an address that may be named, and is not read
    const int64_t area = int64_t(tiling.h) * tiling.row_floats;
    for (int c = 0; c < tiling.planes; ++c) {
        uint32_t there =
            to + c * tiling.plane + producer * tiling.pitch + tiling.left + lane * tiling.piece;
        const float *row = image + c * area + int64_t(top + producer) * tiling.row_floats +
                           lane * (tiling.piece / 4);
#pragma unroll 2
        for (int h = top + producer; h < top + tiling.rows; h += tiling.producers) {
            const bool live = h >= 0 && h < tiling.h;
#pragma unroll 2
            for (int e = lane; e < tiling.row_pieces; e += 32) {
                const int along = (e - lane) * tiling.piece;
                const float *piece = live ? row + along / 4 : x;
                if (tiling.piece == 16)
                    copy16_async(there + along, piece, live);
                else
                    copy4_async(there + along, piece, live);
            }
            row += tiling.producers * tiling.row_floats;
            there += tiling.producers * tiling.pitch;
        }
    }
}

// A producer's part of strip m of the block.
__device__ __forceinline__ void load_strip(const Block &block, const float *x, int m,
                                           RingPosition at, int producer) {
    const Tiling &tiling = block.tiling;
    const int strip = block.tiles.tile(m), n = tiling.by_image_strips.quotient(strip);
    const int top =
        (strip - n * tiling.image_strips) * tiling.row_tiles * tiling.tile_rows * tiling.stride_h -
        tiling.pad_top;
    const int64_t area = int64_t(tiling.h) * tiling.row_floats;
    const float *image = x + int64_t(n) * tiling.planes * area;
    const uint32_t to = block.base + at.stage * tiling.stage_bytes;
    Barrier &full = block.ring.full[at.stage];
    if (tiling.bulk_copies > 0) {
        if (block.lane == 0) { // of one warp
            const int64_t skipped = int64_t(top) * tiling.row_floats;
            const auto bytes = uint32_t(min(tiling.bulk_bytes, tiling.bulk_end - skipped * 4));
            load_planes(to, tiling.plane, image + skipped, area, bytes, tiling.bulk_copies, full);
        }
        return;
    }
    load_rows(tiling, image, top, to, producer, block.lane);
    full.arrive_after_copies();
}

// The columns of the padding, which are written only here.
__device__ __forceinline__ void clear_padding(const Block &block, int threads) {
    const Tiling &tiling = block.tiling;
    const int lines = tiling.stages * tiling.planes * tiling.rows;
    for (int i = threadIdx.x; tiling.bulk_copies == 0 && i < lines; i += threads) {
        const int stage = i / (tiling.planes * tiling.rows);
        const int line = i - stage * (tiling.planes * tiling.rows);
        auto *row = reinterpret_cast<float *>(block.shared + stage * tiling.stage_bytes +
                                              line * tiling.pitch + tiling.left);
        for (int j = 1; j <= tiling.zeros_left; ++j)
            row[-j] = 0;
        for (int j = 0; j < tiling.zeros_right; ++j)
            row[tiling.row_floats + j] = 0;
    }
}

// The filter, and where in a strip the inputs of a step lie.
template <int RowReuse>
__device__ __forceinline__ void load_tables(const Block &block, const float *packed, int threads) {
    const Tiling &tiling = block.tiling;
    const Order &order = tiling.order;
    for (uint32_t i = threadIdx.x * 16; i < tiling.weight_bytes; i += threads * 16)
        *reinterpret_cast<uint4 *>(block.shared + block.weights + i) =
            *reinterpret_cast<const uint4 *>(packed + i / 4);
    publish_to_bulk_copies(); // wgmma reads them the same way
    const int count = RowReuse == 1 ? 8 * order.steps : 4 * (2 * order.full + order.odd);
    for (int i = threadIdx.x; i < count; i += threads) {
        const Order::Tap tap =
            RowReuse == 1 ? order.tap(1, i / 8, i / 4 % 2, i % 4) : order.element(i, 0);
        block.places[i] = tap.r * tiling.pitch + tap.s * tiling.pixel +
                          tap.c * (order.nhwc ? uint32_t(4) : tiling.plane);
    }
}

// The first producer warp: barriers, and as many strips as there are stages, where a lane asks for
// them. Answers their number.
__device__ __forceinline__ int begin_pipeline(const Block &block, const float *x, int consumers) {
    const Tiling &tiling = block.tiling;
    block.ring.init(tiling.stages, tiling.bulk_copies > 0 ? 1 : tiling.producers * 32,
                    consumers * 32, block.lane);
    block.out.init(tiling.output_stages, tiling.row_columns * 32, (4 - tiling.producers) * 32,
                   block.lane);
    publish_barriers();
    __syncwarp();
    int loaded = 0;
    for (; tiling.bulk_copies > 0 && loaded < min(block.strips, tiling.stages); ++loaded)
        load_strip(block, x, loaded, {loaded, 0}, 0);
    return loaded;
}

// A producer warp, from strip `loaded` on.
__device__ __forceinline__ void produce(const Block &block, const float *x, int loaded,
                                        int producer) {
    const Tiling &tiling = block.tiling;
    for (int m = loaded; m < block.strips; ++m) {
        const RingPosition at = ring_position(m, tiling.stages, tiling.by_stages);
        block.ring.wait_empty(at);
        load_strip(block, x, m, at, producer);
    }
    wait_for_copies(); // nobody leaves before its own have arrived
}

// The columns of a warp in a task, of `total` columns of the block.
template <class Task>
__device__ __forceinline__ Columns columns_of(const Block &block, int task, int total) {
    constexpr TaskShape F = Task::F;
    constexpr int Mine = 8 * F.pixels();
    const Tiling &tiling = block.tiling;
    // Up to 64 output channels are one group, mostly.
    const int row = tiling.groups == 1 ? task : tiling.by_groups.quotient(task);
    const int begin = row * F.columns() + (F.wgmma ? block.warp % 4 * Mine : 0);
    const int end = min(begin + Mine, total);
    return {task - row * tiling.groups, begin, end,
            tiling.by_row_columns.quotient(min(begin, total - 1)),
            tiling.by_row_columns.quotient(end - 1)};
}

// What a task reads: the filter's part of its group, and where the windows of its columns begin.
// The last columns of a block repeat the very last one.
template <class Task>
__device__ __forceinline__ void begin_task(const Block &block, const Columns &own, int total,
                                           const float *packed, Task &work,
                                           uint32_t (&at)[Task::Pixels]) {
    constexpr TaskShape F = Task::F;
    const Tiling &tiling = block.tiling;
    work.places = block.places + block.lane % 4;
    work.pitch = tiling.pitch;
    const int64_t skipped = int64_t(own.group) * tiling.order.steps * Task::StepFloats;
    if constexpr (F.wgmma)
        // A reduction tells the compiler that all lanes have the same: products read descriptors
        // from uniform registers.
        work.weights = Task::descriptor(
            __reduce_max_sync(~0u, block.base + block.weights + uint32_t(skipped) * 4));
    else
        work.weights =
            (tiling.weight_bytes ? reinterpret_cast<const float *>(block.shared + block.weights)
                                 : packed) +
            skipped + block.lane * Task::Regs;
#pragma unroll
    for (int v = 0; v < Task::Pixels; ++v) {
        const int column = min(own.begin + block.lane / 4 + 8 * v, total - 1);
        const int row_tile = tiling.by_row_columns.quotient(column);
        const int m = tiling.by_row_tiles.quotient(row_tile);
        const int below = row_tile - m * tiling.row_tiles; // in the strip
        at[v] = block.base +
                ring_position(m, tiling.stages, tiling.by_stages).stage * tiling.stage_bytes +
                below * (tiling.tile_rows * tiling.stride_h) * tiling.pitch + tiling.begin +
                (column - row_tile * tiling.row_columns) * tiling.column_step;
        keep(at[v]); // or the address of the block's shared memory is worked out at each load
    }
}

// Products of a task, and what becomes of them.
template <class Task>
__device__ __forceinline__ void compute_task(const Block &block, const Columns &own, int task,
                                             int total, const float *packed, float *y,
                                             const Finish &finish) {
    constexpr TaskShape F = Task::F;
    const Tiling &tiling = block.tiling;
    Task work;
    uint32_t at[Task::Pixels];
    begin_task(block, own, total, packed, work, at);
    if constexpr (!F.weight_stationary)
        add_products(work, tiling.order, at, tiling.stride_h * tiling.pitch);
    // Registers are few up to here: columns are worked out anew, and where there are three
    // warpgroups, what follows from the lane.
    int self = block.lane;
    if constexpr (F.warpgroups == 3)
        keep(self);
    keep(task);
    TaskMap<Task> map(tiling, block.tiles, total, work, columns_of<Task>(block, task, total), y,
                      self);
    const auto finish_sums = [&] {
        // Without this branch around all of it, sums are moved even where there is nothing to do.
        if (!finish.affine && !finish.residual && !finish.limited)
            return;
        scale_and_add_bias(finish, tiling.k, map);
        add_residual<float>(finish, map);
        limit(finish, map);
    };
    const auto store = [&] {
        if (tiling.vector_stores)
            store_sums_to_y<2>(map);
        else
            store_sums_to_y<1>(map);
    };
    if constexpr (F.weight_stationary) {
        const int most = __reduce_max_sync(~0u, max(max(map.rows[0], map.rows[1]), 0));
        work.add_stationary(at, min(most, tiling.tile_rows), [&] {
            finish_sums();
            store();
            map.move_down();
        });
    } else {
        finish_sums();
        if (tiling.output_stages > 0)
            gather(map, block.out, block.base + block.outputs);
        else
            store();
    }
}

// A warp of consumers.
template <class Task>
__device__ __forceinline__ void consume(const Block &block, const float *packed, float *y,
                                        const Finish &finish) {
    constexpr TaskShape F = Task::F;
    const Tiling &tiling = block.tiling;
    RingWindow<MaxStages> window(block.ring, tiling.stages, tiling.by_stages);
    const int total = block.strips * tiling.strip_columns;
    const int tasks = (total + F.columns() - 1) / F.columns() * tiling.groups;
    for (int round = 0;; ++round) {
        int task =
            round * F.warpgroups + block.warp / 4; // of a warpgroup; its warps need not agree
        if constexpr (!F.wgmma)
            task = block.counter.take(block.lane);
        if (task >= tasks)
            break;
        const Columns own = columns_of<Task>(block, task, total);
        window.release_before(tiling.by_row_tiles.quotient(own.first));
        window.wait_through(tiling.by_row_tiles.quotient(own.last));
        compute_task<Task>(block, own, task, total, packed, y, finish);
    }
    window.release_before(block.strips - tiling.stages); // later ones nobody waits for
}
#endif

template <int Index, bool Three>
__global__ void __launch_bounds__(TaskShapes[Index].threads(), 1)
    small_mma_kernel(const Tiling tiling, const float *__restrict__ x,
                     const float *__restrict__ packed, float *__restrict__ y, const Finish finish) {
#if CF_SM90A
    constexpr TaskShape F = TaskShapes[Index];
    using Task = std::conditional_t<F.wgmma, WarpgroupTask<Index, Three>, WarpTask<Index, Three>>;
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ Ring<MaxStages> ring;
    __shared__ Outputs out;
    __shared__ TaskCounter counter;
    const Block block(tiling, shared, ring, out, counter);
    constexpr int Consumers = F.warpgroups * 4;  // warps; four more load and store
    const int producer = block.warp - Consumers; // or a storing warp

    int loaded = 0;
    if (producer == 0)
        loaded = begin_pipeline(block, x, Consumers);
    if (threadIdx.x == 0)
        counter.next = 0;
    clear_padding(block, F.threads());
    load_tables<F.row_reuse>(block, packed, F.threads());
    __syncthreads();

    if (producer >= 0) {
        give_registers<F.producer_registers()>();
        if (producer < tiling.producers)
            produce(block, x, loaded, producer);
        else if (tiling.output_stages > 0)
            store_output_tiles(tiling, F.rows, block.tiles, out, block.base + block.outputs, y,
                               producer - tiling.producers, block.lane);
    } else {
        take_registers<F.consumer_registers()>();
        consume<Task>(block, packed, y, finish);
    }
#else
    not_compiled();
#endif
}

} // namespace cf::small_mma
