// Tiles of outputs whose input lies in shared memory, one channel at a time: what the tiled direct
// rows share. A block computes a tile of block x block outputs of one channel for one or several
// images. The input that it reads is larger than the tile by the halo of the filter.
#pragma once

#include "core/estimate.cuh"
#include "core/output.cuh"

namespace cf {

// Extents of the input of one tile, in elements: no larger than the output needs, and rows `pitch`
// apart.
struct Halo {
    int64_t high, wide, pitch;
};

// The threads of a warp read neighbouring outputs' inputs, some from the next rows of the tile.
// With a pitch of `block` modulo 32, or an odd multiple where rows of threads fill a warp evenly,
// these follow each other through the 32 banks without a conflict, at stride 1.
__host__ __device__ constexpr int64_t halo_pitch(int64_t wide, int block) {
    const int period = 32 % block ? 32 : 2 * block;
    return wide + ((block - wide) % period + period) % period;
}

inline Halo halo(const cf_problem &p, int block) {
    const auto extent = [&](int out, int stride, int filter, int dilation) {
        return int64_t(std::min(block, out) - 1) * stride + int64_t(filter - 1) * dilation + 1;
    };
    const int64_t wide = extent(p.q, p.stride_w, p.s, p.dilation_w);
    return {extent(p.p, p.stride_h, p.r, p.dilation_h), wide, halo_pitch(wide, block)};
}

// A block's threads: a layer per image, or, where that would be too many, every thread does all
// images.
template <int TileSide, int ImageCount>
struct HaloBlock {
    static constexpr int Side = TileSide, Images = ImageCount;
    static constexpr int Layers = Side * Side * Images <= 1024 ? Images : 1;
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
                                             const T *x, const Out<T> &out, int64_t images,
                                             Filter filter, Taps taps) {
    constexpr int Side = Block::Side, Each = Block::PerThread;
    using Sum = cf::Sum<SumMath>;
    using Operand = typename Sum::Operand;
    const int high = int(halo.high), wide = int(halo.wide), pitch = int(halo.pitch);
    const int area = high * pitch;
    const Strides xs = input_strides(p);
    const int channels = p.c / p.groups, filters = p.k / p.groups;

    const int across = (p.q - 1) / Side + 1;
    const int row0 = blockIdx.x / across * Side, column0 = blockIdx.x % across * Side;
    const unsigned row = row0 + threadIdx.y, column = column0 + threadIdx.x;
    const int top = row0 * p.stride_h - p.pad_top, left = column0 * p.stride_w - p.pad_left;

    const int slot = threadIdx.z * Each; // which of the block's images this thread begins with
    Operand *const tile = halo_shared<Operand>() + slot * area;
    const Operand *const first =
        tile + (threadIdx.y * p.stride_h * pitch + threadIdx.x * p.stride_w);

    const int64_t step = int64_t(gridDim.z) * Block::Images;
    for (int64_t n0 = int64_t(blockIdx.z) * Block::Images; n0 < images; n0 += step) {
        const int64_t n = n0 + slot;
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
                    for (int y = threadIdx.y; y < high; y += Side) {
                        // Above and to the left of the image these wrap to large numbers.
                        const unsigned h = unsigned(top) + y;
                        const bool inside = i < mine && h < unsigned(p.h);
                        const T *const line = plane + i * xs.image + h * xs.row;
#pragma unroll 2
                        for (int v = threadIdx.x; v < wide; v += Side) {
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
                        out.store(p, out.first + n + i, k, row, column, sums[i].get());
            }
        }
    }
}

// The same with the filter of the channel in shared memory, behind the tiles, and loops over it.
template <class Block, int SumMath, class T>
__device__ __forceinline__ void halo_shared_filter(const cf_problem &p, const Halo &halo,
                                                   const T *x, const T *w, const Out<T> &out,
                                                   int64_t images) {
    constexpr int Side = Block::Side;
    using Sum = cf::Sum<SumMath>;
    using Operand = typename Sum::Operand;
    const int pitch = int(halo.pitch), weights = p.r * p.s;
    Operand *const staged = halo_shared<Operand>() + Block::Images * int(halo.high) * pitch;
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

// Bytes of shared memory, with `weights` elements of a filter behind the tiles. A double, because
// what does not fit may be any number.
inline double halo_bytes(const cf_problem &p, int block, int images, double weights) {
    const Halo h = halo(p, block);
    const int operand = p.math == CF_MATH_F16_ACC ? 2 : 4;
    return (double(h.high) * double(h.pitch) * images + weights) * operand;
}

inline int64_t halo_tiles(const cf_problem &p, int block) {
    return ceil_div(p.p, block) * ceil_div(p.q, block);
}

inline int32_t halo_supports(const cf_call *call, int block, int images, double weights, char *why,
                             uint64_t bytes) {
    const cf_problem &p = call->problem;
    const Halo h = halo(p, block);
    const double shared = halo_bytes(p, block, images, weights);
    if (shared > call->device.shared_per_block)
        return no(why, bytes,
                  "keeps the %lld x %lld input pixels that a tile of outputs reads in shared "
                  "memory: %.0f bytes for %d image(s); a block has %d",
                  (long long)h.high, (long long)h.wide, shared, images,
                  call->device.shared_per_block);
    if (halo_tiles(p, block) > INT32_MAX)
        return no(why, bytes, "cuts an image into %lld tiles of %d x %d outputs; the grid takes %d",
                  (long long)halo_tiles(p, block), block, block, INT32_MAX);
    return 1;
}

// Enqueues kernel(arguments...) with a grid of tiles x output channels x groups of images. The
// kernel walks what exceeds the grid in the last two.
template <class Block, class... Parameters, class... Arguments>
int32_t halo_launch(const cf_call *call, void (*kernel)(Parameters...), int64_t images,
                    double weights, Arguments... arguments) {
    const cf_problem &p = call->problem;
    const auto shared = int(halo_bytes(p, Block::Side, Block::Images, weights));
    if (shared > 48 << 10) {
        // All there is, so that launches of other sizes at the same time do not undo it.
        if (const cudaError_t error = cudaFuncSetAttribute(
                kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, call->device.shared_per_block))
            return error;
    }
    const dim3 grid(unsigned(halo_tiles(p, Block::Side)), unsigned(std::min(p.k, MaxGrid)),
                    unsigned(std::min<int64_t>(ceil_div(images, Block::Images), MaxGrid)));
    kernel<<<grid, dim3(Block::Side, Block::Side, Block::Layers), shared, stream(call)>>>(
        arguments...);
    return cudaGetLastError();
}

// For `rank`: instructions, at half of what the chip can issue. Assumed, not fitted: 12 for a
// staged element, 20 per thread and channel around them, and `product` for each product.
inline double halo_us(const cf_problem &p, int block, int images, double product) {
    const Halo h = halo(p, block);
    const double taps = double(p.r) * p.s, outputs = double(block) * block;
    const double channel =
        12 * (double(h.high) * h.wide + taps / images) + outputs * (20 + product * taps);
    const double tiles = double(p.n) * p.k * halo_tiles(p, block);
    // A block meets at barriers for each channel, which few blocks do not hide: fitted to one image
    // of the reports' layers.
    const double alone = alone_us(p) + 2.5 * (p.c / p.groups);
    return std::max(alone, LaunchUs + tiles * (p.c / p.groups) * channel / 1.4e7) +
           (p.epilogue.pool_h ? finish_us(p) : 0);
}

} // namespace cf
