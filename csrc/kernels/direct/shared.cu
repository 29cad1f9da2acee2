// direct_shared: a tile of outputs, its input with the halo and its filter in shared memory.
//
// Neighbouring outputs read almost the same input: of the r*s inputs of one, all but r or s are its
// neighbour's too. A block of threads, one per output of a tile, therefore copies the input of the
// tile into shared memory once per channel, beside the r*s weights, and then reads only from there.
// For a 16x16 tile and a 7x7 filter that is 22*22 loads from global memory instead of 256*49.
//
// As in the reports, a block computes one output channel of one image, so all k blocks of a tile
// load the same input. Report C fell from 187 + 3183 ms to 15.5 + 111 ms against its own first
// kernel; report E became slower, and blamed the threads that diverge while they load the halo.
//
// What bounds it is shared memory itself: each product reads its input and its weight from there,
// two loads for one FMA, while a multiprocessor can do four FMAs in the time of one load. Two
// barriers per channel and a tile of little more than a load per thread leave much of the time to
// latency as well. In NHWC the pixels of one channel lie c elements apart, so staging wastes most
// of each sector that it reads.
#include "kernels/direct/halo.cuh"

namespace {

constexpr int Sides[] = {16, 4, 8, 17, 20};
const char *const configs[] = {"block=16x16", "block=4x4",   "block=8x8",
                               "block=17x17", "block=20x20", nullptr};

template <class T, int SumMath, class Block>
__global__ void __launch_bounds__(Block::Threads, Block::Resident)
    direct_shared_kernel(const cf_problem p, const cf::Halo halo, const T *__restrict__ x,
                         const T *__restrict__ w, const cf::Out<T> out, int64_t images) {
    cf::halo_shared_filter<Block, SumMath>(p, halo, x, w, out, images);
}

double weights(const cf_problem &p) { return double(p.r) * p.s; }

int32_t supports(const cf_call *call, char *why, uint64_t bytes) {
    return cf::halo_supports(call, Sides[call->config], 1, weights(call->problem), why, bytes);
}

// Two loads, the FMA and a share of the loop.
double rank(const cf_call *call) { return cf::halo_us(call->problem, Sides[call->config], 1, 5); }

int32_t launch(const cf_call *call) {
    const cf_problem &p = call->problem;
    return cf::with_sums(call, "direct", [&](int64_t first, int64_t count, float *sums) {
        return cf::for_value<0, 1, 2, 3, 4>(call->config, [&](auto config) {
            using Block = cf::HaloBlock<Sides[config], 1>;
            return cf::for_storage_and_sum(p, [&](auto storage, auto sum) {
                using T = typename cf::StorageType<decltype(storage)::value>::type;
                return cf::halo_launch<Block>(
                    call, direct_shared_kernel<T, decltype(sum)::value, Block>, count, weights(p),
                    p, cf::halo(p, Block::Side), static_cast<const T *>(call->x),
                    static_cast<const T *>(call->w), cf::out<T>(call, sums, first), count);
            });
        });
    });
}

} // namespace

extern "C" const cf_row direct_shared = {
    "direct_shared",
    "direct",
    "a tile of outputs per block, its input with halo and the filter in shared memory",
    "reports C, E",
    80,
    INT32_MAX,
    configs,
    supports,
    cf::sums_workspace,
    nullptr, // packed_bytes
    nullptr, // pack
    nullptr, // bind
    rank,
    launch,
};
