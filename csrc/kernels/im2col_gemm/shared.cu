// im2col_gemm_shared: unroll the input, multiply by the filters, permute the product.
//
// The oldest way to make convolution fast: copy every input element once per tap that reads it, so
// that all sums become one matrix product, for which a 16x16 tile in shared memory already reuses
// each element 16 times. What is gained in the product is paid in memory: the unrolled matrix is
// r*s times the input (49 times for a 7x7 filter), written once and read k/16 times. It goes
// through the images in chunks, so that the matrix fits the workspace it is given.
//
// Stages: unroll (csrc/unroll.cu), gemm (device/tile_product.cuh), permute (csrc/finish.cu, with
// the epilogue). In NCHW the product comes out channel by channel over all images of the chunk,
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

cf::Unrolled unrolled(const cf_call *call) {
    cf::Unrolled u = {call->problem.storage};
    if (const int images = Configs[call->config].images)
        u.images = images;
    return u;
}

cf_bytes workspace(const cf_call *call) {
    const cf_problem &p = call->problem;
    const int images = Configs[call->config].images;
    if (images == 0)
        return cf::im2col_workspace(call);
    const uint64_t bytes = cf::im2col_bytes(p, unrolled(call));
    return {bytes, bytes * uint64_t(std::min<int64_t>(images, p.n))};
}

constexpr int64_t MostChunks = 10000;

int32_t supports(const cf_call *call, char *why, uint64_t bytes) {
    const Config config = Configs[call->config];
    if (config.images) {
        const int64_t chunks = cf::ceil_div(call->problem.n, config.images);
        const uint64_t preferred = workspace(call).preferred;
        if (chunks > MostChunks)
            return cf::no(why, bytes, "would take %lld chunks of %d images; it takes at most %lld",
                          (long long)chunks, config.images, (long long)MostChunks);
        if (preferred > call->device.memory_bytes / 2)
            return cf::no(why, bytes,
                          "wants %llu bytes for %d images; half of the device's memory is %llu",
                          (unsigned long long)preferred, config.images,
                          (unsigned long long)(call->device.memory_bytes / 2));
    }
    return cf::im2col_supports(call, config.tile, config.tile, why, bytes);
}

// A tile of 16 was fitted to four measured layers, and is within 5 % of them. Others are assumed to
// spend a product's time on T products and that of 8 on staging, and to suffer from lanes that a
// block's last warp leaves idle. A scattered unrolling takes 3.1 ps for an
// element, and a zeroing pass.
double rank(const cf_call *call) {
    const cf_problem &p = call->problem;
    const Config config = Configs[call->config];
    const int threads = config.tile * config.tile;
    const double lanes = threads / cf::padded(threads, 32);
    const double rate = 5.9e6 * lanes * (1 + 8.0 / 16) / (1 + 8.0 / config.tile);
    const double elements = cf::unrolled_elements(p);
    const double unroll_us =
        config.scatter ? elements * 3.1e-6 + elements * 4 / cf::BytesPerUs : cf::gather_us(p);
    const double chunks = config.images ? double(cf::ceil_div(p.n, config.images)) : 1;
    return cf::im2col_us(p, unroll_us, cf::tiled_flops(p, config.tile) / rate) +
           (chunks - 1) * 3 * cf::LaunchUs;
}

int32_t launch(const cf_call *call) {
    const auto multiply = [&](const cf::Product &m) {
        // The last four configurations change what is around the product.
        const int index = Configs[call->config].tile == 16 ? 0 : call->config;
        return cf::for_value<16, 4, 6, 8, 10, 12, 14, 18, 20, 22, 24, 26, 28, 30, 32>(
            index, [&](auto tile) { return cf::multiply_tiles<decltype(tile)::value>(call, m); });
    };
    if (!Configs[call->config].scatter)
        return cf::im2col_gemm(call, unrolled(call), multiply);
    const auto scatter = [&](int64_t first, int64_t count, void *out) {
        return cf_unroll_scatter(call, first, count, out);
    };
    return cf::im2col_gemm(call, unrolled(call), scatter, multiply);
}

} // namespace

extern "C" const cf_row im2col_gemm_shared = {
    "im2col_gemm_shared",
    "im2col_gemm",
    "unroll the input, 16x16 shared-memory matrix product, permute; in chunks of images",
    "reports A (its baseline), B, C, D, E; Chellapilla et al. 2006",
    80,
    INT32_MAX,
    configs,
    supports,
    workspace,
    nullptr, // packed_bytes
    nullptr, // pack
    nullptr, // bind
    rank,
    launch,
};
