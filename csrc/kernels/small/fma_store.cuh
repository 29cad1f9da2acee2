// How the sums of small_fma come to y: the end of the epilogue, then stores by the threads that
// hold them, or the ring of output tiles.
#pragma once

#include "core/fragment_epilogue.cuh"
#include "kernels/small/fma_block.cuh"
#include "kernels/small/fma_task.cuh"
#include "pipeline/segment.cuh"
#include "ptx/predicated.cuh"

namespace cf::small_fma {

#if CF_SM90
// Where a thread's sums lie in y: so many rows and channels of them exist.
struct OutputColumn {
    int channel; // the first
    int channels, rows;
    int q;         // the first column
    int64_t place; // in y and in the residual, elements
    int64_t area;  // from channel to channel
    int row_pitch; // from row to row

    __device__ __forceinline__ OutputColumn(const Tiling &tiling, Place at, int channel, int q)
        : channel(channel), channels(tiling.k - channel), rows(tiling.p - at.row), q(q),
          place((int64_t(at.n) * tiling.k + channel) * tiling.p * tiling.q +
                int64_t(at.row) * tiling.q + q),
          area(int64_t(tiling.p) * tiling.q), row_pitch(tiling.q) {}
};

template <int Rows, int Columns>
using SumArray = float[ThreadChannels][Rows][Columns];

// For core/fragment_epilogue.cuh.
template <int Rows, int Columns>
struct OutputMap {
    SumArray<Rows, Columns> &sum;
    const OutputColumn &out;

    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
#pragma unroll
        for (int k = 0; k < ThreadChannels; ++k)
            body(out.channel + k, Constant<Rows * Columns>(),
                 [&](int i) -> float & { return sum[k][i / Columns][i % Columns]; });
    }
    // Loads that a predicate turns off would all be pending together, for which few registers are
    // left.
    __device__ __forceinline__ void add_residual(const float *residual) {
#pragma unroll
        for (int k = 0; k < ThreadChannels; ++k) {
            const float *from = residual + out.place + k * out.area;
#pragma unroll
            for (int j = 0; j < Rows; ++j) {
#pragma unroll
                for (int i = 0; i < Columns; ++i)
                    if (k < out.channels && j < out.rows)
                        sum[k][j][i] += from[i];
                from += out.row_pitch;
            }
        }
    }
};

template <int Rows, int Columns>
__device__ __forceinline__ void finish_sums(SumArray<Rows, Columns> &sum, const OutputColumn &out,
                                            const Finish &finish, int channels) {
    OutputMap<Rows, Columns> map = {sum, out};
    scale_and_add_bias(finish, channels, map);
    if (finish.residual)
        map.add_residual(static_cast<const float *>(finish.residual));
    limit(finish, map);
}

// Into the output tiles that the task's columns are of; `live` where the lane has a column of its
// own.
template <int Rows>
__device__ __forceinline__ void gather(const Block &block, const SumArray<Rows, 1> &sum,
                                       const Task &task, const OutputColumn &out, int row_tile,
                                       bool live, const float *y) {
    const Tiling &tiling = block.tiling;
    const auto position = [&](int row_tile) {
        return block.output_position(row_tile * tiling.groups + task.group);
    };
    // Stages are taken in the order of output tiles, so the first that is not whole yet waits for
    // nobody.
    for (int l = task.first; l <= task.last; ++l)
        block.shared.outputs.wait_empty(position(l));
    const RingPosition at = position(row_tile);
    uint32_t to[ThreadChannels];
#pragma unroll
    for (int k = 0; k < ThreadChannels; ++k) {
        const auto begin = uint32_t(uint64_t(y + out.place - out.q + k * out.area));
        to[k] = block.output_stage(at) + k * tiling.output_plane + (begin & 15) + out.q * 4;
        keep(to[k]);
    }
    uint32_t below = 0;
#pragma unroll
    for (int j = 0; j < Rows; ++j) {
#pragma unroll
        for (int k = 0; k < ThreadChannels; ++k)
            store_if(live, to[k] + below, sum[k][j][0]);
        below += out.row_pitch * 4;
        keep(below);
    }
    publish_to_bulk_copies();
    if (live)
        block.shared.outputs.full[at.stage].arrive();
}

// To y by the threads themselves.
template <int Rows, int Columns>
__device__ __forceinline__ void store(const Tiling &tiling, const SumArray<Rows, Columns> &sum,
                                      const OutputColumn &out, float *y) {
    uint64_t to[ThreadChannels];
#pragma unroll
    for (int k = 0; k < ThreadChannels; ++k)
        to[k] = __cvta_generic_to_global(y + out.place + k * out.area);
    // Where no address of the tile carries into the upper half, one addition leads to the next.
    const bool low = uint32_t(to[0]) < tiling.no_carry;
    if (out.channels >= ThreadChannels && __all_sync(~0u, low)) {
#pragma unroll
        for (int j = 0; j < Rows; ++j) {
            const bool live = j < out.rows;
#pragma unroll
            for (int k = 0; k < ThreadChannels; ++k) {
                if (live)
                    store_global(to[k], sum[k][j]);
                advance_low(to[k], out.row_pitch * 4);
            }
        }
    } else {
#pragma unroll
        for (int k = 0; k < ThreadChannels; ++k) {
#pragma unroll
            for (int j = 0; j < Rows; ++j) {
                if (k < out.channels && j < out.rows)
                    store_global(to[k], sum[k][j]);
                to[k] += out.row_pitch * 4;
            }
        }
    }
}

// An output tile from its stage to y, by a producer warp: eight lanes to a plane.
template <int Rows>
__device__ __forceinline__ void store_output_tile(const Block &block, float *y, int output_tile) {
    const Tiling &tiling = block.tiling;
    const RingPosition at = block.output_position(output_tile);
    const int row_tile = tiling.by_groups.quotient(output_tile);
    const int group = block.first_group + output_tile - row_tile * tiling.groups;
    const int k = block.lane / 8, channel = group * ThreadChannels + k;
    const Place place = block.place_of<Rows>(row_tile);
    const int rows = channel < tiling.k ? min(max(tiling.p - place.row, 0), Rows) : 0;
    const int64_t area = int64_t(tiling.p) * tiling.q;
    const uint64_t begin = __cvta_generic_to_global(
        y + (int64_t(place.n) * tiling.k + channel) * area + int64_t(place.row) * tiling.q);
    block.shared.outputs.wait_full(at);
    store_segment<float, 32, 8>(
        begin, uint32_t(rows * tiling.q) * 4,
        block.output_stage(at) + k * tiling.output_plane + uint32_t(begin & 15), block.lane % 8);
    wait_for_stores_to_read();
    block.shared.outputs.release(at);
}
#endif

} // namespace cf::small_fma
