// depthwise_batched: one filter per channel, small planes one after the other, in 16 bits.
//
// A row of the filter, laid along the diagonal of a matrix (a band, or Toeplitz matrix), takes 16
// columns of x to 8 of y in one step of mma.sync. Its 16 rows are rows of y: of a plane, or of the
// same channel in two or four images where planes are small. So a channel's bands are made once for
// all images of a strip.
//
// - A strip is some adjacent channels of some images: a segment of memory for each image, in by a
//   bulk copy and out by another one. A block has one strip, and blocks beside it go on meanwhile.
// - A lane reads x as words. A row of up to 8 columns is one half of a step, beside the next row of
//   x; one of up to 16 is a step; of up to 28 columns each tile of y has a window of its own.
// - Rows of an odd number of columns begin at a word or in the middle of one. Rows of y that begin
//   alike are multiplied together, and then so begin the rows of x that they meet; the band is
//   shifted by the column that lies in front.
// - What a window has beside the plane is masked.
//
// Floor: the bytes of x and y over the bandwidth.
#include "kernels/depthwise/batched_kernel.cuh"

namespace {

using namespace cf::depthwise_batched;

struct State {
    Launched kernel;
    cf_problem problem;
    Tiling tiling;
};

bool is_small(const cf_problem &p, const cf::Refusal &no) {
    if (p.w > MaxWidth || p.q > MaxWidth)
        return no("takes planes of up to %d columns; these have %d, and %d in y", MaxWidth, p.w,
                  p.q);
    if (form_of(p).is_windowed() && (p.stride_h != 1 || p.pad_left != p.r / 2))
        return no("takes planes of more than 16 columns without stride, with as many columns of "
                  "padding at the left as half of the filter");
    if (p.w % 2 && p.q % 2 == 0 && p.stride_h == 1)
        return no("takes rows of an odd number of columns where rows of y have an odd number, too");
    // Rows beside a plane are read and masked, and so many of them lie in shared memory.
    const int below = std::max((p.p - 1) * p.stride_h + p.r - p.pad_top - p.h, 0);
    if (p.pad_top >= p.r || below >= p.r)
        return no("takes less padding above and below than the filter has rows; of %d rows that it "
                  "has these are %d and %d",
                  p.r, p.pad_top, below);
    const int64_t x = int64_t(p.c) * p.h * p.w, y = int64_t(p.c) * p.p * p.q;
    if (p.align < 16 || x % 8 != 0 || y % 8 != 0)
        return no("copies images of whole 16 bytes at multiples of 16; an image has %lld and %lld "
                  "elements of 2 bytes",
                  (long long)x, (long long)y);
    return true;
}

constexpr const char *const configs[] = {"plan=any", CF_NEXT_PLANS, nullptr};

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    if (!is_depthwise(p, no) || !is_common(p, no))
        return false;
    if (p.layout != CF_NCHW)
        return no("is written for NCHW");
    if (p.storage == CF_STORE_F32)
        return no("is written for elements of 16 bits");
    if (p.epilogue.pool_h)
        return no("fuses no pooling");
    if (p.n > INT32_MAX / 2)
        return no("counts images in 30 bits; there are %lld", (long long)p.n);
    if (!is_small(p, no))
        return false;
    cf::Ranking<Option> ranking(query.config, configs);
    rank_options(query, ranking);
    const auto *best = ranking.found();
    if (!best && query.config > 0)
        return no("has no %s for this", configs[query.config]);
    if (!best)
        return no("keeps some channels' planes of x and y in shared memory, of which a block has "
                  "%d bytes; %d x %d and %d x %d do not fit",
                  query.device.shared_per_block, p.h, p.w, p.p, p.q);
    state.tiling = best->choice.tiling;
    plan.us = best->us;
    const Tiling &t = state.tiling;
    cf::tell(plan, "set=%d images=%d warps=%d parts=%d pieces=%d log_rows=%d blocks=%d", t.set,
             t.images, best->choice.warps, t.parts, t.pieces, t.log_rows, best->choice.blocks);
    state.kernel = p.storage == CF_STORE_F16 ? kernel_for<__half>(p, best->choice)
                                             : kernel_for<__nv_bfloat16>(p, best->choice);
    return true;
}

int32_t launch(const State &state, const cf_args &args) {
    return state.kernel.launch(args.stream, state.tiling, args.x, args.w, args.y,
                               cf::finish_of(state.problem, args));
}

} // namespace

extern "C" const cf_row CF_ROW(depthwise, batched) = {
    "depthwise_batched",
    "depthwise",
    "a filter per channel, of small planes in 16 bits: band matrices on tensor cores, rows of "
    "several images at once",
    "this project",
    "padding, and up to 15 columns beside the window, are multiplied by zeros or as zeros: where "
    "an infinity or a NaN meets them, the sum is NaN",
    CF_NEEDS_SM90,
    configs,
    cf::Row<State, plan, cf::prepare_kernel<State>, launch>::functions(),
};
