// A block of small_fma: its shared memory, its part of the strips, and where these and their row
// tiles lie in the tensors.
#pragma once

#include "kernels/small/fma_plan.cuh"
#include "pipeline/output_ring.cuh"
#include "pipeline/ring.cuh"
#include "pipeline/scheduler.cuh"

namespace cf::small_fma {

#if CF_SM90
// In front of what a launch asks for.
struct Shared {
    Ring<MaxStages> inputs;
    // A warp may be three rounds ahead of the oldest stage (lay_out_outputs sees to it).
    OutputRing<MaxOutputStages, 2> outputs;
    TaskCounter tasks;
};
static_assert(sizeof(Shared) <= StaticShared, "the plan leaves room for it");

// Where a row tile begins in output channel 0.
struct Place {
    int n, row;
};

// 32 columns in some row tiles, and a group of the block's split: what a warp computes.
struct Task {
    int group;
    int begin;       // column
    int first, last; // row tiles
};

struct Block {
    const Tiling &tiling;
    Shared &shared;
    int warps, warp, lane;
    int consumers; // warps
    // Warps that load, which are the producers, or all before they compute; and the warp's number
    // among them, negative for others. Worked out once: the compiler loses sight of what is the
    // same in all lanes where each use works it out anew.
    int loaders, loader;
    uint32_t inputs, outputs, weights; // addresses in shared memory
    StridedTiles mine;                 // strips
    int strips;
    int first_group; // of the block's split

    __device__ __forceinline__ Block(const Tiling &tiling, Shared &shared, const float *dynamic,
                                     int warps)
        : tiling(tiling), shared(shared), warps(warps),
          // A reduction's result is known to be the same in all lanes.
          warp(int(__reduce_max_sync(~0u, threadIdx.x / 32))), lane(int(threadIdx.x) % 32),
          consumers(warps - tiling.producers), loaders(tiling.producers ? tiling.producers : warps),
          loader(tiling.producers ? warp - consumers : warp), inputs(shared_address(dynamic)),
          outputs(inputs + tiling.stages * tiling.stage_bytes),
          weights(outputs + tiling.output_stages * tiling.output_stage_bytes),
          mine(StridedTiles::of_block()), strips(mine.count(tiling.strips)),
          first_group(blockIdx.y * tiling.groups) {}

    __device__ __forceinline__ RingPosition position(int strip) const {
        return ring_position(strip, tiling.stages, tiling.by_stages);
    }
    __device__ __forceinline__ RingPosition output_position(int output_tile) const {
        return ring_position(output_tile, tiling.output_stages, tiling.by_output_stages);
    }
    __device__ __forceinline__ uint32_t stage(RingPosition at) const {
        return inputs + at.stage * tiling.stage_bytes;
    }
    __device__ __forceinline__ uint32_t output_stage(RingPosition at) const {
        return outputs + at.stage * tiling.output_stage_bytes;
    }
    __device__ __forceinline__ int strip_of(int row_tile) const {
        return tiling.by_row_tiles.quotient(row_tile);
    }
    template <int Rows>
    __device__ __forceinline__ Place place_of(int row_tile) const {
        const int m = strip_of(row_tile), strip = mine.tile(m);
        const int n = tiling.by_image_strips.quotient(strip);
        return {n, ((strip - n * tiling.image_strips) * tiling.row_tiles + row_tile -
                    m * tiling.row_tiles) *
                       Rows};
    }

    // Columns of all strips.
    __device__ __forceinline__ int columns() const { return strips * tiling.strip_columns; }
    __device__ __forceinline__ int tasks() const {
        return (tiling.producers ? (columns() + 31) / 32 : tiling.column_blocks) * tiling.groups;
    }
    // Constant weights stay in the nearest cache where a group's tasks follow each other. They do
    // where all strips are there together; otherwise strips come one by one.
    __device__ __forceinline__ Task task(int number) const {
        int block, group;
        if (tiling.producers > 0) {
            block = tiling.by_groups.quotient(number), group = number - block * tiling.groups;
        } else {
            group = tiling.by_column_blocks.quotient(number);
            block = number - group * tiling.column_blocks;
        }
        const int begin = block * 32;
        return {group, begin, tiling.by_row_columns.quotient(begin),
                tiling.by_row_columns.quotient(min(begin + 31, columns() - 1))};
    }
};

// Barriers, by the warp that needs them first.
__device__ __forceinline__ void init_barriers(const Block &block) {
    const Tiling &tiling = block.tiling;
    // Each warp begins with the task of its number: taken from the count, the first ones would
    // gather on some of the four schedulers.
    if (threadIdx.x == 0)
        block.shared.tasks.next = block.consumers;
    if (block.warp == min(block.consumers, block.warps - 1)) {
        block.shared.inputs.init(tiling.stages, tiling.bulk_copies > 0 ? 1 : block.loaders * 32,
                                 block.consumers * 32, block.lane);
        block.shared.outputs.init(tiling.output_stages, tiling.q, 32, block.lane);
        publish_barriers();
    }
}
#endif

} // namespace cf::small_fma
