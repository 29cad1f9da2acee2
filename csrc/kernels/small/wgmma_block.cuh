// A block of small_wgmma: its shared memory and its images.
#pragma once

#include "kernels/small/wgmma_plan.cuh"
#include "pipeline/ring.cuh"
#include "pipeline/scheduler.cuh"

namespace cf::small_wgmma {

#if CF_SM90A
// Beside what a launch asks for.
struct Shared {
    Ring<MaxStages> inputs;
    Ring<MaxOutStages> outputs;
    Barrier planar_full[PlanarBuffers];
};
static_assert(sizeof(Shared) <= small16::StaticShared, "the plan leaves room for it");

struct Block {
    const Tiling &tiling;
    Shared &shared;
    // Addresses in shared memory, behind each other.
    uint32_t weights, out_stages, stages, planar_buffers;
    StridedTiles mine;
    int images;

    __device__ __forceinline__ Block(const Tiling &tiling, Shared &shared, const char *dynamic)
        : tiling(tiling), shared(shared), weights(shared_address(dynamic)),
          out_stages(weights + tiling.weight_bytes),
          stages(out_stages + tiling.out_stages * tiling.out_stage_bytes),
          planar_buffers(stages + tiling.stages * tiling.stage_bytes),
          mine(StridedTiles::of_block()), images(mine.count(tiling.strips)) {}

    __device__ __forceinline__ uint32_t stage(RingPosition at) const {
        return stages + at.stage * tiling.stage_bytes;
    }
    __device__ __forceinline__ uint32_t out_stage(RingPosition at) const {
        return out_stages + at.stage * tiling.out_stage_bytes;
    }
    // Where image m begins in x and in y, elements; how many it has.
    __device__ __forceinline__ int64_t input_elements() const {
        return int64_t(tiling.c) * tiling.h * tiling.w;
    }
    __device__ __forceinline__ int64_t output_elements() const {
        return int64_t(tiling.k) * tiling.p * tiling.q;
    }
    __device__ __forceinline__ int64_t input(int m) const {
        return mine.tile(m) * input_elements();
    }
    __device__ __forceinline__ int64_t output(int m) const {
        return mine.tile(m) * output_elements();
    }
};

// By a warp.
__device__ __forceinline__ void init_barriers(const Block &block, int lane) {
    const Tiling &tiling = block.tiling;
    block.shared.inputs.init(tiling.stages, tiling.producers * 32, Consumers * 32, lane);
    block.shared.outputs.init(tiling.out_stages, Consumers * 32, 32, lane);
    if (lane < PlanarBuffers)
        block.shared.planar_full[lane].init(32);
    publish_barriers();
}
#endif

} // namespace cf::small_wgmma
