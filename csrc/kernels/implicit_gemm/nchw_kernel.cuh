// The kernel of implicit_gemm_nchw: two warpgroups multiply and store, warps of one or two more
// bring x through registers, and the last of them asks for weights.
#pragma once

#include "core/cluster_launch.cuh"
#include "kernels/implicit_gemm/begin.cuh"
#include "kernels/implicit_gemm/nchw_direct.cuh"
#include "kernels/implicit_gemm/nchw_load.cuh"
#include "kernels/implicit_gemm/nchw_parts.cuh"
#include "kernels/implicit_gemm/nchw_task.cuh"
#include "ptx/grid.cuh"
#include "ptx/registers.cuh"

namespace cf::implicit_nchw {

using StraightLaunched =
    cf::ClusterKernel<Tiling, Planes, CUtensorMap, const void *, void *, Finish>;
using Launched = cf::ClusterKernel<Tiling, Planes, const void *, const void *, void *, Finish>;

#if CF_SM90A
// Registers of a thread that multiplies, and of one that brings what is multiplied.
__host__ __device__ constexpr int multiply_registers(int loaders, bool straight) {
    return straight ? 232 : loaders == 8 ? 160 : 200;
}
__host__ __device__ constexpr int load_registers(int loaders, bool straight) {
    return straight ? 40 : loaders == 8 ? 96 : 104;
}
// Whether they are not more than what blocks are launched with.
__host__ __device__ constexpr bool registers_fit(int loaders, bool straight) {
    const int warps = ConsumerWarps + loaders;
    return ConsumerWarps * multiply_registers(loaders, straight) +
               loaders * load_registers(loaders, straight) <=
           warps * (65536 / (warps * 32) / 8 * 8);
}

// Lines behind boxes of x, which taps read as the zeros behind the last row. By who multiplies.
__device__ __forceinline__ void zero_behind_boxes(const Block &block) {
    const Tiling &t = block.tiling;
    for (int ring = 0; ring < block.rings(); ++ring)
        for (int stage = 0; stage < t.pixel_stages; ++stage)
            for (uint32_t i = threadIdx.x * 16; i < t.zero_bytes; i += ConsumerWarps * 32 * 16)
                store_shared4(block.pixels(ring, stage) + t.pixel_bytes + i, 0, 0, 0, 0);
    publish_to_bulk_copies();
}

// Each lane of a loader arrives for each box; copies arrive once. By a loader.
__device__ __forceinline__ void init_pixel_rings(const Block &block, const Planes &planes,
                                                 int lane) {
    const Tiling &t = block.tiling;
    for (int ring = 0; ring < block.rings(); ++ring)
        block.shared.pixels[ring].init(t.pixel_stages, planes.straight ? 1 : planes.loaders * 32,
                                       t.apart ? ConsumerWarps / 2 : ConsumerWarps, lane);
}

// The second warpgroup begins some taps behind the first one, and stays behind: so one multiplies
// while the other one stores.
template <class Element, int N, bool Straight>
__device__ __forceinline__ void consume(const Block &block, const Planes &planes, Element *y,
                                        const Finish &finish, int warp, int lane) {
    const int warpgroup = warp / 4, ring = block.tiling.apart ? warpgroup : 0;
    const int row = block.tiling.apart ? 0 : warpgroup * RowChannels;
    const PlanarStore<Element, N, Straight> store(block.tiling, planes, block.staged(0), warp,
                                                  lane);
    Held held(block, ring, warpgroup == 0 ? block.tiling.lead : 0, lane);
    if (warpgroup > 0 && block.count > 0)
        block.shared.lead.wait(0);
    for (int m = 0; m < block.count; ++m) {
        float sums[N / 2];
        if constexpr (Straight)
            multiply_straight<Element, N>(block, held, ring, row * LineBytes, sums);
        else
            multiply_planes<Element, N>(block, planes, held, ring, row * LineBytes, sums);
        const Place place = block.place(m, ring);
        if (block.tiling.parts > 1)
            store_parts(PlanarParts<Block, Element, N, Straight>{block, store, warp, lane}, place,
                        row, sums, y, finish);
        else
            store_whole<Element, N>(store, block.staged(0), place, row + warp % 4 * 16, sums, y,
                                    finish);
    }
}

template <class Element>
__device__ __forceinline__ void produce(const Block &block, const Planes &planes, const Element *x,
                                        int loader, int lane) {
    const auto load = [&](auto vector) {
        produce_planes<Element, vector.value>(block, planes, x, loader, lane);
    };
    switch (planes.vector) {
    case 1:
        return load(Constant<1>());
    case 2:
        return load(Constant<2>());
    case 4:
        return load(Constant<4>());
    default:
        if constexpr (sizeof(Element) == 2)
            load(Constant<8>());
    }
}

// What both kernels are: further warps load(block, loader, lane) x, and the last one asks for
// weights. Loaders wait for each other alone.
template <class Element, int N, bool Straight, int Loaders, class Load>
__device__ __forceinline__ void run_block(const Tiling &tiling, const Planes &planes,
                                          Shared &shared, const void *dynamic, const char *filter,
                                          Element *y, const Finish &finish, Load load) {
    static_assert(registers_fit(Loaders, Straight), "a warpgroup would wait for ever");
    constexpr int Threads = threads_of(Loaders);
    let_next_kernel_begin();
    const Block block(tiling, shared, dynamic);
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const int loader = warp - ConsumerWarps;
    if (loader < 0) {
        if (warp == 0 && lane == 0)
            shared.init_for_consumers(tiling.parts);
        list_all_places<Element, N>(tiling, planes, block.staged(0));
        zero_behind_boxes(block);
        begin(tiling, Threads, true);
        take_registers<multiply_registers(Loaders, Straight)>();
        consume<Element, N, Straight>(block, planes, y, finish, warp, lane);
        return;
    }
    give_registers<load_registers(Loaders, Straight)>();
    const bool asks = loader == Loaders - 1;
    if (loader == 0)
        init_pixel_rings(block, planes, lane);
    if (asks)
        shared.weights.init(tiling.weight_stages, 1, ConsumerWarps, lane);
    const TapLines lines = asks ? lines_of(block, filter, 0) : TapLines();
    begin(tiling, Threads, false);
    wait_at_bar<1 + Warpgroups>(Loaders * 32); // until rings of pixels have barriers
    if (asks)
        produce_weights(block, filter, {1, 0}, lines, lane);
    load(block, loader, lane);
    __syncwarp();
    meet_for_parts(tiling);
}
#endif

template <class Element, int N>
__global__ void __launch_bounds__(threads_of(loader_warps(N)), 1)
    implicit_gemm_nchw_kernel(const __grid_constant__ Tiling tiling,
                              const __grid_constant__ Planes planes, const Element *x,
                              const char *filter, Element *y,
                              const __grid_constant__ Finish finish) {
#if CF_SM90A
    extern __shared__ __align__(1024) unsigned char dynamic[];
    __shared__ Shared shared;
    static_assert(sizeof(shared) <= StaticShared, "the plan leaves room for it");
    run_block<Element, N, false, loader_warps(N)>(tiling, planes, shared, dynamic, filter, y,
                                                  finish,
                                                  [&](const Block &block, int loader, int lane) {
                                                      if (loader < planes.loaders)
                                                          produce(block, planes, x, loader, lane);
                                                  });
#else
    not_compiled();
#endif
}

// The same of x as it lies.
template <class Element, int N>
__global__ void __launch_bounds__(threads_of(StraightLoaders), 1)
    implicit_gemm_nchw_straight_kernel(const __grid_constant__ Tiling tiling,
                                       const __grid_constant__ Planes planes,
                                       const __grid_constant__ CUtensorMap x, const char *filter,
                                       Element *y, const __grid_constant__ Finish finish) {
#if CF_SM90A
    extern __shared__ __align__(1024) unsigned char dynamic[];
    __shared__ Shared shared;
    static_assert(sizeof(shared) <= StaticShared, "the plan leaves room for it");
    run_block<Element, N, true, StraightLoaders>(tiling, planes, shared, dynamic, filter, y, finish,
                                                 [&](const Block &block, int loader, int lane) {
                                                     if (loader < block.rings())
                                                         produce_straight<Element>(block, x, loader,
                                                                                   lane);
                                                 });
#else
    not_compiled();
#endif
}

// The kernel for products of so many pixels, whose grid and shared memory the plan adds. The files
// of nchw/ compile those of one type of elements, narrow and wide ones.
template <class Element>
Launched narrow_kernel(int width, dim3 grid, size_t shared);
template <class Element>
Launched wide_kernel(int width, dim3 grid, size_t shared);

template <class Element>
StraightLaunched straight_kernel(int width, dim3 grid, size_t shared);

template <class Element>
StraightLaunched straight_among(int width, dim3 grid, size_t shared) {
    return implicit_gemm::kernel_among<StraightLaunched>(StraightWidths(), width, [&](auto n) {
        return kernel_of(implicit_gemm_nchw_straight_kernel<Element, n.value>, grid,
                         threads_of(StraightLoaders), shared, true);
    });
}

template <class Element, class Widths>
Launched kernel_among(Widths widths, int width, dim3 grid, size_t shared) {
    return implicit_gemm::kernel_among<Launched>(widths, width, [&](auto n) {
        return kernel_of(implicit_gemm_nchw_kernel<Element, n.value>, grid,
                         threads_of(loader_warps(n.value)), shared, true);
    });
}

} // namespace cf::implicit_nchw
