// direct_shared_batched: direct_shared with several images per block.
//
// The filter of an output channel is the same for all images, so a block that computes the same
// tile of several images loads it once for all of them. Report C lets the third dimension of the
// block be the image: 8x8 threads and 4 images were best, 15.4 + 60.4 ms at 10000 images where one
// image per block had taken 15.5 + 111. The weights are few beside the input tile, so what is
// gained is mostly the larger block: more threads to hide the two barriers of each channel, at a
// tile that is small enough to waste little at the edge.
//
// Where block x images exceeds 1024 threads (17x17 and 20x20), every thread computes its output of
// all images: then a weight that was read once feeds four FMAs, from registers. Otherwise the bound
// is that of direct_shared. The last block of a batch that is no multiple computes fewer.
#include "kernels/direct/halo.cuh"

namespace {

constexpr int Sides[] = {8, 8, 8, 4, 17, 20}, Images[] = {4, 1, 8, 4, 4, 4};
const char *const configs[] = {"block=8x8,images=4",
                               "block=8x8,images=1",
                               "block=8x8,images=8",
                               "block=4x4,images=4",
                               "block=17x17,images=4",
                               "block=20x20,images=4",
                               nullptr};

template <class T, int SumMath, class Block>
__global__ void __launch_bounds__(Block::Threads, Block::Resident)
    direct_shared_batched_kernel(const cf_problem p, const cf::Halo halo, const T *__restrict__ x,
                                 const T *__restrict__ w, const cf::Out<T> out, int64_t images) {
    cf::halo_shared_filter<Block, SumMath>(p, halo, x, w, out, images);
}

double weights(const cf_problem &p) { return double(p.r) * p.s; }

int32_t supports(const cf_call *call, char *why, uint64_t bytes) {
    return cf::halo_supports(call, Sides[call->config], Images[call->config],
                             weights(call->problem), why, bytes);
}

// As direct_shared; a weight that several images share costs each of them less.
double rank(const cf_call *call) {
    const int side = Sides[call->config], images = Images[call->config];
    const double product = side * side * images > 1024 ? 2.5 + 2.5 / images : 5;
    return cf::halo_us(call->problem, side, images, product);
}

int32_t launch(const cf_call *call) {
    const cf_problem &p = call->problem;
    return cf::with_sums(call, "direct", [&](int64_t first, int64_t count, float *sums) {
        return cf::for_value<0, 1, 2, 3, 4, 5>(call->config, [&](auto config) {
            using Block = cf::HaloBlock<Sides[config], Images[config]>;
            return cf::for_storage_and_sum(p, [&](auto storage, auto sum) {
                using T = typename cf::StorageType<decltype(storage)::value>::type;
                return cf::halo_launch<Block>(
                    call, direct_shared_batched_kernel<T, decltype(sum)::value, Block>, count,
                    weights(p), p, cf::halo(p, Block::Side), static_cast<const T *>(call->x),
                    static_cast<const T *>(call->w), cf::out<T>(call, sums, first), count);
            });
        });
    });
}

} // namespace

extern "C" const cf_row direct_shared_batched = {
    "direct_shared_batched",
    "direct",
    "direct_shared with several images per block, which share the filter",
    "report C",
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
