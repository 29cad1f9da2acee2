// direct_unroll: one thread per output, the loops over a square filter unrolled.
//
// direct_naive with restrict pointers and the side of the filter known at compile time. In naive's
// inner loop the product is the smallest part: it counts, compares and multiplies out two 64-bit
// addresses for each. Fully unrolled, nothing is counted, addresses are constant distances from a
// few, and the loads of many taps are under way together. With __restrict__ no store can change
// what they read, so all of them take the read-only path (LDG.CONSTANT; naive's are LDG). Report E
// took a fifth and a sixth off the time of its two layers by these two.
//
// What is left is one input and one weight per product, both through the first-level cache: the
// load path bounds it, at an eighth of what the FMAs could do.
//
// The code is a copy per side, so sides come from a list; channels, strides, dilations, padding and
// groups are run-time values. 11x11 is left out: its 121 taps in every type would take as long to
// compile as all others together. Threads lie as in direct_naive.
#include "kernels/direct/outputs.cuh"

namespace {

// With Plain (NCHW, no padding, no dilation, as in the report) no tap can be over the edge and
// every tap is a constant distance from the first of its row; the weights of a channel from the
// first of them. Else taps are checked and strides are run-time values.
template <class T, int Math, int Side, bool Plain>
__device__ __forceinline__ float convolve(const cf_problem &p, const T *__restrict__ x,
                                          const T *__restrict__ w, int64_t n, int k, int row,
                                          int column) {
    const cf::Strides xs = cf::input_strides(p), ws = cf::filter_strides(p);
    const int channels = p.c / p.groups;
    const int first = k / (p.k / p.groups) * channels;
    const int top = row * p.stride_h - p.pad_top, left = column * p.stride_w - p.pad_left;
    const int64_t down = xs.row * (Plain ? 1 : p.dilation_h);
    const int64_t across = Plain ? 1 : xs.column * p.dilation_w;
    const int64_t tap = Plain ? 1 : ws.column;
    const T *from = x + xs.at(n, first, top, left), *weights = w + ws.at(k, 0, 0, 0);
    using Sum = cf::Sum<Math>;
    Sum sum;
#pragma unroll(Side == 1 ? 4 : 1)
    for (int c = 0; c < channels; ++c) {
        const T *line = from, *weight = weights;
#pragma unroll
        for (int r = 0; r < Side; ++r) {
            const T *at = line;
#pragma unroll
            for (int s = 0; s < Side; ++s) {
                if (Plain || (unsigned(top + r * p.dilation_h) < unsigned(p.h) &&
                              unsigned(left + s * p.dilation_w) < unsigned(p.w)))
                    sum.add(Sum::operand(cf::widen(*at)), Sum::operand(cf::widen(*weight)));
                at += across;
                weight += tap;
            }
            line += down;
        }
        from += xs.channel;
        weights += ws.channel;
    }
    return sum.get();
}

template <class T, int Math, int Side, bool Plain>
__global__ void __launch_bounds__(cf::DirectTile *cf::DirectTile, 2)
    direct_unroll_kernel(const cf_problem p, const T *__restrict__ x, const T *__restrict__ w,
                         const float *__restrict__ bias, const T *__restrict__ residual,
                         T *__restrict__ y, int64_t blocks) {
    cf::direct_outputs(p, Plain || p.layout == CF_NCHW, bias, residual, y, blocks,
                       [&](int64_t n, int k, int row, int column) {
                           return convolve<T, Math, Side, Plain>(p, x, w, n, k, row, column);
                       });
}

struct State {
    cf::Kernel<cf_problem, const void *, const void *, const void *, const void *, void *, int64_t>
        kernel;
    cf_problem problem;
    int64_t blocks;
};

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    if (!cf::has_unrolled_side(p, no))
        return false;
    state.blocks = cf::DirectTiles(p, p.layout == CF_NCHW).blocks();
    // Two loads per product, from the first-level cache.
    plan.us = cf::direct_us(query, p.layout == CF_NCHW, 13.5, 110);
    const bool plain = p.layout == CF_NCHW && p.dilation_h == 1 && p.dilation_w == 1 &&
                       !p.pad_top && !p.pad_left && !p.pad_bottom && !p.pad_right;
    cf::for_unrolled_side(p, [&](auto side) {
        cf::for_storage_and_math(p, [&](auto storage, auto math) {
            using T = typename cf::StorageType<decltype(storage)::value>::type;
            constexpr int Math = decltype(math)::value, Side = decltype(side)::value;
            state.kernel =
                cf::kernel_of(plain ? direct_unroll_kernel<T, Math, Side, true>
                                    : direct_unroll_kernel<T, Math, Side, false>,
                              cf::direct_grid(state.blocks), dim3(cf::DirectTile, cf::DirectTile));
        });
    });
    return true;
}

int32_t launch(const State &state, const cf_args &args) {
    return state.kernel.launch(args.stream, state.problem, args.x, args.w, args.bias, args.residual,
                               args.y, state.blocks);
}

} // namespace

extern "C" const cf_row CF_ROW(direct, unroll) = {
    "direct_unroll",
    "direct",
    "one thread per output, filter loops unrolled: square filters with sides 1, 3, 5, 7",
    "report E",
    nullptr, // caveat
    CF_NEEDS_SM80,
    nullptr, // configs
    cf::Row<State, plan, cf::prepare_kernel<State>, launch>::functions(),
};
