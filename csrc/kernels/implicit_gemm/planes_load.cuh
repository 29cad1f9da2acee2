// The loaders of implicit_gemm_planes: one warp asks for planes, one for weights.
#pragma once

#include "kernels/implicit_gemm/planes_tiling.cuh"
#include "kernels/implicit_gemm/pointwise_load.cuh"

namespace cf::planes {

#if CF_SM90A
using pointwise::Place;

struct Shared {
    Ring<MaxStages> planes;
    Ring<MaxWeightStages> weights;
};

// Where stages lie: weights, whose lines are aligned, before planes.
__device__ __forceinline__ uint32_t weight_stage(const Tiling &t, uint32_t dynamic,
                                                 RingPosition at) {
    return dynamic + at.stage * t.weight_stage_bytes;
}
__device__ __forceinline__ uint32_t plane_stage(const Tiling &t, uint32_t dynamic,
                                                RingPosition at) {
    return dynamic + t.weight_stages * t.weight_stage_bytes + at.stage * t.stage_bytes;
}

template <class Element, int N, int Step>
__device__ __forceinline__ void produce_planes(const Tiling &t, Shared &shared, uint32_t dynamic,
                                               const CUtensorMap &map, const Element *x, int lane) {
    const StridedTiles tiles = StridedTiles::of_block();
    const int count = tiles.count(t.tiles);
    if (t.boxes > 0 && lane == 0)
        prefetch_map(map);
    RingPosition at;
    for (int m = 0; m < count; ++m) {
        const Place place = Place::of<N>(t, tiles.tile(m), 0);
        // In steps of 2 pieces are whole rows, of which x has four pixels for each of y.
        const int first = place.piece * t.piece_pixels * Step * Step + t.run + lane * t.box_step;
        for (int b = 0; b < t.blocks; ++b, at.next(t.stages)) {
            const int channel = place.group * t.group_c + b * pointwise::BlockChannels<Element>;
            const int channels =
                b + 1 < t.blocks ? pointwise::BlockChannels<Element> : t.last_channels;
            const uint32_t plane_bytes = uint32_t(channels * t.x_plane) * sizeof(Element);
            const uint32_t stage = plane_stage(t, dynamic, at);
            Barrier &full = shared.planes.full[at.stage];
            shared.planes.wait_empty(at);
            if (lane == 0)
                full.arrive_and_expect(t.boxes > 0 ? t.boxes * t.box_bytes : plane_bytes);
            if (lane < t.boxes)
                copy_box(stage + lane * t.box_bytes, map, first, channel, place.n, 0, full);
            else if (t.boxes == 0 && lane == 0)
                copy_bulk(stage + Margin, x + place.n * t.x_image + channel * t.x_plane,
                          plane_bytes, full);
        }
    }
}

// Block by block of channels, tap by tap.
template <int N>
__device__ __forceinline__ void produce_weights(const Tiling &t, Shared &shared, uint32_t dynamic,
                                                const char *filter, int lane) {
    const StridedTiles tiles = StridedTiles::of_block();
    const int count = tiles.count(t.tiles);
    const int taps = t.blocks * t.rows * Columns;
    RingPosition at;
    for (int m = 0; m < count; ++m) {
        const Place place = Place::of<N>(t, tiles.tile(m), 0);
        const uint32_t bytes = min(N, t.filter_lines - place.k) * LineBytes;
        const int64_t first = int64_t(place.group) * taps * t.filter_lines + place.k;
        const char *from = filter + first * LineBytes;
        for (int i = 0; i < taps; ++i, at.next(t.weight_stages)) {
            Barrier &full = shared.weights.full[at.stage];
            shared.weights.wait_empty(at);
            if (lane == 0) {
                full.arrive_and_expect(bytes);
                copy_bulk(weight_stage(t, dynamic, at), from, bytes, full);
            }
            from += int64_t(t.filter_lines) * LineBytes;
        }
    }
}
#endif

} // namespace cf::planes
