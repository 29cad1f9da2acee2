// direct_constant: one thread per output, the filter in constant memory.
//
// direct_naive reads a weight and an input per product, and both go through the same load path. All
// threads of a warp want the same weight at the same time, which is what constant memory is for:
// one read serves the whole warp, from a cache of its own, so only the input is left to the load
// path. Report C gained 10 % and 3 % on its two layers, report E less than 1 % and 4 %: neighbours
// already shared the weight through the first-level cache, and most of the time goes into index
// arithmetic.
//
// The cache answers one word at a time: lanes that want different weights wait for each other. So
// threads run over the pixels of one output channel, in NCHW and in NHWC alike. In NHWC that costs
// reads and writes that are a whole pixel apart from lane to lane; threads along the channels would
// read 32 weights one after the other instead.
//
// 64 KB is all there is, which is 16384 weights in f32. The copy into it is part of every call.
#include "core/constant.cuh"
#include "kernels/direct/outputs.cuh"
#include "core/estimate.cuh"

namespace {

constexpr bool Planes = true; // a warp within one output channel, so that it wants one weight

__constant__ __align__(16) unsigned char filter[cf::ConstantBytes];
cf::Turns turns;

template <class T, int Math>
__device__ float convolve(const cf_problem &p, const T *__restrict__ x, int64_t n, int k, int row,
                          int column) {
    const cf::Strides xs = cf::input_strides(p);
    const int channels = p.c / p.groups;
    const int first = k / (p.k / p.groups) * channels;
    const int top = row * p.stride_h - p.pad_top, left = column * p.stride_w - p.pad_left;
    // The index of a weight: a filter that fits is small enough for int.
    const bool nchw = p.layout == CF_NCHW;
    const int begin = k * channels * p.r * p.s;
    const int plane = nchw ? p.r * p.s : 1, step = nchw ? 1 : channels;
    using Sum = cf::Sum<Math>;
    Sum sum;
    for (int c = 0; c < channels; ++c) {
        for (int r = 0; r < p.r; ++r) {
            const int h = top + r * p.dilation_h;
            if (h < 0 || h >= p.h)
                continue;
            for (int s = 0; s < p.s; ++s) {
                const int v = left + s * p.dilation_w;
                if (v < 0 || v >= p.w)
                    continue;
                const int at = begin + c * plane + (r * p.s + s) * step;
                sum.add(Sum::operand(cf::widen(x[xs.at(n, first + c, h, v)])),
                        Sum::operand(cf::widen(reinterpret_cast<const T *>(filter)[at])));
            }
        }
    }
    return sum.get();
}

template <class T, int Math>
__global__ void __launch_bounds__(cf::DirectTile *cf::DirectTile, 3)
    direct_constant_kernel(const cf_problem p, const T *__restrict__ x,
                           const float *__restrict__ bias, const T *__restrict__ residual,
                           T *__restrict__ y, int64_t blocks) {
    cf::direct_outputs(p, Planes, bias, residual, y, blocks,
                       [&](int64_t n, int k, int row, int column) {
                           return convolve<T, Math>(p, x, n, k, row, column);
                       });
}

int32_t supports(const cf_call *call, char *why, uint64_t bytes) {
    return cf::fits_constant(call, why, bytes);
}

// As direct_naive with one load less per product, of the two that it is bound by: assumed to be a
// tenth faster, as report C saw. A second launch for the copy.
double rank(const cf_call *call) {
    const cf_problem &p = call->problem;
    return 2 * cf::LaunchUs + 2 * cf::direct_sums(p) * cf::reduction(p) * cf::idle(p) / 1.05e6;
}

int32_t launch(const cf_call *call) {
    const cf_problem &p = call->problem;
    const int64_t blocks = cf::DirectTiles(p, Planes).blocks();
    return turns.take(call, filter, call->w, cf::filter_bytes(p), [&] {
        return cf::for_storage_and_math(p, [&](auto storage, auto math) -> int32_t {
            using T = typename cf::StorageType<decltype(storage)::value>::type;
            direct_constant_kernel<T, decltype(math)::value>
                <<<cf::direct_grid(blocks), dim3(cf::DirectTile, cf::DirectTile), 0,
                   cf::stream(call)>>>(p, static_cast<const T *>(call->x), call->bias,
                                       static_cast<const T *>(call->residual),
                                       static_cast<T *>(call->y), blocks);
            const cudaError_t error = cudaGetLastError();
            cf::stage(call, "direct");
            return error;
        });
    });
}

} // namespace

extern "C" const cf_row direct_constant = {
    "direct_constant",
    "direct",
    "one thread per output, the filter in constant memory (64 KB at most)",
    "reports C, E",
    80,
    INT32_MAX,
    nullptr, // configs
    supports,
    nullptr, // workspace
    nullptr, // packed_bytes
    nullptr, // pack
    nullptr, // bind
    rank,
    launch,
};
