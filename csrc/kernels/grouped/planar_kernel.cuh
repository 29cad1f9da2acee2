// The kernel of grouped_planar: strips of x go through a ring of stages, are multiplied, and y
// leaves in bulk.
#pragma once

#include "kernels/grouped/planar_task.cuh"
#include "pipeline/segment.cuh"
#include "ptx/grid.cuh"

namespace cf::grouped_planar {

using Launched = cf::Kernel<Tiling, const void *, const void *, void *, Finish>;

#if CF_SM90
// A strip of y leaves, by a warp; everybody has published what he wrote.
template <class Element>
__device__ __forceinline__ void store_strip(const Tiling &tiling, const Strip &strip, uint64_t to,
                                            uint32_t from, int lane) {
    constexpr int Lanes = 8; // of a segment
    const int segments = tiling.whole ? 1 : strip.channels;
    const uint32_t bytes = strip.rows * tiling.row_bytes * (tiling.whole ? strip.channels : 1);
    for (int i = lane / Lanes; i < segments; i += 32 / Lanes)
        store_segment<Element, 32, Lanes>(to + uint64_t(i) * tiling.plane_bytes, bytes,
                                          from + i * tiling.y_pitch, lane % Lanes);
}

// A block's warps and what they share.
template <class Shape>
struct Block {
    using Element = typename Shape::Element;
    const Tiling &tiling;
    const Strips &strips;
    const char *x;
    const uint4 *packed;
    char *y;
    const Finish &finish;
    Barrier (&full)[MaxStages], &stored; // where x is there; y has been read, to be stored
    uint32_t staged, stages;             // in shared memory: of y, of x
    int warp, lane;
    int first_pair, warp_pairs; // of this warp in a strip

