// implicit_gemm_f32_nhwc: many channels in f32, to the accuracy of f32, by three products of f16 on
// wgmma.
//
// A number is a power of two times a high part and a low one, h + 2^-11 l, in f16 each. Of the
// product of two, three are summed: h h, and h l and l h, which the tensor core multiplies in
// f16's time, three times faster than FMAs can, and more. What is left out, l l, is 2^-22 of it at
// most.
//
// - An f16 has few exponents, so whatever may have others has a power of two of its own: channels
//   of the sum (x is multiplied by it, the filter divided, so that channels of the filter are of
//   one size), output channels, and of each pixel every 64 channels. What parts lose is then below
//   2^-23 of a number, or 2^-50 of the largest of its line of 64, as scaled.
// - The tensor core cuts toward zero what does not fit its sums. So it sums 64 channels under one
//   tap from nothing, the products with low parts first, and these sums are added to those of the
//   tile by FMAs, which round, and which multiply by the pixel's power of two as well.
// - Tiles and lines are implicit_gemm_nhwc's. A line of x in f32 has 32 channels: two of
//   them are 64 channels of a pixel, which four warps split in place, into a line of high parts and
//   one of low parts. Taps of a filter read them as often as there are taps.
// - Filters are split when they are packed.
//
// Floor: one and a half clocks for each pixel of a product of 64 x 16 channels.
#include "core/plan.cuh"
#include "core/strides.cuh"
#include "kernels/implicit_gemm/f32_nhwc_kernel.cuh"
#include "kernels/implicit_gemm/f32_nhwc_plan.cuh"
#include "kernels/implicit_gemm/refusals.cuh"

namespace {

using namespace cf::implicit_f32;
using cf::implicit_gemm::copies_lines;
using cf::implicit_gemm::counts_images;
using cf::implicit_gemm::filter_lines;

// What packing knows of the filter.
struct Filter {
    cf::Strides strides;
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
__global__ void __launch_bounds__(PackThreads)
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
__global__ void __launch_bounds__(PackThreads)
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
        char *at = to + set * (2 * cf::LineBytes) + k % RowChannels * cf::LineBytes + in_line;
        *reinterpret_cast<__half *>(at) = low;
        *reinterpret_cast<__half *>(at + WeightBytes) = high;
    }
}

struct State {
    Launched kernel;
    cf::Kernel<Filter, const void *, void *> exponents, pack;
    cf_problem problem;
    Plan plan;
    cf::Lines lines;
    cf::LineMap x;
};

void describe(const cf_problem &p, const Choice &choice, State &state) {
    state.problem = p;
    state.plan = choice.plan;
    state.lines = choice.lines;
    const bool narrow = cf::implicit_gemm::is_among(NarrowWidths(), choice.width);
    const auto kernel = narrow ? narrow_kernel : wide_kernel;
    state.kernel = kernel(choice.width, dim3(choice.grid), choice.plan.shared_bytes());
    state.kernel.cluster = unsigned(choice.plan.tiling.parts);
    const Packed &packed = choice.plan.packed;
    state.exponents =
        cf::kernel_of(exponents_kernel, dim3(unsigned(packed.channels / PackColumns)), PackThreads);
    state.pack = cf::kernel_of(pack_kernel, dim3(unsigned(packed.rows)), PackThreads);
}

// Which ways to do a problem a plan chooses among.
constexpr const char *const configs[] = {"tiles=any",      "tiles=boxes", "tiles=im2col",
                                         "tiles=together", "tiles=apart", "tiles=parts",
                                         "tiles=kept",     nullptr};
bool is_of(int32_t config, const Plan &plan) {
    const Tiling &t = plan.tiling;
    switch (config) {
    case 1:
        return !t.im2col;
    case 2:
        return t.im2col;
    case 3:
        return !t.apart;
    case 4:
        return t.apart;
    case 5:
        return t.parts > 1;
    case 6:
        return plan.sweep > 1;
    default:
        return true;
    }
}

bool takes(const cf_problem &p, const cf::Refusal &no) {
    if (p.layout != CF_NHWC)
        return no("is written for NHWC");
    if (p.storage != CF_STORE_F32 || p.math != CF_MATH_FP32)
        return no("multiplies f32 in three products of f16");
    if (p.epilogue.pool_h)
        return no("fuses no pooling");
    if (!copies_lines(p, 4, no))
        return false;
    if (cf::reduction(p) < LeastSum)
        return no("is as accurate as f32 in sums of at least %d products; this has %.0f", LeastSum,
                  cf::reduction(p));
    if (p.c > INT32_MAX / 4 || double(p.c) * p.r * p.s > INT32_MAX / 4 ||
        double(p.k / p.groups) * p.r * p.s > INT32_MAX / 4 ||
        double(packed_of(p).rows) > INT32_MAX / 4 || double(packed_of(p).channels) > INT32_MAX / 4)
        return no("counts the filter's channels and taps in 29 bits");
    return counts_images(p, no);
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    if (!takes(p, no))
        return false;
    Choice best = {};
    for_choices(query, [&](const Choice &choice) {
        if (is_of(query.config, choice.plan) && (best.width == 0 || choice.us < best.us))
            best = choice;
    });
    if (best.width == 0 && query.config > 0)
        return no("has no %s for this", configs[query.config]);
    if (best.width == 0)
        return cf::implicit_gemm::no_copies(p, no);
    plan.packed_bytes = uint64_t(best.plan.packed.bytes());
    plan.us = best.us;
    describe(p, best, state);
    return true;
}

int32_t prepare(State &state) {
    if (const int32_t error = state.exponents.prepare())
        return error;
    if (const int32_t error = state.pack.prepare())
        return error;
    if (const int32_t error = state.kernel.prepare())
        return error;
    return state.x.prepare(state.lines);
}

int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    const cf_problem &p = state.problem;
    const Filter filter = {
        cf::filter_strides(p), p.k / p.groups,       p.c / p.groups, p.r * p.s, p.s,
        int(blocks_of(p)),     int(filter_lines(p)), packed_of(p)};
    if (const int32_t error = state.exponents.launch(stream, filter, w, packed))
        return error;
    return state.pack.launch(stream, filter, w, packed);
}

int32_t launch(const State &state, const cf_args &args) {
    CUtensorMap x;
    if (const int32_t error = state.x.at(args.x, x))
        return error;
    return state.kernel.launch(args.stream, state.plan, x, args.packed, args.y,
                               cf::finish_of(state.problem, args));
}

} // namespace

extern "C" const cf_row CF_ROW(implicit_gemm, f32_nhwc) = {
    "implicit_gemm_f32_nhwc",
    "implicit_gemm",
    "many channels in f32: three products of f16 on wgmma, each line of pixels with a power of two",
    "this project",
    "an infinity gives NaN; padding, and up to 63 channels behind the last one, are multiplied as "
    "zeros or by zeros: where an infinity or a NaN meets them, the sum is NaN; of 64 channels of a "
    "pixel, those below 2^-27 of the largest, once the filter's channels are of one size, lose "
    "bits",
    CF_NEEDS_SM90A,
    configs,
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
