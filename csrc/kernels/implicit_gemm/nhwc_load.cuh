// The loaders of implicit_gemm_nhwc: a block's tiles, and how lines of x and of the filter come to
// shared memory.
#pragma once

#include "kernels/implicit_gemm/tiling.cuh"
#include "pipeline/ring.cuh"
#include "pipeline/scheduler.cuh"
#include "ptx/bulk.cuh"
#include "ptx/cluster.cuh"
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
    // Of a sum whose parts meet (nhwc_parts.cuh): all who send some may; they are here.
    Barrier parts_ready, parts_full;

    // Those of who multiplies, by a thread.
    __device__ __forceinline__ void init_for_consumers(int parts) {
        lead.init(Warpgroup / 32);
        parts_ready.init(Warpgroups * Warpgroup / 32 * parts);
        parts_full.init(1);
    }
};

// Where a tile begins: in images, rows and columns of y, in channels of a group.
struct Place {
    int n, row, column; // n is at least tiling.n where nothing is there
    int group, k;
};

__device__ __forceinline__ Place place_of(const Tiling &t, int channel_tile, int pixel_tile) {
    Place place;
    place.group = t.by_group_tiles.quotient(channel_tile);
    place.k = (channel_tile - place.group * t.group_tiles) *
              (t.apart ? RowChannels : Warpgroups * RowChannels);
    const int others = t.by_column_pieces.quotient(pixel_tile);
    place.column = (pixel_tile - others * t.column_pieces) * t.columns;
    const int images = t.by_row_pieces.quotient(others);
    place.row = (others - images * t.row_pieces) * t.rows;
    place.n = pixel_tile < t.pixel_tiles ? images * t.images : t.n;
    return place;
}

// Blocks of a cluster read the same: those that differ in channels the same pixels, and those that
// differ in pixels the same weights. Each asks for every second load, for both.
struct Peers {
    int count, number, step; // blocks that share, this one among them, ranks from one to the next
    int first;               // rank

    __device__ __forceinline__ uint32_t ranks() const {
        return count == 1 ? 1u << first : (1u << first | 1u << (first + step));
    }
};

struct Block {
    const Tiling &tiling;
    Shared &shared;
    uint32_t stages;
    Peers of_pixels, of_weights;
    int part, parts_first;   // of the sum; rank of the block with the first one of the same tile
    int first_block, blocks; // of channels
    StridedTiles mine;       // sets of tiles, one for each block of the cluster
    int count;

    __device__ __forceinline__ Block(const Tiling &t, Shared &shared, const void *dynamic)
        : tiling(t), shared(shared),
          stages((shared_address(dynamic) + (LineAlign - 1)) & ~(LineAlign - 1)),
          mine(StridedTiles::of_block()) {
        // Every block waits for this: all sizes are powers of two, so nothing is divided.
        const int shift = t.peer_shift + t.part_shift, rank = shift > 0 ? cluster_rank() : 0;
        part = rank >> t.peer_shift;
        parts_first = rank - (part << t.peer_shift);
        const int row = parts_first >> t.pixel_shift, column = parts_first & (t.pixel_peers - 1);
        of_pixels = {t.pixel_peers, column, 1, rank - column};
        of_weights = {t.weight_peers, row, t.pixel_peers, rank - (row << t.pixel_shift)};
        first_block = part * t.blocks >> t.part_shift;
        blocks = ((part + 1) * t.blocks >> t.part_shift) - first_block;
        mine = {mine.first >> shift, mine.step >> shift};
        count = t.by_clusters.quotient(t.tiles - mine.first + mine.step - 1);
    }

