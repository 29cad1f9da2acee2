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
#include "kernels/direct/halo_plan.cuh"

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
                                 const T *__restrict__ w, const cf::Output out, int64_t images) {
    cf::halo_shared_filter<Block, SumMath>(p, halo, x, w, out, images);
}

using State = cf::HaloState<const void *>;

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    const int side = Sides[query.config], images = Images[query.config];
    const cf::HaloTiling tiling(p, side, images, double(p.r) * p.s);
    if (!state.tile(query, tiling, plan, no))
        return false;
    // As direct_shared; a weight that a thread reads for several images costs each of them less.
    const double product = side * side * images > cf::MaxThreads ? 2.5 + 2.5 / images : 5;
    plan.us = tiling.us(query, product);
    cf::for_value<0, 1, 2, 3, 4, 5>(query.config, [&](auto config) {
        using Block = cf::HaloBlock<Sides[config], Images[config]>;
        cf::for_storage_and_sum(p, [&](auto storage, auto sum) {
            using T = typename cf::StorageType<decltype(storage)::value>::type;
            state.choose<Block>(direct_shared_batched_kernel<T, decltype(sum)::value, Block>);
        });
    });
    return true;
}

int32_t launch(const State &state, const cf_args &args) { return state.launch(args, args.w); }

} // namespace

extern "C" const cf_row CF_ROW(direct, shared_batched) = {
    "direct_shared_batched",
    "direct",
    "direct_shared with several images per block, which share the filter",
    "report C",
    cf::HaloCaveat,
    CF_NEEDS_SM80,
    configs,
    cf::Row<State, plan, cf::prepare_with_sums<State>, launch>::functions(),
};
