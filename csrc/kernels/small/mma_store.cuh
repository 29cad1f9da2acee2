// How small_mma stores y: from registers to where sums belong, or into an output tile's stage in
// shared memory, from which storing warps take it there.
#pragma once

#include "core/fragment_epilogue.cuh"
#include "kernels/small/mma_task.cuh"
#include "pipeline/output_ring.cuh"
#include "pipeline/scheduler.cuh"
#include "pipeline/segment.cuh"

namespace cf::small_mma {

#if CF_SM90A
using Outputs = OutputRing<MaxOutputStages>;

// Where a row tile of a block begins in output channel 0.
struct Place {
    int n, row;
};
__device__ __forceinline__ Place place_of(const Tiling &tiling, StridedTiles strips, int row_tile) {
    const int m = tiling.by_row_tiles.quotient(row_tile), strip = strips.tile(m);
    const int n = tiling.by_image_strips.quotient(strip);
    const int in_image = (strip - n * tiling.image_strips) * tiling.row_tiles;
    return {n, (in_image + row_tile - m * tiling.row_tiles) * tiling.tile_rows};
}

// A warp's columns, of which the last of a block may have none, and the first and last row tile
// that they touch.
struct Columns {
    int group, begin, end, first, last;
};

// Which outputs the sums of a task are: a lane's of a tile are two columns (e) by two channels or
// pixels (o). Where pixels share a column o is one of them, and the lane's first is 2 t modulo
// their number. Within an image elements are counted in 31 bits.
template <class Task>
struct TaskMap {
    static constexpr TaskShape F = Task::F;

    const Tiling &tiling;
    Task &task;
    float *const y;
    Columns columns;
    const bool single;                  // no pixels share a column
    const int shift;                    // their number, as a power of two
    const int step_k, step_q, step_row; // elements from one to the next in y
    int mine;                           // of a channel in the group what lanes differ in
    float *to[2];                       // in y, of the first row in the lane's first channel
    int rows[2];                        // that are stored
    int row_tile[2];
    uint32_t along[2]; // the row

