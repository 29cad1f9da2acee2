// What a tile of implicit_gemm_pointwise_shared is, and what it takes of shared memory: the planner
// fills it in, the kernel reads it.
#pragma once

#include "kernels/implicit_gemm/tiling.cuh"

namespace cf::pointwise_shared {

using implicit_gemm::RowChannels, implicit_gemm::StaticShared, implicit_gemm::StepBytes,
    implicit_gemm::Steps, implicit_gemm::Threads, implicit_gemm::Warpgroup,
    implicit_gemm::Warpgroups;

constexpr int ConsumerWarps = Warpgroups * Warpgroup / 32, WarpgroupWarps = Warpgroup / 32;
constexpr int ConsumerRegisters = 232, ProducerRegisters = 40;
constexpr int MaxStages = 16;                          // of a ring
constexpr int TileChannels = Warpgroups * RowChannels; // of y
constexpr int BlockChannels = 64;                      // of x, in a stage
// Of x 64 neighbouring pixels of a channel are a line, those of a block's channels a strip; 16
// channels are a step.
constexpr int StripPixels = 64, StripBytes = BlockChannels * LineBytes,
              StripStepBytes = 16 * LineBytes;
// Pixels that a copy begins at multiples of: 16 bytes.
constexpr int PiecePixels = 8;

// A tile of y as kernels are compiled for it. Where planes are an odd multiple of 8 bytes, copies
// begin at even channels alone: odd ones come `Shift` pixels early, into sums of their own. Pieces
// of other planes are multiples of 16 pixels, a sector of memory.
struct Shape {
    int columns;  // pixels of a product
    int parities; // of channels, that have sums of their own: 1 or 2
};
constexpr int Shift = 4;
constexpr Shape Shapes[] = {{112, 1}, {208, 1}, {104, 2}, {200, 2}};
__host__ __device__ constexpr int strips_of(int columns) {
    return (columns + StripPixels - 1) / StripPixels;
}

// A tile is a piece of an image's planes in 128 output channels, 64 for each warpgroup. Where
// blocks have peers, two of a cluster have the same pixels, and output channels beside each other.
struct Tiling {
    int blocks; // of the sum's channels
    int peers;  // 2, or 1: none
    // Tiles: output channels innermost, then pieces, images.
    int tiles, channel_tiles, group_tiles;
    Divisor by_channel_tiles, by_group_tiles;
    int pieces, piece_pixels; // of an image
    Divisor by_pieces;
    int n, pixels, k, group_k, group_c, groups;
    // From a channel to the odd one behind it, in elements of a row of x's tensor, less `Shift`.
    int parity_pixels, row_pixels; // and the row's own
    int edge_images;               // the last ones, behind whose planes x may end within a copy
    int stages, pixel_bytes, stage_bytes; // of the ring: x, then lines of weights
    int filter_lines;
    int staged_pitch; // bytes of an output channel of y in shared memory, behind the ring
    int finishes, activation;
};

__host__ __device__ __forceinline__ int staged_bytes(const Tiling &t) {
    return RowChannels * t.staged_pitch; // of a warpgroup
}
inline size_t shared_bytes(const Tiling &t) {
    return LineAlign + size_t(t.stages) * t.stage_bytes + size_t(Warpgroups) * staged_bytes(t);
}

} // namespace cf::pointwise_shared
