// The loaders of implicit_gemm_nhwc: a block's tiles, and how lines of x and of the filter come to
// shared memory.
#pragma once

#include "kernels/implicit_gemm/nhwc_plan.cuh"
#include "pipeline/ring.cuh"
#include "pipeline/scheduler.cuh"
#include "ptx/bulk.cuh"
#include "ptx/im2col.cuh"
#include "ptx/tensor.cuh"

namespace cf::implicit_gemm {

#if CF_SM90
using PixelRing = Ring<MaxPixelStages>;
using WeightRing = Ring<MaxWeightStages>;

// What a block has in shared memory beside its stages.
struct Shared {
    PixelRing pixels[Warpgroups];
    WeightRing weights;
    Barrier lead; // the first warpgroup's
};

// Where a tile begins: in images, rows and columns of y, in channels of a group.
struct Place {
    int n, row, column; // n is at least tiling.n where nothing is there
    int group, k;
};

struct Block {
    const Tiling &tiling;
    Shared &shared;
    uint32_t stages;
    StridedTiles mine;
    int count; // of tiles

    __device__ __forceinline__ Block(const Tiling &tiling, Shared &shared, const void *dynamic)
        : tiling(tiling), shared(shared),
          stages((shared_address(dynamic) + (LineAlign - 1)) & ~(LineAlign - 1)),
          mine(StridedTiles::of_block()), count(mine.count(tiling.tiles)) {}

    // A ring of pixels is a warpgroup's own, or the only one.
    __device__ __forceinline__ uint32_t pixels(int ring, int stage) const {
        return stages + (ring * tiling.pixel_stages + stage) * tiling.pixel_stage_bytes;
    }
    __device__ __forceinline__ uint32_t weights(int stage) const {
        const int rings = tiling.apart ? Warpgroups : 1;
        return pixels(rings, 0) + stage * tiling.weight_stage_bytes;
    }
    __device__ __forceinline__ uint32_t staged(int warpgroup) const {
        return weights(tiling.weight_stages) + warpgroup * StagedBytes;
    }
    // Tile number m of the block, of it the pixels of a ring.
    __device__ __forceinline__ Place place(int m, int ring) const {
        const Tiling &t = tiling;
        const int tile = mine.tile(m), pixels = t.by_channel_tiles.quotient(tile);
        const int channels = tile - pixels * t.channel_tiles;
        const int pixel_tile = t.apart ? pixels * Warpgroups + ring : pixels;
        Place place;
        place.group = t.by_group_tiles.quotient(channels);
        place.k = (channels - place.group * t.group_tiles) *
                  (t.apart ? RowChannels : Warpgroups * RowChannels);
        const int others = t.by_column_pieces.quotient(pixel_tile);
        place.column = (pixel_tile - others * t.column_pieces) * t.columns;
        const int images = t.by_row_pieces.quotient(others);
        place.row = (others - images * t.row_pieces) * t.rows;
        place.n = pixel_tile < t.pixel_tiles ? images * t.images : t.n;
        return place;
    }
};

// Of all pixels of y, those that a tile begins with, as im2col counts: in x, under the first tap.
__device__ __forceinline__ Place first_pixel(const Tiling &t, const Place &tile) {
    const int rows = t.by_q_real.quotient(tile.column), images = t.by_p_real.quotient(rows);
    Place first = tile;
    first.column = (tile.column - rows * t.q_real) * t.stride_w - t.pad_left;
    first.row = (rows - images * t.p_real) * t.stride_h - t.pad_top;
    first.n = images;
    return first;
}

// A warp asks for a ring's pixels, tile by tile.
__device__ __forceinline__ void produce_pixels(const Block &block, const CUtensorMap &x, int ring,
                                               int lane) {
    const Tiling &t = block.tiling;
    PixelRing &pixels = block.shared.pixels[ring];
    RingPosition at;
    for (int m = 0; m < block.count; ++m) {
        const Place tile = block.place(m, ring);
        const Place from = t.im2col ? first_pixel(t, tile)
                                    : Place{tile.n, tile.row - t.pad_top, tile.column - t.pad_left};
        int channel = tile.group * t.group_c;
        for (int b = 0; b < t.blocks; ++b, channel += LineChannels)
            for (int r = 0; r < t.load_rows; ++r)
                for (int s = 0; s < t.load_columns; ++s, at.next(t.pixel_stages)) {
                    pixels.wait_empty(at);
                    if (lane == 0) {
                        Barrier &full = pixels.full[at.stage];
                        const uint32_t to = block.pixels(ring, at.stage);
                        full.arrive_and_expect(t.pixel_bytes);
                        if (t.im2col)
                            copy_pixels(to, x, channel, from.column, from.row, from.n,
                                        s * t.column_offset, r * t.row_offset, full);
                        else
                            copy_box(to, x, channel, from.column, from.n, from.row, full);
                    }
                    __syncwarp();
                }
    }
}

// A warp asks for the filter's lines, tile by tile, or once.
__device__ __forceinline__ void produce_weights(const Block &block, const char *filter, int lane) {
    const Tiling &t = block.tiling;
    const int64_t tap_bytes = int64_t(t.filter_lines) * LineBytes;
    RingPosition at;
    for (int m = 0; m < (t.turns ? block.count : min(block.count, 1)); ++m) {
        const Place tile = block.place(m, 0);
        const uint32_t bytes =
            min(t.weight_stage_bytes, uint32_t(t.filter_lines - tile.k) * LineBytes);
        const char *from =
            filter + tile.group * (t.blocks * t.taps * tap_bytes) + int64_t(tile.k) * LineBytes;
        for (int i = 0; i < t.blocks * t.taps; ++i, from += tap_bytes, at.next(t.weight_stages)) {
            block.shared.weights.wait_empty(at);
            if (lane == 0) {
                Barrier &full = block.shared.weights.full[at.stage];
                full.arrive_and_expect(bytes);
                copy_bulk(block.weights(at.stage), from, bytes, full);
            }
            __syncwarp();
        }
    }
}
#endif

} // namespace cf::implicit_gemm
