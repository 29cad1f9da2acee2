// The kernel of implicit_gemm_pointwise_shared: two warpgroups multiply and store, one warp asks
// for copies.
#pragma once

#include "core/cluster_launch.cuh"
#include "kernels/implicit_gemm/pointwise_shared_store.cuh"
#include "kernels/implicit_gemm/pointwise_shared_task.cuh"
#include "ptx/bar.cuh"
#include "ptx/grid.cuh"
#include "ptx/registers.cuh"

namespace cf::pointwise_shared {

using Launched =
    cf::ClusterKernel<Tiling, CUtensorMap, CUtensorMap, CUtensorMap, const void *, void *, Finish>;

#if CF_SM90A
// Until all of the block, and its peer, have barriers, and what the kernels before wrote is there.
// Who asks for copies has initialised them itself, and does not wait for the others of the block.
__device__ __forceinline__ void begin(const Tiling &t, bool waits) {
    if (waits)
        wait_at_bar<0>(Threads); // counted, as those who arrived may have left
    else
        arrive_at_bar<0>(Threads);
    if (t.peers > 1) {
        arrive_at_cluster();
        wait_for_arrivals_at_cluster();
    }
    wait_for_kernels_before();
}

template <class Element, int Columns, int Parities>
__device__ __forceinline__ void consume(const Tiling &t, Shared &shared, uint32_t first, int warp,
                                        int lane, const CUtensorMap &y_map, Element *y,
                                        const Finish &finish) {
    const StridedTiles tiles = StridedTiles::of_block();
    const int count = tiles.count(t.tiles), warpgroup = warp / WarpgroupWarps;
    const uint32_t staged = first + t.stages * t.stage_bytes;
    RingPosition at;
#pragma unroll 1
    for (int m = 0; m < count; ++m) {
        const Place place(t, tiles.tile(m));
        if (place.k + warpgroup * RowChannels >= t.group_k) {
            pass_over(t, shared, lane, at);
            continue;
        }
        float sums[Parities][Columns / 2];
        multiply<Element, Columns, Parities>(t, shared, first, warpgroup, lane, at, sums);
        store<Element, Columns, Parities>(t, place, warp, lane, sums[0], staged, y_map, y, finish);
    }
    wait_for_stores_to_read();
}
#endif

template <class Element, int Columns, int Parities>
__global__ void __launch_bounds__(Threads, 1)
    implicit_gemm_pointwise_shared_kernel(const __grid_constant__ Tiling tiling,
                                          const __grid_constant__ CUtensorMap strips,
                                          const __grid_constant__ CUtensorMap strip,
                                          const __grid_constant__ CUtensorMap y_map,
                                          const char *filter, Element *y,
                                          const __grid_constant__ Finish finish) {
#if CF_SM90A
    extern __shared__ __align__(1024) unsigned char dynamic[];
    __shared__ Shared shared;
    static_assert(sizeof(shared) <= StaticShared, "the plan leaves room for it");
    let_next_kernel_begin();
    const uint32_t first = (shared_address(dynamic) + LineAlign - 1) & ~(LineAlign - 1);
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (warp < ConsumerWarps) {
        begin(tiling, true);
        take_registers<ConsumerRegisters>();
        consume<Element, Columns, Parities>(tiling, shared, first, warp, lane, y_map, y, finish);
    } else {
        give_registers<ProducerRegisters>();
        if (warp == ConsumerWarps) {
            if (lane == 0)
                prefetch_map(strips);
            shared.ring.init(tiling.stages, 1, ConsumerWarps * tiling.peers, lane);
            publish_barriers();
            __syncwarp();
        }
        begin(tiling, false);
        if (warp == ConsumerWarps)
            produce<Columns, Parities>(tiling, shared, first, {strips, strip}, filter, lane);
    }
#else
    not_compiled();
#endif
}

// The kernel of a shape, whose grid and shared memory the plan adds; a file of pointwise_shared/
// compiles those of a type of elements.
template <class Element>
Launched kernel_for(const Shape &shape, int peers, dim3 grid, size_t shared);

template <class Element, size_t... I>
Launched kernel_among(std::index_sequence<I...>, const Shape &shape, int peers, dim3 grid,
                      size_t shared) {
    Launched launched;
    const auto choose = [&](auto number) {
        constexpr Shape Own = Shapes[number.value];
        if (Own.columns == shape.columns && Own.parities == shape.parities)
            launched.kernel =
                kernel_of(implicit_gemm_pointwise_shared_kernel<Element, Own.columns, Own.parities>,
                          grid, Threads, shared, true);
    };
    (choose(Constant<int(I)>()), ...);
    launched.cluster = unsigned(peers);
    return launched;
}

} // namespace cf::pointwise_shared
