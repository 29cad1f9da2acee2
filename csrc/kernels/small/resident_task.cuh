// A task of small_resident: 32 pixels of a strip in a group of 32 output channels, by one warp.
#pragma once

#include "core/element.cuh"
#include "core/fragment_epilogue.cuh"
#include "kernels/small/resident_plan.cuh"
#include "ptx/mma.cuh"
#include "ptx/shared.cuh"

namespace cf::resident {

constexpr int LanePixels = 2 * Sets;

// What a lane keeps from its first task to its last: the weights of its group as operands, and
// where the words that meet them lie in a window.
template <int Parts, int Steps>
struct Filter {
    uint32_t weight[Parts][Steps][Tiles][2];
    uint32_t offset[Steps][2];

    __device__ __forceinline__ Filter(const Tiling &tiling, const uint4 *packed, int group,
                                      int lane) {
#pragma unroll
        for (int part = 0; part < Parts; ++part)
#pragma unroll
            for (int step = 0; step < Steps; ++step)
#pragma unroll
                for (int i = 0; i < Tiles; i += 2) {
                    const int fragment = ((group * Parts + part) * Steps + step) * Tiles + i;
                    const uint4 two = packed[fragment / 2 * 32 + lane];
                    weight[part][step][i][0] = two.x, weight[part][step][i][1] = two.y;
                    weight[part][step][i + 1][0] = two.z, weight[part][step][i + 1][1] = two.w;
                }
#pragma unroll
        for (int step = 0; step < Steps; ++step)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                offset[step][half] = tiling.word_offsets[step * 8 + half * 4 + lane % 4];
    }
};

// A lane's pixels: neighbours, or in NHWC eight apart.
template <bool Nhwc>
struct Pixels {
    int number[LanePixels];  // in the strip
    uint32_t at[LanePixels]; // where windows begin, in shared memory

    // Pixels behind the last row repeat what is there.
    __device__ __forceinline__ Pixels(const Tiling &tiling, uint32_t stage, int task, int lane) {
        const int g = lane / 4;
#pragma unroll
        for (int e = 0; e < LanePixels; ++e) {
            number[e] = task * TaskPixels + (Nhwc ? g + 8 * e : LanePixels * g + e);
            if (Nhwc || e == 0) {
                const int inside = min(number[e], tiling.rows * tiling.q - (Nhwc ? 1 : LanePixels));
                const int row = tiling.by_q.quotient(inside);
                at[e] =
                    stage + row * tiling.row_step + (inside - row * tiling.q) * tiling.pixel_step;
            } else {
                at[e] = at[e - 1] + tiling.pixel_step;
            }
        }
    }
};

// Parts: 2 for fp32, hi and lo.
template <class Element, int Parts, int Steps>
struct TaskSums {
    Fragment<Element, float> sum[Sets][Tiles];

    // Of pixel e, in one of two channels of a tile.
    __device__ __forceinline__ float &at(int e, int tile, int o) {
        return sum[e / 2][tile].value[e % 2 * 2 + o];
    }

    __device__ __forceinline__ void multiply(const uint32_t (&at)[LanePixels],
                                             const Filter<Parts, Steps> &filter) {
#pragma unroll
        for (int set = 0; set < Sets; ++set) {
            uint32_t a[Parts][Steps][4];
#pragma unroll
            for (int step = 0; step < Steps; ++step)
#pragma unroll
                for (int half = 0; half < 2; ++half)
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        const uint32_t word =
                            load_shared(at[2 * set + e] + filter.offset[step][half]);
                        const int i = 2 * half + e;
                        if constexpr (Parts == 2) {
                            const uint32_t hi = (word + 0x1000) & 0xffffe000;
                            a[0][step][i] = hi;
                            a[1][step][i] =
                                __float_as_uint(__uint_as_float(word) - __uint_as_float(hi));
                        } else {
                            a[0][step][i] = word;
                        }
                    }
#pragma unroll
            for (int kind = Parts == 2 ? 0 : 2; kind < 3; ++kind) // lo hi, hi lo, hi hi
#pragma unroll
                for (int step = 0; step < Steps; ++step)
#pragma unroll
                    for (int i = 0; i < Tiles; ++i)
                        sum[set][i].add(a[Parts == 2 && kind == 1][step],
                                        filter.weight[Parts == 2 && kind == 0][step][i]);
        }
    }
};

// Where a lane's sums belong, for core/fragment_epilogue.cuh: in NCHW a run is its pixels in a
// channel, in NHWC its channels of a pixel.
template <bool Nhwc, class Sums>
struct OutputMap {
    Sums &sums;
    const Pixels<Nhwc> &pixels;
    int64_t strip;     // where the strip begins in y, elements
    int strip_pixels;  // that exist
    int first_channel; // of the lane
    int channels;
    int64_t area; // of an image

    static __device__ __forceinline__ int channel(int tile, int o) { // from the lane's first
        return Nhwc ? 2 * tile + o : 8 * tile + o;
    }
    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
#pragma unroll
        for (int i = 0; i < Tiles; ++i)
#pragma unroll
            for (int o = 0; o < 2; ++o)
                body(first_channel + channel(i, o), Constant<LanePixels>(),
                     [&](int e) -> float & { return sums.at(e, i, o); });
    }
    template <class Stored, class Body>
    __device__ __forceinline__ void for_runs(Stored *tensor, Body body) {
        if constexpr (Nhwc) {
#pragma unroll
            for (int e = 0; e < LanePixels; ++e)
                body(Constant<2 * Tiles>(),
                     tensor + strip + int64_t(pixels.number[e]) * channels + first_channel,
                     pixels.number[e] < strip_pixels && first_channel < channels,
                     [&](int j) -> float & { return sums.at(e, j / 2, j % 2); });
        } else {
            Stored *at = tensor + strip + first_channel * area + pixels.number[0];
#pragma unroll
            for (int i = 0; i < Tiles; ++i) {
#pragma unroll
                for (int o = 0; o < 2; ++o)
                    body(Constant<LanePixels>(), at + o * area,
                         pixels.number[0] < strip_pixels &&
                             first_channel + channel(i, o) < channels,
                         [&](int e) -> float & { return sums.at(e, i, o); });
                at += 8 * area;
            }
        }
    }
};

} // namespace cf::resident
