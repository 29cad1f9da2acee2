// How strips of planes (plane_strips.cuh) stream through a block: x through a ring of stages, y
// from its slots to memory.
#pragma once

#include "pipeline/plane_units.cuh"
#include "pipeline/ring.cuh"
#include "pipeline/scheduler.cuh"
#include "pipeline/segment.cuh"
#include "ptx/bulk.cuh"
#include "ptx/l2_policy.cuh"

namespace cf::plane_strips {

constexpr int Loader = Warps - 1; // the warp that asks for strips and stores

#if CF_SM90
// What a block's warps wait for, in shared memory.
struct Barriers {
    Ring<MaxStages> ring;  // of strips of x
    Barrier stored[Slots]; // y has been read, to be stored
};

// A block's strips, and what they stream through.
template <class Element>
struct Stream {
    const Tiling &tiling;
    Barriers &barriers;
    const char *x, *filters; // these come with x where a tiling has filter_bytes
    char *y;
    uint32_t y_begin, x_begin; // in shared memory
    StridedTiles mine;
    int count;

    __device__ __forceinline__ Stream(const Tiling &tiling, Barriers &barriers, const void *x,
                                      const void *filters, void *y, uint32_t dynamic)
        : tiling(tiling), barriers(barriers), x(static_cast<const char *>(x)),
          filters(static_cast<const char *>(filters)), y(static_cast<char *>(y)), y_begin(dynamic),
          x_begin(dynamic + tiling.slots * tiling.y_bytes), mine(StridedTiles::of_block()),
          count(mine.count(tiling.strips)) {}

    __device__ __forceinline__ Strip strip(int m) const {
        const int number = mine.tile(m), others = tiling.by_channel_blocks.quotient(number);
        Strip strip;
        strip.n = tiling.by_row_strips.quotient(others);
        strip.channel = (number - others * tiling.channel_blocks) * tiling.channels;
        strip.channels = min(tiling.channels, tiling.c - strip.channel);
        strip.row = (others - strip.n * tiling.row_strips) * tiling.rows;
        strip.rows = min(tiling.rows, tiling.p - strip.row);
        return strip;
    }
    __device__ __forceinline__ void begin() const {
        if (threadIdx.x < MaxStages) {
            barriers.ring.init_stage(threadIdx.x, 1, Warps * 32);
        } else if (threadIdx.x < MaxStages + Slots) {
            barriers.stored[threadIdx.x - MaxStages].init(32);
        }
        if (threadIdx.x < 32)
            publish_barriers();
        __syncthreads();
    }
    // The first strips, by a warp. One alone: all blocks begin at the same time, and what they ask
    // for together comes together, late.
    __device__ __forceinline__ void begin_loads(int lane) const {
#pragma unroll 1
        for (int m = 0; m < min(tiling.stages, count); ++m) {
            if (m == 1)
                barriers.ring.wait_full({0, 0});
            load(m, m, lane);
        }
    }
    // Calls compute(strip, stage, slot) for all strips, in all warps. The loader, which has no more
    // of a strip to compute than any, waits for the others, asks for the strip that comes to this
    // one's stage and stores y; the others go on.
    template <class Compute>
    __device__ __forceinline__ void run(int warp, int lane, Compute compute) const {
        RingPosition at;
#pragma unroll 1
        for (int m = 0; m < count; ++m, at.next(tiling.stages)) {
            const Strip strip = this->strip(m);
            const uint32_t stage = x_begin + at.stage * tiling.stage_bytes;
            if (warp == Loader && m > 0)
                end_store(m - 1);
            barriers.ring.wait_full(at);
            // Where the strip that was there has left.
            if (m >= Slots)
                barriers.stored[m % Slots].wait((m / Slots - 1) & 1);
            compute(strip, stage, slot(strip, m));
            publish_to_bulk_copies();
            barriers.ring.release(at);
            if (warp == Loader) {
                barriers.ring.wait_empty({at.stage, at.round + 1});
                if (m + tiling.stages < count)
                    load(m + tiling.stages, at.stage, lane);
                store(strip, slot(strip, m), lane);
            }
        }
        if (warp == Loader)
            wait_for_stores_to_read();
    }

  private:
    // Strip m, to a stage that nobody reads any more: by channels, or all at once where these are
    // whole.
    __device__ __forceinline__ void load(int m, int stage, int lane) const {
        const Strip strip = this->strip(m);
        const StripRows rows(tiling, strip);
        const bool at_once = is_one_copy(tiling);
        const uint32_t bytes = at_once ? strip.channels * tiling.plane_bytes : rows.bytes;
        const int copies = at_once ? 1 : strip.channels;
        const int64_t plane = int64_t(strip.n) * tiling.c + strip.channel;
        const char *from = x + plane * tiling.plane_bytes + rows.first * tiling.row_bytes;
        const uint32_t to = x_begin + stage * tiling.stage_bytes;
        Barrier &full = barriers.ring.full[stage];
        if (lane == 0) {
            const uint32_t of_filters = strip.channels * tiling.filter_bytes;
            full.arrive_and_expect(bytes * copies + of_filters);
            if (of_filters > 0)
                copy_bulk(to + tiling.filters,
                          filters + int64_t(strip.channel) * tiling.filter_bytes, of_filters, full);
        }
        __syncwarp();
        for (int i = lane; i < copies; i += 32)
            copy_bulk(to + i * tiling.plane, from - rows.skew + int64_t(i) * tiling.plane_bytes,
                      bytes, full, tiling.evict_first);
    }
    __device__ __forceinline__ uint64_t address(const Strip &strip) const {
        const int64_t plane = int64_t(strip.n) * tiling.c + strip.channel;
        return reinterpret_cast<uint64_t>(y) + plane * tiling.y_plane_bytes +
               strip.row * tiling.y_row_bytes;
    }
    __device__ __forceinline__ uint32_t slot(const Strip &strip, int m) const {
        return y_begin + m % Slots * tiling.y_bytes + (uint32_t(address(strip)) & 15);
    }
    // A strip of y leaves, by a warp; everybody has published what he wrote.
    __device__ __forceinline__ void store(const Strip &strip, uint32_t from, int lane) const {
        constexpr int Lanes = 8; // of a segment
        const int segments = tiling.whole ? 1 : strip.channels;
        const uint32_t bytes =
            strip.rows * tiling.y_row_bytes * (tiling.whole ? strip.channels : 1);
        const uint64_t to = address(strip);
        for (int i = lane / Lanes; i < segments; i += 32 / Lanes)
            store_segment<Element, 32, Lanes>(to + uint64_t(i) * tiling.y_plane_bytes, bytes,
                                              from + i * tiling.y_pitch, lane % Lanes);
    }
    // The lanes that asked for strip m to be stored wait until it has been read.
    __device__ __forceinline__ void end_store(int m) const {
        wait_for_stores_to_read();
        barriers.stored[m % Slots].arrive();
    }
};
#endif

} // namespace cf::plane_strips
