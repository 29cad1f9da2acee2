// implicit_gemm_planes: filters of three columns over planes in 16 bits or in tf32, by wgmma with
// pixels in registers.
//
// As implicit_gemm_pointwise: pixels are rows of products, which lanes pick out of planes as copies
// left them. A tap's pixels lie elsewhere in the same planes, so nothing is turned, copied or
// written again for it.
//
// - Of a row of three taps a lane reads, for its two neighbouring pixels of a channel, three words:
//   the pixels' own columns and one on either side. Of two channels they make four registers, a
//   column each; tap s multiplies columns s and s + 1. In f32 a column is a word. In steps of 2
//   there are five columns, still in three words, and tap s takes s and s + 2.
// - Planes have no zeros around them. Above and below x copies fill them in, or lanes do, which do
//   so left and right of it.
// - x comes as boxes of the run of pixels that a tile's taps fall on, rows with all their pixels,
//   or as whole planes where these are small. Weights come tap by tap.
//
// Floor: half a clock for each output channel of a product of 64 pixels x 16 channels (8 in tf32),
// and the bytes of x and y over the bandwidth.
#include "core/plan.cuh"
#include "core/tensor_map.cuh"
#include "kernels/implicit_gemm/planes_kernel.cuh"
#include "kernels/implicit_gemm/planes_plan.cuh"
#include "kernels/implicit_gemm/pointwise_filter.cuh"
#include "kernels/implicit_gemm/refusals.cuh"

namespace {

using namespace cf::planes;
using cf::pointwise::PackPointwise, cf::pointwise::x_pixels;

struct State {
    Launched kernel;
    cf::TensorMap map;
    PackPointwise pack;
    cf_problem problem;
    Tiling tiling;
    int box_pixels; // 0 where whole planes are copied
};

template <class Element>
void choose_kernels(const Choice &choice, State &state) {
    state.kernel = kernel_for<Element>(choice.shape, state.problem.stride_w, unsigned(choice.grid),
                                       shared_bytes(choice.tiling));
    state.pack = PackPointwise::of<Element>(packed_bytes(state.problem.groups, choice.tiling));
}

void describe_state(const cf_problem &p, const Choice &choice, State &state) {
    state.problem = p;
    state.tiling = choice.tiling;
    state.box_pixels = choice.box_pixels;
    if (p.storage == CF_STORE_F32)
        choose_kernels<float>(choice, state);
    else if (p.storage == CF_STORE_F16)
        choose_kernels<__half>(choice, state);
    else
        choose_kernels<__nv_bfloat16>(choice, state);
}

// A tile is output channels x pixels.
constexpr const char *const configs[] = {"tile=any",     "tile=64x128", "tile=128x128",
                                         "tile=256x128", "tile=64x256", "tile=128x256",
                                         nullptr};

bool takes(const cf_problem &p, const cf::Refusal &no) {
    if (p.layout != CF_NCHW)
        return no("is written for NCHW");
    if (!cf::implicit_gemm::multiplies_as_stored(p, no))
        return false;
    if (p.s != Columns || p.stride_h > 2 || p.stride_w != p.stride_h || p.dilation_w > 1 ||
        p.pad_left != 1 || p.q * p.stride_w != p.w || p.q % 2 != 0)
        return no("takes filters of three columns beside each other, a column of padding in front, "
                  "in steps of 1 or 2 that make rows of an even number of pixels; this is %dx%d in "
                  "steps of %d and %d, columns %d apart, of rows of %d pixels to %d",
                  p.r, p.s, p.stride_h, p.stride_w, p.dilation_w, p.w, p.q);
    if (p.epilogue.pool_h)
        return no("fuses no pooling");
    if (p.align < 16)
        return no("copies x from addresses that are multiples of 16 bytes; these are of %d",
                  p.align);
    if (p.stride_w > 1 && p.q > 2 * ProductRows)
        return no("has whole rows of y in a tile in steps of 2, up to %d pixels; this has %d",
                  2 * ProductRows, p.q);
    if (!may_be_boxes(p) && !may_be_whole(p))
        return no("copies planes of multiples of 16 bytes, or those of up to 256 pixels if a "
                  "group's are; these are %d of %dx%d",
                  p.c / p.groups, p.h, p.w);
    const double most = INT32_MAX / 4, pixels = double(p.p) * p.q;
    const double reach = (double(p.r) * p.dilation_h + p.pad_top) * p.w;
    if ((x_pixels(p) + reach + pixels) * cf::LineBytes > most ||
        (pixels / 128 + 1) * double(p.n) * (double(p.k) / 64 + p.groups) > most ||
        double(p.c) * p.r > most)
        return no("counts tiles, taps, and bytes of a block's planes, in 29 bits; this has %lld "
                  "images of %dx%d",
                  (long long)p.n, p.h, p.w);
    return true;
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    if (!takes(p, no))
        return false;
    Choice best = {}, choice;
    for (int i = 0; i < int(std::size(Shapes)); ++i)
        if ((query.config == 0 || query.config == i + 1) && tile_of(query, Shapes[i], choice) &&
            (best.grid == 0 || choice.us < best.us))
            best = choice;
    if (best.grid == 0 && query.config > 0)
        return no("has no %s for this", configs[query.config]);
    if (best.grid == 0)
        return no("has no room in shared memory for what %d rows of taps read of rows of %d pixels",
                  p.r, p.w);
    plan.packed_bytes = packed_bytes(p.groups, best.tiling);
    plan.filter_layout = uint64_t(best.tiling.order);
    plan.us = best.us;
    cf::tell(plan, "%s tile=%dx%d stages=%d grid=%d", best.box_pixels > 0 ? "boxes" : "planes",
             best.shape.columns, best.shape.products * 128, best.tiling.stages, best.grid);
    describe_state(p, best, state);
    return true;
}

int32_t prepare(State &state) {
    if (const int32_t error = state.pack.kernel.prepare())
        return error;
    const int32_t error = state.kernel.prepare();
    if (error || state.box_pixels == 0)
        return error;
    const cf_problem &p = state.problem;
    const int element = cf::element_bytes(p);
    const auto images = uint64_t(std::max<int64_t>(p.n, 1)); // a batch may be empty
    return state.map.prepare(
        {element,
         {uint64_t(x_pixels(p)), uint64_t(p.c), images, 1},
         {uint32_t(state.box_pixels), uint32_t(cf::LineBytes / element), 1, 1}});
}

int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    return state.pack.launch(state.problem, state.tiling, w, packed, stream);
}

int32_t launch(const State &state, const cf_args &args) {
    CUtensorMap map = {};
    if (state.box_pixels > 0)
        if (const int32_t error = state.map.at(args.x, map))
            return error;
    return state.kernel.launch(args.stream, state.tiling, map, args.x, args.packed, args.y,
                               cf::finish_of(state.problem, args));
}

} // namespace

extern "C" const cf_row CF_ROW(implicit_gemm, planes) = {
    "implicit_gemm_planes",
    "implicit_gemm",
    "filters of three columns by wgmma in NCHW: planes stay as they are, and rows of products are "
    "pixels that lanes pick out of them under each tap",
    "this project",
    "padding is multiplied as zeros: where a weight that is an infinity or a NaN meets them, the "
    "sum is NaN; f32 is rounded to tf32, to the nearest, to infinity from 0x7f7ff000 on",
    CF_NEEDS_SM90A,
    configs,
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
