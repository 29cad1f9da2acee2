// implicit_gemm_pointwise: 1x1 filters over planes in 16 bits or in tf32, by wgmma with pixels in
// registers.
//
// Without taps a convolution of planes is a product of two matrices, of which x lies transposed:
// neighbours in memory are pixels. wgmma takes such columns from shared memory in 16 bits alone, at
// pitches of 128 bytes. Here pixels are rows, the A operand (M), and rows may come from registers:
// a lane picks its pixels of a channel out of shared memory, where planes lie as copies left them,
// at any pitch. Output channels are columns, the B operand (N).
//
// - A warp asks for x by bulk copies of whole planes, of as many images as a tile has pixels for:
//   those of a block of 64 channels, 32 of f32, are contiguous. Where planes are larger it asks for
//   boxes of a tensor. Weights come as lines, columns of the product.
// - Where the filter moves in steps a box has the rows of x that some rows of y read, whole: its
//   tensor's rows are as many rows of x as a step has.
// - Two neighbouring pixels of a channel are a word (in f32 two). A lane exchanges halves of two
//   channels' words: four registers of rows for four words. In steps of 2 pixels are the first
//   halves of two words (in f32 of two pairs).
// - Sums of two neighbouring pixels are in a lane as well, so y is stored from registers; planes of
//   an odd number of pixels by way of shared memory.
//
// Floor: half a clock for each output channel of a product of 64 pixels x 16 channels (8 in tf32),
// and the bytes of x and y over the bandwidth.
#include "core/plan.cuh"
#include "core/tensor_map.cuh"
#include "kernels/implicit_gemm/pointwise_filter.cuh"
#include "kernels/implicit_gemm/pointwise_kernel.cuh"
#include "kernels/implicit_gemm/pointwise_plan.cuh"
#include "kernels/implicit_gemm/refusals.cuh"

namespace {

using namespace cf::pointwise;

struct State {
    Launched kernel;
    cf::TensorMap map;
    PackPointwise pack;
    cf_problem problem;
    Tiling tiling;
    cf::Box box;
};

template <class Element>
void choose_kernels(const Choice &choice, State &state) {
    state.kernel = kernel_for<Element>(choice.shape, choice.pairs, unsigned(choice.grid),
                                       shared_bytes(choice.tiling));
    state.pack = PackPointwise::of<Element>(packed_bytes(state.problem.groups, choice.tiling));
}

void describe_state(const cf_problem &p, const Choice &choice, State &state) {
    state.problem = p;
    state.tiling = choice.tiling;
    state.box = choice.box;
    if (p.storage == CF_STORE_F32)
        choose_kernels<float>(choice, state);
    else if (p.storage == CF_STORE_F16)
        choose_kernels<__half>(choice, state);
    else
        choose_kernels<__nv_bfloat16>(choice, state);
}

// Which ways to do a problem a plan chooses among; a tile is output channels x pixels.
constexpr const char *const configs[] = {"tiles=any",   "tiles=planes", "tiles=boxes",
                                         "tile=64x128", "tile=128x128", "tile=256x128",
                                         "tile=64x256", "tile=128x256", nullptr};
bool is_of(int32_t config, const Choice &choice) {
    if (config >= 3)
        return choice.shape.products == Shapes[config - 3].products &&
               choice.shape.columns == Shapes[config - 3].columns;
    return config == 0 || (config == 1) == (choice.tiling.images > 0);
}

bool takes(const cf_problem &p, const cf::Refusal &no) {
    if (p.layout != CF_NCHW)
        return no("is written for NCHW");
    if (!cf::implicit_gemm::multiplies_as_stored(p, no))
        return false;
    if (p.r * p.s > 1 || p.pad_top != 0 || p.pad_left != 0 ||
        int64_t(p.p - 1) * p.stride_h >= p.h || int64_t(p.q - 1) * p.stride_w >= p.w)
        return no("takes filters of 1x1 without padding; this is %dx%d in steps of %d and %d, of "
                  "%dx%d pixels to %dx%d",
                  p.r, p.s, p.stride_h, p.stride_w, p.h, p.w, p.p, p.q);
    if (p.epilogue.pool_h)
        return no("fuses no pooling");
    if (p.align < 16)
        return no("copies x from addresses that are multiples of 16 bytes; these are of %d",
                  p.align);
    const double most = INT32_MAX / 4, pixels = double(p.h) * p.w;
    if (pixels * cf::LineBytes > most ||
        (pixels / (is_dense(p) ? 128 : 32) + 1) * double(p.n) * (double(p.k) / 64 + p.groups) >
            most)
        return no(
            "counts tiles, and bytes of a block's planes, in 29 bits; this has %lld images of "
            "%dx%d",
            (long long)p.n, p.h, p.w);
    return true;
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    if (!takes(p, no))
        return false;
    Choice best = {};
    for_choices(query, [&](const Choice &choice) {
        if (is_of(query.config, choice) && (best.grid == 0 || choice.us < best.us))
            best = choice;
    });
    if (best.grid == 0 && query.config > 0)
        return no("has no %s for this", configs[query.config]);
    if (best.grid == 0)
        return no("copies planes of multiples of 16 bytes, in steps that divide their height to "
                  "rows of y of up to 128 pixels, or planes of up to 256 pixels of y if a group's "
                  "are such, for which shared memory has room; these are %d of %dx%d to %dx%d",
                  p.c / p.groups, p.h, p.w, p.p, p.q);
    plan.packed_bytes = packed_bytes(p.groups, best.tiling);
    plan.filter_layout = uint64_t(best.tiling.order);
    plan.us = best.us;
    cf::tell(plan, "%s tile=%dx%d stages=%d grid=%d", best.tiling.images > 0 ? "planes" : "boxes",
             best.shape.columns, best.shape.products * 128, best.tiling.stages, best.grid);
    describe_state(p, best, state);
    return true;
}

int32_t prepare(State &state) {
    if (const int32_t error = state.pack.kernel.prepare())
        return error;
    const int32_t error = state.kernel.prepare();
    if (error || state.tiling.images > 0)
        return error;
    return state.map.prepare(state.box);
}

int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    return state.pack.launch(state.problem, state.tiling, w, packed, stream);
}

int32_t launch(const State &state, const cf_args &args) {
    CUtensorMap map = {};
    if (state.tiling.images == 0)
        if (const int32_t error = state.map.at(args.x, map))
            return error;
    return state.kernel.launch(args.stream, state.tiling, map, args.x, args.packed, args.y,
                               cf::finish_of(state.problem, args));
}

} // namespace

extern "C" const cf_row CF_ROW(implicit_gemm, pointwise) = {
    "implicit_gemm_pointwise",
    "implicit_gemm",
    "1x1 filters by wgmma in NCHW: planes stay as they are, and rows of products are pixels that "
    "lanes pick out of them",
    "this project",
    "f32 is rounded to tf32, to the nearest, to infinity from 0x7f7ff000 on",
    CF_NEEDS_SM90A,
    configs,
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
