// A block of the rows that split f32: its rings and tiles, and how lines of the filter come to
// shared memory.
#pragma once

#include "kernels/implicit_gemm/f32_tiling.cuh"
#include "kernels/implicit_gemm/nhwc_load.cuh"

namespace cf::implicit_f32 {

#if CF_SM90
using implicit_gemm::Place;
using implicit_gemm::place_of;

// What a block has in shared memory beside its stages. A stage of pixels is full when they are
// split; where copies bring their f32 into it, `raw` when these are there.
struct Shared {
    Barrier raw[Warpgroups][MaxPixelStages];
    Ring<MaxPixelStages> pixels[Warpgroups];
    Ring<MaxWeightStages> weights[Warpgroups];
    Barrier lead; // the first warpgroup's
    // Of a sum whose parts meet: all who send some may; they are here.
    Barrier parts_ready, parts_full;

    // Those of who multiplies, by a thread.
    __device__ __forceinline__ void init_for_consumers(int parts) {
        lead.init(Warpgroup / 32);
        parts_ready.init(Warpgroups * Warpgroup / 32 * parts);
        parts_full.init(1);
    }
};

struct Block {
    const Plan &plan;
    const Tiling &tiling;
    Shared &shared;
    uint32_t stages;
    static constexpr int parts_first = 0; // rank of the block with the first part of a tile
    int part;                             // of the sum
    int first_block, blocks;              // of channels
    StridedTiles mine;
    int count;

    __device__ __forceinline__ Block(const Plan &plan, Shared &shared, const void *dynamic)
        : plan(plan), tiling(plan.tiling), shared(shared),
          stages((shared_address(dynamic) + (LineAlign - 1)) & ~(LineAlign - 1)),
          part(plan.tiling.parts > 1 ? cluster_rank() : 0), mine(StridedTiles::of_block()) {
        const int parts = tiling.parts;
        first_block = part * tiling.blocks / parts;
        blocks = (part + 1) * tiling.blocks / parts - first_block;
        mine = {mine.first / parts, mine.step / parts};
        count = mine.count(tiling.tiles);
    }

    // The first operand's lines of a stage.
    __device__ __forceinline__ uint32_t pixels(int ring, int stage) const {
        return stages + (ring * tiling.pixel_stages + stage) * 2 * tiling.pixel_stage_bytes;
    }
    __device__ __forceinline__ uint32_t weights(int ring, int stage) const {
        return stages + plan.pixel_bytes() + (ring * tiling.weight_stages + stage) * WeightBytes;
    }
    __device__ __forceinline__ uint32_t slots() const {
        return stages + plan.pixel_bytes() + plan.weight_bytes();
    }
    __device__ __forceinline__ uint32_t staged(int warpgroup) const {
        return slots() + plan.slot_bytes + warpgroup * StagedBytes;
    }
    // Where parts of sums come to.
    __device__ __forceinline__ uint32_t parts() const {
        return tiling.parts_replace ? stages : slots();
    }
    // Of a stage, two floats for each line: its own factor and that of the line behind.
    __device__ __forceinline__ uint32_t factors(int ring, int stage) const {
        return staged(0) + plan.staged_bytes +
               (ring * tiling.pixel_stages + stage) * plan.factor_lines * 8;
    }
    // Of the block's tiles with the same pixels, number m of these, number `turn`; of it the pixels
    // of a ring.
    __device__ __forceinline__ Place place(int m, int turn, int ring) const {
        const Tiling &t = tiling;
        const int tile = mine.tile(m), pixels = t.by_channel_sets.quotient(tile);
        const int channels = (tile - pixels * t.channel_sets) * plan.sweep + turn;
        return place_of(t, channels, t.apart ? pixels * Warpgroups + ring : pixels);
    }
    // The first of them: loaders need no other.
    __device__ __forceinline__ Place place(int m, int ring) const { return place(m, 0, ring); }
};

// The filter's lines of a ring, as stages take them, tile by tile: of each tap low parts, then high
// ones. Warpgroups that have no rows have others'.
struct WeightWalk {
    const Block &block;
    const char *const filter;
    const int ring;
    int m = 0, turn = 0, tap = 0, high = 0;
    const char *from; // of the tap
    RingPosition at;