    // What is behind rows stays zero.
    __device__ __forceinline__ void begin() const {
        if (threadIdx.x < MaxStages)
            full[threadIdx.x].init(Warps * 32);
        else if (threadIdx.x == MaxStages)
            stored.init(32);
        if (warp == 0)
            publish_barriers();
        const uint32_t end = stages + tiling.stages * tiling.stage_bytes;
        for (uint32_t at = stages + threadIdx.x * 16; at < end; at += Warps * 32 * 16)
            store_shared4(at, 0, 0, 0, 0);
        __syncthreads();
    }
    // Strip m, to a stage that nobody reads any more.
    __device__ __forceinline__ void load(const Strip &strip, int m) const {
        const int stage = m % MaxStages;
        load_strip(tiling, strip, x + strips.begin(strip), stages + stage * tiling.stage_bytes,
                   warp, lane);
        full[stage].arrive_after_copies();
    }
    // Of channels that are not there any group will do.
    __device__ __forceinline__ int group_of(const Strip &strip, int group) const {
        return min(strip.group + group, tiling.c / Shape::Channels - 1);
    }
    // A warp's units lie behind each other: windows of a pair of rows, pairs of a group.
    __device__ __forceinline__ void compute(const Strip &strip, uint32_t stage, uint32_t out,
                                            Filter<Shape> &filter, int &loaded) const {
        int group = tiling.by_pairs.quotient(first_pair);
        int pair = first_pair - group * tiling.pairs, left = warp_pairs;
#pragma unroll 1
        for (; left > 0; left -= tiling.pairs - pair, pair = 0, ++group) {
            const int channel = group * Shape::Channels, of_all = group_of(strip, group);
            if (of_all != loaded)
                filter.load(packed, of_all, lane);
            loaded = of_all;
            const int end = channel < strip.channels ? min(pair + left, tiling.pairs) : 0;
            compute_pairs(strip, channel, pair, end, stage + channel * tiling.plane,
                          out + channel * tiling.y_pitch, filter);
        }
    }
    // Of the group that begins with the channel.
    __device__ __forceinline__ void compute_pairs(const Strip &strip, int channel, int pair,
                                                  int end, uint32_t x, uint32_t out,
                                                  const Filter<Shape> &filter) const {
        constexpr int Runs = Shape::Of::Runs, Channels = Shape::Channels;
        constexpr int Step = (Shape::Tiles - 1) * TilePixels; // from window to window
        const int first = lane % 4 * 2;                       // of a tile
        UnitPlace<Shape> unit;
        unit.image = strip.n, unit.channel = strip.channel + channel;
        unit.column = 0;
        x += Pixels<Shape>::place(tiling, lane) + pair * PairRows * tiling.pitch;
#pragma unroll
        for (int run = 0; run < Runs; ++run)
            unit.staged[run] = out + channel_of<Channels>(run, lane) * tiling.y_pitch +
                               (pair * PairRows + row_of<Channels>(run, lane)) * tiling.row_bytes +
                               first * Size;
#pragma unroll 1
        for (int row = pair * PairRows; row < end * PairRows;) {
            const bool is_last = unit.column + Step + TilePixels >= tiling.w;
            // Two pixels of the tile that windows share are left to the one before.
            const int last = (is_last ? tiling.w - unit.column : Step + 2) - first;
            unit.first = unit.column == 0 || first > 0;
            unit.row = strip.row + row;
#pragma unroll
            for (int run = 0; run < Runs; ++run)
                unit.last[run] = row + row_of<Channels>(run, lane) < strip.rows ? last : 0;
            compute_unit<Shape>(tiling, unit, filter, x, finish, lane);
            // From the last window of a pair to the first of the next.
            const int columns = is_last ? -unit.column : Step;
            unit.column += columns;
            x += columns * Size + (is_last ? PairRows * tiling.pitch : 0);
#pragma unroll
            for (uint32_t &to : unit.staged)
                to += columns * Size + (is_last ? PairRows * tiling.row_bytes : 0);
            row += is_last ? PairRows : 0;
        }
    }
    // A strip's x is on its way while the one before is multiplied. The warp that has least to
    // multiply stores y, and others go on. No more blocks are launched than there are strips.
    __device__ __forceinline__ void run() const {
        Strip strip = strips.strip<Shape::Channels>(0);
        load(strip, 0);
        Filter<Shape> filter;
        int loaded = group_of(strip, tiling.by_pairs.quotient(first_pair));
        filter.load(packed, loaded, lane);
        for (int m = 0; m < strips.count; ++m) {
            Strip next = strip;
            if (m + 1 < strips.count) {
                next = strips.strip<Shape::Channels>(m + 1);
                load(next, m + 1);
            }
            full[m % MaxStages].wait(m / MaxStages & 1);
            if (m > 0)
                stored.wait((m - 1) & 1);
            const uint64_t to = reinterpret_cast<uint64_t>(y) + strips.begin(strip);
            const uint32_t out = staged + (uint32_t(to) & 15);
            compute(strip, stages + m % MaxStages * tiling.stage_bytes, out, filter, loaded);
            publish_to_bulk_copies();
            __syncthreads();
            if (warp == Storer) {
                store_strip<Element>(tiling, strip, to, out, lane);
                wait_for_stores_to_read();
                stored.arrive();
            }
            strip = next;
        }
    }
};
#endif

template <class Element, int Channels, int Tiles>
__global__ void __launch_bounds__(Warps * 32, blocks_of<Channels>(Tiles))
    grouped_planar_kernel(const __grid_constant__ Tiling tiling, const char *__restrict__ x,
                          const uint4 *__restrict__ filter, char *__restrict__ y,
                          const __grid_constant__ Finish finish) {
#if CF_SM90
    extern __shared__ __align__(128) unsigned char dynamic[];
    __shared__ Barrier full[MaxStages], stored;
    static_assert(sizeof(full) + sizeof(stored) <= grouped::StaticShared, "the plan leaves room");
    const auto mine = StridedTiles::of_block();
    const Strips strips = {tiling, mine, mine.count(tiling.strips)};
    const uint32_t staged = shared_address(dynamic);
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const int first = warp * tiling.warp_pairs;
    const int pairs = min(tiling.warp_pairs, tiling.all_pairs - first);
    const Block<Shape<Element, Channels, Tiles>> block = {
        tiling, strips, x,     filter, y, finish, full, stored, staged, staged + tiling.y_bytes,
        warp,   lane,   first, pairs};
    block.begin();
    let_next_kernel_begin();
    wait_for_kernels_before();
    block.run();
#else
    not_compiled();
#endif
}

// The kernel of an instance. The files of planar/ compile those of one type of elements.
template <class Element>
Launched kernel_for(const grouped::Instance &instance, dim3 grid, size_t shared);

template <class Element>
Launched kernel_among(const grouped::Instance &instance, dim3 grid, size_t shared) {
    Launched kernel;
    for_value<4, 8, 16>(instance.set_bytes / Size / 8, [&](auto channels) {
        for_value<2, 4, 7>(instance.tiles / 3, [&](auto tiles) {
            kernel = kernel_of(grouped_planar_kernel<Element, channels.value, tiles.value>, grid,
                               Warps * 32, shared, true);
        });
    });
    return kernel;
}

} // namespace cf::grouped_planar
