// The planner of depthwise_mma: how a problem becomes strips, and what a strip takes.
#pragma once

#include "core/half_line_map.cuh"
#include "core/ranking.cuh"
#include "kernels/depthwise/tiling.cuh"

namespace cf::depthwise_mma {

using namespace depthwise;

constexpr int StaticShared = 1024;             // bytes that the barriers may take
constexpr int Warps = 8;                       // of a block
constexpr int WarpChannels = 4;                // of each, the rest of a strip the same for all
constexpr int Channels = Warps * WarpChannels; // of a strip
constexpr int PixelBytes = Channels * 2;
static_assert(PixelBytes == HalfLineBytes, "a pixel of a box");
constexpr int Units = 16;     // rows of a product: column tiles of images
constexpr int TileWidth = 16; // columns of x that a product takes
constexpr int Slots = 4;      // that rows of y leave from
// Rows of x and y begin at multiples of what the swizzle repeats itself after, so that all of them
// are swizzled alike.
constexpr int PitchPixels = HalfLineAlign / PixelBytes;

// Columns of y whose windows are within the columns of x of a product.
__host__ __device__ constexpr int columns_of(int r, int stride) {
    return (TileWidth - r) / stride + 1 < 8 ? (TileWidth - r) / stride + 1 : 8;
}
// Blocks that registers leave room for on a multiprocessor.
__host__ __device__ constexpr int blocks_of(int r) { return r == 3 ? 2 : 1; }

// Beside the rows of x, those of y that a stage completes are gathered in a slot.
struct Tiling : depthwise::Tiling {
    uint32_t first_slot, slot_bytes, row_bytes; // behind the stages; of a row of y
};

// A tiling, what it copies, and what its launch takes.
struct Option {
    Tiling tiling;
    Box x, y;
    int blocks;
    size_t shared;
    double us;
};

// Fitted to 589 times of an H100 (benches/results/evidence/h100-depthwise-mma-plans.csv), all steps
// counted that the kernel of then computed: clocks of a step of a block by itself, which waits for
// its loads and products; of an item of the ring beside them; until the first one is there, and
// more for each block of a multiprocessor; until any is, and bytes of it that come in one, where
// many are on their way. And shares: of clocks that shared memory counts, of the memory's
// bandwidth, of what strips read again that comes from it.
constexpr double StepAlone = 360, OfItem = 780, Fill = 1220, OfBlock = 147, InFlight = 2010,
                 BytesInFlight = 317, SharedShare = 0.62, StreamShare = 0.8, AgainShare = 0.25;
// Clocks that a product takes of a quarter of a multiprocessor.
constexpr double ProductClocks = 6.6;

// Clocks of a multiprocessor for a step of a block: those of shared memory, where loads of a warp
// take four for 256 bytes and stores too, or of its products.
inline double step_clocks(const cf_problem &p, const Tiling &t) {
    const double copied = double(t.box_bytes) / t.steps + t.row_bytes;
    const double shared = Warps * (p.stride_h * 8 * 4 + 4 * 4) + copied / 128;
    return std::max(SharedShare * shared, Warps / 4 * WarpChannels * p.r * ProductClocks);
}

inline double estimate(const cf_query &query, const Option &option) {
    const cf_problem &p = query.problem;
    const Tiling &t = option.tiling;
    const int halo = std::max(p.r - p.stride_h, 0);
    const int shared_rows = std::max(((t.items - 1) * t.steps - t.rows) * p.stride_h, halo);
    const double rows_again = (t.row_pieces - 1.0) * std::min(shared_rows, p.h);
    const double of_sm = double(ceil_div(option.blocks, query.device.sm_count));
    return strips_us(query, t, option.blocks, moved_bytes(p, t, rows_again, AgainShare),
                     StreamShare,
                     {together_us(StepAlone, step_clocks(p, t) * of_sm), OfItem,
                      Fill + of_sm * OfBlock, InFlight + t.box_bytes / BytesInFlight});
}

inline bool tile(const cf_query &query, const StripSize &size, Option &option) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    option = {};
    Tiling &t = option.tiling;
    const StripShape shape = {columns_of(p.r, p.stride_h), Channels, PitchPixels, HalfLineAlign};
    if (!tile_strips(p, shape, size, t, option.x))
        return false;
    const uint32_t columns = size.tiles * shape.columns;
    t.row_bytes = uint32_t(round_up(size.images * columns * PixelBytes, HalfLineAlign));
    t.slot_bytes = t.steps * t.row_bytes;
    const int64_t room =
        shared_room(d, blocks_of(p.r)) - StaticShared - HalfLineAlign - Slots * t.slot_bytes;
    t.stages = int(std::min<int64_t>(room / t.stage_bytes, MaxStages));
    if (t.stages < 2)
        return false;
    t.first_slot = t.stages * t.stage_bytes;
    option.y = {option.x.element,
                {uint64_t(p.c), uint64_t(p.q), uint64_t(p.p), option.x.tensor[3]},
                {Channels, columns, 1, uint32_t(size.images)}};
    option.blocks = int(std::min<int64_t>(t.strips, d.sm_count * blocks_of(p.r)));
    option.shared = HalfLineAlign + t.first_slot + Slots * t.slot_bytes;
    option.us = estimate(query, option);
    return true;
}

inline void rank_options(const cf_query &query, Ranking<Option> &ranking) {
    const cf_problem &p = query.problem;
    for_strips<Option>(
        p, columns_of(p.r, p.stride_h), {Units, p.n, 32768},
        [&](const StripSize &size, Option &option) { return tile(query, size, option); },
        [&](const Option &option) { ranking.meet(option, option.us); });
}

} // namespace cf::depthwise_mma
