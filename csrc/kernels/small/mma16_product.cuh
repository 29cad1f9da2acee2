// The main loop of small_mma16: what a warp multiplies for a task, operands straight from the strip
// in shared memory.
#pragma once

#include "kernels/small/mma16_tiling.cuh"
#include "ptx/arch.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared.cuh"

namespace cf::small16 {

// What a kernel is compiled for. R = 0: any filter and stride, weights from global memory. Single:
// one input channel, two pixels in a position. Residual: whether one may be added. Apart: and its
// elements are loaded one by one.
template <class ElementOf, int RowsOfFilter, int StrideOf, int TilesOf, bool SingleChannel,
          bool MayAddResidual = true, bool ResidualApart = false>
struct TaskShape {
    using Element = ElementOf;
    static constexpr int R = RowsOfFilter, Stride = StrideOf, Tiles = TilesOf;
    static constexpr bool Single = SingleChannel, Residual = MayAddResidual;
    static constexpr bool Apart = ResidualApart;
    static constexpr int Rows = rows_of(Tiles), PositionPixels = Single ? 2 : 1;
    static constexpr int Channels = 2 / PositionPixels; // of a lane in a tile
};

#if CF_SM90
// A lane's sums: rows of y by columns of the product.
template <class Shape>
using Accumulators = Fragment<typename Shape::Element, float>[Shape::Rows][Shape::Tiles];

// A lane's two positions of a task, neighbours in the row tiles of a strip. Those behind the last
// one repeat it.
struct LanePositions {
    int first;
    int tile[2];    // row tile of the strip
    int column[2];  // of y
    uint32_t at[2]; // where the window begins in shared memory

    __device__ __forceinline__ bool live(const Tiling &tiling, int i) const {
        return first + i < tiling.row_tiles * tiling.positions;
    }
};

// `strip` is its address in shared memory.
template <class Shape>
__device__ __forceinline__ LanePositions lane_positions(const Tiling &tiling, int block,
                                                        uint32_t strip, int lane) {
    LanePositions lanes = {block * Positions + lane / 4 * 2};
    const int columns = tiling.row_tiles * tiling.positions;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int position = min(lanes.first + i, columns - 1);
        const int tile = tiling.by_positions.quotient(position);
        const int in_row = position - tile * tiling.positions;
        lanes.tile[i] = tile, lanes.column[i] = in_row * Shape::PositionPixels;
        // With most tiles no register is left for what comes with the launch.
        if constexpr (Shape::Tiles < MaxTiles)
            lanes.at[i] = strip + tile * tiling.tile_bytes + in_row * tiling.position_bytes;
        else
            lanes.at[i] = strip + tile * Shape::Rows * tiling.stride_h * tiling.pitch +
                          lanes.column[i] * tiling.stride_w * tiling.pixel_elements * 2;
        lanes.at[i] += lane % 4 * 4;
    }
    return lanes;
}

// A lane's part of the first or the second of two fragments of weights, times a row of positions.
template <class Element>
__device__ __forceinline__ void multiply(Fragment<Element, float> &sum, const uint32_t (&a)[4],
                                         uint4 weights, int second) {
    const uint32_t b[2] = {second ? weights.z : weights.x, second ? weights.w : weights.y};
    sum.add(a, b);
}

// Rows of x in registers, each read once for a step. Halves of a step are 8 elements: of one row,
// or of two, of which the first is even. Odd rows of y have weights that begin a row earlier then.
// `weights` are the lane's, in shared memory.
template <class Shape>
__device__ __forceinline__ void multiply_rows(const Tiling &tiling, uint32_t weights, int group,
                                              const uint32_t (&at)[2], Accumulators<Shape> &sum) {
    constexpr int Each = Shape::Single ? 2 : 1, Parities = Each; // rows of x, of y
    constexpr int Window = ((Shape::Rows - 1) * Shape::Stride + Shape::R + Each) / Each;
    constexpr int FilterRows = (Shape::R + Each - 1) / Each;
    constexpr int Fragments = fragments_of(FilterRows, Shape::Tiles);
    constexpr int StepBytes = Parities * Fragments * FragmentBytes;
    weights += group * tiling.steps * StepBytes;
    int step = 0;
#pragma unroll 1
    do { // once at least, so that sums need not be moved around the loop
        uint32_t window[Window][4];
        uint32_t from[2] = {at[0] + step * (32 / Each), at[1] + step * (32 / Each)};
        uint4 two[Parities] = {}; // fragments of weights
        int read = 0;
#pragma unroll
        for (int r = 0; r < FilterRows; ++r) {
            const int last = (Shape::Rows - 1) / Each * Shape::Stride + r;
#pragma unroll
            for (int j = 0; j < Window; ++j) {
                if (j < read || j > last)
                    continue;
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    window[j][i] = load_shared(from[i]);
                    if constexpr (Shape::Single) {
                        from[i] += tiling.pitch;
                        window[j][2 + i] = load_shared(from[i]);
                    } else {
                        window[j][2 + i] = load_shared_behind<16>(from[i]);
                    }
                    from[i] += tiling.pitch;
                }
            }
            read = last + 1;
#pragma unroll
            for (int parity = 0; parity < Parities; ++parity)
#pragma unroll
                for (int t = 0; t < Shape::Tiles; ++t) {
                    const int f = r * Shape::Tiles + t;
                    if (f % 2 == 0)
                        two[parity] =
                            load_shared4(weights + (parity * Fragments + f) * FragmentBytes);
#pragma unroll
                    for (int j = parity; j < Shape::Rows; j += Parities)
                        multiply(sum[j][t], window[j / Each * Shape::Stride + r], two[parity],
                                 f % 2);
                }
        }
        weights += StepBytes;
    } while (++step < tiling.steps);
}

// Any filter and stride: all operands anew for each row of the filter.
template <class Shape>
__device__ __forceinline__ void multiply_any(const Tiling &tiling, const uint4 *weights, int group,
                                             const uint32_t (&at)[2], Accumulators<Shape> &sum) {
    static_assert(Shape::Tiles % 2 == 0, "rows of fragments are whole pairs");
    constexpr int Rows = Shape::Rows, Tiles = Shape::Tiles, StepBytes = Shape::Single ? 16 : 32;
    weights += int64_t(group) * tiling.steps * tiling.filter_rows * (Tiles / 2) * 32;
#pragma unroll 1
    for (int step = 0; step < tiling.steps; ++step) {
#pragma unroll 1
        for (int r = 0; r < tiling.filter_rows; ++r) {
            uint32_t a[Rows][4];
            const int low = Shape::Single ? 2 * r : r;
            const int high = Shape::Single && 2 * r + 1 < tiling.r;
#pragma unroll
            for (int j = 0; j < Rows; ++j)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    a[j][i] = load_shared(at[i % 2] + step * StepBytes +
                                          (j * tiling.stride_h + low) * tiling.pitch +
                                          i / 2 * (Shape::Single ? high * tiling.pitch : 16));
#pragma unroll
            for (int t = 0; t < Tiles; ++t) {
                const uint4 two = __ldg(weights + t / 2 * 32);
#pragma unroll
                for (int j = 0; j < Rows; ++j)
                    multiply(sum[j][t], a[j], two, t % 2);
            }
            weights += Tiles / 2 * 32;
        }
    }
}
#endif

} // namespace cf::small16
