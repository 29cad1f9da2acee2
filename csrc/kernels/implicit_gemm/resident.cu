// implicit_gemm_resident: filters of three columns over few channels of planes in 16 bits, by wgmma
// with both operands in shared memory, where the filter stays.
//
// The product is that of implicit_gemm_nchw: output channels are its rows, pixels its columns. Of
// up to 64 channels a block has the filter of 64 output channels in shared memory for good, and
// goes down an image: a ring of rows of x streams by, each of which all rows of taps read.
//
// - x is multiplied as copies leave it: 64 neighbouring columns of a channel in a line, channels
//   behind each other. Above, below and beside x copies fill in zeros.
// - A copy begins at a multiple of 16 bytes, and so does what wgmma reads: no column of taps can
//   have columns of its own. All three multiply the same ones, into sums of their own, and those of
//   the outer taps are added a column further when all is multiplied. A row of x comes once.
// - Two warpgroups take rows of y by turns, so that one multiplies while the other one adds and
//   stores.
//
// Floor: half a clock for each column of a product of 64 x 16 channels, and the bytes of x and y
// over the bandwidth.
#include "core/plan.cuh"
#include "core/tensor_map.cuh"
#include "kernels/implicit_gemm/line_filter.cuh"
#include "kernels/implicit_gemm/refusals.cuh"
#include "kernels/implicit_gemm/resident_kernel.cuh"
#include "kernels/implicit_gemm/resident_plan.cuh"

namespace {

using namespace cf::implicit_resident;

struct State {
    Launched kernel;
    cf::TensorMap map;
    cf::implicit_gemm::PackLines pack;
    cf_problem problem;
    Tiling tiling;
};

template <class Element>
void choose_kernels(const Choice &choice, State &state) {
    state.kernel = kernel_for<Element>(choice.width, choice.tiling.depth, unsigned(choice.grid),
                                       shared_bytes(choice.tiling));
    state.pack = cf::implicit_gemm::PackLines::of<Element>(state.problem);
}

void describe_state(const cf_problem &p, const Choice &choice, State &state) {
    state.problem = p;
    state.tiling = choice.tiling;
    if (p.storage == CF_STORE_F16)
        choose_kernels<__half>(choice, state);
    else
        choose_kernels<__nv_bfloat16>(choice, state);
}

// Columns of a product.
constexpr int widths[] = {112, 120, 128};
constexpr const char *const configs[] = {"columns=any", "columns=112", "columns=120", "columns=128",
                                         nullptr};

bool takes(const cf_problem &p, const cf::Refusal &no) {
    if (p.layout != CF_NCHW)
        return no("is written for NCHW");
    if (!cf::implicit_gemm::multiplies_as_stored(p, no))
        return false;
    if (p.storage == CF_STORE_F32)
        return no("multiplies planes as they lie, which wgmma does in 16 bits alone");
    if (p.s != Taps || p.stride_h > 1 || p.stride_w > 1 || p.dilation_w > 1 || p.pad_left != 1 ||
        p.q != p.w)
        return no("takes filters of three columns beside each other, a column of padding on either "
                  "side, in steps of 1; this is %dx%d in steps of %d and %d, columns %d apart, of "
                  "rows of %d pixels to %d",
                  p.r, p.s, p.stride_h, p.stride_w, p.dilation_w, p.w, p.q);
    if (p.epilogue.pool_h)
        return no("fuses no pooling");
    if (p.align < 16 || p.w % PieceColumns != 0)
        return no("copies rows of x from addresses that are multiples of 16 bytes; these are %d "
                  "pixels from multiples of %d",
                  p.w, p.align);
    if (p.c / p.groups > cf::LineChannels<__half>)
        return no("keeps the filter of up to %d channels; these are %d", cf::LineChannels<__half>,
                  p.c / p.groups);
    const double most = INT32_MAX / 4;
    if (double(p.n) * (p.w / PieceColumns) * p.p > most || double(p.n) * p.groups > most ||
        double(p.r) * p.dilation_h + p.pad_top > most || p.k > most)
        return no("counts rows of tiles in 29 bits; this has %lld images of %dx%d", (long long)p.n,
                  p.h, p.w);
    return true;
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    if (!takes(p, no))
        return false;
    Choice best = {}, choice;
    for (int i = 0; i < int(std::size(widths)); ++i)
        if ((query.config == 0 || query.config == i + 1) && tile_of(query, widths[i], choice) &&
            (best.grid == 0 || choice.us < best.us))
            best = choice;
    const int64_t sets = int64_t(cf::implicit_gemm::filter_lines(p)) / RowChannels * p.groups;
    if (sets > query.device.sm_count)
        return no(
            "gives each multiprocessor 64 output channels of a group for good; here %lld sets "
            "of so many meet %d multiprocessors",
            (long long)sets, query.device.sm_count);
    if (best.grid == 0 && query.config > 0)
        return no("has no room for %s", configs[query.config]);
    if (best.grid == 0)
        return no("keeps a filter and the rows under it in shared memory, in products of a row of "
                  "pixels or of two; this is %dx%d, of rows of %d pixels",
                  p.r, p.s, p.w);
    plan.packed_bytes = cf::implicit_gemm::packed_bytes(p);
    plan.us = best.us;
    cf::tell(plan, "columns=%d stages=%d grid=%d", best.width, best.tiling.stages, best.grid);
    describe_state(p, best, state);
    return true;
}

// Columns, rows, channels of a group, groups of all images.
int32_t prepare(State &state) {
    if (const int32_t error = state.pack.kernel.prepare())
        return error;
    if (const int32_t error = state.kernel.prepare())
        return error;
    const cf_problem &p = state.problem;
    const auto images = uint64_t(std::max<int64_t>(p.n, 1)); // a batch may be empty
    const uint64_t groups = p.groups;
    return state.map.prepare({cf::element_bytes(p),
                              {uint64_t(p.w), uint64_t(p.h), p.c / groups, images * groups},
                              {StripColumns, 1, uint32_t(state.tiling.depth * 16), 1}},
                             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    return state.pack.launch(state.problem, w, packed, stream);
}

int32_t launch(const State &state, const cf_args &args) {
    CUtensorMap map;
    if (const int32_t error = state.map.at(args.x, map))
        return error;
    return state.kernel.launch(args.stream, state.tiling, map, args.packed, args.y,
                               cf::finish_of(state.problem, args));
}

} // namespace

extern "C" const cf_row CF_ROW(implicit_gemm, resident) = {
    "implicit_gemm_resident",
    "implicit_gemm",
    "filters of three columns over few channels by wgmma in NCHW: the filter stays in shared "
    "memory, rows of x stream by, and sums under outer taps are added a column further",
    "this project",
    "padding is multiplied as zeros: where an infinity or a NaN of the filter meets it, the sum is "
    "NaN",
    CF_NEEDS_SM90A,
    configs,
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
