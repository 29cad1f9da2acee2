// depthwise_rows: one filter per channel of f32, planes one after the other, under 5x5 and 7x7.
//
// As depthwise_nhwc, but for the layout: rows of several planes stream through a ring of stages by
// tensor copies, with zeros where the filter hangs over an edge, and a lane slides down twice four
// columns of a plane. depthwise_nchw keeps whole planes in shared memory instead, or as many of its
// rows as a block works out, which leaves room for few warps.
//
// - Column tiles of a strip's planes lie one behind the other in lanes: rows of 56 are seven lanes,
//   and none is left over between planes.
// - A box begins at a multiple of 16 bytes of its rows, or the copy is an illegal instruction: four
//   columns in front of the first tile, of which a window leaves out those beyond half a filter.
// - A lane's columns are two halves, each beside those of its neighbours: so a warp stores whole
//   sectors of 32 bytes.
//
// Floor: the bytes of x and y over the bandwidth. For 7x7 the products: 392 of some 430
// instructions for a row of x.
#include "kernels/depthwise/rows_kernel.cuh"
#include "kernels/depthwise/rows_plan.cuh"

namespace {

using namespace cf::depthwise_rows;

struct State {
    cf::Kernel<RowsTiling, CUtensorMap, const void *, void *, cf::Finish> kernel;
    cf_problem problem;
    RowsTiling tiling;
    cf::Box box;
    cf::TensorMap x;
};

constexpr const char *const configs[] = {"plan=any", CF_NEXT_PLANS, nullptr};

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    if (!is_depthwise(p, no) || !is_common(p, no))
        return false;
    if (p.layout != CF_NCHW)
        return no("is written for NCHW");
    if (p.storage != CF_STORE_F32 || p.r == 3 || p.stride_h != 1)
        return no("takes filters of 5x5 and 7x7 in steps of 1, of f32");
    if (p.pad_left != p.r / 2)
        return no("takes half of the filter as padding at the left; this is %d", p.pad_left);
    if (p.epilogue.pool_h)
        return no("fuses no pooling");
    if (p.align < 16 || p.w % 4 != 0 || p.q % 4 != 0 || p.c % 4 != 0)
        return no(
            "copies rows of x and filters, and stores y, by 16 bytes: rows are multiples of 4 "
            "pixels, and so are channels; these are %d, %d and %d, at multiples of %d",
            p.w, p.q, p.c, p.align);
    if (p.n > INT32_MAX)
        return no("counts images in 31 bits; these are %lld", (long long)p.n);
    cf::Ranking<Option> ranking(query.config, configs);
    rank_options(query, ranking);
    const auto *best = ranking.found();
    if (!best && query.config > 0)
        return no("has no %s for this", configs[query.config]);
    if (!best)
        return no("keeps some rows of x in shared memory, and counts strips in 31 bits; of %lld "
                  "images with %d x %d pixels there are too many",
                  (long long)p.n, p.h, p.w);
    const Option &option = best->choice;
    state.tiling = option.tiling;
    state.box = option.box;
    plan.us = best->us;
    const RowsTiling &t = state.tiling;
    cf::tell(plan, "planes=%d tiles=%d rows=%d steps=%d strips=%d stages=%d blocks=%d warps=%d",
             t.planes, t.tiles, t.rows, t.steps, t.strips, t.stages, option.blocks, option.warps);
    cf::for_value<5, 7>(p.r / 2 - 2, [&](auto r) {
        state.kernel =
            cf::kernel_of(depthwise_rows_kernel<decltype(r)::value>, unsigned(option.blocks),
                          unsigned(option.warps) * 32, option.shared, true);
    });
    return true;
}

int32_t prepare(State &state) {
    const int32_t error = state.kernel.prepare();
    return error ? error : state.x.prepare(state.box);
}

int32_t launch(const State &state, const cf_args &args) {
    CUtensorMap x;
    if (const int32_t error = state.x.at(args.x, x))
        return error;
    return state.kernel.launch(args.stream, state.tiling, x, args.w, args.y,
                               cf::finish_of(state.problem, args));
}

} // namespace

extern "C" const cf_row CF_ROW(depthwise, rows) = {
    "depthwise_rows",
    "depthwise",
    "a filter per channel: rows of several planes stream through shared memory, sums of all rows "
    "of y that they meet stay in registers",
    "this project; row reuse as in Lu et al., TPDS 2021",
    "padding is multiplied as zeros: where a weight that is infinite or NaN meets it, the sum is "
    "NaN",
    CF_NEEDS_SM90,
    configs,
    cf::Row<State, plan, prepare, launch>::functions(),
};
