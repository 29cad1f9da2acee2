// implicit_gemm_f32_nhwc: many channels in f32, to the accuracy of f32, by three products of f16 on
// wgmma.
//
// A number is a power of two times a high part and a low one, h + 2^-11 l, in f16 each. Of the
// product of two, three are summed: h h, and h l and l h, which the tensor core multiplies in
// f16's time, three times faster than FMAs can, and more. What is left out, l l, is 2^-22 of it at
// most.
//
// - An f16 has few exponents, so whatever may have others has a power of two of its own: channels
//   of the sum (x is multiplied by it, the filter divided, so that channels of the filter are of
//   one size), output channels, and of each pixel every 64 channels. What parts lose is then below
//   2^-23 of a number, or 2^-50 of the largest of its line of 64, as scaled.
// - The tensor core cuts toward zero what does not fit its sums. So it sums 64 channels under one
//   tap from nothing, the products with low parts first, and these sums are added to those of the
//   tile by FMAs, which round, and which multiply by the pixel's power of two as well.
// - Tiles and lines are implicit_gemm_nhwc's. A line of x in f32 has 32 channels: two of
//   them are 64 channels of a pixel, which four warps split in place, into a line of high parts and
//   one of low parts. Taps of a filter read them as often as there are taps.
// - Filters are split when they are packed.
//
// Floor: one and a half clocks for each pixel of a product of 64 x 16 channels.
#include "core/plan.cuh"
#include "core/ranking.cuh"
#include "kernels/implicit_gemm/f32_filter.cuh"
#include "kernels/implicit_gemm/f32_nhwc_kernel.cuh"
#include "kernels/implicit_gemm/f32_nhwc_plan.cuh"
#include "kernels/implicit_gemm/refusals.cuh"

namespace {

using namespace cf::implicit_f32;
using cf::implicit_gemm::copies_lines;

struct State {
    Launched kernel;
    PackFilter pack;
    cf_problem problem;
    Plan plan;
    cf::Lines lines;
    cf::LineMap x;
};

void describe(const cf_problem &p, const CopiedChoice &choice, State &state) {
    state.problem = p;
    state.plan = choice.plan;
    state.lines = choice.lines;
    const bool narrow = cf::implicit_gemm::is_among(NarrowWidths(), choice.width);
    const auto kernel = narrow ? narrow_kernel : wide_kernel;
    state.kernel = kernel(choice.width, dim3(choice.grid), choice.plan.shared_bytes());
    state.kernel.cluster = unsigned(choice.plan.tiling.parts);
    state.pack = PackFilter::of(choice.plan.packed);
}

// Which ways to do a problem a plan chooses among, and the place of its choice.
constexpr const char *const configs[] = {"tiles=any",      "tiles=boxes", "tiles=im2col",
                                         "tiles=together", "tiles=apart", "tiles=parts",
                                         "tiles=kept",     CF_NEXT_PLANS, nullptr};
bool is_of(int32_t config, const Plan &plan) {
    const Tiling &t = plan.tiling;
    switch (config) {
    case 1:
        return !t.im2col;
    case 2:
        return t.im2col;
    case 3:
        return !t.apart;
    case 4:
        return t.apart;
    case 5:
        return t.parts > 1;
    case 6:
        return plan.sweep > 1;
    default:
        return true;
    }
}

bool takes(const cf_problem &p, const cf::Refusal &no) {
    if (p.layout != CF_NHWC)
        return no("is written for NHWC");
    return splits(p, no) && copies_lines(p, 4, no);
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    if (!takes(p, no))
        return false;
    cf::Ranking<CopiedChoice> ranking(query.config, configs);
    for_choices(query, [&](const CopiedChoice &choice) {
        if (is_of(query.config, choice.plan))
            ranking.meet(choice, choice.us);
    });
    const auto *best = ranking.found();
    if (!best && query.config > 0)
        return no("has no %s for this", configs[query.config]);
    if (!best)
        return cf::implicit_gemm::no_copies(p, no);
    const auto &choice = best->choice;
    plan.packed_bytes = uint64_t(choice.plan.packed.bytes());
    plan.us = best->us;
    cf::implicit_gemm::tell_tiling(plan, choice.plan.tiling.im2col ? "im2col" : "boxes",
                                   choice.width, choice.grid, choice.plan.tiling);
    cf::tell(plan, " sweep=%d", choice.plan.sweep);
    describe(p, choice, state);
    return true;
}

int32_t prepare(State &state) {
    if (const int32_t error = state.pack.prepare())
        return error;
    if (const int32_t error = state.kernel.prepare())
        return error;
    return state.x.prepare(state.lines);
}

int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    return state.pack.launch(state.problem, w, packed, stream);
}

int32_t launch(const State &state, const cf_args &args) {
    CUtensorMap x;
    if (const int32_t error = state.x.at(args.x, x))
        return error;
    return state.kernel.launch(args.stream, state.plan, x, args.packed, args.y,
                               cf::finish_of(state.problem, args));
}

} // namespace

extern "C" const cf_row CF_ROW(implicit_gemm, f32_nhwc) = {
    "implicit_gemm_f32_nhwc",
    "implicit_gemm",
    "many channels in f32: three products of f16 on wgmma, each line of pixels with a power of two",
    "this project",
    "an infinity gives NaN; padding, and up to 63 channels behind the last one, are multiplied as "
    "zeros or by zeros: where an infinity or a NaN meets them, the sum is NaN; of 64 channels of a "
    "pixel, those below 2^-27 of the largest, once the filter's channels are of one size, lose "
    "bits",
    CF_NEEDS_SM90A,
    configs,
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
