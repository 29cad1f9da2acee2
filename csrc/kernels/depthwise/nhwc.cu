// depthwise_nhwc: one filter per channel, channels beside each other.
//
// Each output needs R x R products and, unless rows and columns share what they read, as many
// loads. Here a thread has two channels, or one, and a few adjacent columns of y, and slides down:
// it reads each row of x once, and adds it to all rows of y that it meets, whose sums are in
// registers as the filter is. So a sum takes its products and little else, and x is read from
// memory once.
//
// - Boxes of x come by tensor copies: some channels, columns and rows of some images, with zeros
//   where the filter hangs over an edge. Rows stream through a ring of stages, from the top of a
//   strip to its bottom, so that a row is loaded once however high the filter is. Where a block has
//   all channels, pixels side by side are copied as one until they are whole lines.
// - Strips are rows of y in columns and images that 8 to 18 warps cover, a column tile of 7 or 4 to
//   as many lanes as have its channels: several images together where they are small. The plan
//   takes the number of images, columns, rows and channels of a strip that leave the fewest blocks
//   idle.
// - Blocks are persistent, or each strip has one of its own, given out in the order of memory.
// - The first product of a row's sums writes to the next row's registers, so that nothing is moved
//   as rows go by.
//
// Floor: the bytes of x and y over the bandwidth. For 7x7 the products: three of four instructions.
#include "kernels/depthwise/nhwc_kernel.cuh"
#include "kernels/depthwise/nhwc_plan.cuh"

namespace {

using namespace cf::depthwise;

struct State {
    cf::Kernel<NhwcTiling, CUtensorMap, const void *, void *, cf::Finish> kernel;
    cf_problem problem;
    NhwcTiling tiling;
    cf::Box box;
    cf::TensorMap x;
};

void choose_kernel(const Option &option, State &state) {
    for_element(state.problem, [&](auto stored) {
        for_filter(state.problem, [&](auto r, auto stride) {
            using Stored = decltype(stored);
            constexpr int R = decltype(r)::value, Stride = decltype(stride)::value;
            auto kernel = depthwise_nhwc_kernel<Stored, R, Stride, PerLane::Pairs>;
            if constexpr (has_singles(R, sizeof(Stored)))
                if (option.per_lane == PerLane::Singles)
                    kernel = depthwise_nhwc_kernel<Stored, R, Stride, PerLane::Singles>;
            state.kernel = cf::kernel_of(kernel, unsigned(option.blocks),
                                         unsigned(option.warps) * 32, option.shared, true);
        });
    });
}

// What it takes of what plans are compared by: more by 5x5 without a stride in 16 bits, by 1.20 on
// 120 channels of 28x28 and by up to 1.19 on 240 (h200-depthwise-nhwc-groups.csv).
double told(const cf_problem &p) {
    return p.storage != CF_STORE_F32 && p.r == 5 && p.stride_h == 1 ? 1.2 : 1;
}

// Whether pixels, or a few of them side by side, are something that tensor copies bring.
bool copies_pixels(const cf_problem &p, const cf::Refusal &no) {
    if (p.align < 16)
        return no("copies boxes of x from multiples of 16 bytes; this one is at multiples of %d",
                  p.align);
    if (p.c % 2 != 0)
        return no("takes two channels to a thread; this has %d", p.c);
    if (group_bytes(p, most_log_group(p)) % 16 != 0)
        return no("copies whole pieces of 16 bytes: pixels, or 2, 4 or 8 of them, up to %d bytes, "
                  "that the width is a multiple of; this one has %d pixels of %lld bytes",
                  MaxBox * GroupWord, p.w, (long long)group_bytes(p, 0));
    return true;
}

constexpr const char *const configs[] = {"plan=any", CF_NEXT_PLANS, nullptr};

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    if (!is_depthwise(p, no) || !is_common(p, no))
        return false;
    if (p.layout != CF_NHWC)
        return no("is written for NHWC");
    if (p.epilogue.pool_h)
        return no("fuses no pooling");
    if (!copies_pixels(p, no))
        return false;
    if (p.n > INT32_MAX)
        return no("counts images in 31 bits; these are %lld", (long long)p.n);
    cf::RankingOfKinds<Option> ranking(query.config, configs);
    rank_options(query, ranking);
    const auto *best = ranking.found();
    if (!best && query.config > 0)
        return no("has no %s for this", configs[query.config]);
    if (!best)
        return no("keeps some rows of x in shared memory, and counts strips in 31 bits; it finds "
                  "none for %lld images with %d x %d pixels of %lld bytes",
                  (long long)p.n, p.h, p.w, (long long)group_bytes(p, 0));
    state.tiling = best->choice.tiling;
    state.box = best->choice.box;
    plan.us = told(p) * best->us;
    tell_strips(plan, state.tiling, best->choice.blocks);
    const Option &option = best->choice;
    cf::tell(plan, " lanes=%d channels=%d warps=%d of_sm=%d group=%d",
             state.tiling.channels / channels_of(option.per_lane), channels_of(option.per_lane),
             option.warps, option.of_sm, 1 << state.tiling.log_group);
    choose_kernel(best->choice, state);
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

extern "C" const cf_row CF_ROW(depthwise, nhwc) = {
    "depthwise_nhwc",
    "depthwise",
    "a filter per channel: rows of x stream through shared memory, sums of all rows of y that they "
    "meet stay in registers",
    "this project; row reuse as in Lu et al., TPDS 2021",
    "padding is multiplied as zeros: where a weight that is infinite or NaN meets it, the sum is "
    "NaN",
    CF_NEEDS_SM90,
    configs,
    cf::Row<State, plan, prepare, launch>::functions(),
};
