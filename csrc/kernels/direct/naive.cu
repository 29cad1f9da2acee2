// direct_naive: one thread per output, everything read from global memory.
//
// The definition of convolution as a kernel: 16x16 threads cover a tile of outputs, each thread
// walks the channels and taps of its own sum. Nothing is staged, so neighbouring threads read the
// same input again and again and the caches alone decide the speed; per product it does one or two
// loads and a page of index arithmetic. It is the yardstick of every report and here also the
// variant that can do everything: each storage, math, layout and epilogue.
//
// Threads run along the dimension that is contiguous in the output: columns in NCHW, channels in
// NHWC. With pooling a thread evaluates all sums of its window.
#include "device/element.cuh"
#include "device/epilogue.cuh"
#include "device/index.cuh"
#include "device/rank.cuh"

#include <cuda_runtime.h>

#include <algorithm>

namespace {

constexpr int Tile = 16;

template <class T, int Math>
__device__ float convolve(const cf_problem &p, const T *__restrict__ x, const T *__restrict__ w,
                          int64_t n, int k, int row, int column) {
    const cf::Strides xs = cf::input_strides(p), ws = cf::filter_strides(p);
    const int channels = p.c / p.groups;
    const int first = k / (p.k / p.groups) * channels;
    const int top = row * p.stride_h - p.pad_top, left = column * p.stride_w - p.pad_left;
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
                sum.add(Sum::operand(cf::widen(x[xs.at(n, first + c, h, v)])),
                        Sum::operand(cf::widen(w[ws.at(k, c, r, s)])));
            }
        }
    }
    return sum.get();
}

template <class T, int Math>
__global__ void __launch_bounds__(Tile *Tile, 3)
    direct_naive_kernel(const cf_problem p, const T *__restrict__ x, const T *__restrict__ w,
                        const float *__restrict__ bias, const T *__restrict__ residual,
                        T *__restrict__ y, int64_t blocks) {
    const cf_epilogue &e = p.epilogue;
    const bool nchw = p.layout == CF_NCHW;
    const int wide = nchw ? e.out_w : p.k, high = nchw ? e.out_h : e.out_w;
    const int tiles_x = (wide - 1) / Tile + 1, tiles_y = (high - 1) / Tile + 1;
    // More than 2^31 blocks are possible, so each walks with a stride.
    for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
        const int a = int(block % tiles_x) * Tile + threadIdx.x;
        const int b = int(block / tiles_x % tiles_y) * Tile + threadIdx.y;
        const int64_t rest = block / tiles_x / tiles_y;
        if (a >= wide || b >= high)
            continue;
        const int64_t n = rest / (nchw ? p.k : e.out_h);
        const int inner = int(rest % (nchw ? p.k : e.out_h));
        const int k = nchw ? inner : a;
        const int row = nchw ? b : inner, column = nchw ? a : b;

        // Without pooling the window is the one sum.
        const bool pooled = e.pool_h > 0;
        const int top = pooled ? row * e.pool_stride_h : row;
        const int left = pooled ? column * e.pool_stride_w : column;
        const int bottom = pooled ? int(min(int64_t(top) + e.pool_h, int64_t(p.p))) : top + 1;
        const int right = pooled ? int(min(int64_t(left) + e.pool_w, int64_t(p.q))) : left + 1;
        const cf::Strides rs = cf::residual_strides(p);
        float v = -INFINITY;
        for (int i = top; i < bottom; ++i) {
            for (int j = left; j < right; ++j) {
                const float sum = convolve<T, Math>(p, x, w, n, k, i, j);
                const float added = e.residual ? cf::widen(residual[rs.at(n, k, i, j)]) : 0.0f;
                v = cf::max_keeping_nan(v,
                                        cf::epilogue(e, sum, e.bias ? bias + k : nullptr, added));
            }
        }
        y[cf::output_strides(p).at(n, k, row, column)] = cf::narrow<T>(v);
    }
}

// Loads bound it, at one or two per product: 0.75 to 1.04 TFLOP/s measured over four layers. Sums
// that pooling windows share are computed again.
double rank(const cf_call *call) {
    const cf_problem &p = call->problem;
    const cf_epilogue &e = p.epilogue;
    const double taps = e.pool_h ? double(e.pool_h) * e.pool_w : 1;
    const double sums = double(p.n) * p.k * e.out_h * e.out_w * taps;
    return cf::LaunchUs + 2 * sums * cf::reduction(p) / 0.95e6;
}

int32_t launch(const cf_call *call) {
    const cf_problem &p = call->problem;
    const cf_epilogue &e = p.epilogue;
    const bool nchw = p.layout == CF_NCHW;
    const int64_t wide = nchw ? e.out_w : p.k, high = nchw ? e.out_h : e.out_w;
    const int64_t rest = p.n * (nchw ? p.k : e.out_h);
    const int64_t blocks = ((wide - 1) / Tile + 1) * ((high - 1) / Tile + 1) * rest;
    const auto grid = unsigned(std::min<int64_t>(blocks, INT32_MAX));
    return cf::for_storage_and_math(p, [&](auto storage, auto math) -> int32_t {
        using T = typename cf::StorageType<decltype(storage)::value>::type;
        direct_naive_kernel<T, decltype(math)::value>
            <<<grid, dim3(Tile, Tile), 0, static_cast<cudaStream_t>(call->stream)>>>(
                p, static_cast<const T *>(call->x), static_cast<const T *>(call->w), call->bias,
                static_cast<const T *>(call->residual), static_cast<T *>(call->y), blocks);
        return cudaGetLastError();
    });
}

} // namespace

extern "C" const cf_row direct_naive = {
    "direct_naive",
    "direct",
    "one thread per output, 16x16 threads, global memory only",
    "reports B, C, E",
    80,
    INT32_MAX,
    nullptr, // configs
    nullptr, // supports: everything
    nullptr, // workspace
    nullptr, // packed_bytes
    nullptr, // pack
    nullptr, // bind
    rank,
    launch,
};
