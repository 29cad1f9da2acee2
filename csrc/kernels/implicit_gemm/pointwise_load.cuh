// The loader of implicit_gemm_pointwise: one warp asks for a stage of x and weights, block by block
// of channels.
#pragma once

#include "kernels/implicit_gemm/pointwise_tiling.cuh"
#include "pipeline/ring.cuh"
#include "pipeline/scheduler.cuh"
#include "ptx/bulk.cuh"
#include "ptx/tensor.cuh"

namespace cf::pointwise {

#if CF_SM90A
struct Shared {
    Ring<MaxStages> ring;
};

// Where a warpgroup's part of a tile lies: its first image, piece of that, group and output channel
// of the group.
struct Place {
    int n, piece, group, k;

    template <int N>
    static __device__ __forceinline__ Place of(const Tiling &t, int tile, int warpgroup) {
        const int pixel_tile = t.by_channel_tiles.quotient(tile);
        const int channel_tile = tile - pixel_tile * t.channel_tiles;
        const int group = t.by_group_tiles.quotient(channel_tile);
        const int k = (channel_tile - group * t.group_tiles) * N;
        if (t.images > 0)
            return {pixel_tile * t.images, 0, group, k};
        const int piece = pixel_tile * Warpgroups + warpgroup, n = t.by_pieces.quotient(piece);
        return {n, piece - n * t.pieces, group, k};
    }
};

// What a lane copies of a tile: images, or a box of its warpgroup, and weights.
template <class Element, int N>
class TileCopies {
    const Tiling &t;
    const Place place;
    const int lane, images, lines;

  public:
    __device__ __forceinline__ TileCopies(const Tiling &t, int tile, int lane)
        : t(t), place(Place::of<N>(t, tile, lane % Warpgroups)), lane(lane),
          images(min(t.images, t.n - place.n)), lines(min(N, t.filter_lines - place.k)) {}

    // Block number b, into a stage.
    __device__ __forceinline__ void ask(const CUtensorMap &map, const Element *x,
                                        const char *filter, int b, uint32_t stage,
                                        Barrier &full) const {
        constexpr int Channels = BlockChannels<Element>;
        const int channels = b + 1 < t.blocks ? Channels : t.last_channels;
        const int channel = place.group * t.group_c + b * Channels;
        const uint32_t plane_bytes = uint32_t(channels * t.x_plane) * sizeof(Element);
        const uint32_t weights = lines * LineBytes;
        if (lane == 0)
            full.arrive_and_expect(
                (t.images > 0 ? images * plane_bytes : Warpgroups * t.set_bytes) + weights);
        if (t.images > 0) {
            for (int i = lane; i < images; i += 32)
                copy_bulk(stage + i * t.set_bytes,
                          x + (place.n + i) * t.x_image + channel * t.x_plane, plane_bytes, full);
        } else if (lane < Warpgroups) {
            copy_box(stage + lane * t.set_bytes, map, place.piece * t.piece_column,
                     place.piece * t.piece_row, channel, place.n, full);
        }
        if (lane == 31)
            copy_bulk(stage + t.pixel_stage_bytes,
                      filter + (int64_t(place.group * t.blocks + b) * t.filter_lines + place.k) *
                                   LineBytes,
                      weights, full);
    }
};

template <class Element, int N>
__device__ __forceinline__ void produce(const Tiling &t, Shared &shared, uint32_t dynamic,
                                        const CUtensorMap &map, const Element *x,
                                        const char *filter, int lane) {
    const StridedTiles tiles = StridedTiles::of_block();
    const int count = tiles.count(t.tiles);
    if (t.images == 0 && lane == 0)
        prefetch_map(map);
    RingPosition at;
    for (int m = 0; m < count; ++m) {
        const TileCopies<Element, N> copies(t, tiles.tile(m), lane);
        for (int b = 0; b < t.blocks; ++b, at.next(t.stages)) {
            shared.ring.wait_empty(at);
            copies.ask(map, x, filter, b, dynamic + at.stage * t.stage_bytes,
                       shared.ring.full[at.stage]);
        }
    }
}
#endif

} // namespace cf::pointwise