    __device__ __forceinline__ TaskMap(const Tiling &tiling, StridedTiles strips, int total,
                                       Task &task, const Columns &columns, float *y, int lane)
        : tiling(tiling), task(task), y(y), columns(columns),
          single(tiling.order.pixels_per_column == 1),
          shift(__ffs(tiling.order.pixels_per_column) - 1),
          step_k(tiling.order.nhwc ? 1 : tiling.p * tiling.q),
          step_q(tiling.order.nhwc ? tiling.k : 1), step_row(tiling.q * step_q) {
        const int g = lane / 4, t = lane % 4;
        mine = F.pixel_rows ? 2 * t >> shift : g;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int column = columns.begin + (F.pixel_rows ? g + 8 * e : 2 * t + e);
            row_tile[e] = tiling.by_row_columns.quotient(min(column, total - 1));
            const Place place = place_of(tiling, strips, row_tile[e]);
            const int pixels = tiling.order.pixels_per_column;
            along[e] = (column - row_tile[e] * tiling.row_columns) * pixels +
                       (F.pixel_rows ? 2 * t & (pixels - 1) : 0);
            to[e] = y + int64_t(place.n) * (tiling.k * (tiling.p * tiling.q)) +
                    (place.row * step_row + int(along[e]) * step_q +
                     (columns.group * tiling.channels + mine) * step_k);
            rows[e] = column < total ? tiling.p - place.row : 0;
        }
    }
    static __device__ __forceinline__ int index(int e, int o) {
        return F.pixel_rows ? 2 * e + o : e + 2 * o;
    }
    // The rest of a channel in the group.
    __device__ __forceinline__ int others(int i, int o) const {
        return F.pixel_rows ? (i * 8 >> shift) + (single ? o : 0) : i * 16 + 8 * o;
    }
    __device__ __forceinline__ int channel(int i, int o) const {
        return columns.group * tiling.channels + mine + others(i, o);
    }
    __device__ __forceinline__ int height(int e, int i, int o) const { // rows that are stored
        return channel(i, o) < tiling.k ? rows[e] : 0;
    }
    // To the rows below.
    __device__ __forceinline__ void move_down() {
#pragma unroll
        for (int e = 0; e < 2; ++e)
            to[e] += F.rows * step_row, rows[e] -= F.rows;
    }

    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
#pragma unroll
        for (int i = 0; i < F.channel_tiles; ++i)
#pragma unroll
            for (int o = 0; o < 2; ++o)
                body(channel(i, o), Constant<2 * F.rows>(),
                     [&](int v) -> float & { return task.sum[v / 2][i].value[index(v % 2, o)]; });
    }
    // body(i, o, e) for each of tile i's sums of a row, or for the first of each `Count` that are
    // neighbours in y.
    template <int Count, class Body>
    static __device__ __forceinline__ void for_sums(int i, Body body) {
#pragma unroll
        for (int o = 0; o < 2; ++o)
#pragma unroll
            for (int e = 0; e < 2; ++e)
                if (index(e, o) % Count == 0)
                    body(i, o, e);
    }
    template <int Count, class Stored, class Body>
    __device__ __forceinline__ void for_runs_of_tile(Stored *tensor, int i, Body body) {
        for_sums<Count>(i, [&](int i, int o, int e) {
            const int high = height(e, i, o);
            Stored *at = tensor + (to[e] - y) + others(i, o) * step_k + (single ? 0 : o * step_q);
#pragma unroll
            for (int row = 0; row < F.rows; ++row) {
                body(Constant<Count>(), at, row < high,
                     [&](int v) -> float & { return task.sum[row][i].value[index(e, o) + v]; });
                at += step_row;
            }
        });
    }
    template <class Stored, class Body>
    __device__ __forceinline__ void for_runs(const Stored *tensor, Body body) {
#pragma unroll
        for (int i = 0; i < F.channel_tiles; ++i)
            for_runs_of_tile<1>(tensor, i, body);
    }
};

// Count sums that lie beside each other.
template <class Count, class Address, class Value>
__device__ __forceinline__ void store_sums(Count, Address to, bool live, Value value) {
    float v[Count::value];
#pragma unroll
    for (int i = 0; i < Count::value; ++i) {
        v[i] = value(i);
        settle(v[i]); // or all sums become words, by moves, long before they are stored
    }
    store_neighbours<float>(to, live, v);
}

// A warp's sums straight to y.
template <int Count, class Task>
__device__ __forceinline__ void store_sums_to_y(TaskMap<Task> &map) {
#pragma unroll
    for (int i = 0; i < Task::F.channel_tiles; ++i)
        map.template for_runs_of_tile<Count>(
            map.y, i, [](auto count, float *at, bool live, auto value) {
                store_sums(count, reinterpret_cast<char *>(at), live, value);
            });
}

// Into the stages of the output tiles that they belong to; `stage` has where each column's begins.
template <int Count, class Task>
__device__ __forceinline__ void store_sums_to_stages(TaskMap<Task> &map,
                                                     const uint32_t (&stage)[2]) {
    const Tiling &tiling = map.tiling;
    const int area = tiling.p * tiling.q;
    uint32_t there[2], origin[2]; // of the lane's first channel: in the stage, its plane in y
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        there[e] = stage[e] + map.mine * tiling.output_plane + map.along[e] * 4;
        origin[e] = uint32_t(uint64_t(map.to[e])) - map.along[e] * 4;
    }
    const auto store = [&](int i, int o, int e) {
        // A plane begins as far behind a sector as its place in y does.
        const int others = map.others(i, o);
        const uint32_t at = there[e] + others * tiling.output_plane +
                            ((origin[e] + uint32_t(others * area) * 4) & 31) +
                            (map.single ? 0 : o * 4);
        const bool live = map.height(e, i, o) > 0;
#pragma unroll
        for (int row = 0; row < Task::F.rows; ++row)
            store_sums(Constant<Count>(), at + row * (tiling.q * 4), live,
                       [&](int v) { return map.task.sum[row][i].value[map.index(e, o) + v]; });
    };
