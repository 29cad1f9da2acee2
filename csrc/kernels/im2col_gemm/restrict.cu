// im2col_gemm_restrict: im2col_gemm_shared with pointers that promise not to overlap.
//
// A pointer without `__restrict__` may point anywhere, so a load may not move above a store through
// another pointer, and memory that is only read cannot be told from memory that is also written.
// With the promise on all three parameters the compiler may hoist and reorder loads, and may read
// the two matrices through the read-only path (ld.global.nc).
//
// In this product it has little to work with: the loop stores to shared memory only, which cannot
// alias global memory, and both barriers of a pass stand between the loads of one pass and the
// next. The one store through `product` comes after the last load. So what is left is the kind of
// the two load instructions, the only ones that differ (CUDA 13.0, sm_90a), and the pair is
// expected to be equal within the noise; report A saw 74.2 + 59.4 ms against 71.1 + 57.6 for its
// baseline without. The promise pays where a thread stores to global memory between loads.
//
// Configurations: `restrict`, and `plain`, whose kernel is the one of im2col_gemm_shared:tile=16
// (tile_product.cuh has both), so that the pair is compared within one row as well. Bounded as
// im2col_gemm_shared: the product by two shared-memory reads per FMA.
#include "kernels/im2col_gemm/tile_product.cuh"

namespace {

constexpr int Tile = 16;
constexpr int Restrict = 0; // the first configuration

const char *const configs[] = {"restrict", "plain", nullptr};

bool plan(const cf_query &query, cf::TileState &state, cf_plan &plan, const cf::Refusal &no) {
    state.kernel = query.config == Restrict ? cf::tile_kernel<Tile, 1, Tile, 1, true>(query.problem)
                                            : cf::tile_kernel<Tile>(query.problem);
    return cf::plan_tiles(query, state, plan, no);
}

} // namespace

extern "C" const cf_row CF_ROW(im2col_gemm, restrict) = {
    "im2col_gemm_restrict",
    "im2col_gemm",
    "im2col_gemm_shared with and without __restrict__ on the product's pointers",
    "report A",
    cf::Im2colCaveat,
    CF_NEEDS_SM80,
    configs,
    cf::Row<cf::TileState, plan, cf::prepare_im2col<cf::TileState>, cf::launch_tiles>::functions(),
};
