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
#include "kernels/direct/halo_plan.cuh"

namespace {

constexpr int Sides[] = {16, 4, 8, 17, 20};
const char *const configs[] = {"block=16x16", "block=4x4",   "block=8x8",
                               "block=17x17", "block=20x20", nullptr};

template <class T, int SumMath, class Block>
__global__ void __launch_bounds__(Block::Threads, Block::Resident)
    direct_shared_kernel(const cf_problem p, const cf::Halo halo, const T *__restrict__ x,
                         const T *__restrict__ w, const cf::Output out, int64_t images) {
    cf::halo_shared_filter<Block, SumMath>(p, halo, x, w, out, images);
}

using State = cf::HaloState<const void *>;

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    const cf::HaloTiling tiling(p, Sides[query.config], 1, double(p.r) * p.s);
    if (!state.tile(query, tiling, plan, no))
        return false;
    plan.us = tiling.us(query, 5); // two loads, the FMA and a share of the loop
    cf::for_value<0, 1, 2, 3, 4>(query.config, [&](auto config) {
        using Block = cf::HaloBlock<Sides[config], 1>;
        cf::for_storage_and_sum(p, [&](auto storage, auto sum) {
            using T = typename cf::StorageType<decltype(storage)::value>::type;
            state.choose<Block>(direct_shared_kernel<T, decltype(sum)::value, Block>);
        });
    });
    return true;
}

int32_t launch(const State &state, const cf_args &args) { return state.launch(args, args.w); }

} // namespace

extern "C" const cf_row CF_ROW(direct, shared) = {
    "direct_shared",
    "direct",
    "a tile of outputs per block, its input with halo and the filter in shared memory",
    "reports C, E",
    cf::HaloCaveat,
    CF_NEEDS_SM80,
    configs,
    cf::Row<State, plan, cf::prepare_with_sums<State>, launch>::functions(),
};
