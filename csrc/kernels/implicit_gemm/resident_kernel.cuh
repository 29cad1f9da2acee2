// The kernel of implicit_gemm_resident: two warpgroups multiply and store, a warp asks for rows of
// x and one for the filter.
#pragma once

#include "kernels/implicit_gemm/resident_store.cuh"
#include "kernels/implicit_gemm/resident_task.cuh"
#include "ptx/grid.cuh"
#include "ptx/registers.cuh"

namespace cf::implicit_resident {

using Launched = cf::Kernel<Tiling, CUtensorMap, const void *, void *, Finish>;

#if CF_SM90A
__device__ __forceinline__ void init_barriers(const Tiling &t, Shared &shared, int lane) {
    shared.rows.init(t.stages, 1, ConsumerWarps, lane);
    if (lane < Warpgroups)
        shared.asked[lane].init(WarpgroupWarps);
    if (lane < t.rows)
        shared.filter[lane].init(1);
    publish_barriers();
}

// Every second row of the block's, by a warpgroup.
template <class Element, int N, int Depth>
__device__ __forceinline__ void consume(const Block &block, Element *y, const Finish &finish,
                                        int warp, int lane) {
    const int warpgroup = warp / WarpgroupWarps;
    const RowStore<Element, N> store(block, warp, lane);
    Multiplier<Element, N, Depth> multiplier(block, warpgroup, lane);
    int first = 0;       // row of x of a run, among the block's
    int row = warpgroup; // of the run
    for_runs(block.tiling, [&](const Run &run) {
        const int end = first + run.rows + reach(block.tiling);
#pragma unroll 1
        for (; row < run.rows; row += Warpgroups) {
            Sums<N> sums;
            multiplier.multiply(first + row, sums);
            store.store(run, row, sums[1], y, finish);
        }
        multiplier.release_before(end);
        first = end;
        row -= run.rows;
    });
}
#endif

template <class Element, int N, int Depth>
__global__ void __launch_bounds__(Threads, 1)
    implicit_gemm_resident_kernel(const __grid_constant__ Tiling tiling,
                                  const __grid_constant__ CUtensorMap x, const char *filter,
                                  Element *y, const __grid_constant__ Finish finish) {
#if CF_SM90A
    extern __shared__ __align__(1024) unsigned char dynamic[];
    __shared__ Shared shared;
    static_assert(sizeof(shared) <= StaticShared, "the plan leaves room for it");
    let_next_kernel_begin();
    const uint32_t first = (shared_address(dynamic) + LineAlign - 1) & ~(LineAlign - 1);
    const Block block(tiling, shared, first);
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (warp == 0)
        init_barriers(tiling, shared, lane);
    __syncthreads();
    wait_for_kernels_before();
    if (warp < ConsumerWarps) {
        take_registers<ConsumerRegisters>();
        consume<Element, N, Depth>(block, y, finish, warp, lane);
        return;
    }
    give_registers<ProducerRegisters>();
    if (warp == ConsumerWarps)
        produce_rows(block, x, lane);
    else if (warp == ConsumerWarps + 1)
        load_filter(block, filter, lane);
#else
    not_compiled();
#endif
}

// The kernel for products of so many columns and steps, whose grid and shared memory the plan adds;
// a file of resident/ compiles those of a type of elements.
template <class Element>
Launched kernel_for(int width, int depth, dim3 grid, size_t shared);

template <class Element, int... N>
Launched kernel_among(std::integer_sequence<int, N...>, int width, int depth, dim3 grid,
                      size_t shared) {
    Launched launched;
    const auto choose = [&](auto own_width, auto own_depth) {
        constexpr int Width = own_width.value, Depth = own_depth.value;
        if (Width == width && Depth == depth)
            launched = kernel_of(implicit_gemm_resident_kernel<Element, Width, Depth>, grid,
                                 Threads, shared, true);
    };
    (choose(Constant<N>(), Constant<Steps / 2>()), ...);
    (choose(Constant<N>(), Constant<Steps>()), ...);
    return launched;
}

} // namespace cf::implicit_resident
