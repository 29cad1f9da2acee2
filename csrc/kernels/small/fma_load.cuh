// How small_fma fills shared memory: strips of x, and the filter where it does not come from
// constant memory.
#pragma once

#include "kernels/small/fma_block.cuh"
#include "pipeline/segment.cuh"
#include "ptx/cp_async.cuh"

namespace cf::small_fma {

#if CF_SM90
// Strip m of the block, by all loading warps.
template <int TileRows> // of x that a row tile moves down
__device__ __forceinline__ void load_strip(const Block &block, const float *x, int m) {
    const Tiling &tiling = block.tiling;
    const int strip = block.mine.tile(m), n = tiling.by_image_strips.quotient(strip);
    const int top =
        (strip - n * tiling.image_strips) * tiling.row_tiles * TileRows - tiling.pad_top;
    const int64_t area = int64_t(tiling.h) * tiling.w;
    const float *from = x + int64_t(n) * tiling.c * area;
    const RingPosition at = block.position(m);
    const uint32_t to = block.stage(at);
    Barrier &full = block.shared.inputs.full[at.stage];
    if (tiling.bulk_copies > 0) {
        if (block.lane == 0 && block.loader == 0) {
            const int64_t skipped = int64_t(top) * tiling.w;
            const auto bytes = uint32_t(min(tiling.bulk_bytes, tiling.bulk_end - skipped * 4));
            load_planes(to, tiling.plane, from + skipped, area, bytes, tiling.bulk_copies, full);
        }
        return;
    }
#pragma unroll 2
    for (int e = block.loader * 32 + block.lane; e < tiling.pieces; e += block.loaders * 32) {
        const int line = tiling.by_row_pieces.quotient(e), piece = e - line * tiling.row_pieces;
        const int c = tiling.by_rows.quotient(line), h = top + line - c * tiling.rows;
        const bool live = h >= 0 && h < tiling.h;
        const float *row = from + c * area + (live ? int64_t(h) * tiling.w : 0);
        const int along = piece * tiling.piece;
        const uint32_t there = to + line * tiling.pitch + tiling.left + along;
        if (tiling.piece == 16)
            copy16_async(there, row + along / 4, live);
        else
            copy4_async(there, row + along / 4, live);
    }
    full.arrive_after_copies();
}

// Zeros in the columns of the padding, in all stages: they are written only here.
__device__ __forceinline__ void zero_padding(const Block &block, float *inputs) {
    const Tiling &tiling = block.tiling;
    const int lines = tiling.c * tiling.rows;
    for (int i = threadIdx.x; i < tiling.stages * lines; i += block.warps * 32) {
        const int stage = i / lines, line = i - stage * lines;
        float *row = inputs + (stage * tiling.stage_bytes + line * tiling.pitch + tiling.left) / 4;
        for (int j = 1; j <= tiling.pad_left; ++j)
            row[-j] = 0;
        for (int j = 0; j < tiling.pad_right; ++j)
            row[tiling.w + j] = 0;
    }
}

// The filter of a block's split, which goes to shared memory. It is asked for before the strips,
// behind which it would wait.
struct FilterLoad {
    const float *packed;
    int floats;
    float4 first = {};

    __device__ __forceinline__ FilterLoad(const float *packed, int floats)
        : packed(packed), floats(floats) {
        if (threadIdx.x * 4 < floats)
            first = load_global_f32x4(packed + threadIdx.x * 4);
    }
    __device__ __forceinline__ void store(float *shared, int threads) const {
        auto *to = reinterpret_cast<float4 *>(shared);
        const auto *from = reinterpret_cast<const float4 *>(packed);
        if (threadIdx.x * 4 < floats)
            to[threadIdx.x] = first;
        for (int i = threadIdx.x + threads; i * 4 < floats; i += threads)
            to[i] = from[i];
    }
};
#endif

} // namespace cf::small_fma
