// implicit_gemm_nchw: many channels of planes in 16 bits or in tf32, by wgmma with both operands in
// shared memory, without a pass that transposes x.
//
// The product is that of implicit_gemm_nhwc: output channels are its rows, pixels its columns, and
// in shared memory a pixel is a line of 64 channels, 32 in f32, so that taps are other lines. Here
// memory has neighbouring pixels of a channel beside each other, so lines are made on the way:
//
// - A lane loads some neighbours in a row of x, in as many channels as 16 bytes of a line have, and
//   turns them in registers: a byte permutation for each word, none in f32, which becomes tf32
//   there. What it stores are 16 bytes of as many lines, swizzled. Any pixel may go to any line, so
//   padding is zeros in registers, and a step is other pixels.
// - Boxes of lines with a halo are read by all taps where steps are 1; others come tap by tap.
// - Rows of a product's sums are rows of y already. A warp puts those of some channels into shared
//   memory, without what is no pixel, and stores up to 16 bytes of neighbours together; in f32
//   pairs at even places of y go there from registers.
//
// Floor: half a clock for each pixel of a product of 64 x 16 channels (8 in tf32), and the bytes of
// x and y over the bandwidth.
#include "core/plan.cuh"
#include "core/ranking.cuh"
#include "core/swizzled_map.cuh"
#include "kernels/implicit_gemm/line_filter.cuh"
#include "kernels/implicit_gemm/nchw_estimate.cuh"
#include "kernels/implicit_gemm/nchw_kernel.cuh"
#include "kernels/implicit_gemm/refusals.cuh"

namespace {

using namespace cf::implicit_nchw;

struct State {
    Launched kernel;
    StraightLaunched straight;
    cf::SwizzledMap x;
    cf::implicit_gemm::PackLines pack;
    cf_problem problem;
    Tiling tiling;
    Planes planes;
};

template <class Element>
void choose_kernels(const Choice &choice, State &state) {
    const int width = choice.option.width;
    const auto grid = unsigned(choice.option.grid);
    const size_t shared = shared_bytes(choice);
    if constexpr (sizeof(Element) == 2)
        if (choice.planes.straight)
            state.straight = straight_kernel<Element>(width, grid, shared);
    state.straight.cluster = unsigned(choice.option.tiling.parts);
    state.kernel = is_among(NarrowWidths(), width) ? narrow_kernel<Element>(width, grid, shared)
                                                   : wide_kernel<Element>(width, grid, shared);
    state.kernel.cluster = unsigned(choice.option.tiling.parts);
    state.pack = cf::implicit_gemm::PackLines::of<Element>(state.problem);
}

void describe_state(const cf_problem &p, const Choice &choice, State &state) {
    state.problem = p;
    state.tiling = choice.option.tiling;
    state.planes = choice.planes;
    if (p.storage == CF_STORE_F32)
        choose_kernels<float>(choice, state);
    else if (p.storage == CF_STORE_F16)
        choose_kernels<__half>(choice, state);
    else
        choose_kernels<__nv_bfloat16>(choice, state);
}

// Which ways to do a problem a plan chooses among, and the place of its choice.
constexpr const char *const configs[] = {
    "tiles=any",   "tiles=halo",  "tiles=rows",     "tiles=taps",  "tiles=together", "tiles=apart",
    "tiles=alone", "tiles=parts", "tiles=straight", CF_NEXT_PLANS, nullptr};
bool is_of(int32_t config, const Choice &choice) {
    const Tiling &t = choice.option.tiling;
    switch (config) {
    case 1:
        return choice.reading == Halo;
    case 2:
        return choice.reading == Rows;
    case 3:
        return choice.reading == Taps;
    case 4:
        return !t.apart;
    case 5:
        return t.apart;
    case 6:
        return t.parts == 1;
    case 7:
        return t.parts > 1;
    case 8:
        return choice.reading == Straight;
    default:
        return true;
    }
}

bool takes(const cf_problem &p, const cf::Refusal &no) {
    if (p.layout != CF_NCHW)
        return no("is written for NCHW");
    if (!multiplies_as_stored(p, no))
        return false;
    if (p.epilogue.pool_h)
        return no("fuses no pooling");
    return counts_images(p, no);
}

// Told besides, for any tiling of so few channels: 18 problems of 1 to 12 channels that take up to
// 22 us took 2 to 7 us more than tilings are compared by, in f16, bf16 and tf32
// (benches/results/evidence/h200-implicit-gemm-nchw-few-channels.csv).
constexpr int FewChannels = 12;
constexpr double FewChannelsUs = 5;

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    if (!takes(p, no))
        return false;
    cf::Ranking<Choice> ranking(query.config, configs);
    for_choices(query, all_widths(NarrowWidths(), cf::implicit_nchw::WideWidths()),
                [&](const Choice &choice) {
                    if (is_of(query.config, choice))
                        ranking.meet(choice, estimate(query, choice));
                });
    const auto *best = ranking.found();
    if (!best && query.config > 0)
        return no("has no %s for this", configs[query.config]);
    if (!best)
        return no("keeps pixels under a filter's taps in shared memory, of tiles that are counted "
                  "in 29 bits; this has %lld images of %dx%d, a filter of %dx%d",
                  (long long)p.n, p.p, p.q, p.r, p.s);
    plan.packed_bytes = packed_bytes(p);
    plan.us = best->us + (p.c / p.groups <= FewChannels ? FewChannelsUs : 0);
    const Option &option = best->choice.option;
    tell_tiling(plan, cf::implicit_nchw::ReadingNames[best->choice.reading], option.width,
                option.grid, option.tiling);
    describe_state(p, best->choice, state);
    return true;
}

int32_t prepare(State &state) {
    if (const int32_t error = state.pack.kernel.prepare())
        return error;
    if (!state.planes.straight)
        return state.kernel.prepare();
    if (const int32_t error = state.straight.prepare())
        return error;
    const cf_problem &p = state.problem;
    const auto images = uint64_t(std::max<int64_t>(p.n, 1)); // a batch may be empty
    return state.x.prepare({cf::element_bytes(p),
                            {uint64_t(p.h) * p.w, uint64_t(p.c), images, 1},
                            {StraightPixels, uint32_t(cf::LineChannels<__half>), 1, 1}});
}

int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    return state.pack.launch(state.problem, w, packed, stream);
}

int32_t launch(const State &state, const cf_args &args) {
    const cf::Finish finish = cf::finish_of(state.problem, args);
    if (state.planes.straight) {
        CUtensorMap x;
        if (const int32_t error = state.x.at(args.x, x))
            return error;
        return state.straight.launch(args.stream, state.tiling, state.planes, x, args.packed,
                                     args.y, finish);
    }
    return state.kernel.launch(args.stream, state.tiling, state.planes, args.x, args.packed, args.y,
                               finish);
}

} // namespace

extern "C" const cf_row CF_ROW(implicit_gemm, nchw) = {
    "implicit_gemm_nchw",
    "implicit_gemm",
    "many channels by wgmma in NCHW: pixels become lines of channels on their way through "
    "registers",
    "this project",
    "padding, and up to 15 channels behind the last one, are multiplied as zeros or by zeros: "
    "where an infinity or a NaN meets them, the sum is NaN; f32 is rounded to tf32, to the "
    "nearest, to infinity from 0x7f7ff000 on",
    CF_NEEDS_SM90A,
    configs,
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
