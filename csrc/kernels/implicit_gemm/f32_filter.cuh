// How a filter of f32 is packed for three products of f16: split into lines of high and low parts,
// with powers of two for channels of the sum and for output channels.
#pragma once

#include "core/plan.cuh"
#include "core/strides.cuh"
#include "kernels/implicit_gemm/f32_tiling.cuh"

namespace cf::implicit_f32 {

using implicit_gemm::filter_lines;

// What packing knows of the filter.
struct Filter {
    Strides strides;
    int group_k, group_c, taps, s_count; // of a group; taps in a row
    int blocks, lines;                   // of channels; of a group's output channels
    Packed packed;

    __device__ __forceinline__ int64_t at(int group, int k, int c, int tap) const {
        return strides.at(int64_t(group) * group_k + k, c, tap / s_count, tap % s_count);
    }
    __device__ __forceinline__ int channels() const { return blocks * BlockChannels; }
    __device__ __forceinline__ int *exponents(char *to) const {
        return reinterpret_cast<int *>(to + packed.exponents_at());
    }
};

constexpr int NoExponent = -1000; // of nothing but zeros
constexpr int PackThreads = 256, PackColumns = 32;

__device__ __forceinline__ int exponent_of(float v) {
    return v == 0 ? NoExponent : min(ilogbf(v), 127);
}
// How far a channel of the filter is moved, up: all become as large as the group's largest one,
// but for those with nothing.
__device__ __forceinline__ int moved(int exponent, int largest) {
    return min(largest - exponent, MostMoved);
}

// The largest exponent of each input channel: a column of threads for each, 32 to a block.
static __global__ void __launch_bounds__(PackThreads)
    exponents_kernel(Filter filter, const float *__restrict__ w, char *to) {
    __shared__ int largest[PackColumns];
    const int column = threadIdx.x % PackColumns;
    const int of_group = filter.channels() / PackColumns;
    const int group = blockIdx.x / of_group;
    const int c = (blockIdx.x - group * of_group) * PackColumns + column;
    if (threadIdx.x < PackColumns)
        largest[column] = NoExponent;
    __syncthreads();
    int most = NoExponent;
    if (c < filter.group_c)
        for (int i = threadIdx.x / PackColumns; i < filter.group_k * filter.taps;
             i += PackThreads / PackColumns)
            most = max(most, exponent_of(w[filter.at(group, i / filter.taps, c, i % filter.taps)]));
    atomicMax(&largest[column], most);
    __syncthreads();
    if (threadIdx.x < PackColumns)
        filter.exponents(to)[group * filter.channels() + c] = largest[column];
}

// The largest that any thread of the block has.
__device__ __forceinline__ int largest_of_block(int mine) {
    __shared__ int largest;
    __syncthreads();
    if (threadIdx.x == 0)
        largest = NoExponent;
    __syncthreads();
    atomicMax(&largest, mine);
    __syncthreads();
    return largest;
}

// A channel of a line of x, as splitting leaves them: pieces of 8 have four neighbours, and those
// 32 behind.
__device__ __forceinline__ int channel_of(int place) {
    return place / 8 * 4 + place % 4 + (place % 8 < 4 ? 0 : FloatChannels);
}

// A block for each line: an output channel of a group, or zeros. The first of a group's writes what
// channels of x are multiplied by as well.
static __global__ void __launch_bounds__(PackThreads)
    pack_kernel(Filter filter, const float *__restrict__ w, char *to) {
    const int group = blockIdx.x / filter.lines, k = blockIdx.x - group * filter.lines;
    const int channels = filter.channels();
    const int *exponents = filter.exponents(to) + group * channels;
    int mine = NoExponent;
    for (int c = threadIdx.x; c < channels; c += PackThreads)
        mine = max(mine, exponents[c]);
    const int largest = largest_of_block(mine);
    if (k == 0) {
        auto *scales =
            reinterpret_cast<float *>(to + filter.packed.channels_at()) + group * channels;
        for (int i = threadIdx.x; i < channels; i += PackThreads) {
            const int c = i / BlockChannels * BlockChannels + channel_of(i % BlockChannels);
            scales[i] = c < filter.group_c ? ldexpf(1, -moved(exponents[c], largest)) : 0;
        }
    }
    mine = NoExponent;
    if (k < filter.group_k)
        for (int i = threadIdx.x; i < filter.group_c * filter.taps; i += PackThreads) {
            const int tap = i / filter.group_c, c = i - tap * filter.group_c;
            const int exponent = exponent_of(w[filter.at(group, k, c, tap)]);
            if (exponent > NoExponent)
                mine = max(mine, exponent + moved(exponents[c], largest));
        }
    const int row = largest_of_block(mine);
    const int of_row = row == NoExponent ? 0 : row;
    if (threadIdx.x == 0)
        reinterpret_cast<float *>(to + filter.packed.rows_at())[blockIdx.x] = ldexpf(1, of_row);
    for (int i = threadIdx.x; i < channels * filter.taps; i += PackThreads) {
        const int place = i % BlockChannels, tap = i / BlockChannels % filter.taps;
        const int block = i / BlockChannels / filter.taps;
        const int c = block * BlockChannels + channel_of(place);
        float v = 0;
        if (k < filter.group_k && c < filter.group_c)
            v = ldexpf(w[filter.at(group, k, c, tap)],
                       moved(exponents[c], largest) + Largest - of_row);
        const __half high = __float2half_rn(v);
        const __half low = __float2half_rn((v - __half2float(high)) * LowScale);
        // Lines of 64 output channels: low parts, and behind them high ones.
        const int64_t set =
            (int64_t(group * filter.blocks + block) * filter.taps + tap) * filter.lines +
            k / RowChannels * RowChannels;
        const int in_line = (place / 8 ^ k % 8) * 16 + place % 8 * 2;
        char *at = to + set * (2 * LineBytes) + k % RowChannels * LineBytes + in_line;
        *reinterpret_cast<__half *>(at) = low;
        *reinterpret_cast<__half *>(at + WeightBytes) = high;
    }
}

// Its launches: of a problem, into addresses.
struct PackFilter {
    Kernel<Filter, const void *, void *> exponents, pack;

    static PackFilter of(const Packed &packed) {
        return {
            kernel_of(exponents_kernel, dim3(unsigned(packed.channels / PackColumns)), PackThreads),
            kernel_of(pack_kernel, dim3(unsigned(packed.rows)), PackThreads)};
    }
    int32_t prepare() const {
        const int32_t error = exponents.prepare();
        return error ? error : pack.prepare();
    }
    int32_t launch(const cf_problem &p, const void *w, void *to, void *stream) const {
        const Filter filter = {
            filter_strides(p), p.k / p.groups,       p.c / p.groups, p.r * p.s, p.s,
            int(blocks_of(p)), int(filter_lines(p)), packed_of(p)};
        const int32_t error = exponents.launch(stream, filter, w, to);
        return error ? error : pack.launch(stream, filter, w, to);
    }
};

} // namespace cf::implicit_f32
