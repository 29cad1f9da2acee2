// The main loops of grouped_any: a warp's sums, of some pixels in some tiles of output channels.
#pragma once

#include "core/element.cuh"
#include "kernels/grouped/any_plan.cuh"
#include "ptx/load_store.cuh"
#include "ptx/mma.cuh"

namespace cf::grouped_any {

// What a kernel is compiled for: how x is stored, what its operands are, the tiles of a warp.
template <class StoredOf, Product ProductOf, int TilesOf>
struct Shape {
    static constexpr Product Kind = ProductOf;
    using Stored = StoredOf;
    using Operand = std::conditional_t<Kind == F16, __half,
                                       std::conditional_t<Kind == Bf16, __nv_bfloat16, float>>;
    static constexpr int Tiles = TilesOf, Rows = rows_for(Kind, Tiles);
    static constexpr int Per = PieceBytes / int(sizeof(Operand)); // channels of a piece
    // A lane has sums of so many neighbouring output channels of a tile, in so many pixels of 16.
    static constexpr int Run = Kind == Fp32 ? 4 : 2, Pixels = Kind == Fp32 ? 1 : 2;
};

// Number i of the sums that a lane has of a tile in 16 pixels: pixel and channel, in order.
template <class Shape>
__device__ __forceinline__ int pixel_of_lane(int lane, int i) {
    return Shape::Kind == Fp32 ? lane % RowPixels : lane / 4 + i * 8;
}
template <class Shape>
__device__ __forceinline__ int channel_of_lane(int lane) {
    return Shape::Kind == Fp32 ? lane / RowPixels * Shape::Run : lane % 4 * Shape::Run;
}

// The first word of a piece and a tile that a lane reads.
template <class Shape>
__device__ __forceinline__ int word_of_lane(int lane) {
    return Shape::Kind == Fp32 ? channel_of_lane<Shape>(lane) * Shape::Per : lane;
}

// Where a lane reads. The table says of each piece where it lies behind a pixel's first position,
// and its number in a tile's filter.
template <class Shape>
struct Source {
    uint32_t pixels[Shape::Rows]; // of the lane, in shared memory
    uint32_t table;
    const uint32_t *filter; // of the set, from the warp's first tile on
    uint32_t piece_words;
};

// On tensor cores: 16 pixels are the rows of a product, a tile its columns, two pieces a step.
// ldmatrix reads a piece of eight pixels wherever they lie.
template <class Shape>
struct Sums {
    using Tile = Fragment<typename Shape::Operand, float>;
    Tile tile[Shape::Rows][Shape::Tiles];

    struct Step {
        uint32_t x; // for the lane: half of them read the step's first piece
        uint32_t filter[Shape::Tiles][2];

        __device__ __forceinline__ void load(const Source<Shape> &from, int step, int lane) {
            const uint4 two = load_shared4(from.table + step * 2 * EntryBytes);
            x = lane < RowPixels ? two.x : two.z;
            const uint32_t *const first = from.filter + uint64_t(two.y) * from.piece_words;
            const uint32_t *const second = from.filter + uint64_t(two.w) * from.piece_words;
#pragma unroll
            for (int tile = 0; tile < Shape::Tiles; ++tile) {
                filter[tile][0] = __ldg(first + tile * Lanes);
                filter[tile][1] = __ldg(second + tile * Lanes);
            }
        }
    };

    __device__ __forceinline__ float &at(int row, int tile_number, int i) {
        return tile[row][tile_number].value[i];
    }
    __device__ __forceinline__ void add(const Source<Shape> &from, int steps, int lane) {
        Step now;
        now.load(from, 0, lane);
#pragma unroll 1
        for (int i = 0; i < steps; ++i) {
            // The next step's words are on their way meanwhile.
            Step next;
            next.load(from, i + 1, lane);
#pragma unroll
            for (int row = 0; row < Shape::Rows; ++row) {
                uint32_t x[4];
                load_matrices(x, from.pixels[row] + now.x);
#pragma unroll
                for (int j = 0; j < Shape::Tiles; ++j)
                    tile[row][j].add(x, now.filter[j]);
            }
            now = next;
        }
    }
};

// In fp32: a lane has one pixel of 16, and half of a tile's channels.
template <class Stored, int Tiles>
struct Sums<Shape<Stored, Fp32, Tiles>> {
    using Of = Shape<Stored, Fp32, Tiles>;
    static_assert(Of::Per == 4, "a piece is a float4");
    float value[Of::Rows][Tiles][Of::Run] = {};

    __device__ __forceinline__ float &at(int row, int tile, int i) { return value[row][tile][i]; }
    __device__ __forceinline__ void add(const Source<Of> &from, int steps, int) {
#pragma unroll 1
        for (int i = 0; i < steps; ++i) {
            const uint32_t entry = from.table + i * EntryBytes;
            const uint32_t behind = load_shared(entry);
            const auto *weights = reinterpret_cast<const float4 *>(
                from.filter + uint64_t(load_shared_behind<4>(entry)) * from.piece_words);
            float4 x[Of::Rows];
#pragma unroll
            for (int row = 0; row < Of::Rows; ++row)
                x[row] = load_shared_f32x4(from.pixels[row] + behind);
#pragma unroll
            for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
                for (int channel = 0; channel < Of::Run; ++channel) {
                    const float4 w = __ldg(weights + tile * TileChannels + channel);
#pragma unroll
                    for (int row = 0; row < Of::Rows; ++row) {
                        float &sum = value[row][tile][channel];
                        sum = fmaf(x[row].x, w.x, sum);
                        sum = fmaf(x[row].y, w.y, sum);
                        sum = fmaf(x[row].z, w.z, sum);
                        sum = fmaf(x[row].w, w.w, sum);
                    }
                }
            }
        }
    }
};

} // namespace cf::grouped_any
