// fused_half2: implicit GEMM in f16, two sums per instruction.
//
// __hfma2 multiplies and adds two f16 values at once, so a sum kept in f16 needs half the
// instructions of one in fp32, half the shared memory and half the registers. The two lanes of a
// pair are two neighbouring output pixels: each sum stays a plain f16 sum in the order of the
// filter, and both lanes take the same weight.
//
// A block computes 64 pixels x 32 output channels in steps of 16 products, gathered into shared
// memory as in fused_shared; a thread holds 4 pixels x 2 channels as 4 pairs. Loads from shared
// memory are 8 bytes of pixels and 4 of weights per 4 multiply-adds.
//
// Report C saw 40.1 + 228 ms, with an accuracy of 0.8713. The products are not the bottleneck: the
// index arithmetic of the gather is, and it is the same as for fp32. So what this row gains over
// fused_shared is rather the larger tile's, which gathers an element once for 32 channels, than the
// pairs'. What f16 costs is accuracy: from 2048 on a sum can no longer count by ones.
#include "core/taps.cuh"
#include "kernels/fused/grid.cuh"

namespace {

constexpr int Side = 16; // threads across and down
constexpr int Threads = Side * Side;
constexpr int PixelsEach = 4, ChannelsEach = 2; // of a thread
constexpr int Pixels = Side * PixelsEach;
constexpr int Channels = Side * ChannelsEach;
constexpr int Depth = 16; // products of a step
// Rows begin in different banks, and each thread's share stays aligned for one load.
constexpr int PixelPitch = Pixels + PixelsEach;
constexpr int ChannelPitch = Channels + ChannelsEach;
static_assert(Depth == Side, "threads along the reduction cover a step");
static_assert(PixelsEach == 4 && ChannelsEach == 2, "two pairs of pixels, one pair of weights");

struct alignas(8) FourPixels {
    __half2 pair[2];
};

__device__ __forceinline__ __half half_of(__half v) { return v; }
__device__ __forceinline__ __half half_of(float v) { return __float2half_rn(v); }

// Nchw: a thread gathers for one pixel, neighbours for neighbouring pixels; else for one product,
// neighbours for neighbouring channels. Images out.first .. out.first + pixels/(p*q).
template <class T, bool Nchw>
__global__ void __launch_bounds__(Threads)
    fused_half2_kernel(const cf_problem p, const T *__restrict__ x, const T *__restrict__ filter,
                       const cf::Output out, int64_t pixels) {
    __shared__ __align__(8) __half xs[Depth][PixelPitch];
    __shared__ __align__(8) __half fs[Depth][ChannelPitch];
    const int tx = threadIdx.x % Side, ty = threadIdx.x / Side, group = blockIdx.z;
    const int channels = p.k / p.groups, inputs = p.c / p.groups, reduction = inputs * p.r * p.s;
    const int64_t pixel0 = int64_t(blockIdx.x) * Pixels;
    const int channel0 = blockIdx.y * Channels;

    constexpr int Gathers = Depth * Pixels / Threads;
    constexpr int Own = Nchw ? 1 : Gathers; // pixels that this thread gathers for
    const int first_pixel = Nchw ? threadIdx.x % Pixels : ty;
    const int first_product = Nchw ? threadIdx.x / Pixels : tx;
    cf::Pixel at[Own];
#pragma unroll
    for (int j = 0; j < Own; ++j) {
        at[j] = cf::pixel(p, pixel0 + first_pixel + j * Side);
        at[j].n += out.first;
    }

    // Its place in the output tile: neighbours are neighbours in the output.
    const int across = Nchw ? tx : ty, down = Nchw ? ty : tx;
    __half2 sums[2][ChannelsEach];
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int k = 0; k < ChannelsEach; ++k)
            sums[j][k] = __half2half2(__ushort_as_half(0));

