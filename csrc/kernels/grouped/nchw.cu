// grouped_nchw: groups of few channels on tensor cores, planes one after the other.
//
// The products are those of grouped_nhwc, whose main loop this is: mma.sync with pixels as rows and
// 8 output channels as columns, rows of sums in registers. It reads 16 bytes of channels of a pixel
// at a time, so that x is turned in shared memory first.
//
// - A strip is some rows of y, or all, in some channels of an image. Its x comes by bulk copies:
//   all of it by one where the strip has all rows, a channel by one where not. Copies take whole 16
//   bytes, and what lies beside a segment in them comes too; so any width and any alignment will
//   do, and nothing from beside the tensor is read.
// - A block turns a strip: 16 bytes of channels of a pixel are gathered from as many planes and
//   written at once, beside those of the next pixel, with zeros around the image. Eight neighbours
//   then lie in all banks, and a filter may begin at any of them.
// - A warp has two units, 8 columns in some rows of y each, and slides down over them.
// - y is gathered in the stage that x came through, and leaves by bulk copies as x came.
//
// Floor: the bytes of x and y over the bandwidth.
#include "kernels/grouped/family.cuh"
#include "kernels/grouped/filter.cuh"
#include "kernels/grouped/nchw_kernel.cuh"

namespace {

using namespace cf::grouped;
using cf::grouped_nchw::Launched;
using cf::grouped_nchw::Option;
using cf::grouped_nchw::Tiling;

// What it takes of what strips are compared by: 1.2 times as much in the mean over 21 depthwise and
// grouped layers of an H200 and 14 of an H100; over the grouped ones of the latter 1.09. By filters
// that no kernel is compiled for, two random problems took 1.8 and 3.1 times what they were told by
// that (told before, in h200-random-fp32.csv).
constexpr double Told = 1.2, ToldOfAny = 2;

struct State {
    Launched kernel;
    PackedFilter filter;
    cf_problem problem;
    Tiling tiling;
};

void choose_kernel(const Instance &instance, const Option &option, State &state) {
    for_element(state.problem, [&](auto element) {
        using Element = decltype(element);
        const unsigned blocks = option.blocks;
        state.kernel = instance.products == 3
                           ? cf::grouped_nchw::kernel_for<float, 3>(instance, blocks, option.shared)
                           : cf::grouped_nchw::kernel_for<Element>(instance, blocks, option.shared);
    });
}

constexpr const char *const configs[] = {"plan=any", CF_NEXT_PLANS, nullptr};

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    if (!is_for_mma(p, no))
        return false;
    if (p.layout != CF_NCHW)
        return no("is written for NCHW");
    const Instance instance = cf::grouped_nchw::instance_of(p);
    cf::Ranking<Option> ranking(query.config, configs);
    cf::grouped_nchw::rank_options(query, instance, ranking);
    const auto *best = ranking.found();
    if (!best && query.config > 0)
        return no("has no %s for this", configs[query.config]);
    if (!best)
        return no("keeps whole rows of x in shared memory, twice, and counts strips of them in 30 "
                  "bits; of %lld images with %d x %d pixels there are too many",
                  (long long)p.n, p.h, p.w);
    state.tiling = best->choice.tiling;
    state.filter.plan(p, filter_words(p, instance), best->choice.tiling.all_chunks, plan);
    plan.us = Told * (instance.filter > 0 ? 1 : ToldOfAny) * best->us;
    const auto &t = state.tiling;
    cf::tell(plan, "channels=%d rows=%d task_rows=%d strips=%d stages=%d blocks=%d", t.channels,
             t.rows, t.task_rows, t.strips, t.stages, best->choice.blocks);
    choose_kernel(instance, best->choice, state);
    return true;
}

int32_t prepare(State &state) {
    if (const int32_t error = state.filter.prepare())
        return error;
    return state.kernel.prepare();
}

int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    return state.filter.pack(state.problem, w, packed, stream);
}

int32_t launch(const State &state, const cf_args &args) {
    const cf_problem &p = state.problem;
    return state.kernel.launch(args.stream, state.tiling, args.x, uint64_t(p.n) * p.c * p.h * p.w,
                               args.packed, args.y, cf::finish_of(p, args));
}

} // namespace

extern "C" const cf_row CF_ROW(grouped, nchw) = {
    "grouped_nchw",
    "grouped",
    "groups of few channels by mma.sync: x is turned in shared memory, sums of all rows of y that "
    "a row of x meets stay in registers; math fp32 takes three products of tf32",
    "this project",
    "padding, and channels of up to 7 neighbours beside a group of fewer than 8, are multiplied "
    "as zeros or by zeros: where an infinity or a NaN meets them, the sum is NaN; in math fp32 an "
    "input or weight of at least 3.40199e38 in magnitude counts as infinite, and an infinite one "
    "makes NaN of every sum that it is part of",
    CF_NEEDS_SM90,
    configs,
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
