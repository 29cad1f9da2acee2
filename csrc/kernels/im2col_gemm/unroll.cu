// im2col_gemm_unroll: im2col_gemm_shared with its loops unrolled, the filter's side known to the
// compiler.
//
// What is compared: each stage with the same stage of im2col_gemm_shared, whose code it is.
//
//   unroll  In NCHW a thread has the columns of some neighbouring output pixels and writes them tap
//           by tap (passes/columns.cuh). With the side compiled in, both loops over taps are
//           unrolled: a tap costs a comparison and a load for each pixel, and a store for all of
//           them; where neighbours share inputs, an element moves on to the next pixel by the name
//           of its register alone. In NHWC that pass has no loop over taps: a thread has one place
//           of the filter, or one word of a row, and walks over pixels. There is nothing to unroll,
//           and it is used as it is.
//   gemm    two tiles of the loop over them are unrolled into one pass, in both layouts.
//
// Unrolling saves the loops' instructions, a few beside each load and store, and lets loads of
// several taps be under way together. Against that stands code: 121 taps of four pixels are 62 to
// 111 KB of it, more than the nearest instruction caches hold.
//
// Report A's version took 257 + 547 ms against its baseline's 71.1 + 57.6, but not because of
// unrolling: each thread wrote a whole column while the launch still had one thread per element, so
// everything was written 64 and 208 times. Here the launch has the threads of the other rows.
#include "kernels/im2col_gemm/tile_product.cuh"
#include "passes/columns.cuh"
#include "passes/storage.cuh"

#include <iterator>

namespace {

constexpr int Tile = 16;
constexpr int Ahead = 2; // tiles of the product in one pass
constexpr int Sides[] = {1, 3, 5, 7, 11};

struct State : cf::TileState {
    cf::Columns columns[3]; // NCHW: for words of 4, 2 and 1 pixels
};

template <class T>
void choose_columns(const cf_problem &p, int side, State &state) {
    cf::for_value<Sides[0], Sides[1], Sides[2], Sides[3], Sides[4]>(side, [&](auto side) {
        constexpr int Side = decltype(side)::value;
        state.columns[0] = cf::columns_of<T, T, true, 4, Side>(p);
        state.columns[1] = cf::columns_of<T, T, true, 2, Side>(p);
        state.columns[2] = cf::columns_of<T, T, true, 1, Side>(p);
    });
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    const int *const side = std::find(std::begin(Sides), std::end(Sides), p.r);
    if (p.r != p.s || side == std::end(Sides))
        return no("is compiled for square filters of 1, 3, 5, 7 and 11; this one is %dx%d", p.r,
                  p.s);
    if (p.layout == CF_NCHW)
        cf::for_storage(p.storage, [&](auto element) {
            choose_columns<decltype(element)>(p, int(side - Sides), state);
        });
    state.kernel = cf::tile_kernel<Tile, 1, Tile, Ahead>(p);
    return cf::plan_tiles(query, state, plan, no);
}

int32_t prepare(State &state) {
    if (state.im2col.problem.layout == CF_NHWC)
        return cf::prepare_im2col(state);
    for (const cf::Columns &columns : state.columns)
        if (const int32_t error = columns.kernel.prepare())
            return error;
    const int32_t error = state.kernel.prepare();
    return error ? error : state.im2col.prepare_finish();
}

// As cf::Im2col::gather, of which it is the part for NCHW.
int32_t unroll(const State &state, const cf_args &args, int64_t first, int64_t count, void *out) {
    const cf_problem &p = state.im2col.problem;
    const int64_t pixels = count * p.p * p.q, reduction = cf::reduction_of(p);
    const int element_bytes = p.storage == CF_STORE_F32 ? 4 : 2;
    for (const cf::Columns &columns : state.columns)
        if (cf::fits_word(columns.pixels, element_bytes, pixels, out))
            return columns.launch(p, args, first, count, reduction, pixels, out);
    return cudaErrorInvalidValue; // words of one pixel always fit
}

int32_t launch(const State &state, const cf_args &args) {
    if (state.im2col.problem.layout == CF_NHWC)
        return cf::launch_tiles(state, args);
    const auto columnwise = [&](int64_t first, int64_t count, void *out) {
        return unroll(state, args, first, count, out);
    };
    return state.im2col.launch(args, columnwise, [&](const cf::Product &m) {
        return cf::multiply_tiles(state.kernel, args, m);
    });
}

} // namespace

extern "C" const cf_row CF_ROW(im2col_gemm, unroll) = {
    "im2col_gemm_unroll",
    "im2col_gemm",
    "im2col_gemm_shared with the loops over taps (NCHW) and over tiles of the product unrolled",
    "report A",
    cf::Im2colCaveat,
    CF_NEEDS_SM80,
    nullptr, // configs
    cf::Row<State, plan, prepare, launch>::functions(),
};