    for (int i0 = 0; i0 < reduction; i0 += Depth) {
#pragma unroll
        for (int j = 0; j < Gathers; ++j) {
            const int product = first_product + (Nchw ? j * (Threads / Pixels) : 0);
            const int lane = first_pixel + (Nchw ? 0 : j * Side);
            const int i = i0 + product;
            const T v =
                pixel0 + lane < pixels && i < reduction
                    ? cf::gather(p, x, at[Nchw ? 0 : j], cf::tap(p, inputs, i), group * inputs)
                    : T(0.0f);
            xs[product][lane] = half_of(v);
        }
#pragma unroll
        for (int j = 0; j < ChannelsEach; ++j) {
            const int channel = channel0 + ty + j * Side, i = i0 + tx;
            const T v = channel < channels && i < reduction
                            ? filter[(int64_t(group) * channels + channel) * reduction + i]
                            : T(0.0f);
            fs[tx][ty + j * Side] = half_of(v);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < Depth; ++i) {
            const auto a = *reinterpret_cast<const FourPixels *>(&xs[i][across * PixelsEach]);
            const auto b = *reinterpret_cast<const __half2 *>(&fs[i][down * ChannelsEach]);
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                sums[j][0] = __hfma2(a.pair[j], __low2half2(b), sums[j][0]);
                sums[j][1] = __hfma2(a.pair[j], __high2half2(b), sums[j][1]);
            }
        }
        __syncthreads();
    }

#pragma unroll
    for (int j = 0; j < PixelsEach; ++j) {
        const int64_t pixel = pixel0 + across * PixelsEach + j;
        if (pixel >= pixels)
            continue;
        cf::Pixel to = cf::pixel(p, pixel);
        to.n += out.first;
#pragma unroll
        for (int k = 0; k < ChannelsEach; ++k) {
            const int channel = channel0 + down * ChannelsEach + k;
            const __half2 pair = sums[j / 2][k];
            const __half sum = j % 2 ? __high2half(pair) : __low2half(pair);
            if (channel < channels)
                out.store<T>(p, to.n, group * channels + channel, to.p, to.q, __half2float(sum));
        }
    }
}

using State = cf::FusedState<>;

// A gathered element serves 32 channels instead of fused_shared's 16, and the gather is taken to be
// most of the time, at 12 TFLOP/s of an H200 counted in whole tiles: 46 operations in a clock of a
// multiprocessor. 0.62 to 1.03 of what it takes in h200-*.jsonl.
double estimate(const cf_query &q) {
    const cf_problem &p = q.problem;
    const double products = cf::padded(cf::pixels(p), Pixels) *
                            cf::padded(p.k / p.groups, Channels) *
                            cf::padded(cf::reduction(p), Depth) * p.groups;
    return cf::fused_us(q, cf::tensor_rows_alone_us(q), cf::busy_us(q.device, 2 * products, 46));
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    if (p.math != CF_MATH_F16_ACC)
        return no("sums in f16, two sums per instruction: math f16acc only");
    if (!state.tile(p, Pixels, Channels, plan, no))
        return false;
    plan.us = estimate(query);
    const bool nchw = p.layout == CF_NCHW;
    if (p.storage == CF_STORE_F16)
        state.choose(nchw ? fused_half2_kernel<__half, true> : fused_half2_kernel<__half, false>,
                     Threads);
    else
        state.choose(nchw ? fused_half2_kernel<float, true> : fused_half2_kernel<float, false>,
                     Threads);
    return true;
}

int32_t launch(const State &state, const cf_args &args) { return state.launch(args); }

} // namespace

extern "C" const cf_row CF_ROW(fused, half2) = {
    "fused_half2",
    "fused",
    "implicit GEMM with f16 sums, two output pixels per __hfma2",
    "report C",
    cf::PaddingCaveat,
    CF_NEEDS_SM80,
    nullptr, // configs
    cf::Row<State, plan, cf::prepare_with_sums<State>, launch>::functions(),
};
