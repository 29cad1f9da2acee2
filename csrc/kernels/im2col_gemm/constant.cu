// im2col_gemm_constant: im2col_gemm_shared with the filter in constant memory.
//
// Of the two operands of a product only the unrolled matrix is then staged in shared memory; the
// filter's comes through the constant cache, so a product costs one shared-memory read instead of
// two. The cache serves all lanes of a warp in one step when they want the same word, and one
// word after the other when they do not. So here threads run along pixels in both layouts, and a
// warp wants as many words as it has output channels.
//
// Configurations, output channels x pixels of a block's tile:
//   tile=16x16  as in im2col_gemm_shared and report A; a warp has two channels and takes two steps
//   tile=8x32   a warp has one channel; elements of the unrolled matrix are reused 8 times, not 16
//
// Report A saw 73.8 + 78.5 ms against 71.1 + 57.6: nothing gained with 4 output channels, and a
// loss with 16, where staging the filter is cheap and well reused. The filter is stored as it is
// given; where math rounds operands, they are rounded at every product here, which shared memory
// spares the other rows. Filters over 64 KB are refused.
//
// In NHWC neighbouring outputs are neighbouring channels, so sums pass through shared memory to be
// stored along channels.
#include "core/constant.cuh"
#include "core/element.cuh"
#include "kernels/im2col_gemm/im2col.cuh"

namespace {

constexpr int Threads = 256;

const char *const configs[] = {"tile=16x16", "tile=8x32", nullptr};

__constant__ uint4 constant_filter[cf::ConstantBytes / sizeof(uint4)];
cf::Turns turns;

template <class T, int Math, bool Nchw, int Channels>
__global__ void __launch_bounds__(Threads) gemm(const T *unrolled, float *product, int64_t pixels,
                                                int channels, int reduction, int groups) {
    constexpr int Pixels = Threads / Channels;
    constexpr int Depth = Channels; // products of a tile; one element to stage per thread
    static_assert(Threads % Channels == 0 && Pixels <= 32 && 32 % Depth == 0);
    using Sum = cf::Sum<Math>;
    // Lanes that store down the columns, Depth by 32 / Depth of them, meet no bank twice.
    constexpr int Pitch = Pixels + 32 / Depth;
    __shared__ typename Sum::Operand us[Depth][Pitch];
    __shared__ float sums[Channels][Pixels + 1];
    const int tx = threadIdx.x, ty = threadIdx.y, group = blockIdx.z;
    const int thread = ty * Pixels + tx;
    const int64_t pixel0 = int64_t(blockIdx.x) * Pixels;
    const int channel0 = blockIdx.y * Channels;
    const int channel = channel0 + ty;
    // The whole filter is at most 64 KB, so an int counts its elements. Channels over the end have
    // no filter, and must read none.
    const T *filter = reinterpret_cast<const T *>(constant_filter) +
                      (group * channels + min(channel, channels - 1)) * reduction;

    Sum sum;
    for (int i0 = 0; i0 < reduction; i0 += Depth) {
        // Loads run along the rows as they lie in memory.
        const int lane = Nchw ? ty : thread % Depth, column = Nchw ? tx : thread / Depth;
        const int64_t pixel = pixel0 + column;
        const int i = i0 + lane;
        us[lane][column] = Sum::operand(
            i < reduction && pixel < pixels
                ? cf::widen(unrolled[Nchw ? (int64_t(group) * reduction + i) * pixels + pixel
                                          : (pixel * groups + group) * int64_t(reduction) + i])
                : 0.0f);
        __syncthreads();
        if (i0 + Depth <= reduction) {
#pragma unroll
            for (int j = 0; j < Depth; ++j)
                sum.add(us[j][tx], Sum::operand(cf::widen(filter[i0 + j])));
        } else {
            // Behind the filter lies what another launch left.
            for (int j = 0; j < reduction - i0; ++j)
                sum.add(us[j][tx], Sum::operand(cf::widen(filter[i0 + j])));
        }
        __syncthreads();
    }

    if (Nchw) {
        if (pixel0 + tx < pixels && channel < channels)
            product[(int64_t(group) * channels + channel) * pixels + pixel0 + tx] = sum.get();
    } else {
        sums[ty][tx] = sum.get();
        __syncthreads();
        const int row = thread % Channels, column = thread / Channels;
        if (pixel0 + column < pixels && channel0 + row < channels)
            product[((pixel0 + column) * groups + group) * int64_t(channels) + channel0 + row] =
                sums[row][column];
    }
}

int channels_of(const cf_call *call) { return call->config == 0 ? 16 : 8; }

int32_t supports(const cf_call *call, char *why, uint64_t bytes) {
    if (!cf::fits_constant(call, why, bytes))
        return 0;
    const int channels = channels_of(call);
    return cf::im2col_supports(call, Threads / channels, channels, why, bytes);
}

// The product is assumed to run as fast as that of im2col_gemm_shared, counted in this row's tiles.
double rank(const cf_call *call) {
    const cf_problem &p = call->problem;
    const int channels = channels_of(call);
    const double flops = cf::tiled_flops(p, Threads / channels, channels, channels);
    return cf::im2col_us(p, cf::gather_us(p), flops / 5.9e6) + cf::LaunchUs;
}

int32_t multiply(const cf_call *call, const cf::Product &m) {
    return cf::for_storage_and_math(call->problem, [&](auto storage, auto math) {
        return cf::for_value<16, 8>(call->config, [&](auto channels) -> int32_t {
            using T = typename cf::StorageType<decltype(storage)::value>::type;
            constexpr int Math = decltype(math)::value, Channels = decltype(channels)::value;
            constexpr int Pixels = Threads / Channels;
            const auto run = [&](auto kernel) {
                kernel<<<cf::im2col_grid(m, Pixels, Channels), dim3(Pixels, Channels), 0,
                         cf::stream(call)>>>(static_cast<const T *>(m.unrolled), m.product,
                                             m.pixels, m.channels, m.reduction, m.groups);
            };
            if (m.nchw)
                run(gemm<T, Math, true, Channels>);
            else
                run(gemm<T, Math, false, Channels>);
            return cudaGetLastError();
        });
    });
}

int32_t launch(const cf_call *call) {
    // The filter is copied once, before the first chunk.
    return turns.take(call, constant_filter, call->w, cf::filter_bytes(call->problem), [&] {
        return cf::im2col_gemm(call, [&](const cf::Product &m) { return multiply(call, m); });
    });
}

} // namespace

extern "C" const cf_row im2col_gemm_constant = {
    "im2col_gemm_constant",
    "im2col_gemm",
    "im2col_gemm_shared with the filter in constant memory",
    "report A",
    80,
    INT32_MAX,
    configs,
    supports,
    cf::im2col_workspace,
    nullptr, // packed_bytes
    nullptr, // pack
    nullptr, // bind
    rank,
    launch,
};
