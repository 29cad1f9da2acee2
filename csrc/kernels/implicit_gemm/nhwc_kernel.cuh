// The kernel of implicit_gemm_nhwc: two warpgroups multiply and store, warps of a third one ask for
// what they read.
#pragma once

#include "core/cluster_launch.cuh"
#include "kernels/implicit_gemm/begin.cuh"
#include "kernels/implicit_gemm/nhwc_parts.cuh"
#include "kernels/implicit_gemm/nhwc_task.cuh"
#include "ptx/grid.cuh"
#include "ptx/registers.cuh"

namespace cf::implicit_gemm {

using Launched = cf::ClusterKernel<Tiling, CUtensorMap, const void *, void *, Finish>;

#if CF_SM90A
// Of a thread; in all what the block was launched with: 168, or 80 where two blocks are to fit.
template <int N>
constexpr int ConsumerRegisters = blocks_beside(N) == 1 ? 232 : 104;
template <int N>
constexpr int ProducerRegisters = blocks_beside(N) == 1 ? 40 : 32;
constexpr int Consumers = Warpgroups * Warpgroup / 32; // warps

// Lines behind boxes of x, which taps read as the zeros behind the last row. Warps take turns.
__device__ __forceinline__ void zero_behind_boxes(const Block &block, int warp, int lane) {
    const Tiling &t = block.tiling;
    if (t.zero_bytes == 0)
        return;
    for (int i = warp; i < block.rings() * t.pixel_stages; i += Consumers)
        for (uint32_t byte = lane * 16; byte < t.zero_bytes; byte += 32 * 16)
            store_shared4(block.pixels(0, i) + t.pixel_bytes + byte, 0, 0, 0, 0);
}

// The barriers of a ring's stages, by the warps that ask for them, a lane for each.
template <class AnyRing>
__device__ __forceinline__ void init_stages(AnyRing &ring, int stages, const Share &share,
                                            int readers, int lane) {
    if (lane < stages && share.has({lane, 0}))
        ring.init_stage(lane, 1, readers);
    __syncwarp(); // a stage's barrier is read by all lanes
}

// The second warpgroup begins some taps behind the first one, and stays behind: so one multiplies
// while the other one stores. With a single tile neither would gain.
template <class Element, int N>
__device__ __forceinline__ void consume(const Block &block, Element *y, const Finish &finish,
                                        int warp, int lane) {
    const int warpgroup = warp / 4, ring = block.tiling.apart ? warpgroup : 0;
    const uint32_t rows = block.tiling.apart ? 0 : warpgroup * RowChannels * LineBytes;
    const StoreLane<Element, N> store(block.tiling, block.staged(warpgroup), warp, lane);
    TapReader reader(block, ring, rows, warpgroup == 0 ? block.tiling.lead : 0, lane);
    if (warpgroup > 0 && block.count > 1)
        block.shared.lead.wait(0);
    for (int m = 0; m < block.count; ++m) {
        float sums[N / 2];
        if constexpr (blocks_beside(N) > 1) {
            // Of two ways either begins with these: ptxas would move sums where the ways meet, and
            // wait for each product (C7515).
#pragma unroll
            for (float &sum : sums)
                sum = 0;
            if (block.tiling.once)
                multiply_once<Element, N>(block, ring, rows, sums);
            else
                multiply_tile<Element, N>(block, reader, lane, sums);
        } else {
            multiply_tile<Element, N>(block, reader, lane, sums);
        }
        const Place place = block.place(m, ring);
        if (block.tiling.parts > 1)
            store_parts<Element, N>(block, warp, lane, place, warpgroup, sums, y, finish);
        else
            store_tile<Element, N>(store, Target<Element>(block.tiling, place, warpgroup, 0, N),
                                   sums, y, finish);
    }
}
#endif

template <class Element, int N>
__global__ void __launch_bounds__(Threads, blocks_beside(N))
    implicit_gemm_nhwc_kernel(const __grid_constant__ Tiling tiling,
                              const __grid_constant__ CUtensorMap x, const char *filter, Element *y,
                              const __grid_constant__ Finish finish) {
#if CF_SM90A
    extern __shared__ __align__(1024) unsigned char dynamic[];
    __shared__ Shared shared;
    static_assert(sizeof(shared) <= StaticShared, "the plan leaves room for it");
    let_next_kernel_begin();
    const Block block(tiling, shared, dynamic);
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const int producer = warp - Consumers;
    if (producer < 0) {
        if (warp == 0 && lane == 0)
            shared.init_for_consumers(tiling.parts);
        zero_behind_boxes(block, warp, lane);
        begin(tiling, Threads, true);
        take_registers<ConsumerRegisters<N>>();
        consume<Element, N>(block, y, finish, warp, lane);
        return;
    }
    give_registers<ProducerRegisters<N>>();
    if (producer < Warpgroups) {
        const int ring = tiling.apart ? producer : 0;
        const Share share = tiling.apart ? Share{1, 0} : Share{2, producer};
        if (lane == 0)
            prefetch_map(x);
        // Each warp hands back by itself.
        const int readers = tiling.apart ? Consumers / Warpgroups : Consumers;
        init_stages(shared.pixels[ring], tiling.pixel_stages, share, readers * tiling.pixel_peers,
                    lane);
        const Corner corner = corner_of<Element>(block, 0, ring);
        begin(tiling, Threads, false);
        produce_pixels<Element>(block, x, ring, share, corner, lane);
    } else {
        const Share share = {2, producer - Warpgroups};
        init_stages(shared.weights, tiling.weight_stages, share, Consumers * tiling.weight_peers,
                    lane);
        const TapLines lines = lines_of(block, filter, 0);
        begin(tiling, Threads, false);
        produce_weights(block, filter, share, lines, lane);
    }
    meet_for_parts(tiling);
#else
    not_compiled();
#endif
}

// The kernel for products of so many pixels, whose grid and shared memory the plan adds. The files
// of nhwc/ compile those of one type of elements, narrow and wide ones.
template <class Element>
Launched narrow_kernel(int width, dim3 grid, size_t shared);
template <class Element>
Launched wide_kernel(int width, dim3 grid, size_t shared);

template <class Element, class Widths>
Launched kernel_among(Widths widths, int width, dim3 grid, size_t shared) {
    return kernel_among<Launched>(widths, width, [&](auto n) {
        return kernel_of(implicit_gemm_nhwc_kernel<Element, n.value>, grid, Threads, shared, true);
    });
}

} // namespace cf::implicit_gemm
