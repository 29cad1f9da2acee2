// The kernel of grouped_planar: strips of x go through a ring of stages, are multiplied, and y
// leaves in bulk.
#pragma once

#include "kernels/grouped/planar_task.cuh"
#include "pipeline/ring.cuh"
#include "pipeline/segment.cuh"
#include "ptx/grid.cuh"

#include <climits>

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

// What a block's warps wait for, in shared memory.
struct Barriers {
    Ring<MaxStages> ring;  // of strips of x
    Barrier stored[Slots]; // y has been read, to be stored
};

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
    Barriers &barriers;
    uint32_t y_begin, x_begin; // in shared memory
    int warp, lane;

    __device__ __forceinline__ void begin() const {
        if (threadIdx.x < MaxStages) {
            barriers.ring.init_stage(threadIdx.x, 1, Warps * 32);
        } else if (threadIdx.x < MaxStages + Slots) {
            barriers.stored[threadIdx.x - MaxStages].init(32);
        }
        if (warp == 0)
            publish_barriers();
        __syncthreads();
    }
    // The first strip alone: all blocks begin at the same time, and what they ask for together
    // comes together, late.
    __device__ __forceinline__ void begin_loads() const {
#pragma unroll 1
        for (int m = 0; m < min(tiling.stages, strips.count); ++m) {
            if (m == 1)
                barriers.ring.wait_full({0, 0});
            load(m, m);
        }
    }
    // Strip m, to a stage that nobody reads any more.
    __device__ __forceinline__ void load(int m, int stage) const {
        const Strip strip = strips.strip<Shape::Channels>(m);
        load_strip(tiling, strip, x + strips.begin(strip), x_begin + stage * tiling.stage_bytes,
                   barriers.ring.full[stage], lane);
    }
    // Of channels that are not there any group will do.
    __device__ __forceinline__ int group_of(const Strip &strip, int group) const {
        return min(strip.group + group, tiling.c / Shape::Channels - 1);
    }
    // A warp's units lie behind each other: windows of a pair of rows, pairs of a group.
    __device__ __forceinline__ void compute(const Strip &strip, uint32_t stage, uint32_t out,
                                            Filter<Shape> &filter, int &loaded) const {
        const StripRows rows(tiling, strip);
        const int first = warp * tiling.warp_pairs;
        int group = tiling.by_pairs.quotient(first), pair = first - group * tiling.pairs;
        int left = min(tiling.warp_pairs, tiling.all_pairs - first);
        // One row above the strip's.
        stage += rows.skew + (rows.above - FilterSide / 2) * tiling.row_bytes;
#pragma unroll 1
        for (; left > 0; left -= tiling.pairs - pair, pair = 0, ++group) {
            const int channel = group * Shape::Channels, of_all = group_of(strip, group);
            if (of_all != loaded)
                filter.load(packed, of_all, lane);
            loaded = of_all;
            const int end = channel < strip.channels ? min(pair + left, tiling.pairs) : 0;
            compute_pairs(strip, channel, pair, end, stage + channel * tiling.plane, out, filter);
        }
    }
    // What of a unit whose pair begins in that row of the strip is there, and is its own to store:
    // the sums of a window's outer columns are not all in it, but at the ends of a row.
    __device__ __forceinline__ void set_live(UnitPlace<Shape> &unit, const Strip &strip, int row,
                                             int column, bool is_last) const {
        const bool is_first = unit.column == 0;
#pragma unroll
        for (int i = 0; i < 2; ++i)
            unit.live_columns[i] = (column + i > 0 || is_first) &&
                                   (column + i < Columns - 1 || is_last) &&
                                   unit.column + (column + i) * Shape::Tiles < tiling.w;
        unit.row = strip.row + row;
#pragma unroll
        for (int run = 0; run < Shape::Of::Runs; ++run)
            unit.live_rows[run] = row + row_of<Shape::Channels>(run, lane) < strip.rows;
    }
    // Of the group that begins with the channel.
    __device__ __forceinline__ void compute_pairs(const Strip &strip, int channel, int pair,
                                                  int end, uint32_t x, uint32_t out,
                                                  const Filter<Shape> &filter) const {
        constexpr int Channels = Shape::Channels, Tiles = Shape::Tiles;
        constexpr int Step = (Columns - 2) * Tiles;     // windows share two columns
        const int column = lane % 4 * 2;                // of the sums
        const int pixel = lane / 4 * Tiles;             // of x
        const int above = Pixels<Shape>::row(lane) - 1; // row of x from y's
        UnitPlace<Shape> unit;
        unit.image = strip.n, unit.channel = strip.channel + channel;
        unit.column = 0;
        x += Pixels<Shape>::place(tiling, lane) + pair * PairRows * tiling.row_bytes;
#pragma unroll
        for (int run = 0; run < Shape::Of::Runs; ++run)
            unit.to[run] = out + (channel + channel_of<Channels>(run, lane)) * tiling.y_pitch +
                           (pair * PairRows + row_of<Channels>(run, lane)) * tiling.row_bytes +
                           column * Tiles * Shape::Size;
#pragma unroll 1
        for (int row = pair * PairRows; row < end * PairRows;) {
            const bool is_last = unit.column + Columns * Tiles >= tiling.w;
            set_live(unit, strip, row, column, is_last);
            // Where there are no pixels there is no row of them either.
            const int row_of_x = unit.column + pixel < tiling.w ? unit.row + above : INT_MAX / 2;
            compute_unit<Shape>(tiling, unit, filter, x, row_of_x, finish, lane);
            // From the last window of a pair to the first of the next.
            const int columns = is_last ? -unit.column : Step;
            unit.column += columns;
            x += columns * Shape::Size + (is_last ? PairRows * tiling.row_bytes : 0);
#pragma unroll
            for (uint32_t &to : unit.to)
                to += columns * Shape::Size + (is_last ? PairRows * int(tiling.row_bytes) : 0);
            row += is_last ? PairRows : 0;
        }
    }
    __device__ __forceinline__ uint64_t address(const Strip &strip) const {
        return reinterpret_cast<uint64_t>(y) + strips.begin(strip);
    }
    __device__ __forceinline__ uint32_t y_slot(const Strip &strip, int m) const {
        return y_begin + m % Slots * tiling.y_bytes + (uint32_t(address(strip)) & 15);
    }
    // The lanes that asked for strip m to be stored wait until it has been read.
    __device__ __forceinline__ void end_store(int m) const {
        wait_for_stores_to_read();
        barriers.stored[m % Slots].arrive();
    }
    // The loader, which has no more pairs than any, waits for the others, asks for the strip
    // that comes to this one's stage and stores y; the others go on.
    __device__ __forceinline__ void run() const {
        Filter<Shape> filter;
        int loaded = group_of(strips.strip<Shape::Channels>(0),
                              tiling.by_pairs.quotient(warp * tiling.warp_pairs));
        filter.load(packed, loaded, lane);
        if (warp == 0)
            begin_loads();
        RingPosition at;
#pragma unroll 1
        for (int m = 0; m < strips.count; ++m, at.next(tiling.stages)) {
            const Strip strip = strips.strip<Shape::Channels>(m);
            const uint32_t stage = x_begin + at.stage * tiling.stage_bytes;
            if (warp == Loader && m > 0)
                end_store(m - 1);
            barriers.ring.wait_full(at);
            // Where the strip that was there has left.
            if (m >= Slots)
                barriers.stored[m % Slots].wait((m / Slots - 1) & 1);
            compute(strip, stage, y_slot(strip, m), filter, loaded);
            publish_to_bulk_copies();
            barriers.ring.release(at);
            if (warp == Loader) {
                barriers.ring.wait_empty({at.stage, at.round + 1});
                if (m + tiling.stages < strips.count)
                    load(m + tiling.stages, at.stage);
                store_strip<Element>(tiling, strip, address(strip), y_slot(strip, m), lane);
            }
        }
        if (warp == Loader)
            wait_for_stores_to_read();
    }
};
#endif

