// The loader of implicit_gemm_pointwise_shared: one warp asks for a stage of x and weights, block
// by block of channels.
#pragma once

#include "kernels/implicit_gemm/nhwc_load.cuh"
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

// How x is copied: strips beside each other at once, or each by itself. The former sees a tensor of
// overlapping strips and copies what lies behind a plane as well, the next one; the latter stays
// inside of a row, as is needed at the end of x.
struct PixelMaps {
    const CUtensorMap &strips, &strip;
};

// What a block asks for of a stage of x: all, or one half for both peers, of the strips or of the
// parities. What lies behind a plane, and behind all channels, meets no sum that is stored, or
// weights of zero: copies fill in zeros, or it is of another plane.
template <int Columns, int Parities>
class PixelCopies {
    static constexpr int Strips = strips_of(Columns), Bytes = StripBytes / Parities;
    static_assert(Strips % 2 == 0, "shared by peers");
    const Tiling &t;
    const PixelMaps &maps;
    const int lane;
    // Of the block's: parities and strips, the first ones and how many.
    int first_parity = 0, parities = Parities, first_strip = 0, strips = Strips;

    __device__ __forceinline__ void copy(uint32_t to, const CUtensorMap &map, int pixel, int row,
                                         int c, int d, Barrier &full) const {
        if (t.peers == 1)
            copy_box(to, map, pixel, row, c, d, full);
        else
            copy_box_to(3, to, map, pixel, row, c, d, full);
    }

  public:
    __device__ __forceinline__ PixelCopies(const Tiling &t, const PixelMaps &maps, int lane)
        : t(t), maps(maps), lane(lane) {
        if (t.peers == 1)
            return;
        const int rank = cluster_rank();
        if constexpr (Parities == 2)
            first_parity = rank, parities = 1;
        else
            first_strip = rank * Strips / 2, strips = Strips / 2;
    }
    // A block of channels into a stage, by lanes of a warp.
    __device__ __forceinline__ void ask(const Place &place, int b, uint32_t stage,
                                        Barrier &full) const {
        const int parity = first_parity + lane % Parities;
        const int row = (place.group * t.group_c + b * BlockChannels) / Parities;
        const int first = place.pixel + parity * t.parity_pixels;
        const int end = first + (first_strip + strips) * StripPixels;
        if (lane % Parities >= parities)
            return;
        const uint32_t to = stage + parity * Strips * Bytes;
        if (place.n + t.edge_images < t.n || end <= t.row_pixels) {
            if (lane < Parities)
                copy(to + first_strip * Bytes, maps.strips, first, row, first_strip, place.n, full);
        } else if (lane / Parities < strips) {
            const int strip = first_strip + lane / Parities;
            copy(to + strip * Bytes, maps.strip, first + strip * StripPixels, row, place.n, 0,
                 full);
        }
    }
};

template <int Columns, int Parities>
__device__ __forceinline__ void produce(const Tiling &t, Shared &shared, uint32_t first,
                                        const PixelMaps &maps, const char *filter, int lane) {
    const StridedTiles tiles = StridedTiles::of_block();
    const PixelCopies<Columns, Parities> copies(t, maps, lane);
    const int count = tiles.count(t.tiles);
    RingPosition at;
    for (int m = 0; m < count; ++m) {
        const Place place(t, tiles.tile(m));
        const uint32_t weights = min(TileChannels, t.filter_lines - place.k) * LineBytes;
        for (int b = 0; b < t.blocks; ++b, at.next(t.stages)) {
            shared.ring.wait_empty(at);
            Barrier &full = shared.ring.full[at.stage];
            if (lane == 0)
                full.arrive_and_expect(t.pixel_bytes + weights);
            __syncwarp();
            const uint32_t stage = first + at.stage * t.stage_bytes;
            copies.ask(place, b, stage, full);
            if (lane == 31)
                copy_bulk(stage + t.pixel_bytes,
                          filter +
                              (int64_t(place.group * t.blocks + b) * t.filter_lines + place.k) *
                                  LineBytes,
                          weights, full);
        }
    }
    if (t.peers > 1)
        implicit_gemm::wait_for_last(shared.ring, at, t.stages, implicit_gemm::Share{1, 0});
}
#endif

} // namespace cf::pointwise_shared
