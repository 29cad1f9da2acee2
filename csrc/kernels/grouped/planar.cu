// grouped_planar: groups of few channels on tensor cores, planes as they lie in memory.
//
// In NCHW neighbouring pixels of a channel lie beside each other, and x, y and what is in between
// stay like that: nothing is turned, and no pixel is read again for another of the filter's
// columns.
//
// - A filter's columns want pixels beside these; here they all multiply the same ones, each into
//   sums of its own, and the sums are shifted: once for all rows and channels.
// - Which pixels are a product's columns is free. A lane's lie beside each other, so that it reads
//   up to 16 bytes of a channel at once and has sums of up to 16 neighbours of y, of which only the
//   outer two need one that is another lane's: two shuffles to a row.
// - A strip is some rows of y, or all, in some groups of an image. Its x comes by a bulk copy of
//   each channel, or one of all. Rows above and below the image are zeros that a predicate puts in
//   place of a load.
// - A warp has a group's filter in registers and multiplies two rows of y at a time, which are sums
//   over four rows of x: a sum runs over a group's channels in these, so that an instruction's 16
//   (of f32: 8) are full with 4 channels already. Of the products a quarter is by zeros, in groups
//   of 4 almost half, in groups of 16 none.
// - y is gathered as it lies in memory, and leaves by bulk copies. One warp of four, which has no
//   more rows than any, waits for the others, asks for the next x and stores.
//
// Floor: the bytes of x and y over the bandwidth.
#include "kernels/grouped/family.cuh"
#include "kernels/grouped/planar_filter.cuh"
#include "kernels/grouped/planar_kernel.cuh"

namespace {

using namespace cf::grouped;
using cf::grouped_planar::Launched;
using cf::grouped_planar::Option;
using cf::grouped_planar::Tiling;

struct State {
    Launched kernel;
    cf::grouped_planar::PackedFilter filter;
    cf_problem problem;
    Tiling tiling;
};

bool is_for_planes(const cf_problem &p, const cf::Refusal &no) {
    if (!is_for_mma(p, no))
        return false;
    if (p.layout != CF_NCHW)
        return no("is written for NCHW");
    const int channels = p.c / p.groups, most = p.math == CF_MATH_FP32 ? 8 : 16;
    if (channels < 4 || channels > most)
        return no("takes groups of 4 to %d channels in this math; these have %d", most, channels);
    const bool same = p.pad_top == 1 && p.pad_left == 1 && p.p == p.h && p.q == p.w;
    if (p.r != 3 || p.s != 3 || p.stride_h != 1 || p.stride_w != 1 || p.dilation_h != 1 ||
        p.dilation_w != 1 || !same)
        return no("takes 3x3 filters, stride 1, no dilation, and a row and column of padding at "
                  "each side");
    if (p.w % 2 || p.align < cf::grouped_planar::Bulk)
        return no("copies 16 bytes at a time: rows of x need an even number of pixels, and "
                  "addresses multiples of 16 bytes; these have %d pixels and align=%d",
                  p.w, p.align);
    return true;
}

void choose_kernel(const Instance &instance, const Option &option, State &state) {
    for_element(state.problem, [&](auto element) {
        using Element = decltype(element);
        const unsigned blocks = option.blocks;
        state.kernel =
            instance.products == 3
                ? cf::grouped_planar::kernel_for<float, 3>(instance, blocks, option.shared)
                : cf::grouped_planar::kernel_for<Element>(instance, blocks, option.shared);
    });
}

constexpr const char *const configs[] = {"plan=any", CF_NEXT_PLANS, nullptr};

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    if (!is_for_planes(p, no))
        return false;
    const Instance instance = cf::grouped_planar::instance_of(p);
    cf::Ranking<Option> ranking(query.config, configs);
    cf::grouped_planar::rank_options(query, instance, ranking);
    const auto *best = ranking.found();
    if (!best && query.config > 0)
        return no("has no %s for this", configs[query.config]);
    if (!best)
        return no("keeps strips of rows in shared memory, or whole planes where their bytes are no "
                  "multiple of 16, counts strips in 30 bits and bytes of a plane in 31; %lld "
                  "images with %d x %d pixels are too many or too large",
                  (long long)p.n, p.h, p.w);
    state.tiling = best->choice.tiling;
    state.filter.plan(p, parts_of(instance.products), plan);
    plan.us = best->us;
    const Tiling &t = state.tiling;
    cf::tell(plan,
             "channels=%d rows=%d tiles=%d windows=%d warp_units=%d strips=%d stages=%d blocks=%d",
             t.strips.channels, t.strips.rows, instance.tiles, t.strips.windows,
             t.strips.warp_units, t.strips.strips, t.strips.stages, best->choice.blocks);
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
    return state.kernel.launch(args.stream, state.tiling, args.x, args.packed, args.y,
                               cf::finish_of(state.problem, args));
}

} // namespace

extern "C" const cf_row CF_ROW(grouped, planar) = {
    "grouped_planar",
    "grouped",
    "groups of few channels by mma.sync with planes as they lie: a filter's columns multiply the "
    "same pixels, and their sums are shifted; math fp32 takes three products of tf32",
    "this project",
    "padding is multiplied as zeros: where an infinite weight or a NaN meets it, the sum is NaN; "
    "in groups of fewer than 16 channels an infinity or a NaN in a row of x that one row of y of a "
    "pair meets makes NaN of the other one's sums in its column and those beside, too; in math "
    "fp32 an input or weight of at least 3.40199e38 in magnitude counts as infinite, and an "
    "infinite one makes NaN of every sum that it is part of",
    CF_NEEDS_SM90,
    configs,
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
