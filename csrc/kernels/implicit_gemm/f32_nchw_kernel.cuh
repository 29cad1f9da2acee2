// The kernel of implicit_gemm_f32_nchw: two warpgroups multiply and store, further warps split what
// they load of x, and the last of these ask for weights.
#pragma once

#include "core/cluster_launch.cuh"
#include "kernels/implicit_gemm/begin.cuh"
#include "kernels/implicit_gemm/f32_nchw_load.cuh"
#include "kernels/implicit_gemm/f32_task.cuh"
#include "kernels/implicit_gemm/nchw_direct.cuh"
#include "kernels/implicit_gemm/nchw_parts.cuh"
#include "ptx/grid.cuh"
#include "ptx/registers.cuh"

namespace cf::implicit_f32 {

using PlanarLaunched = ClusterKernel<Plan, Planes, const void *, const void *, void *, Finish>;

#if CF_SM90A
// Registers of a thread that multiplies, and of one that splits: together those that a block is
// launched with.
constexpr int MultiplyRegisters = 176, SplitRegisters = 80;
// Barriers of the block, by number, beside that of all and one for each warpgroup that multiplies:
// until loaders have initialised what they need; until what they write beside is clear.
constexpr int LoadersBar = 1 + Warpgroups, CleanBar = 2 + Warpgroups;
static_assert(Warpgroup * Warpgroups * (MultiplyRegisters + SplitRegisters) <= 65536);

// Where taps of a row of a load begin, of lines that loaders wrote.
struct WrittenLines {
    static constexpr bool Written = true;
    const Planes &planes;
    int column_offset;

    __device__ __forceinline__ uint32_t tap(int s) const {
        return implicit_nchw::tap_line(planes, s * column_offset);
    }
    __device__ __forceinline__ uint32_t group_bytes() const { return LineAlign; }
};

template <int N>
__device__ __forceinline__ void consume_planes(const Block &block, const Planes &planes,
                                               const char *filter, float *y, const Finish &finish,
                                               int warp, int lane) {
    const Tiling &t = block.tiling;
    const int warpgroup = warp / 4, row = t.apart ? 0 : warpgroup * RowChannels;
    const int pixel_ring = t.apart ? warpgroup : 0, weight_ring = t.apart ? 0 : warpgroup;
    const implicit_nchw::PlanarStore<float, N, false> store(t, planes, block.staged(0), warp, lane);
    Held held(block, warpgroup, lane);
    if (warpgroup > 0 && t.lead > 0 && block.count > 0)
        block.shared.lead.wait(0);
    for (int m = 0; m < block.count; ++m)
        for (int turn = 0; turn < block.plan.sweep; ++turn) {
            float sums[N / 2];
            multiply_tile<N>(block, held, WrittenLines{planes, t.column_offset}, pixel_ring,
                             weight_ring, turn + 1 < block.plan.sweep, sums);
            const Place place = block.place(m, turn, pixel_ring);
            const RowFactors factors(block, filter, place, weight_ring, warp % 4, lane);
#pragma unroll
            for (int i = 0; i < N / 2; ++i)
                sums[i] *= factors.of[i / 2 % 2];
            if (t.parts > 1)
                implicit_nchw::store_parts(
                    implicit_nchw::PlanarParts<Block, float, N, false>{block, store, warp, lane},
                    place, row, sums, y, finish);
            else
                implicit_nchw::store_whole<float, N>(store, block.staged(0), place,
                                                     row + warp % 4 * 16, sums, y, finish);
        }
}

#endif

template <int N>
__global__ void __launch_bounds__(PlanarThreads, 1)
    implicit_gemm_f32_nchw_kernel(const __grid_constant__ Plan plan,
                                  const __grid_constant__ Planes planes, const float *x,
                                  const char *filter, float *y,
                                  const __grid_constant__ Finish finish) {
#if CF_SM90A
    extern __shared__ __align__(1024) unsigned char dynamic[];
    __shared__ Shared shared;
    static_assert(sizeof(shared) <= StaticShared, "the plan leaves room for it");
    let_next_kernel_begin();
    const Block block(plan, shared, dynamic);
    const Tiling &t = plan.tiling;
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const int further = warp - implicit_nchw::ConsumerWarps;
    if (further < 0) {
        if (warp == 0 && lane == 0)
            shared.init_for_consumers(t.parts);
        implicit_nchw::list_all_places<float, N>(t, planes, block.staged(0));
        clear_behind_boxes<Warpgroups * Warpgroup>(block);
        arrive_at_bar<CleanBar>(Warpgroups * Warpgroup + planes.loaders * 32);
        implicit_gemm::begin(t, PlanarThreads, true);
        take_registers<MultiplyRegisters>();
        consume_planes<N>(block, planes, filter, y, finish, warp, lane);
        return;
    }
    give_registers<SplitRegisters>();
    if (further < planes.loaders) {
        if (further == 0)
            for (int ring = 0; ring < plan.pixel_rings(); ++ring)
                init_pixel_ring(block, ring, planes.loaders * 32, lane);
        VectorPlace::list(t, planes, block.slots() + slots_bytes(planes.loaders), further, lane);
        implicit_gemm::begin(t, PlanarThreads, false);
        wait_at_bar<LoadersBar>(planes.loaders * 32);
        produce_split(block, planes, x, filter, further, lane,
                      [&] { wait_at_bar<CleanBar>(Warpgroups * Warpgroup + planes.loaders * 32); });
    } else if (further == MostLoaders) {
        for (int ring = 0; ring < plan.weight_rings(); ++ring)
            init_weight_ring(block, ring, lane);
        implicit_gemm::begin(t, PlanarThreads, false);
        produce_weights_of_all(block, filter, lane);
    } else {
        implicit_gemm::begin(t, PlanarThreads, false);
    }
    __syncwarp();
    implicit_gemm::meet_for_parts(t);
#else
    not_compiled();
#endif
}

// The kernel for products of so many pixels, whose grid and shared memory the plan adds. The files
// of f32_nchw/ compile narrow and wide ones.
PlanarLaunched narrow_planar_kernel(int width, dim3 grid, size_t shared);
PlanarLaunched wide_planar_kernel(int width, dim3 grid, size_t shared);

template <class Widths>
PlanarLaunched planar_kernel_among(Widths widths, int width, dim3 grid, size_t shared) {
    return implicit_gemm::kernel_among<PlanarLaunched>(widths, width, [&](auto n) {
        return kernel_of(implicit_gemm_f32_nchw_kernel<n.value>, grid, PlanarThreads, shared, true);
    });
}

} // namespace cf::implicit_f32
