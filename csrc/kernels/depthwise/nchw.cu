// depthwise_nchw: one filter per channel, planes one after the other.
//
// As in depthwise_nhwc a thread slides down over rows of x and keeps the sums of all rows of y that
// they meet; here it has four to eight columns of one plane, and its neighbours the next ones, of
// the next plane where a row ends.
//
// - Planes lie one after the other in memory, so any number of them is one bulk copy, whatever
//   their width: no padding, no row that has to begin at a multiple of anything. Several small
//   planes are a strip, or some rows of a large one.
// - A window is loaded as vectors of up to 16 bytes, as far as rows are multiples of them. In f32
//   without a stride it may be loaded as single words, for 7 columns; the plan takes either. What
//   lies beside the plane is zeroed once and never loaded over; a row outside of the plane is read
//   from a place that holds zeros.
// - y of a strip lies as its planes do. Its rows are gathered in shared memory, and the last warp
//   to leave the strip stores them by one bulk copy: threads would write few bytes to each of many
//   lines.
//   With 5x5 and 7x7 in f32 and vectors of 16 bytes threads do store: products take longer than
//   that, and shared memory has room for twice as much of x.
// - A strip's tasks are column tiles by pieces of rows, 32 to a warp.
// - In 16 bits, without stride and where rows are whole 16 bytes, tensor cores multiply
//   (nchw_bands.cuh): a row of the filter as a band matrix, 16 rows of y by 8 columns at a time.
//
// Floor: the bytes of x and y over the bandwidth. For 7x7 without tensor cores the products: 49 of
// some 55 instructions.
#include "kernels/depthwise/nchw_kernel.cuh"
#include "kernels/depthwise/nchw_plan.cuh"

namespace {

using namespace cf::depthwise_nchw;

struct State {
    Launched kernel;
    cf_problem problem;
    Tiling tiling;
};

void choose_kernel(const Option &option, State &state) {
    for_element(state.problem, [&](auto stored) {
        state.kernel = kernel_for<decltype(stored)>(state.problem, option);
    });
}

constexpr const char *const configs[] = {"plan=any", CF_NEXT_PLANS, nullptr};

// What it takes of what plans are compared by: in 16 bits with a stride a little more, by 11 layers
// of networks (benches/results/evidence/h200-depthwise-nets.csv).
double told(const cf_problem &p) { return p.storage != CF_STORE_F32 && p.stride_h == 2 ? 1.03 : 1; }

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    if (!is_depthwise(p, no) || !is_common(p, no))
        return false;
    if (p.layout != CF_NCHW)
        return no("is written for NCHW");
    if (p.epilogue.pool_h)
        return no("fuses no pooling");
    if (double(p.n) * p.c * p.h > INT32_MAX / 2)
        return no("counts planes and their rows in 31 bits; of %lld images with %d channels of %d "
                  "rows there are too many",
                  (long long)p.n, p.c, p.h);
    cf::Ranking<Option> ranking(query.config, configs);
    rank_options(query, ranking);
    const auto *best = ranking.found();
    if (!best && query.config > 0)
        return no("has no %s for this", configs[query.config]);
    if (!best)
        return no(
            "keeps rows of x, and mostly of y, in shared memory, two times as many as a filter is "
            "high and two; of %d and %d columns they do not fit",
            p.w, p.q);
    state.tiling = best->choice.tiling;
    plan.us = told(p) * best->us;
    const Tiling &t = state.tiling;
    cf::tell(
        plan,
        "set=%d strip_rows=%d rows=%d columns=%d tiles=%d tasks=%d strips=%d stages=%d blocks=%d "
        "bands=%d",
        t.set, t.strip_rows, t.rows, best->choice.form.columns, t.tiles, t.tasks, t.strips,
        t.stages, best->choice.blocks, int(best->choice.on_bands));
    choose_kernel(best->choice, state);
    return true;
}

int32_t launch(const State &state, const cf_args &args) {
    return state.kernel.launch(args.stream, state.tiling, args.x, args.w, args.y,
                               cf::finish_of(state.problem, args));
}

} // namespace

extern "C" const cf_row CF_ROW(depthwise, nchw) = {
    "depthwise_nchw",
    "depthwise",
    "a filter per channel: planes by bulk copies, sums of all rows of y that a row of x meets stay "
    "in registers",
    "this project; row reuse as in Lu et al., TPDS 2021",
    "padding is multiplied as zeros, and in 16 bits without stride up to 10 columns beside the "
    "window by zeros: where a weight or an input that is infinite or NaN meets them, the sum is "
    "NaN",
    CF_NEEDS_SM90,
    configs,
    cf::Row<State, plan, cf::prepare_kernel<State>, launch>::functions(),
};
