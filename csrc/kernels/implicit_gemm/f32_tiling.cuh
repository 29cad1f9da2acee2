// What a tile of the rows that split f32 is beside the family's: its filter, its rings and its
// exponents. Planners fill it in, kernels read it.
#pragma once

#include "kernels/implicit_gemm/tiling.cuh"

#include <utility>

namespace cf::implicit_f32 {

using implicit_gemm::RowChannels;
using implicit_gemm::StagedBytes;
using implicit_gemm::Steps;
using implicit_gemm::Tiling;
using implicit_gemm::Warpgroup;
using implicit_gemm::Warpgroups;

// Of implicit_gemm_f32_nhwc: two warpgroups of consumers, one that splits, one of producers.
constexpr int Threads = 4 * Warpgroup;
constexpr int BlockChannels = 64;                         // of a line in f16
constexpr int FloatChannels = 32;                         // of a line in f32
constexpr int LeastSum = 48;                              // products of a sum
constexpr uint32_t WeightBytes = RowChannels * LineBytes; // of a stage: low parts, or high ones
constexpr int MaxPixelStages = 6, MaxWeightStages = 20;
constexpr int StaticShared = 1024;

// Pixels of a product that its kernels are compiled for: sums and those of a block are in
// registers.
using NarrowWidths = std::integer_sequence<int, 32, 64, 96>;
using WideWidths = std::integer_sequence<int, 112, 128>;
constexpr int Sweeps[] = {1, 2, 4, 8}; // tiles with the same pixels

// Exponents. Of a line of x and of a row of the filter, what the largest becomes; of channels, how
// far they are moved at most; of a line, below which nothing is scaled up any more: a power of two
// and its reciprocal are numbers of f32.
constexpr int Largest = 14, MostMoved = 100, LeastLine = -98;
// What a low part is multiplied by.
constexpr float LowScale = 2048;

// A packed filter: lines of [group][block of channels][tap][64 output channels][low, high], what
// channels of x are multiplied by (as lanes of a splitting warp read them), what rows of products
// are, and exponents that packing needs meanwhile.
struct Packed {
    int64_t lines, channels, rows; // bytes of the lines, floats of the others

    __host__ __device__ __forceinline__ int64_t channels_at() const { return lines; }
    __host__ __device__ __forceinline__ int64_t rows_at() const { return lines + channels * 4; }
    __host__ __device__ __forceinline__ int64_t exponents_at() const {
        return rows_at() + rows * 4;
    }
    __host__ __device__ __forceinline__ int64_t bytes() const {
        return exponents_at() + channels * 4;
    }
};

inline int64_t blocks_of(const cf_problem &p) { return ceil_div(p.c / p.groups, BlockChannels); }
inline Packed packed_of(const cf_problem &p) {
    const int64_t rows = p.groups * implicit_gemm::filter_lines(p);
    return {blocks_of(p) * p.r * p.s * rows * 2 * LineBytes,
            p.groups * blocks_of(p) * BlockChannels, rows};
}

// What a plan adds to a tiling. Its lines are those of one operand: those of the other one, where
// copies bring f32 the second half of the channels, lie pixel_stage_bytes behind. Warpgroups with
// channels of their own have a ring of weights each, those with pixels of their own a ring of
// pixels each.
struct Plan {
    Tiling tiling;
    Packed packed;
    uint32_t staged_bytes; // what a block stages of y
    uint32_t slot_bytes; // where it has planes on the way to lines, and what loaders know of boxes
    int factor_lines;    // of a stage: what columns of products are multiplied by, and those behind
    int sweep; // tiles of output channels that a block does with the same pixels, which it keeps

    __host__ __device__ __forceinline__ int pixel_rings() const {
        return tiling.apart ? Warpgroups : 1;
    }
    __host__ __device__ __forceinline__ int weight_rings() const {
        return tiling.apart ? 1 : Warpgroups;
    }
    __host__ __device__ __forceinline__ uint32_t pixel_bytes() const {
        return pixel_rings() * tiling.pixel_stages * 2 * tiling.pixel_stage_bytes;
    }
    __host__ __device__ __forceinline__ uint32_t weight_bytes() const {
        return weight_rings() * tiling.weight_stages * WeightBytes;
    }
    __host__ __device__ __forceinline__ uint32_t factor_bytes() const {
        return pixel_rings() * tiling.pixel_stages * factor_lines * 8;
    }
    __host__ __device__ __forceinline__ uint32_t shared_bytes() const {
        return LineAlign + pixel_bytes() + weight_bytes() + slot_bytes + staged_bytes +
               factor_bytes();
    }
};

} // namespace cf::implicit_f32
