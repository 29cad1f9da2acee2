// The kernel of implicit_gemm_mma: a block for each tile of y, whose stages are loaded some steps
// ahead of the one that its warps multiply.
#pragma once

#include "kernels/implicit_gemm/mma_gather.cuh"
#include "kernels/implicit_gemm/mma_store.cuh"
#include "ptx/load_store.cuh"

namespace cf::implicit_mma {

using Launched = cf::Kernel<Tiling, const void *, const void *, Target>;

template <class Shape>
using Loader = std::conditional_t<Shape::Copied, Copier<Shape>, Gatherer<Shape>>;

// Of a ring of stages in shared memory, the one behind another.
template <class Shape>
__device__ __forceinline__ uint32_t stage_behind(uint32_t stage, uint32_t ring) {
    stage += Shape::StageBytes;
    return stage == ring + Shape::Stages * Shape::StageBytes ? ring : stage;
}

template <class Shape>
__global__ void __launch_bounds__(Shape::Threads, Shape::Blocks)
    implicit_gemm_mma_kernel(const __grid_constant__ Tiling t, const char *__restrict__ x,
                             const char *__restrict__ filter, const __grid_constant__ Target to) {
    extern __shared__ __align__(128) unsigned char dynamic[];
    uint32_t ring = shared_address(dynamic);
    keep(ring); // or each use reads a special register anew
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Place place(t, blockIdx.x, Shape::Channels, Shape::Pixels);
    const uint32_t table = ring + Shape::Stages * Shape::StageBytes;
    if (t.entries > 0) {
        if constexpr (Shape::Copied)
            list_pieces(t, table);
        else
            list_elements(t, table);
        __syncthreads();
    }
    Loader<Shape> loader(t, place, x, filter, table);
    // One group of copies for each step, empty ones behind the last, so that waiting stays the
    // same.
    const int steps = t.order.steps;
    uint32_t written = ring, read = ring;
#pragma unroll 1
    for (int step = 0; step < Shape::Stages - 1; ++step) {
        loader.load(written, step < steps);
        loader.store(written, step < steps);
        end_of_group();
        written += Shape::StageBytes;
    }
    // A half of a step is read while the one before it is multiplied, so that products go on behind
    // a barrier.
    Sums<Shape> sums;
    Reader<Shape> reader(warp, lane);
    typename Reader<Shape>::Half first, second;
    wait_for_groups<Shape::Stages - 2>();
    __syncthreads();
    reader.template read<0>(first, read);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        reader.template read<1>(second, read);
        // Into the stage that all have read before the last barrier.
        const bool more = step + Shape::Stages - 1 < steps;
        loader.load(written, more);
        end_of_group();
        sums.add(first);
        const uint32_t done = read;
        read = stage_behind<Shape>(read, ring);
        wait_for_groups<Shape::Stages - 2>();
        __syncthreads();
        reader.template read<0>(first, read);
        sums.add(second);
        loader.store(written, more);
        written = done;
    }
    wait_for_copies();
    store_sums(t, place, to, warp, lane, sums);
}

// Calls body with the tile of a number, from `First` on.
template <bool Copied, int First = 0, class Body>
void for_tile(int number, Body body) {
    constexpr TileNumbers Of = (Copied ? Copying : Gathering)[First];
    if constexpr (Of.pixels > 0)
        if (number == First)
            return body(Tile<Of.channels, Of.pixels, Of.rows, Of.columns, Of.blocks, Of.stages>());
    if constexpr (First + 1 < TileCount)
        for_tile<Copied, First + 1>(number, body);
}

// An option's kernel, of these types; defined in one file for each.
template <class Stored, Product Kind>
Launched kernel_for(const Option &option, bool nchw);

template <class Stored, Product Kind, bool Nchw, bool Copied>
Launched kernel_among(const Option &option) {
    Launched kernel;
    for_tile<Copied>(option.tile, [&](auto tile) {
        using T = decltype(tile);
        kernel = kernel_of(implicit_gemm_mma_kernel<Shape<T, Stored, Kind, Nchw, Copied>>,
                           dim3(unsigned(option.grid)), T::Threads, size_t(option.shared));
    });
    return kernel;
}

// Of operands that are as they are stored; of others.
template <class Stored, Product Kind>
Launched kernel_copying(const Option &option, bool nchw) {
    return nchw                   ? kernel_among<Stored, Kind, true, false>(option)
           : option.tiling.copied ? kernel_among<Stored, Kind, false, true>(option)
                                  : kernel_among<Stored, Kind, false, false>(option);
}
template <class Stored, Product Kind>
Launched kernel_gathering(const Option &option, bool nchw) {
    return nchw ? kernel_among<Stored, Kind, true, false>(option)
                : kernel_among<Stored, Kind, false, false>(option);
}

} // namespace cf::implicit_mma
