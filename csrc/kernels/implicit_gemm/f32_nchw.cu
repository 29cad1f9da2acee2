// implicit_gemm_f32_nchw: many channels of planes in f32, to the accuracy of f32, by three products
// of f16 on wgmma, without a pass that transposes x.
//
// The products, their powers of two and the packed filter are those of implicit_gemm_f32_nhwc,
// tiles and what is stored those of implicit_gemm_nchw. Between them:
//
// - Warps copy pieces of planes, 8 pixels of 64 channels at a time, into slots of their own. Four
//   lanes have a pixel of these: they find its power of two together, and each stores 16 bytes of
//   high parts and of low ones in two pieces of its lines. What is split is never in the ring as it
//   was.
// - Lanes take the channels in the order in which the packed filter has them.
//
// Floor: one and a half clocks for each pixel of a product of 64 x 16 channels, and the bytes of x
// and y over the bandwidth.
#include "core/plan.cuh"
#include "core/ranking.cuh"
#include "kernels/implicit_gemm/f32_filter.cuh"
#include "kernels/implicit_gemm/f32_nchw_kernel.cuh"
#include "kernels/implicit_gemm/f32_nchw_plan.cuh"

namespace {

using namespace cf::implicit_f32;

struct State {
    PlanarLaunched kernel;
    PackFilter pack;
    cf_problem problem;
    Plan plan;
    Planes planes;
};

void describe(const cf_problem &p, const PlanarChoice &choice, State &state) {
    state.problem = p;
    state.plan = choice.plan;
    state.planes = choice.planes;
    const bool narrow = cf::implicit_gemm::is_among(PlanarNarrowWidths(), choice.width);
    const auto kernel = narrow ? narrow_planar_kernel : wide_planar_kernel;
    state.kernel = kernel(choice.width, dim3(choice.grid), choice.plan.shared_bytes());
    state.kernel.cluster = unsigned(choice.plan.tiling.parts);
    state.pack = PackFilter::of(choice.plan.packed);
}

// Which ways to do a problem a plan chooses among, and the place of its choice.
constexpr const char *const configs[] = {
    "tiles=any",   "tiles=halo",  "tiles=rows", "tiles=taps",  "tiles=together",
    "tiles=apart", "tiles=parts", "tiles=kept", CF_NEXT_PLANS, nullptr};
bool is_of(int32_t config, const PlanarChoice &choice) {
    const Tiling &t = choice.plan.tiling;
    switch (config) {
    case 1:
        return choice.reading == cf::implicit_nchw::Halo;
    case 2:
        return choice.reading == cf::implicit_nchw::Rows;
    case 3:
        return choice.reading == cf::implicit_nchw::Taps;
    case 4:
        return !t.apart;
    case 5:
        return t.apart;
    case 6:
        return t.parts > 1;
    case 7:
        return choice.plan.sweep > 1;
    default:
        return true;
    }
}

// What it takes of what tilings are compared by, where windows share no pixels: of three random
// problems 1.34 to 1.59 times as much (told before, in h200-random-fp32.csv).
double told(const cf_problem &p) { return p.s > 1 && p.stride_w >= p.s ? 1.45 : 1; }

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    if (p.layout != CF_NCHW)
        return no("is written for NCHW");
    if (!splits(p, no))
        return false;
    cf::Ranking<PlanarChoice> ranking(query.config, configs);
    for_choices(query, [&](const PlanarChoice &choice) {
        if (is_of(query.config, choice))
            ranking.meet(choice, choice.us);
    });
    const auto *best = ranking.found();
    if (!best && query.config > 0)
        return no("has no %s for this", configs[query.config]);
    if (!best)
        return no("keeps pixels under a filter's taps in shared memory, of tiles that are counted "
                  "in 29 bits; this has %lld images of %dx%d, a filter of %dx%d",
                  (long long)p.n, p.p, p.q, p.r, p.s);
    const auto &choice = best->choice;
    plan.packed_bytes = uint64_t(choice.plan.packed.bytes());
    plan.us = told(p) * best->us;
    cf::implicit_gemm::tell_tiling(plan, cf::implicit_nchw::ReadingNames[choice.reading],
                                   choice.width, choice.grid, choice.plan.tiling);
    cf::tell(plan, " sweep=%d loaders=%d", choice.plan.sweep, choice.planes.loaders);
    describe(p, choice, state);
    return true;
}

int32_t prepare(State &state) {
    const int32_t error = state.pack.prepare();
    return error ? error : state.kernel.prepare();
}

int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    return state.pack.launch(state.problem, w, packed, stream);
}

int32_t launch(const State &state, const cf_args &args) {
    return state.kernel.launch(args.stream, state.plan, state.planes, args.x, args.packed, args.y,
                               cf::finish_of(state.problem, args));
}

} // namespace

extern "C" const cf_row CF_ROW(implicit_gemm, f32_nchw) = {
    "implicit_gemm_f32_nchw",
    "implicit_gemm",
    "many channels of planes in f32: three products of f16 on wgmma, without a transposing pass",
    "this project",
    "an infinity gives NaN; padding, and up to 63 channels behind the last one, are multiplied as "
    "zeros or by zeros: where an infinity or a NaN meets them, the sum is NaN; of 64 channels of a "
    "pixel, those below 2^-27 of the largest, once the filter's channels are of one size, lose "
    "bits",
    CF_NEEDS_SM90A,
    configs,
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
