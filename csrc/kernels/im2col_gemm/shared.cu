// im2col_gemm_shared: unroll the input, multiply by the filters, permute the product.
//
// The oldest way to make convolution fast: copy every input element once per tap that reads it, so
// that all sums become one matrix product, for which a 16x16 tile in shared memory already reuses
// each element 16 times. What is gained in the product is paid in memory: the unrolled matrix is
// r*s times the input (49 times for a 7x7 filter), written once and read k/16 times. It goes
// through the images in chunks, so that the matrix fits the workspace it is given.
//
// Stages: unroll (passes/unroll.cu), gemm (tile_product.cuh), permute (passes/finish.cu, with the
// epilogue). In NCHW the product comes out channel by channel over all images of the chunk,
// hence the permute; in NHWC it is in y's order, and the pass only narrows and applies the
// epilogue. The product's pointers promise nothing, as in report A's baseline: the rows with one
// thing changed (restrict, register_slices, unroll, constant) are to be compared with this one.
//
// Configurations:
//   tile=T          a tile of TxT outputs by TxT threads. An element is reused T times; 4x4 and 6x6
//                   threads fill one or two warps badly, and 32x32 is one block of 1024 threads.
//                   Few output channels leave most rows of a large tile idle, which is why report E
//                   found 16 best for 12 channels and 24 for 24.
//   unroll=scatter  report D's unrolling: a thread takes an input element to all places that read
//                   it. The input is read once and index arithmetic is per element and tap, but the
//                   writes of a warp lie apart where the stride is over 1, and with padding the
//                   matrix has to be zeroed first.
//   chunk=N         at most N images per chunk (report A: 1000). Large chunks fill the chip, small
//                   ones keep the unrolled matrix in the L2 between two stages.
#include "kernels/im2col_gemm/tile_product.cuh"

namespace {

struct Config {
    int tile;
    bool scatter;
    int images; // per chunk; 0 for what the workspace holds
};

const char *const configs[] = {"tile=16",        "tile=4",  "tile=6",    "tile=8",     "tile=10",
                               "tile=12",        "tile=14", "tile=18",   "tile=20",    "tile=22",
                               "tile=24",        "tile=26", "tile=28",   "tile=30",    "tile=32",
                               "unroll=scatter", "chunk=1", "chunk=100", "chunk=1000", nullptr};

constexpr Config Configs[] = {
    {16, false, 0}, {4, false, 0},  {6, false, 0},    {8, false, 0},     {10, false, 0},
    {12, false, 0}, {14, false, 0}, {18, false, 0},   {20, false, 0},    {22, false, 0},
    {24, false, 0}, {26, false, 0}, {28, false, 0},   {30, false, 0},    {32, false, 0},
    {16, true, 0},  {16, false, 1}, {16, false, 100}, {16, false, 1000},
};
static_assert(sizeof(configs) / sizeof(*configs) == sizeof(Configs) / sizeof(*Configs) + 1,
              "a configuration has a name and its numbers");

struct State : cf::TileState {
    bool scatter;
};

constexpr int64_t MostChunks = 10000;

// Of chunks of so many images, which a configuration asks for however much memory they take.
bool takes_chunks(const cf_query &query, const cf_plan &plan, int images, const cf::Refusal &no) {
    const int64_t chunks = cf::ceil_div(query.problem.n, images);
    const uint64_t half = query.device.memory_bytes / 2;
    if (chunks > MostChunks)
        return no("would take %lld chunks of %d images; it takes at most %lld", (long long)chunks,
                  images, (long long)MostChunks);
    if (plan.workspace_preferred > half)
        return no("wants %llu bytes for %lld images; half of the device's memory is %llu",
                  (unsigned long long)plan.workspace_preferred,
                  (long long)(plan.workspace_preferred / plan.workspace_least),
                  (unsigned long long)half);
    return true;
}

// Bytes of memory in whose time a scattered unrolling writes an element: 3.1 ps of an H200
// (h200-sweep.jsonl). A zeroing pass writes the element once more.
constexpr double ScatterBytes = 10.85;

double estimate(const cf_query &q, const Config &config) {
    const cf_problem &p = q.problem;
    const double scatter_us =
        cf::memory_us(q.device, (ScatterBytes + 4) * cf::unrolled_elements(p));
    const double unroll_us = config.scatter ? scatter_us : cf::gather_us(q, p.storage);
    const double chunks = config.images ? double(cf::ceil_div(p.n, config.images)) : 1;
    return cf::im2col_us(q, unroll_us, cf::tile_product_us(q, config.tile)) +
           (chunks - 1) * 3 * cf::LaunchUs;
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    const Config &config = Configs[query.config];
    state.im2col = cf::Im2col(p, p.storage, 1, config.images);
    state.im2col.chunks.workspace(plan);
    if (config.images && !takes_chunks(query, plan, config.images, no))
        return false;
    // The last four configurations change what is around the product.
    cf::for_value<16, 4, 6, 8, 10, 12, 14, 18, 20, 22, 24, 26, 28, 30, 32>(
        config.tile == 16 ? 0 : query.config,
        [&](auto tile) { state.kernel = cf::tile_kernel<decltype(tile)::value>(p); });
    state.scatter = config.scatter;
    plan.us = estimate(query, config);
    return cf::im2col_fits(p, state.kernel.block, no);
}

int32_t prepare(State &state) {
    if (state.scatter)
        if (const int32_t error = cf_prepare_unroll_scatter(&state.im2col.problem))
            return error;
    return cf::prepare_im2col(state);
}

int32_t launch(const State &state, const cf_args &args) {
    if (!state.scatter)
        return cf::launch_tiles(state, args);
    const auto scatter = [&](int64_t first, int64_t count, void *out) {
        return cf_unroll_scatter(&state.im2col.problem, &args, first, count, out);
    };
    return state.im2col.launch(args, scatter, [&](const cf::Product &m) {
        return cf::multiply_tiles(state.kernel, args, m);
    });
}

} // namespace

extern "C" const cf_row CF_ROW(im2col_gemm, shared) = {
    "im2col_gemm_shared",
    "im2col_gemm",
    "unroll the input, 16x16 shared-memory matrix product, permute; in chunks of images",
    "reports A (its baseline), B, C, D, E; Chellapilla et al. 2006",
    cf::Im2colCaveat,
    CF_NEEDS_SM80,
    configs,
    cf::Row<State, plan, prepare, launch>::functions(),
};