    __device__ __forceinline__ int rings() const { return tiling.apart ? Warpgroups : 1; }
    // A ring of pixels is a warpgroup's own, or the only one.
    __device__ __forceinline__ uint32_t pixels(int ring, int stage) const {
        return stages + (ring * tiling.pixel_stages + stage) * tiling.pixel_stage_bytes;
    }
    __device__ __forceinline__ uint32_t weights(int stage) const {
        return pixels(rings(), 0) + stage * tiling.weight_stage_bytes;
    }
    __device__ __forceinline__ uint32_t staged(int warpgroup) const {
        return weights(tiling.weight_stages) + warpgroup * StagedBytes;
    }
    // Where parts of sums come to.
    __device__ __forceinline__ uint32_t parts() const {
        return tiling.parts_replace ? stages : staged(Warpgroups);
    }
    // Tile number m of the block, of it the pixels of a ring.
    __device__ __forceinline__ Place place(int m, int ring) const {
        const Tiling &t = tiling;
        const int tile = mine.tile(m), set = t.by_channel_sets.quotient(tile);
        const int channels = (tile - set * t.channel_sets) * of_pixels.count + of_pixels.number;
        const int pixels = set * of_weights.count + of_weights.number;
        return place_of(t, channels, t.apart ? pixels * Warpgroups + ring : pixels);
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

// One warp asks for a stage in 200 to 500 clocks, so two share a ring where there are two: every
// second stage each, so that neither misses a phase of its stages' barriers.
struct Share {
    int count, number; // 1 or 2

    __device__ __forceinline__ bool has(const RingPosition &at) const {
        return (at.stage & (count - 1)) == number;
    }
};

// Until all of the ring's stages were handed back: to a block that has left nobody can.
template <class AnyRing>
__device__ __forceinline__ void wait_for_last(AnyRing &ring, RingPosition at, int stages,
                                              const Share &share) {
    for (int i = 0; i < stages; ++i, at.next(stages))
        if (share.has(at))
            ring.wait_empty(at);
}

// Where copies of a tile begin: in pixels of x, and its channels.
struct Corner {
    int n, row, column, channel;
};
template <class Element>
__device__ __forceinline__ Corner corner_of(const Block &block, int m, int ring) {
    const Tiling &t = block.tiling;
    const Place tile = block.place(m, ring);
    const int channel = tile.group * t.group_c + block.first_block * LineChannels<Element>;
    if (t.im2col) {
        const Place first = first_pixel(t, tile);
        return {first.n, first.row, first.column, channel};
    }
    return {tile.n, tile.row - t.pad_top, tile.column - t.pad_left, channel};
}

// The first items of a ring, whose stages nobody has to hand back, by a lane for each: issue(item,
// stage). So they wait for nothing but their turn to be sent; a short sum has no others. Says how
// many there are.
template <class Issue>
__device__ __forceinline__ int issue_first(int items, int stages, const Share &share, int lane,
                                           const Issue &issue) {
    const int first = min(items, stages);
    if (lane < first && share.has({lane, 0}))
        issue(lane, lane);
    __syncwarp();
    return first;
}

// Copies of a tile's pixels, or im2col's: block of channels, row and column of the loads of it.
template <class Element>
struct PixelCopies {
    const Block &block;
    const CUtensorMap &x;
    int ring;

    __device__ __forceinline__ void issue(const Corner &from, int b, int r, int s, int stage,
                                          int turn) const {
        const Tiling &t = block.tiling;
        const Peers &peers = block.of_pixels;
        Barrier &full = block.shared.pixels[ring].full[stage];
        const uint32_t to = block.pixels(ring, stage);
        full.arrive_and_expect(t.pixel_bytes);
        const int channel = from.channel + b * LineChannels<Element>;
        const int columns = s * t.column_offset, rows = r * t.row_offset;
        if (peers.count == 1 && t.im2col)
            copy_pixels(to, x, channel, from.column, from.row, from.n, columns, rows, full);
        else if (peers.count == 1)
            copy_box(to, x, channel, from.column, from.n, from.row, full);
        else if (turn == peers.number && t.im2col)
            copy_pixels_to(peers.ranks(), to, x, channel, from.column, from.row, from.n, columns,
                           rows, full);
        else if (turn == peers.number)
            copy_box_to(peers.ranks(), to, x, channel, from.column, from.n, from.row, full);
    }
};

// A warp asks for a ring's pixels, or its share of them, tile by tile; the first begins at `next`.
template <class Element>
__device__ __forceinline__ void produce_pixels(const Block &block, const CUtensorMap &x, int ring,
                                               const Share &share, Corner next, int lane) {
    const Tiling &t = block.tiling;
    PixelRing &pixels = block.shared.pixels[ring];
    const int peers = block.of_pixels.count;
    const PixelCopies<Element> copies = {block, x, ring};
    int first = 0;
    if (block.count > 0 && t.load_rows * t.load_columns == 1)
        first = issue_first(block.blocks, t.pixel_stages, share, lane, [&](int b, int stage) {
            copies.issue(next, b, 0, 0, stage, b & (peers - 1));
        });
    RingPosition at = RingPosition::behind(first, t.pixel_stages);
    int turn = first & (peers - 1);
    for (int m = 0; m < block.count; ++m, first = 0) {
        for (int b = first; b < block.blocks; ++b)
            for (int r = 0; r < t.load_rows; ++r)
                for (int s = 0; s < t.load_columns;
                     ++s, at.next(t.pixel_stages), turn = (turn + 1) & (peers - 1)) {
                    if (!share.has(at))
                        continue;
                    pixels.wait_empty(at);
                    if (lane == 0)
                        copies.issue(next, b, r, s, at.stage, turn);
                    __syncwarp();
                }
        next = corner_of<Element>(block, m + 1, ring);
    }
    if (peers > 1)
        wait_for_last(pixels, at, t.pixel_stages, share);
}

// The filter's lines that a tile begins with, and how many bytes of a tap.
struct TapLines {
    const char *first;
    uint32_t bytes;
};
__device__ __forceinline__ TapLines lines_of(const Block &block, const char *filter, int m) {
    const Tiling &t = block.tiling;
    const Place tile = block.place(m, 0);
    const int64_t taps = (int64_t(tile.group) * t.blocks + block.first_block) * t.taps;
    return {filter + (taps * t.filter_lines + tile.k) * LineBytes,
            min(t.weight_stage_bytes, uint32_t(t.filter_lines - tile.k) * LineBytes)};
}

// A warp asks for its share of the filter's lines, tile by tile, or once; `next` are the first
// tile's.
__device__ __forceinline__ void produce_weights(const Block &block, const char *filter,
                                                const Share &share, TapLines next, int lane) {
    const Tiling &t = block.tiling;
    const int64_t tap_bytes = int64_t(t.filter_lines) * LineBytes;
    WeightRing &weights = block.shared.weights;
    const Peers &peers = block.of_weights;
    const auto issue = [&](const char *from, int stage, int turn) {
        Barrier &full = weights.full[stage];
        full.arrive_and_expect(next.bytes);
        if (peers.count == 1)
            copy_bulk(block.weights(stage), from, next.bytes, full);
        else if (turn == peers.number)
            copy_bulk_to(peers.ranks(), block.weights(stage), from, next.bytes, full);
    };
    const int tiles = t.reload_weights ? block.count : min(block.count, 1);
    const int items = block.blocks * t.taps;
    int first = 0;
    if (tiles > 0)
        first = issue_first(items, t.weight_stages, share, lane, [&](int i, int stage) {
            issue(next.first + i * tap_bytes, stage, i & (peers.count - 1));
        });
    RingPosition at = RingPosition::behind(first, t.weight_stages);
    int turn = first & (peers.count - 1);
    for (int m = 0; m < tiles; ++m, first = 0) {
        const char *from = next.first + first * tap_bytes;
        for (int i = first; i < items; ++i, from += tap_bytes, at.next(t.weight_stages),
                 turn = (turn + 1) & (peers.count - 1)) {
            if (!share.has(at))
                continue;
            weights.wait_empty(at);
            if (lane == 0)
                issue(from, at.stage, turn);
            __syncwarp();
        }
        next = lines_of(block, filter, m + 1);
    }
    if (peers.count > 1)
        wait_for_last(weights, at, t.weight_stages, share);
}
#endif

} // namespace cf::implicit_gemm
