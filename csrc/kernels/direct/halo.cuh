// Tiles of outputs whose input lies in shared memory, one channel at a time: what the tiled direct
// rows share. A block computes a tile of block x block outputs of one channel for one or several
// images. The input that it reads is larger than the tile by the halo of the filter.
#pragma once

#include "core/output.cuh"

namespace cf {

constexpr int MaxThreads = 1024; // of a block

// Extents of the input of one tile, in elements: no larger than the output needs, and rows `pitch`
// apart.
struct Halo {
    int64_t height, width, pitch;
};

// The threads of a warp read neighbouring outputs' inputs, some from the next rows of the tile.
// With a pitch of `block` modulo 32, or an odd multiple where rows of threads fill a warp evenly,
// these follow each other through the 32 banks without a conflict, at stride 1.
__host__ __device__ constexpr int64_t halo_pitch(int64_t width, int block) {
    const int period = 32 % block ? 32 : 2 * block;
    return width + ((block - width) % period + period) % period;
}

inline Halo halo(const cf_problem &p, int block) {
    const auto extent = [&](int out, int stride, int filter, int dilation) {
        return int64_t(std::min(block, out) - 1) * stride + int64_t(filter - 1) * dilation + 1;
    };
    const int64_t width = extent(p.q, p.stride_w, p.s, p.dilation_w);
    return {extent(p.p, p.stride_h, p.r, p.dilation_h), width, halo_pitch(width, block)};
}

// A block's threads: a layer per image, or, where that would be too many, every thread does all
// images.
template <int TileSide, int ImageCount>
struct HaloBlock {
    static constexpr int Side = TileSide, Images = ImageCount;
    static constexpr int Layers = Side * Side * Images <= MaxThreads ? Images : 1;
    static constexpr int PerThread = Images / Layers;
    static constexpr int Threads = Side * Side * Layers;
    // Of a multiprocessor, so that a thread may have 64 registers: with less the index arithmetic
    // spills.
    static constexpr int Resident = Threads >= 32 ? 1024 / Threads : 32;
};

template <class Operand>
__device__ __forceinline__ Operand *halo_shared() {
    extern __shared__ __align__(16) unsigned char halo_bytes_of_block[];
    return reinterpret_cast<Operand *>(halo_bytes_of_block);
}

// Computes images out.first .. out.first + images. For each channel c, after the input tile is
// staged, all threads call filter(k, c), which may stage as well, and behind a barrier those with
// an output call taps(k, c, tile, sums): `tile` is the first input of the thread's output, `area`
// elements before that of its next image. Operands are rounded for `math` while they are staged.
template <class Block, int SumMath, class T, class Filter, class Taps>
__device__ __forceinline__ void halo_outputs(const cf_problem &p, const Halo &halo, int32_t math,
                                             const T *x, const Output &out, int64_t images,
                                             Filter filter, Taps taps) {
    constexpr int Side = Block::Side, Each = Block::PerThread;
    using Sum = cf::Sum<SumMath>;
    using Operand = typename Sum::Operand;
    const int height = int(halo.height), width = int(halo.width), pitch = int(halo.pitch);
    const int area = height * pitch;
    const Strides xs = input_strides(p);
    const int channels = p.c / p.groups, filters = p.k / p.groups;

    const int across = (p.q - 1) / Side + 1;
    const int row0 = blockIdx.x / across * Side, column0 = blockIdx.x % across * Side;
    const unsigned row = row0 + threadIdx.y, column = column0 + threadIdx.x;
    const int top = row0 * p.stride_h - p.pad_top, left = column0 * p.stride_w - p.pad_left;

    const int image = threadIdx.z * Each; // of the block's, the first of this thread
    Operand *const tile = halo_shared<Operand>() + image * area;
    const Operand *const first =
        tile + (threadIdx.y * p.stride_h * pitch + threadIdx.x * p.stride_w);

    const int64_t step = int64_t(gridDim.z) * Block::Images;
    for (int64_t n0 = int64_t(blockIdx.z) * Block::Images; n0 < images; n0 += step) {
        const int64_t n = n0 + image;
        const int mine = int(min(images - n, int64_t(Each))); // images of this thread, or none
        const bool live = row < unsigned(p.p) && column < unsigned(p.q) && mine > 0;
        for (int k = blockIdx.y; k < p.k; k += gridDim.y) {
            Sum sums[Each];
            const T *plane = x + xs.at(out.first + n, k / filters * channels, 0, 0);
            for (int c = 0; c < channels; ++c, plane += xs.channel) {
                __syncthreads(); // until nobody reads the channel before
#pragma unroll
                for (int i = 0; i < Each; ++i) {
#pragma unroll 1
                    for (int y = threadIdx.y; y < height; y += Side) {
                        // Above and to the left of the image these wrap to large numbers.
                        const unsigned h = unsigned(top) + y;
                        const bool inside = i < mine && h < unsigned(p.h);
                        const T *const line = plane + i * xs.image + h * xs.row;
#pragma unroll 2
                        for (int v = threadIdx.x; v < width; v += Side) {
                            const unsigned w = unsigned(left) + v;
                            const T value =
                                inside && w < unsigned(p.w) ? line[w * xs.column] : T(0.0f);
                            tile[i * area + y * pitch + v] = operand<Sum>(value, math);
                        }
                    }
                }
                filter(k, c);
                __syncthreads();
                if (live)
                    taps(k, c, first, area, sums);
            }
            if (live) {
#pragma unroll
                for (int i = 0; i < Each; ++i)
                    if (i < mine)
                        out.store<T>(p, out.first + n + i, k, row, column, sums[i].get());
            }
        }
    }
}

// The same with the filter of the channel in shared memory, behind the tiles, and loops over it.
template <class Block, int SumMath, class T>
__device__ __forceinline__ void halo_shared_filter(const cf_problem &p, const Halo &halo,
                                                   const T *x, const T *w, const Output &out,
                                                   int64_t images) {
    constexpr int Side = Block::Side;
    using Sum = cf::Sum<SumMath>;
    using Operand = typename Sum::Operand;
    const int pitch = int(halo.pitch), weights = p.r * p.s;
    Operand *const staged = halo_shared<Operand>() + Block::Images * int(halo.height) * pitch;
    const Strides ws = filter_strides(p);
    const auto filter = [&](int k, int c) {
        const T *const from = w + ws.at(k, c, 0, 0);
        const int thread = (threadIdx.z * Side + threadIdx.y) * Side + threadIdx.x;
        for (int i = thread; i < weights; i += Block::Threads)
            staged[i] = operand<Sum>(from[i * ws.column], p.math);
    };
    const auto taps = [&](int, int, const Operand *tile, int area, Sum *sums) {
        const Operand *weight = staged;
        for (int r = 0; r < p.r; ++r) {
            const Operand *at = tile + r * p.dilation_h * pitch;
            for (int s = 0; s < p.s; ++s, at += p.dilation_w, ++weight) {
#pragma unroll
                for (int i = 0; i < Block::PerThread; ++i)
                    sums[i].add(at[i * area], *weight);
            }
        }
    };
    halo_outputs<Block, SumMath>(p, halo, p.math, x, out, images, filter, taps);
}

} // namespace cf
