// The loader of implicit_gemm_f32_nhwc: how lines of x in f32 come to shared memory.
#pragma once

#include "kernels/implicit_gemm/f32_block.cuh"

namespace cf::implicit_f32 {

#if CF_SM90
using implicit_gemm::first_pixel;

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

// A warp asks for a ring's weights.
__device__ __forceinline__ void produce_weights(const Block &block, const char *filter, int ring,
                                                int lane) {
    for (WeightWalk walk(block, filter, ring); walk.more(); walk.next()) {
        walk.empty().wait(walk.at.parity() ^ 1);
        if (lane == 0)
            walk.ask();
        __syncwarp();
    }
}
#endif

} // namespace cf::implicit_f32
