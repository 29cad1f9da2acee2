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
// The rest is direct_naive's, its plain pointers and its index arithmetic included. Addresses in
// constant memory have 32 bits, so the weight's costs half of what it costs there.
//
// 64 KB is all there is, which is 16384 weights in f32. The filter is packed there once, as it is.
#include "core/constant.cuh"
#include "kernels/direct/outputs.cuh"

namespace {

constexpr bool Planes = true; // a warp within one output channel, so that it wants one weight

__constant__ __align__(16) unsigned char constants[cf::ConstantBytes];

// The filter begins with weight number `begin` of `constants`.
template <class T, int Math>
__device__ float convolve(const cf_problem &p, const T *x, int begin, int64_t n, int k, int row,
                          int column) {
    const cf::Strides xs = cf::input_strides(p), ws = cf::filter_strides(p);
    const T *w = reinterpret_cast<const T *>(constants) + begin;
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
    direct_constant_kernel(const cf_problem p, const T *x, int begin, const float *bias,
                           const T *residual, T *y, int64_t blocks) {
    cf::direct_outputs(p, Planes, bias, residual, y, blocks,
                       [&](int64_t n, int k, int row, int column) {
                           return convolve<T, Math>(p, x, begin, n, k, row, column);
                       });
}

struct State {
    cf::Kernel<cf_problem, const void *, int, const void *, const void *, void *, int64_t> kernel;
    cf_problem problem;
    int64_t blocks;
    void *constants;
};

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    if (!cf::plan_constant(p, plan, no))
        return false;
    state.blocks = cf::DirectTiles(p, Planes).blocks();
    // As direct_naive with one load less per product, of the two that it is bound by.
    plan.us = cf::direct_us(query, Planes, 6.3, 260);
    cf::for_storage_and_math(p, [&](auto storage, auto math) {
        using T = typename cf::StorageType<decltype(storage)::value>::type;
        state.kernel =
            cf::kernel_of(direct_constant_kernel<T, decltype(math)::value>,
                          cf::direct_grid(state.blocks), dim3(cf::DirectTile, cf::DirectTile));
    });
    return true;
}

int32_t constant_memory(void **address) { return cf::constant_address(constants, address); }

int32_t prepare(State &state) {
    if (const int32_t error = state.kernel.prepare())
        return error;
    return constant_memory(&state.constants);
}

int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    return cf::pack_constant(state.problem, w, packed, stream);
}

int32_t launch(const State &state, const cf_args &args) {
    const int offset = cf::constant_offset(state.constants, args);
    const int begin = offset / cf::element_bytes(state.problem);
    return state.kernel.launch(args.stream, state.problem, args.x, begin, args.bias, args.residual,
                               args.y, state.blocks);
}

} // namespace

extern "C" const cf_row CF_ROW(direct, constant) = {
    "direct_constant",
    "direct",
    "one thread per output, the filter in constant memory (64 KB at most)",
    "reports C, E",
    nullptr, // caveat
    CF_NEEDS_SM80,
    nullptr, // configs
    cf::Row<State, plan, prepare, launch, pack>::functions(constant_memory),
};
