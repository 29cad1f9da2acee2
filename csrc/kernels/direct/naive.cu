// direct_naive: one thread per output, everything read from global memory.
//
// The definition of convolution as a kernel: 16x16 threads cover a tile of outputs, each thread
// walks the channels and taps of its own sum. Nothing is staged, so neighbouring threads read the
// same input again and again and the caches alone decide the speed; per product it does one or two
// loads and a page of index arithmetic. It is the yardstick of every report and here also the
// variant that can do everything: each storage, math, layout and epilogue.
//
// Pointers are plain, as in the reports, so nothing tells the compiler that inputs and weights stay
// as they are: they come by LDG, not by the read-only LDG.CONSTANT. What `restrict` and unrolled
// loops give is direct_unroll's to show, what constant memory gives direct_constant's.
//
// Threads run along the dimension that is contiguous in the output: columns in NCHW, channels in
// NHWC. With pooling a thread evaluates all sums of its window.
#include "kernels/direct/outputs.cuh"

namespace {

template <class T, int Math>
__device__ float convolve(const cf_problem &p, const T *x, const T *w, int64_t n, int k, int row,
                          int column) {
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
    direct_naive_kernel(const cf_problem p, const T *x, const T *w, const float *bias,
                        const T *residual, T *y, int64_t blocks) {
    cf::direct_outputs(p, p.layout == CF_NCHW, bias, residual, y, blocks,
                       [&](int64_t n, int k, int row, int column) {
                           return convolve<T, Math>(p, x, w, n, k, row, column);
                       });
}

struct State {
    cf::Kernel<cf_problem, const void *, const void *, const void *, const void *, void *, int64_t>
        kernel;
    cf_problem problem;
    int64_t blocks;
};

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &) {
    const cf_problem &p = state.problem = query.problem;
    state.blocks = cf::DirectTiles(p, p.layout == CF_NCHW).blocks();
    // Loads bound it, at one or two per product. Sums that pooling windows share are computed
    // again.
    plan.us = cf::direct_us(query, p.layout == CF_NCHW, 3.4, 440);
    cf::for_storage_and_math(p, [&](auto storage, auto math) {
        using T = typename cf::StorageType<decltype(storage)::value>::type;
        state.kernel =
            cf::kernel_of(direct_naive_kernel<T, decltype(math)::value>,
                          cf::direct_grid(state.blocks), dim3(cf::DirectTile, cf::DirectTile));
    });
    return true;
}

int32_t launch(const State &state, const cf_args &args) {
    return state.kernel.launch(args.stream, state.problem, args.x, args.w, args.bias, args.residual,
                               args.y, state.blocks);
}

} // namespace

extern "C" const cf_row CF_ROW(direct, naive) = {
    "direct_naive",
    "direct",
    "one thread per output, 16x16 threads, global memory only",
    "reports B, C, E",
    nullptr, // caveat
    CF_NEEDS_SM80,
    nullptr, // configs
    cf::Row<State, plan, cf::prepare_kernel<State>, launch>::functions(),
};