template <class Element, int Products, int Channels, int Tiles>
__global__ void __launch_bounds__(Warps * 32, blocks_of(sizeof(Element), Products, Channels, Tiles))
    grouped_planar_kernel(const __grid_constant__ Tiling tiling, const char *__restrict__ x,
                          const uint4 *__restrict__ filter, char *__restrict__ y,
                          const __grid_constant__ Finish finish) {
#if CF_SM90
    extern __shared__ __align__(128) unsigned char dynamic[];
    __shared__ Barriers barriers;
    static_assert(sizeof(barriers) <= grouped::StaticShared, "the plan leaves room");
    const auto mine = StridedTiles::of_block();
    const Strips strips = {tiling, mine, mine.count(tiling.strips)};
    const uint32_t y_begin = shared_address(dynamic);
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const Block<Shape<Element, Products, Channels, Tiles>> block = {
        tiling, strips, x, filter, y, finish, barriers, y_begin, y_begin + Slots * tiling.y_bytes,
        warp,   lane};
    block.begin();
    let_next_kernel_begin();
    wait_for_kernels_before();
    block.run();
#else
    not_compiled();
#endif
}

// The kernel of an instance. The files of planar/ compile those of one type of elements and number
// of products.
template <class Element, int Products = 1>
Launched kernel_for(const grouped::Instance &instance, dim3 grid, size_t shared);

template <class Element, int Products, int... Channels>
Launched kernel_among(const grouped::Instance &instance, dim3 grid, size_t shared) {
    Launched kernel;
    const int channels = instance.set_bytes / int(sizeof(Element));
    for_value<Channels...>(channels / 8, [&](auto channels) {
        for_value<2, 4, 8>(instance.tiles / 4, [&](auto tiles) {
            if constexpr (tiles.value <= most_tiles(channels.value))
                kernel =
                    kernel_of(grouped_planar_kernel<Element, Products, channels.value, tiles.value>,
                              grid, Warps * 32, shared, true);
        });
    });
    return kernel;
}

} // namespace cf::grouped_planar
