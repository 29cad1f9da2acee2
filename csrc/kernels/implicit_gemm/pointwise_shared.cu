// implicit_gemm_pointwise_shared: 1x1 filters over planes in 16 bits, by wgmma with both operands
// in shared memory.
//
// Output channels are the rows of a product (M), pixels its columns (N), as in implicit_gemm_nchw;
// wgmma takes columns in 16 bits that lie by pixels, 64 of a channel in a line of 128 bytes, which
// is how tensor copies bring them. So x goes through no register.
//
// - Copies, and what wgmma reads, begin at multiples of 16 bytes. Where planes are an odd multiple
//   of 8 bytes (14x14), two channels are a row of the tensor: even channels begin at such a
//   multiple, odd ones 4 pixels behind one. Both are multiplied by themselves, odd ones 4 columns
//   further on, and their sums are added when all is multiplied.
// - Products take less time than L2 takes to bring what they read. So two blocks of a cluster may
//   have the same pixels, in output channels beside each other: each asks for half of them, for
//   both.
// - y leaves through shared memory in whole sectors, a warpgroup's in one copy, while the next tile
//   is multiplied.
//
// Floor: half a clock for each column of a product of 64 x 16 channels, and the bytes of x and y
// over the bandwidth.
#include "kernels/implicit_gemm/pointwise_shared_filter.cuh"
#include "kernels/implicit_gemm/pointwise_shared_kernel.cuh"
#include "kernels/implicit_gemm/pointwise_shared_plan.cuh"
#include "kernels/implicit_gemm/refusals.cuh"

namespace {

using namespace cf::pointwise_shared;

struct State {
    Launched kernel;
    cf::LineMap strips;
    cf::TensorMap strip, y; // y of pieces alone: whole planes are contiguous
    PackByParity pack;
    cf_problem problem;
    Shape shape;
    Tiling tiling;
};

template <class Element>
void choose_kernels(const Choice &choice, State &state) {
    state.kernel = kernel_for<Element>(choice.shape, choice.tiling.peers, unsigned(choice.grid),
                                       shared_bytes(choice.tiling));
    state.pack = PackByParity::of<Element>(state.problem);
}

void describe_state(const cf_problem &p, const Choice &choice, State &state) {
    state.problem = p;
    state.shape = choice.shape;
    state.tiling = choice.tiling;
    if (p.storage == CF_STORE_F16)
        choose_kernels<__half>(choice, state);
    else
        choose_kernels<__nv_bfloat16>(choice, state);
}

// Columns of a product, and blocks of a cluster.
constexpr const char *const configs[] = {"tiles=any",          "tiles=narrow",
                                         "tiles=wide",         "tiles=narrow,peers=2",
                                         "tiles=wide,peers=2", nullptr};
bool is_of(int32_t config, const Choice &choice) {
    const int peers = config > 2 ? 2 : 1;
    return config == 0 ||
           (choice.tiling.peers == peers && (config % 2 == 0) == (choice.shape.columns > 128));
}

bool takes(const cf_problem &p, const cf::Refusal &no) {
    if (p.layout != CF_NCHW)
        return no("is written for NCHW");
    if (!cf::implicit_gemm::multiplies_as_stored(p, no))
        return false;
    if (p.storage == CF_STORE_F32)
        return no("multiplies planes as they lie, which wgmma does in 16 bits alone");
    if (p.r * p.s > 1 || p.p != p.h || p.q != p.w || p.pad_top != 0 || p.pad_left != 0)
        return no("takes filters of 1x1 in steps of 1 without padding; this is %dx%d in steps of "
                  "%d and %d, of %dx%d pixels to %dx%d",
                  p.r, p.s, p.stride_h, p.stride_w, p.h, p.w, p.p, p.q);
    if (p.epilogue.pool_h)
        return no("fuses no pooling");
    if (p.align < 16 || plane(p) % (PiecePixels / 2) != 0)
        return no("copies planes of multiples of 8 bytes, at addresses of 16; these are of %d "
                  "bytes, at addresses of %d",
                  int(std::min<int64_t>(plane(p) * 2, INT32_MAX)), p.align);
    if (p.groups > 1 && p.c / p.groups % BlockChannels != 0)
        return no("multiplies blocks of %d channels, all of a group; groups have %d", BlockChannels,
                  p.c / p.groups);
    if (parities(p) == 2 && (p.c % 2 != 0 || p.k / p.groups % 2 != 0))
        return no("copies planes of %dx%d by twos; groups have %d channels and %d of y", p.h, p.w,
                  p.c / p.groups, p.k / p.groups);
    const double most = INT32_MAX / 4, pixels = double(plane(p));
    if (pixels * p.groups > most ||
        (pixels / 112 + 1) * double(p.n) * (double(p.k) / 64 + p.groups) > most)
        return no("counts tiles in 29 bits; this has %lld images of %dx%d", (long long)p.n, p.h,
                  p.w);
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
        return no("copies planes that are an odd multiple of 8 bytes whole, of up to 196 pixels; "
                  "these are %dx%d",
                  p.h, p.w);
    plan.packed_bytes = cf::implicit_gemm::packed_bytes(p);
    plan.filter_layout = uint64_t(best.shape.parities);
    plan.us = best.us;
    cf::tell(plan, "columns=%d parities=%d peers=%d stages=%d grid=%d", best.shape.columns,
             best.shape.parities, best.tiling.peers, best.tiling.stages, best.grid);
    describe_state(p, best, state);
    return true;
}

int32_t prepare(State &state) {
    if (const int32_t error = state.pack.kernel.prepare())
        return error;
    if (const int32_t error = state.kernel.prepare())
        return error;
    const cf_problem &p = state.problem;
    if (const int32_t error = state.strip.prepare(strip_box(p), CU_TENSOR_MAP_SWIZZLE_128B,
                                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B))
        return error;
    // Peers share strips, or parities.
    const int all = strips_of(state.shape.columns);
    const int strips = state.shape.parities == 2 ? all : all / state.tiling.peers;
    if (const int32_t error = state.strips.prepare(strip_lines(p, all, strips)))
        return error;
    return state.shape.parities == 2 ? 0 : state.y.prepare(y_box(p, state.shape.columns));
}

int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    return state.pack.launch(state.problem, state.shape.parities, state.tiling, w, packed, stream);
}

int32_t launch(const State &state, const cf_args &args) {
    CUtensorMap strips, strip, y = {};
    if (const int32_t error = state.strips.at(args.x, strips))
        return error;
    if (const int32_t error = state.strip.at(args.x, strip))
        return error;
    if (state.shape.parities == 1)
        if (const int32_t error = state.y.at(args.y, y))
            return error;
    return state.kernel.launch(args.stream, state.tiling, strips, strip, y, args.packed, args.y,
                               cf::finish_of(state.problem, args));
}

} // namespace

extern "C" const cf_row CF_ROW(implicit_gemm, pointwise_shared) = {
    "implicit_gemm_pointwise_shared",
    "implicit_gemm",
    "1x1 filters by wgmma in NCHW, in 16 bits: planes are multiplied as tensor copies leave them",
    "this project",
    "",
    CF_NEEDS_SM90A,
    configs,
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
