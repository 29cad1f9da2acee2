// depthwise_planar: one filter per channel, in 16 bits on tensor cores, planes as they lie in
// memory.
//
// In NCHW neighbouring pixels of a channel lie beside each other, and x, y and what is in between
// stay like that.
//
// - A column of the filter is a band matrix of up to 16 rows of y by 16 of x, so that one
//   instruction of a warp has it for 8 pixels of each of these rows.
// - Which pixels are a product's columns is free. A lane's lie beside each other: one load has its
//   pixels of a row for all tiles, and what a filter's next column meets is the next tile's.
// - Which rows of x a lane has is free as well: those with which lanes meet least.
// - Bands are not stored: a lane reads pairs of weights from a place that only its rows say.
// - Strips of x come by bulk copies with their channels' filters, rows outside the image are zeros
//   that a predicate puts in place of a load, and y leaves by bulk copies
//   (pipeline/plane_ring.cuh).
//
// Floor: the bytes of x and y over the bandwidth.
#include "kernels/depthwise/planar_kernel.cuh"

namespace {

using namespace cf::depthwise_planar;
using namespace cf::depthwise;

struct State {
    Launched kernel;
    PackedFilter filter;
    cf_problem problem;
    cf::depthwise_planar::Tiling tiling;
};

bool is_for_planes(const cf_problem &p, const cf::Refusal &no) {
    if (!is_depthwise(p, no) || !is_common(p, no))
        return false;
    if (p.layout != CF_NCHW)
        return no("is written for NCHW");
    if (p.storage == CF_STORE_F32)
        return no("is written for elements of 16 bits");
    if (p.epilogue.pool_h)
        return no("fuses no pooling");
    const int pad = p.r / 2, stride = p.stride_h;
    if (p.pad_top != pad || p.pad_left != pad || p.p != cf::ceil_div(p.h, stride) ||
        p.q != cf::ceil_div(p.w, stride))
        return no("takes padding of half the filter, as %d here, at each side", pad);
    const int64_t image = int64_t(p.c) * p.h * p.w * Size;
    if (image % cf::plane_strips::Bulk)
        return no("copies planes of an image of whole 16 bytes; these have %lld", (long long)image);
    if (p.w % 2 || p.align < cf::plane_strips::Bulk)
        return no("copies 16 bytes at a time: rows of x need an even number of pixels, and "
                  "addresses multiples of 16 bytes; these have %d pixels and align=%d",
                  p.w, p.align);
    return true;
}

constexpr const char *const configs[] = {"plan=any", CF_NEXT_PLANS, nullptr};

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    if (!is_for_planes(p, no))
        return false;
    cf::Ranking<Option> ranking(query.config, configs);
    rank_options(query, ranking);
    const auto *best = ranking.found();
    if (!best && query.config > 0)
        return no("has no %s for this", configs[query.config]);
    if (!best)
        return no("keeps strips of rows in shared memory, or whole planes where their bytes are no "
                  "multiple of 16, counts strips in 30 bits and bytes of a plane in 31; %lld "
                  "images with %d channels of %d x %d pixels are too many or too large",
                  (long long)p.n, p.c, p.h, p.w);
    const cf::depthwise_planar::Tiling &t = state.tiling = best->choice.tiling;
    const int blocks = best->choice.blocks;
    plan.us = best->us;
    cf::tell(plan,
             "channels=%d rows=%d unit_rows=%d tiles=%d windows=%d warp_units=%d strips=%d "
             "stages=%d blocks=%d",
             t.strips.channels, t.strips.rows, t.strips.unit_rows, tiles_of(p), t.strips.windows,
             t.strips.warp_units, t.strips.strips, t.strips.stages, blocks);
    state.filter.plan(p, t, plan);
    const size_t shared = best->choice.shared;
    state.kernel = p.storage == CF_STORE_F16 ? kernel_for<__half>(p, blocks, shared)
                                             : kernel_for<__nv_bfloat16>(p, blocks, shared);
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

extern "C" const cf_row CF_ROW(depthwise, planar) = {
    "depthwise_planar",
    "depthwise",
    "a filter per channel, in 16 bits: band matrices on tensor cores with planes as they lie",
    "this project",
    "padding and up to 14 rows beside the window are multiplied as zeros or by zeros: where an "
    "infinity or a NaN meets them, the sum is NaN",
    CF_NEEDS_SM90,
    configs,
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
