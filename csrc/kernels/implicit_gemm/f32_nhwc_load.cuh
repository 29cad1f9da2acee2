// The loaders of implicit_gemm_f32_nhwc: a block's tiles, and how lines of x in f32 and both
// operands' lines of the filter come to shared memory.
#pragma once

#include "kernels/implicit_gemm/f32_nhwc_tiling.cuh"
#include "kernels/implicit_gemm/nhwc_load.cuh"

namespace cf::implicit_f32 {

#if CF_SM90
using implicit_gemm::first_pixel;
using implicit_gemm::Place;
using implicit_gemm::place_of;

// What a block has in shared memory beside its stages. A stage of pixels is `raw` when its f32 are
// there, and full when they are split.
struct Shared {
    Barrier raw[Warpgroups][MaxPixelStages];
    Ring<MaxPixelStages> pixels[Warpgroups];
    Ring<MaxWeightStages> weights[Warpgroups];
    Barrier lead; // the first warpgroup's
};

struct Block {
    const Plan &plan;
    const Tiling &tiling;
    Shared &shared;
    uint32_t stages;
    int part;                // of the sum
    int first_block, blocks; // of channels
    StridedTiles mine;
    int count;

    __device__ __forceinline__ Block(const Plan &plan, Shared &shared, const void *dynamic)
        : plan(plan), tiling(plan.tiling), shared(shared),
          stages((shared_address(dynamic) + (LineAlign - 1)) & ~(LineAlign - 1)),
          part(plan.tiling.parts > 1 ? cluster_rank() : 0), mine(StridedTiles::of_block()) {
        const int parts = tiling.parts;
        first_block = part * tiling.blocks / parts;
        blocks = (part + 1) * tiling.blocks / parts - first_block;
        mine = {mine.first / parts, mine.step / parts};
        count = mine.count(tiling.tiles);
    }

    // The first operand's lines of a stage.
    __device__ __forceinline__ uint32_t pixels(int ring, int stage) const {
        return stages + (ring * tiling.pixel_stages + stage) * 2 * tiling.pixel_stage_bytes;
    }
    __device__ __forceinline__ uint32_t weights(int ring, int stage) const {
        return stages + plan.pixel_bytes() + (ring * tiling.weight_stages + stage) * WeightBytes;
    }
    __device__ __forceinline__ uint32_t staged(int warpgroup) const {
        return stages + plan.pixel_bytes() + plan.weight_bytes() + warpgroup * StagedBytes;
    }
    // Of a stage, two floats for each line: its own factor and that of the line behind.
    __device__ __forceinline__ uint32_t factors(int ring, int stage) const {
        return staged(Warpgroups) + (ring * tiling.pixel_stages + stage) * plan.factor_lines * 8;
    }
    // Of the block's tiles with the same pixels, number m of these, number `turn`; of it the pixels
    // of a ring.
    __device__ __forceinline__ Place place(int m, int turn, int ring) const {
        const Tiling &t = tiling;
        const int tile = mine.tile(m), pixels = t.by_channel_sets.quotient(tile);
        const int channels = (tile - pixels * t.channel_sets) * plan.sweep + turn;
        return place_of(t, channels, t.apart ? pixels * Warpgroups + ring : pixels);
    }
};

// A warp asks for a ring's pixels, tile by tile: a box of the first 32 channels of a block, and one
// of the others.
__device__ __forceinline__ void produce_pixels(const Block &block, const CUtensorMap &x, int ring,
                                               int lane) {
    const Tiling &t = block.tiling;
    RingPosition at;
    for (int m = 0; m < block.count; ++m) {
        const Place tile = block.place(m, 0, ring);
        const Place from = t.im2col ? first_pixel(t, tile)
                                    : Place{tile.n, tile.row - t.pad_top, tile.column - t.pad_left};
        // Of 16 bits.
        int word = (tile.group * t.group_c + block.first_block * BlockChannels) * 2;
        for (int b = 0; b < block.blocks; ++b, word += BlockChannels * 2)
            for (int r = 0; r < t.load_rows; ++r)
                for (int s = 0; s < t.load_columns; ++s, at.next(t.pixel_stages)) {
                    block.shared.pixels[ring].wait_empty(at);
                    if (lane == 0) {
                        Barrier &raw = block.shared.raw[ring][at.stage];
                        raw.arrive_and_expect(2 * t.pixel_bytes);
                        for (int half = 0; half < 2; ++half) {
                            const uint32_t to =
                                block.pixels(ring, at.stage) + half * t.pixel_stage_bytes;
                            const int channel = word + half * FloatChannels * 2;
                            if (t.im2col)
                                copy_pixels(to, x, channel, from.column, from.row, from.n,
                                            s * t.column_offset, r * t.row_offset, raw);
                            else
                                copy_box(to, x, channel, from.column, from.n, from.row, raw);
                        }
                    }
                    __syncwarp();
                }
    }
}

// A warp asks for the filter's lines of a ring, tile by tile: of each tap low parts, then high
// ones. Warpgroups that have no rows have others'.
__device__ __forceinline__ void produce_weights(const Block &block, const char *filter, int ring,
                                                int lane) {
    const Tiling &t = block.tiling;
    const int64_t tap_bytes = int64_t(t.filter_lines) * 2 * LineBytes;
    RingPosition at;
    for (int m = 0; m < block.count; ++m)
        for (int turn = 0; turn < block.plan.sweep; ++turn) {
            const Place tile = block.place(m, turn, 0);
            const int k = min(tile.k + ring * RowChannels, t.filter_lines - RowChannels);
            const int64_t first = int64_t(tile.group) * t.blocks + block.first_block;
            const char *from = filter + first * t.taps * tap_bytes + int64_t(k) * 2 * LineBytes;
            for (int i = 0; i < block.blocks * t.taps; ++i, from += tap_bytes)
                for (int high = 0; high < 2; ++high, at.next(t.weight_stages)) {
                    block.shared.weights[ring].wait_empty(at);
                    if (lane == 0) {
                        Barrier &full = block.shared.weights[ring].full[at.stage];
                        full.arrive_and_expect(WeightBytes);
                        copy_bulk(block.weights(ring, at.stage), from + high * WeightBytes,
                                  WeightBytes, full);
                    }
                    __syncwarp();
                }
        }
}
#endif

} // namespace cf::implicit_f32