#pragma unroll
    for (int i = 0; i < Task::F.channel_tiles; ++i)
        map.template for_sums<Count>(i, store);
}

// A warp's sums into the output ring, which begins at `ring`. Stages are taken in the order of
// output tiles, so the first that is not whole yet waits for nobody.
template <class Task>
__device__ __forceinline__ void gather(TaskMap<Task> &map, Outputs &outputs, uint32_t ring) {
    const Tiling &tiling = map.tiling;
    const Columns &own = map.columns;
    const RingPosition first = ring_position(own.first * tiling.groups + own.group,
                                             tiling.output_stages, tiling.by_output_stages);
    const auto position = [&](int row_tile) { // at most one round further
        const int stage = first.stage + (row_tile - own.first) * tiling.groups;
        return stage < tiling.output_stages
                   ? RingPosition{stage, first.round}
                   : RingPosition{stage - tiling.output_stages, first.round + 1};
    };
    const int tiles = own.begin < own.end ? own.last - own.first + 1 : 0;
    for (int tile = 0; tile < tiles; ++tile)
        outputs.wait_empty(position(own.first + tile));
    const uint32_t stage[2] = {ring + position(map.row_tile[0]).stage * tiling.output_stage_bytes,
                               ring + position(map.row_tile[1]).stage * tiling.output_stage_bytes};
    if (tiling.vector_stores)
        store_sums_to_stages<2>(map, stage);
    else
        store_sums_to_stages<1>(map, stage);
    publish_to_bulk_copies();
    for (int tile = own.first; tile < own.first + tiles; ++tile)
        outputs.full[position(tile).stage].arrive(
            uint32_t(min(own.end, (tile + 1) * tiling.row_columns) -
                     max(own.begin, tile * tiling.row_columns)));
}

// All output tiles of a block, by one storing warp; the stages begin at `ring`. They are stored in
// order, each by all storing warps, so that stages are handed back in order. Eight lanes store a
// plane.
__device__ __forceinline__ void store_output_tiles(const Tiling &tiling, int rows,
                                                   StridedTiles strips, Outputs &outputs,
                                                   uint32_t ring, float *y, int storer, int lane) {
    const int storers = 4 - tiling.producers;
    const int area = tiling.p * tiling.q;
    RingPosition at, before;
    for (int strip = strips.first; strip < tiling.strips; strip += strips.step) {
        const int image = tiling.by_image_strips.quotient(strip);
        for (int tile = 0; tile < tiling.row_tiles; ++tile) {
            const int top =
                ((strip - image * tiling.image_strips) * tiling.row_tiles + tile) * rows;
            const int bytes = max(min(tiling.p - top, rows), 0) * tiling.q * 4;
            for (int group = 0; group < tiling.groups; ++group) {
                const int channels = min(tiling.channels, tiling.k - group * tiling.channels);
                float *const planes = y + int64_t(image) * (tiling.k * area) +
                                      (group * tiling.channels * area + top * tiling.q);
                outputs.wait_full(at);
                for (int begin = storer * 4; begin < channels; begin += storers * 4) {
                    const int k = begin + lane / 8;
                    const uint64_t plane = __cvta_generic_to_global(planes + k * area);
                    const uint32_t staged = ring + at.stage * tiling.output_stage_bytes +
                                            k * tiling.output_plane + (uint32_t(plane) & 31);
                    store_segment<float, 32, 8>(plane, k < channels ? bytes : 0, staged, lane % 8);
                }
                // An output tile's stage is handed back when the next one's copies have begun.
                wait_for_stores_to_read<1>();
                if (at.stage + at.round > 0)
                    outputs.release(before);
                before = at;
                at.next(tiling.output_stages);
            }
        }
    }
    wait_for_stores_to_read<0>();
}
#endif

} // namespace cf::small_mma
