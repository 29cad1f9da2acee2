// im2col_gemm_register_slices: im2col_gemm_shared, operands passing through registers in slices.
//
// Report A's "joint register and shared tiling": of the 16 products that a thread takes from a tile
// in shared memory, four at a time have their operands loaded into registers, four of the unrolled
// matrix and four of the filter, and are then summed. It should hide the latency of shared memory:
// eight loads are under way before the first product waits for one.
//
// No reuse is gained. A register is read once, as the word of shared memory it came from was: one
// thread has one output, so each product still costs two shared-memory reads, and those bound the
// kernel. (Registers gain when one value feeds several outputs of a thread: im2col_gemm_register.)
// Report A saw 91.4 + 57.2 ms against 71.1 + 57.6.
//
// Configurations:
//   slices=looped    a loop of four slices, each with four loads of both sides and four products
//   slices=unrolled  that loop unrolled: the order of loads is then the compiler's to choose, and
//                    in fp32 it makes the machine code of im2col_gemm_shared (CUDA 13.0, sm_90a)
#include "kernels/im2col_gemm/tile_product.cuh"

namespace {

constexpr int Tile = 16;
constexpr int Slice = 4; // products whose operands are in registers together

const char *const configs[] = {"slices=looped", "slices=unrolled", nullptr};

bool plan(const cf_query &query, cf::TileState &state, cf_plan &plan, const cf::Refusal &no) {
    cf::for_value<1, Tile / Slice>(query.config, [&](auto slices) {
        state.kernel = cf::tile_kernel<Tile, Slice, decltype(slices)::value>(query.problem);
    });
    return cf::plan_tiles(query, state, plan, no);
}

} // namespace

extern "C" const cf_row CF_ROW(im2col_gemm, register_slices) = {
    "im2col_gemm_register_slices",
    "im2col_gemm",
    "16x16 product, one output per thread, operands in registers four products at a time",
    "report A (\"joint register and shared tiling\")",
    cf::Im2colCaveat,
    CF_NEEDS_SM80,
    configs,
    cf::Row<cf::TileState, plan, cf::prepare_im2col<cf::TileState>, cf::launch_tiles>::functions(),
};
