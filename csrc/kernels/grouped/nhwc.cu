// grouped_nhwc: groups of few channels on tensor cores, channels beside each other.
//
// A group of 4 to 32 channels is too small for a matrix product of its own, and one product over
// several groups multiplies mostly zeros. mma.sync has products small enough: 8 output channels,
// 16 bytes of input channels at two taps of the filter, or 32 at one. So groups of 8 and more of
// 16-bit channels waste nothing, groups of 4 half of it, and tensor cores have time for that: the
// memory takes longer.
//
// - Boxes of x come by tensor copies: 128 bytes of the channels of some columns and rows of some
//   images, with zeros where the filter hangs over an edge, swizzled, so that ldmatrix reads the
//   same 16 bytes of eight neighbouring pixels without conflicts. Rows stream through a ring of
//   stages, from the top of a strip to its bottom. Blocks are persistent, or each strip has one of
//   its own, given out in the order of memory.
// - Pixels are the rows of a product, output channels its columns. A warp has two units of 8
//   pixels, each in a row of y, and slides down: a row of x is read once and added to all rows of y
//   that it meets, whose sums are in registers as the filter is. The first product of a row's sums
//   writes to the next row's registers, so that nothing is moved as rows go by.
// - fp32 takes three products of tf32, lo hi + hi lo + hi hi, where hi is an f32 rounded to 11 bits
//   of mantissa and lo what is left. The tensor core truncates its sums, so those of a step, in
//   groups of more than 8 channels of three, are summed there, small ones first, and then added to
//   an f32 sum.
// - Filters are packed as fragments, with zeros between groups. For other filters than 3x3 (and 5x5
//   and 7x7 with groups of up to 8 channels in 16 bits) a row of y is summed by itself, with
//   fragments from memory.
// - y leaves through shared memory, where stmatrix puts 8 channels of a pixel together.
//
// Floor: the bytes of x and y over the bandwidth.
#include "kernels/grouped/family.cuh"
#include "kernels/grouped/filter.cuh"
#include "kernels/grouped/nhwc_kernel.cuh"

namespace {

using namespace cf::grouped;

struct State {
    Launched kernel;
    PackedFilter filter;
    cf_problem problem;
    Tiling tiling;
    cf::Box box;
    cf::SwizzledMap x;
};

void choose_kernel(const Instance &instance, const Option &option, State &state) {
    for_element(state.problem, [&](auto element) {
        using Element = decltype(element);
        const unsigned blocks = option.blocks, threads = option.warps * 32;
        state.kernel = instance.products == 3
                           ? kernel_for<float, 3>(instance, blocks, threads, option.shared)
                           : kernel_for<Element>(instance, blocks, threads, option.shared);
    });
}

// What it takes of what strips are compared by: more where a group has one channel, with 5x5 taps
// or more by 1.12 to 1.40 of what an earlier fit told on 13 such layers of an H200 and an H100
// (h200-told-few-channels.csv) and by 1.27 and 1.31 on two of an H200, with fewer in 16 bits by
// 0.97 to 1.35, 1.10 in the middle, on 23 (h200-depthwise-nets-told.csv).
double told(const cf_problem &p) {
    if (p.c != p.groups)
        return 1;
    return p.r * p.s >= 25 ? 1.27 : p.storage != CF_STORE_F32 ? 1.1 : 1;
}

constexpr const char *const configs[] = {"plan=any", CF_NEXT_PLANS, nullptr};

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    if (!is_for_mma(p, no))
        return false;
    if (p.layout != CF_NHWC)
        return no("is written for NHWC");
    if (p.align < 16 || p.c * cf::element_bytes(p) % 16 != 0)
        return no("copies boxes of x, whose pixels are multiples of 16 bytes; this one's are %d, "
                  "at multiples of %d",
                  p.c * cf::element_bytes(p), p.align);
    if (p.n > INT32_MAX)
        return no("counts images in 31 bits; these are %lld", (long long)p.n);
    const Instance instance = instance_of(p);
    cf::RankingOfKinds<Option> ranking(query.config, configs);
    rank_options(query, instance, ranking);
    const auto *best = ranking.found();
    if (!best && query.config > 0)
        return no("has no %s for this", configs[query.config]);
    if (!best)
        return no("keeps rows of x in shared memory, and counts strips in 31 bits; of %lld images "
                  "with %d x %d pixels, %d apart at the filter's taps, there are too many",
                  (long long)p.n, p.h, p.w, p.dilation_w);
    state.tiling = best->choice.tiling;
    state.box = best->choice.box;
    state.filter.plan(p, filter_words(p, instance), best->choice.tiling.all_chunks, plan);
    plan.us = told(p) * best->us;
    const Tiling &t = state.tiling;
    cf::tell(plan,
             "boxes=%d images=%d units=%d rows=%d steps=%d warps=%d strips=%d stages=%d "
             "blocks=%d of_sm=%d",
             t.boxes, t.images, t.units, t.rows, t.steps, best->choice.warps, t.strips, t.stages,
             best->choice.blocks, best->choice.of_sm);
    choose_kernel(instance, best->choice, state);
    return true;
}

int32_t prepare(State &state) {
    if (const int32_t error = state.filter.prepare())
        return error;
    if (const int32_t error = state.kernel.prepare())
        return error;
    return state.x.prepare(state.box);
}

int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    return state.filter.pack(state.problem, w, packed, stream);
}

int32_t launch(const State &state, const cf_args &args) {
    CUtensorMap x;
    if (const int32_t error = state.x.at(args.x, x))
        return error;
    return state.kernel.launch(args.stream, state.tiling, x, args.packed, args.y,
                               cf::finish_of(state.problem, args));
}

} // namespace

extern "C" const cf_row CF_ROW(grouped, nhwc) = {
    "grouped_nhwc",
    "grouped",
    "groups of few channels by mma.sync: rows of x stream through shared memory, sums of all rows "
    "of y that they meet stay in registers; math fp32 takes three products of tf32",
    "this project",
    "padding, and channels of up to 7 neighbours beside a group of fewer than 8, are multiplied "
    "as zeros or by zeros: where an infinity or a NaN meets them, the sum is NaN; in math fp32 an "
    "input or weight of at least 3.40199e38 in magnitude counts as infinite, and an infinite one "
    "makes NaN of every sum that it is part of",
    CF_NEEDS_SM90,
    configs,
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
