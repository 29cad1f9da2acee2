// What a tile of implicit_gemm_resident is, and what it takes of shared memory: the planner fills
// it in, the kernel reads it.
#pragma once

#include "kernels/implicit_gemm/tiling.cuh"

namespace cf::implicit_resident {

using implicit_gemm::RowChannels, implicit_gemm::StaticShared, implicit_gemm::StepBytes,
    implicit_gemm::Steps, implicit_gemm::Threads, implicit_gemm::Warpgroup,
    implicit_gemm::Warpgroups;

constexpr int ConsumerWarps = Warpgroups * Warpgroup / 32, WarpgroupWarps = Warpgroup / 32;
constexpr int ConsumerRegisters = 232, ProducerRegisters = 40;
constexpr int Taps = 3;    // of a row of the filter
constexpr int MaxRows = 8; // of taps
constexpr int MaxStages = 32;
// A strip is 64 neighbouring columns of a row of x, of all channels that a product sums over: a
// line for each, 16 to a step. A stage is two strips, what a product has as columns.
constexpr int StripColumns = 64, StripStepBytes = 16 * LineBytes;
constexpr int TapBytes = RowChannels * LineBytes; // of the filter
// Columns that a copy begins at multiples of, and that leave together: 16 bytes.
constexpr int PieceColumns = 8;

// Columns of a product that kernels are compiled for.
using Widths = std::integer_sequence<int, 112, 120, 128>;

// A tile is an image's neighbouring columns in all rows: strips beside each other, or, where one
// has a whole row of the image, one in its upper and one in its lower half. A block has 64 output
// channels, in neighbouring rows of as many tiles as these come to.
struct Tiling {
    int rows, row_step, pad_top; // of the filter: how many, how far apart in x, above x
    int depth;                   // steps of a tap's sum: 2 or 4
    // Output channels: sets of 64, of all groups and of one.
    int sets, group_sets, groups, group_k, k, filter_lines;
    Divisor by_sets, by_group_sets;
    int all_rows, tile_rows, block_rows; // of y: in all tiles, in one, of a block
    int columns, segments;               // of y in a tile; tiles beside each other
    Divisor by_tile_rows, by_segments;
    int strip_columns, strip_rows; // from a tile's first strip to its second one; one is 0
    int p, q;
    int64_t y_plane; // elements
    int stages, strip_bytes;
    int finishes, activation;
};

// How many rows of x are behind the first one that a row of y reads.
__host__ __device__ __forceinline__ int reach(const Tiling &t) { return (t.rows - 1) * t.row_step; }

// Shared memory: the filter, stages.
__host__ __device__ __forceinline__ uint32_t filter_bytes(const Tiling &t) {
    return uint32_t(t.rows) * Taps * TapBytes;
}
inline size_t shared_bytes(const Tiling &t) {
    return LineAlign + size_t(filter_bytes(t)) + size_t(t.stages) * 2 * t.strip_bytes;
}

} // namespace cf::implicit_resident
