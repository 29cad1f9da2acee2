// The loaders of implicit_gemm_resident: one warp asks for rows of x, one for the filter.
#pragma once

#include "kernels/implicit_gemm/resident_tiling.cuh"
#include "pipeline/ring.cuh"
#include "ptx/bulk.cuh"
#include "ptx/tensor.cuh"

namespace cf::implicit_resident {

#if CF_SM90A
struct Shared {
    Ring<MaxStages> rows;
    Barrier filter[MaxRows];   // of taps
    Barrier asked[Warpgroups]; // whether a warpgroup has asked for all products of a row
};

// What a block has in shared memory, and which output channels.
struct Block {
    const Tiling &tiling;
    Shared &shared;
    uint32_t filter; // behind it stages
    int group, k;    // of the group, the first one

    __device__ __forceinline__ Block(const Tiling &t, Shared &shared, uint32_t first)
        : tiling(t), shared(shared), filter(first) {
        const int member = t.by_sets.quotient(blockIdx.x), set = blockIdx.x - member * t.sets;
        group = t.by_group_sets.quotient(set);
        k = (set - group * t.group_sets) * RowChannels;
    }
    __device__ __forceinline__ uint32_t stage(int number) const {
        return filter + filter_bytes(tiling) + number * 2 * tiling.strip_bytes;
    }
};

// Neighbouring rows of a tile.
struct Run {
    int image, segment;
    int row, rows;

    // Where the tile begins in x, and how far behind that in y.
    __device__ __forceinline__ int column(const Tiling &t) const {
        return segment * t.columns - margin();
    }
    __device__ __forceinline__ int margin() const { return segment > 0 ? PieceColumns : 0; }
};

// The block's rows, body(run) by body(run).
template <class Body>
__device__ __forceinline__ void for_runs(const Tiling &t, Body body) {
    int at = t.by_sets.quotient(blockIdx.x) * t.block_rows;
    const int end = min(at + t.block_rows, t.all_rows);
#pragma unroll 1
    while (at < end) {
        const int tile = t.by_tile_rows.quotient(at), row = at - tile * t.tile_rows;
        const int image = t.by_segments.quotient(tile);
        const Run run = {image, tile - image * t.segments, row, min(t.tile_rows - row, end - at)};
        body(run);
        at += run.rows;
    }
}

// Row by row, with those that only taps above and below fall on. What lies outside of x comes as
// zeros.
__device__ __forceinline__ void produce_rows(const Block &block, const CUtensorMap &x, int lane) {
    const Tiling &t = block.tiling;
    if (lane == 0)
        prefetch_map(x);
    RingPosition at;
    for_runs(t, [&](const Run &run) {
        const int column = run.column(t), image = run.image * t.groups + block.group;
        const int first = run.row - t.pad_top, end = first + run.rows + reach(t);
        for (int row = first; row < end; ++row, at.next(t.stages)) {
            block.shared.rows.wait_empty(at);
            if (lane == 0) {
                Barrier &full = block.shared.rows.full[at.stage];
                const uint32_t to = block.stage(at.stage);
                full.arrive_and_expect(2 * t.strip_bytes);
                copy_box(to, x, column, row, 0, image, full);
                copy_box(to + t.strip_bytes, x, column + t.strip_columns, row + t.strip_rows, 0,
                         image, full);
            }
            __syncwarp();
        }
    });
}

// Rows of taps by themselves, so that products begin with the first one. Without images nobody
// waits for them.
__device__ __forceinline__ void load_filter(const Block &block, const char *filter, int lane) {
    const Tiling &t = block.tiling;
    const int taps = t.all_rows > 0 ? t.rows * Taps : 0;
    if (lane < taps / Taps)
        block.shared.filter[lane].arrive_and_expect(Taps * TapBytes);
    if (lane < taps)
        copy_bulk(block.filter + lane * TapBytes,
                  filter +
                      (int64_t(block.group * taps + lane) * t.filter_lines + block.k) * LineBytes,
                  TapBytes, block.shared.filter[lane / Taps]);
}
#endif

} // namespace cf::implicit_resident
