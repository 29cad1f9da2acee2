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
#include "device/direct.cuh"
#include "device/rank.cuh"

namespace {

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
__global__ void __launch_bounds__(cf::DirectTile *cf::DirectTile, 3)
    direct_naive_kernel(const cf_problem p, const T *__restrict__ x, const T *__restrict__ w,
                        const float *__restrict__ bias, const T *__restrict__ residual,
                        T *__restrict__ y, int64_t blocks) {
    cf::direct_outputs(p, p.layout == CF_NCHW, bias, residual, y, blocks,
                       [&](int64_t n, int k, int row, int column) {
                           return convolve<T, Math>(p, x, w, n, k, row, column);
                       });
}

// Loads bound it, at one or two per product: 0.75 to 1.04 TFLOP/s measured over four layers. Sums
// that pooling windows share are computed again.
double rank(const cf_call *call) {
    const cf_problem &p = call->problem;
    return cf::LaunchUs + 2 * cf::direct_sums(p) * cf::reduction(p) * cf::idle(p) / 0.95e6;
}

int32_t launch(const cf_call *call) {
    const cf_problem &p = call->problem;
    return cf::for_storage_and_math(p, [&](auto storage, auto math) -> int32_t {
        using T = typename cf::StorageType<decltype(storage)::value>::type;
        const int64_t blocks = cf::DirectTiles(p, p.layout == CF_NCHW).blocks();
        direct_naive_kernel<T, decltype(math)::value>
            <<<cf::direct_grid(blocks), dim3(cf::DirectTile, cf::DirectTile), 0,
               cf::stream(call)>>>(
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
