// implicit_gemm_nhwc: many channels in 16 bits or in tf32, by wgmma with both operands in shared
// memory.
//
// A convolution is a product of the filter, whose rows are output channels, with a matrix of pixels
// that is never written: its columns are pixels of y, and what they read of x comes to shared
// memory as it is, so that taps are other lines of it. Output channels are the rows, because those
// of a product are 64 and pixels any multiple of 8: tiles fit images, and waves.
//
// - A line is 128 bytes of a pixel of x, 64 channels or 32 in f32, swizzled by tensor copies, which
//   also make tf32 of f32. Stride 1: a box of lines with a halo is read by all taps of the filter.
//   Each is a descriptor that begins some lines further on; rows of a product may lie any number of
//   lines apart, by groups of 8.
// - Where images are taken in whole rows, the zeros in front of a row are those behind the row
//   before: products' columns go on from row to row, and from image to image, at one pitch. Wide
//   images are taken in strips of 8 columns.
// - Filters of 1x1 read boxes without a halo, of every second pixel with a stride of 2. Everything
//   else comes by im2col copies: a tap's lines at a time, of pixels that are neighbours in y.
// - The filter is packed as such lines by block of channels and tap, so that one bulk copy brings
//   what a tap needs. A block that has room for all of its weights keeps them.
// - Two warpgroups multiply, in 64 channels each or in pixels each; warps of a third one ask for
//   pixels and weights, in rings of stages. These begin before the others of their block are ready.
//   Blocks are persistent, one to a multiprocessor, two of narrow products.
// - Sums go through the epilogue in registers, and through shared memory, where the channels of a
//   pixel are put beside each other, in 16 bits by stmatrix.
//
// Floor: half a clock for each pixel of a product of 64 x 16 channels (8 in tf32), the bytes of x
// and y over the bandwidth, and what comes from L2 over some 54 bytes in a clock.
#include "core/plan.cuh"
#include "core/ranking.cuh"
#include "kernels/implicit_gemm/line_filter.cuh"
#include "kernels/implicit_gemm/nhwc_estimate.cuh"
#include "kernels/implicit_gemm/nhwc_kernel.cuh"
#include "kernels/implicit_gemm/refusals.cuh"

namespace {

using namespace cf::implicit_gemm;

struct State {
    Launched kernel;
    PackLines pack;
    cf_problem problem;
    Tiling tiling;
    cf::Lines lines;
    cf::LineMap x;
};

template <class Element>
void choose_kernels(const Option &option, State &state) {
    const size_t shared = shared_bytes(option.tiling, option.width);
    state.kernel = is_among(NarrowWidths(), option.width)
                       ? narrow_kernel<Element>(option.width, unsigned(option.grid), shared)
                       : wide_kernel<Element>(option.width, unsigned(option.grid), shared);
    state.kernel.cluster = unsigned(cluster_size(option.tiling));
    state.pack = PackLines::of<Element>(state.problem);
}

// Of one way to do it.
void describe(const cf_problem &p, const Option &option, State &state) {
    state.problem = p;
    state.tiling = option.tiling;
    state.lines = option.lines;
    if (p.storage == CF_STORE_F32)
        choose_kernels<float>(option, state);
    else if (p.storage == CF_STORE_F16)
        choose_kernels<__half>(option, state);
    else
        choose_kernels<__nv_bfloat16>(option, state);
}

// Which ways to do a problem a plan chooses among, and the place of its choice.
constexpr const char *const configs[] = {
    "tiles=any",   "tiles=boxes",    "tiles=im2col", "tiles=together", "tiles=apart",
    "tiles=alone", "tiles=clusters", "tiles=parts",  CF_NEXT_PLANS,    nullptr};
bool is_of(int32_t config, const Tiling &t) {
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
        return cluster_size(t) == 1;
    case 6:
        return t.pixel_peers * t.weight_peers > 1;
    case 7:
        return t.parts > 1;
    default:
        return true;
    }
}

bool takes(const cf_problem &p, const cf::Refusal &no) {
    if (p.layout != CF_NHWC)
        return no("is written for NHWC");
    if (!multiplies_as_stored(p, no))
        return false;
    if (p.epilogue.pool_h)
        return no("fuses no pooling");
    return copies_lines(p, 16 / cf::element_bytes(p), no) && counts_images(p, no);
}

// What it takes of what tiles are compared by: more where a pixel of f32 has few channels. With 4
// and 12 of them, 1 to 10000 images, ten problems took 1.21 to 1.77 times what they were told
// without, 1.3 in the middle (h200-told-few-channels.csv).
double told(const cf_problem &p) {
    return p.storage == CF_STORE_F32 && p.c / p.groups < 16 ? 1.3 : 1;
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    if (!takes(p, no))
        return false;
    cf::Ranking<Option> ranking(query.config, configs);
    for_options(query, [&](const Option &option) {
        if (is_of(query.config, option.tiling))
            ranking.meet(option, estimate(query, option));
    });
    const auto *best = ranking.found();
    if (!best && query.config > 0)
        return no("has no %s for this", configs[query.config]);
    if (!best)
        return no_copies(p, no);
    plan.packed_bytes = packed_bytes(p);
    plan.us = told(p) * best->us;
    const Option &option = best->choice;
    tell_tiling(plan, option.tiling.im2col ? "im2col" : "boxes", option.width, option.grid,
                option.tiling);
    describe(p, option, state);
    return true;
}

int32_t prepare(State &state) {
    if (const int32_t error = state.pack.kernel.prepare())
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
    return state.kernel.launch(args.stream, state.tiling, x, args.packed, args.y,
                               cf::finish_of(state.problem, args));
}

} // namespace

extern "C" const cf_row CF_ROW(implicit_gemm, nhwc) = {
    "implicit_gemm_nhwc",
    "implicit_gemm",
    "many channels by wgmma: lines of pixels in shared memory, taps of the filter are other lines",
    "this project",
    "padding, and up to 15 channels behind the last one, are multiplied as zeros or by zeros: "
    "where an infinity or a NaN meets them, the sum is NaN; f32 is rounded to tf32, weights to the "
    "nearest, to infinity from 0x7f7ff000 on",
    CF_NEEDS_SM90A,
    configs,
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
