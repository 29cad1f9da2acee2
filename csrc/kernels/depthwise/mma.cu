// depthwise_mma: one filter per channel, channels beside each other, in 16 bits on tensor cores.
//
// depthwise_nhwc has a product for each tap of each output, in fp32: of 5x5 and 7x7 their issue is
// what bounds it. Here a row of the filter is a band matrix of 16 columns of x by 8 of y
// (mma_task.cuh), so that one instruction of a warp has it for 128 outputs of a channel.
//
// - Boxes of x, 32 channels of some columns and rows of some images, come by tensor copies, with
//   zeros where the filter hangs over an edge, and stream through a ring of stages.
// - A product's rows are column tiles of images. A warp has four channels of 16 of them and slides
//   down: each row of x is loaded once, and its products go to all rows of y that it meets, whose
//   sums are in registers as the bands are.
// - Along a sum columns of x are neighbours; in memory channels are. A lane loads four channels of
//   four pixels as words of 8 bytes, and a byte permutation makes two neighbours of a channel of
//   two words.
// - Rows of y are gathered in shared memory, from which one warp stores them by a tensor copy:
//   lanes have 8 bytes of a pixel, a quarter of what memory takes at once.
//
// Floor: the bytes of x and y over the bandwidth.
#include "kernels/depthwise/mma_kernel.cuh"

namespace {

using namespace cf::depthwise_mma;

struct State {
    Launched kernel;
    cf_problem problem;
    cf::depthwise_mma::Tiling tiling;
    cf::Box x_box, y_box;
    cf::HalfLineMap x, y;
};

// What it takes of what strips are compared by: more where strips have channels that do not exist,
// by 1.07 to 1.26 with 144 and 200 channels, with a stride by 1.1 on 11 layers of networks
// (benches/results/evidence/h200-depthwise-nets.csv), and without one by 1.08 (0.92 to 1.20) on 23
// that have more channels than a strip (there, and in h200-nets-cudnn.csv).
double told(const cf_problem &p) {
    const double known = p.stride_h == 2 ? 1.1 : p.c > Channels ? 1.08 : 1;
    return known * (1 + 0.7 * (double(cf::round_up(p.c, Channels)) / p.c - 1));
}

constexpr const char *const configs[] = {"plan=any", CF_NEXT_PLANS, nullptr};

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    if (!is_depthwise(p, no) || !is_common(p, no))
        return false;
    if (p.layout != CF_NHWC)
        return no("is written for NHWC");
    if (p.storage == CF_STORE_F32)
        return no("is written for elements of 16 bits");
    if (p.epilogue.pool_h)
        return no("fuses no pooling");
    if (p.align < 16 || p.c % 8 != 0)
        return no("copies boxes of x and y, whose pixels are multiples of 16 bytes; this one's are "
                  "%d, at multiples of %d",
                  p.c * 2, p.align);
    if (p.n > INT32_MAX)
        return no("counts images in 31 bits; these are %lld", (long long)p.n);
    cf::Ranking<Option> ranking(query.config, configs);
    rank_options(query, ranking);
    const auto *best = ranking.found();
    if (!best && query.config > 0)
        return no("has no %s for this", configs[query.config]);
    if (!best)
        return no("keeps some rows of x and y in shared memory, and counts strips in 31 bits; of "
                  "%lld images with %d x %d pixels there are too many",
                  (long long)p.n, p.h, p.w);
    state.tiling = best->choice.tiling;
    state.x_box = best->choice.x, state.y_box = best->choice.y;
    plan.us = told(p) * best->us;
    cf::depthwise::tell_strips(plan, state.tiling, best->choice.blocks);
    state.kernel = p.storage == CF_STORE_F16 ? kernel_for<__half>(p, best->choice)
                                             : kernel_for<__nv_bfloat16>(p, best->choice);
    return true;
}

int32_t prepare(State &state) {
    if (const int32_t error = state.kernel.prepare())
        return error;
    if (const int32_t error = state.x.prepare(state.x_box))
        return error;
    return state.y.prepare(state.y_box);
}

int32_t launch(const State &state, const cf_args &args) {
    CUtensorMap x, y;
    if (const int32_t error = state.x.at(args.x, x))
        return error;
    if (const int32_t error = state.y.at(args.y, y))
        return error;
    return state.kernel.launch(args.stream, state.tiling, x, y, args.w,
                               cf::finish_of(state.problem, args));
}

} // namespace

extern "C" const cf_row CF_ROW(depthwise, mma) = {
    "depthwise_mma",
    "depthwise",
    "a filter per channel, in 16 bits: band matrices on tensor cores, rows of x stream through "
    "shared memory",
    "this project",
    "padding, and up to 15 columns beside the window, are multiplied by zeros or as zeros: where "
    "an infinity or a NaN meets them, the sum is NaN",
    CF_NEEDS_SM90,
    configs,
    cf::Row<State, plan, prepare, launch>::functions(),
};
