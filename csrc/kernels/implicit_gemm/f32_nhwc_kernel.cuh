// The kernel of implicit_gemm_f32_nhwc: two warpgroups multiply and store, one splits the pixels
// that they read, warps of a fourth one ask for what comes from memory.
#pragma once

#include "core/cluster_launch.cuh"
#include "kernels/implicit_gemm/begin.cuh"
#include "kernels/implicit_gemm/f32_nhwc_split.cuh"
#include "kernels/implicit_gemm/f32_task.cuh"
#include "kernels/implicit_gemm/nhwc_parts.cuh"
#include "ptx/grid.cuh"
#include "ptx/registers.cuh"

namespace cf::implicit_f32 {

using Launched = ClusterKernel<Plan, CUtensorMap, const void *, void *, Finish>;

#if CF_SM90A
// A thread's in each warpgroup: together those that a block is launched with.
constexpr int ConsumerRegisters = 200, SplitterRegisters = 88, ProducerRegisters = 24;
static_assert(Warpgroup *
                  (Warpgroups * ConsumerRegisters + SplitterRegisters + ProducerRegisters) <=
              65536);

// The second warpgroup begins some taps behind the first one, and stays behind: so one multiplies
// while the other one stores.
template <int N>
__device__ __forceinline__ void consume(const Block &block, const char *filter, float *y,
                                        const Finish &finish, int warp, int lane) {
    using namespace implicit_gemm;
    const Tiling &t = block.tiling;
    const int warpgroup = warp / 4;
    const int pixel_ring = t.apart ? warpgroup : 0, weight_ring = t.apart ? 0 : warpgroup;
    Held held(block, warpgroup, lane);
    if (warpgroup > 0 && t.lead > 0 && block.count > 0)
        block.shared.lead.wait(0);
    for (int m = 0; m < block.count; ++m)
        for (int turn = 0; turn < block.plan.sweep; ++turn) {
            float sums[N / 2];
            multiply_tile<N>(block, held, CopiedLines{t}, pixel_ring, weight_ring,
                             turn + 1 < block.plan.sweep, sums);
            // Behind the products, whose sums leave no room for it.
            const Place place = block.place(m, turn, pixel_ring);
            const RowFactors factors(block, filter, place, weight_ring, warp % 4, lane);
#pragma unroll
            for (int i = 0; i < N / 2; ++i)
                sums[i] *= factors.of[i / 2 % 2];
            if (t.parts > 1) {
                store_parts<float, N>(block, warp, lane, place, warpgroup, sums, y, finish);
            } else {
                const StoreLane<float, N> at(t, block.staged(warpgroup), warp, lane);
                store_tile<float, N>(at, Target<float>(t, place, warpgroup, 0, N), sums, y, finish);
            }
        }
}
#endif

template <int N>
__global__ void __launch_bounds__(Threads, 1)
    implicit_gemm_f32_nhwc_kernel(const __grid_constant__ Plan plan,
                                  const __grid_constant__ CUtensorMap x, const char *filter,
                                  float *y, const __grid_constant__ Finish finish) {
#if CF_SM90A
    extern __shared__ __align__(1024) unsigned char dynamic[];
    __shared__ Shared shared;
    static_assert(sizeof(shared) <= StaticShared, "the plan leaves room for it");
    let_next_kernel_begin();
    const Block block(plan, shared, dynamic);
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    constexpr int Warps = Warpgroup / 32;
    const int role = warp / Warps, of_role = warp % Warps;
    if (role <= Warpgroups) {
        if (warp == 0 && lane == 0)
            shared.init_for_consumers(plan.tiling.parts);
        clear_behind_boxes<(Warpgroups + 1) * Warpgroup>(block);
        implicit_gemm::begin(plan.tiling, Threads, true);
        if (role < Warpgroups) {
            take_registers<ConsumerRegisters>();
            consume<N>(block, filter, y, finish, warp, lane);
        } else {
            give_registers<SplitterRegisters>();
            split_pixels(block, filter, of_role, lane);
            implicit_gemm::meet_for_parts(plan.tiling);
        }
        return;
    }
    give_registers<ProducerRegisters>();
    const int ring = of_role % Warpgroups;
    if (of_role < Warpgroups) {
        if (lane == 0)
            prefetch_map(x);
        init_pixel_ring(block, ring, Warpgroup, lane);
        implicit_gemm::begin(plan.tiling, Threads, false);
        if (ring < plan.pixel_rings())
            produce_pixels(block, x, ring, lane);
    } else {
        init_weight_ring(block, ring, lane);
        implicit_gemm::begin(plan.tiling, Threads, false);
        if (ring < plan.weight_rings())
            produce_weights(block, filter, ring, lane);
    }
    implicit_gemm::meet_for_parts(plan.tiling);
#else
    not_compiled();
#endif
}

// The kernel for products of so many pixels, whose grid and shared memory the plan adds. The files
// of f32_nhwc/ compile narrow and wide ones.
Launched narrow_kernel(int width, dim3 grid, size_t shared);
Launched wide_kernel(int width, dim3 grid, size_t shared);

template <class Widths>
Launched kernel_among(Widths widths, int width, dim3 grid, size_t shared) {
    return implicit_gemm::kernel_among<Launched>(widths, width, [&](auto n) {
        return kernel_of(implicit_gemm_f32_nhwc_kernel<n.value>, grid, Threads, shared, true);
    });
}

} // namespace cf::implicit_f32
