// The loader of implicit_gemm_pointwise_shared: one warp asks for a stage of x and weights, block
// by block of channels.
#pragma once

#include "kernels/implicit_gemm/pointwise_shared_tiling.cuh"
#include "pipeline/ring.cuh"
#include "pipeline/scheduler.cuh"
#include "ptx/bulk.cuh"
#include "ptx/cluster.cuh"
#include "ptx/tensor.cuh"

namespace cf::pointwise_shared {

#if CF_SM90A
struct Shared {
    Ring<MaxStages> ring;
};

// A tile: its image, first pixel of that, group, and first output channel of the group.
struct Place {
    int n, pixel, group, k;

    __device__ __forceinline__ Place(const Tiling &t, int tile) {
        const int piece = t.by_channel_tiles.quotient(tile);
        const int channel_tile = tile - piece * t.channel_tiles;
        group = t.by_group_tiles.quotient(channel_tile);
        k = (channel_tile - group * t.group_tiles) * TileChannels;
        n = t.by_pieces.quotient(piece);
        pixel = (piece - n * t.pieces) * t.piece_pixels;
    }
};

// Of x a lane copies the lines of a strip that have a parity. What lies behind a plane, and behind
// all channels, meets no sum that is stored, or weights of zero: copies fill in zeros, or it is of
// another plane. Of peers each asks for every second copy of x, for both.
template <int Columns, int Parities>
__device__ __forceinline__ void produce(const Tiling &t, Shared &shared, uint32_t first,
                                        const CUtensorMap &x, const char *filter, int lane) {
    constexpr int Copies = strips_of(Columns) * Parities, Bytes = StripBytes / Parities;
    static_assert(Copies % 2 == 0 && Copies < 31, "shared by peers; the last lane has weights");
    const StridedTiles tiles = StridedTiles::of_block();
    const int count = tiles.count(t.tiles), parity = lane % Parities, strip = lane / Parities;
    const bool alone = t.peers == 1;
    const bool copies = lane < Copies && (alone || lane % 2 == cluster_rank());
    if (lane == 0)
        prefetch_map(x);
    RingPosition at;
    for (int m = 0; m < count; ++m) {
        const Place place(t, tiles.tile(m));
        const int pixel = place.pixel + strip * StripPixels + parity * t.parity_pixels;
        const uint32_t weights = min(TileChannels, t.filter_lines - place.k) * LineBytes;
        for (int b = 0; b < t.blocks; ++b, at.next(t.stages)) {
            shared.ring.wait_empty(at);
            Barrier &full = shared.ring.full[at.stage];
            if (lane == 0)
                full.arrive_and_expect(t.pixel_bytes + weights);
            __syncwarp();
            const uint32_t stage = first + at.stage * t.stage_bytes, to = stage + lane * Bytes;
            const int row = (place.group * t.group_c + b * BlockChannels) / Parities;
            if (copies && alone)
                copy_box(to, x, pixel, row, place.n, 0, full);
            else if (copies)
                copy_box_to(3, to, x, pixel, row, place.n, 0, full);
            if (lane == 31)
                copy_bulk(stage + t.pixel_bytes,
                          filter +
                              (int64_t(place.group * t.blocks + b) * t.filter_lines + place.k) *
                                  LineBytes,
                          weights, full);
        }
    }
}
#endif

} // namespace cf::pointwise_shared