    __device__ __forceinline__ WeightWalk(const Block &block, const char *filter, int ring)
        : block(block), filter(filter), ring(ring) {
        begin_tile();
    }
    __device__ __forceinline__ bool more() const { return m < block.count; }
    __device__ __forceinline__ Barrier &empty() const {
        return block.shared.weights[ring].empty[at.stage];
    }
    // Into a stage that is empty, by a lane.
    __device__ __forceinline__ void ask() const {
        Barrier &full = block.shared.weights[ring].full[at.stage];
        full.arrive_and_expect(WeightBytes);
        copy_bulk(block.weights(ring, at.stage), from + high * WeightBytes, WeightBytes, full);
    }
    __device__ __forceinline__ void next() {
        const Tiling &t = block.tiling;
        at.next(t.weight_stages);
        high ^= 1;
        if (high)
            return;
        from += int64_t(t.filter_lines) * 2 * LineBytes;
        if (++tap < block.blocks * t.taps)
            return;
        tap = 0;
        if (++turn == block.plan.sweep)
            turn = 0, ++m;
        begin_tile();
    }

  private:
    __device__ __forceinline__ void begin_tile() {
        const Tiling &t = block.tiling;
        const Place tile = block.place(m, turn, 0);
        const int k = min(tile.k + ring * RowChannels, t.filter_lines - RowChannels);
        const int64_t lines = int64_t(t.filter_lines) * t.taps *
                                  (int64_t(tile.group) * t.blocks + block.first_block) +
                              k;
        from = filter + lines * 2 * LineBytes;
    }
};

// Lines behind boxes of x, which taps read as the zeros behind the last row, and factors of all
// lines.
template <int Threads>
__device__ __forceinline__ void clear_behind_boxes(const Block &block) {
    const Tiling &t = block.tiling;
    const int stages = block.plan.pixel_rings() * t.pixel_stages;
    for (int half = 0; half < 2 * stages; ++half)
        for (uint32_t i = threadIdx.x * 16; i < t.zero_bytes; i += Threads * 16)
            store_shared4(block.stages + half * t.pixel_stage_bytes + t.pixel_bytes + i, 0, 0, 0,
                          0);
    for (int i = threadIdx.x; i < stages * block.plan.factor_lines; i += Threads)
        store_shared2(block.factors(0, 0) + i * 8, 0, 0);
    publish_to_bulk_copies();
}

// By a warp. A stage of pixels is there when so many threads have split it.
__device__ __forceinline__ void init_pixel_ring(const Block &block, int ring, int splitters,
                                                int lane) {
    const Tiling &t = block.tiling;
    const int readers = t.apart ? 1 : Warpgroups;
    block.shared.pixels[ring].init(t.pixel_stages, splitters, readers * Warpgroup, lane);
    if (lane < t.pixel_stages)
        block.shared.raw[ring][lane].init(1);
}
__device__ __forceinline__ void init_weight_ring(const Block &block, int ring, int lane) {
    const Tiling &t = block.tiling;
    const int readers = t.apart ? Warpgroups : 1;
    block.shared.weights[ring].init(t.weight_stages, 1, readers * Warpgroup / 32, lane);
}

// What a thread's two rows are multiplied by at last.
struct RowFactors {
    float of[2];

    __device__ __forceinline__ RowFactors(const Block &block, const char *filter,
                                          const Place &place, int weight_ring, int warp, int lane) {
        const int lines = block.tiling.filter_lines;
        const int k = min(place.k + weight_ring * RowChannels, lines - RowChannels) + warp * 16 +
                      lane / 4 + place.group * lines;
        const auto *rows = reinterpret_cast<const float *>(filter + block.plan.packed.rows_at());
        of[0] = __ldg(rows + k);
        of[1] = __ldg(rows + k + 8);
    }
};
#endif

} // namespace cf::implicit_f32
