// The kernel of implicit_gemm_pointwise: two warpgroups multiply and store, one warp asks for
// copies.
#pragma once

#include "kernels/implicit_gemm/pointwise_store.cuh"
#include "ptx/grid.cuh"
#include "ptx/registers.cuh"

namespace cf::pointwise {

using Launched = cf::Kernel<Tiling, CUtensorMap, const void *, const void *, void *, Finish>;

template <class Element, int Products, int N, Pairs Pair>
__global__ void __launch_bounds__(Threads, 1)
    implicit_gemm_pointwise_kernel(const __grid_constant__ Tiling tiling,
                                   const __grid_constant__ CUtensorMap map, const Element *x,
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
    if (warp == 0) {
        shared.ring.init(tiling.stages, 1, ConsumerWarps * 32, lane);
        publish_barriers();
    }
    __syncthreads();
    wait_for_kernels_before();
    if (warp >= ConsumerWarps) {
        give_registers<ProducerRegisters>();
        if (warp == ConsumerWarps)
            produce<Element, N>(tiling, shared, first, map, x, filter, lane);
        return;
    }
    take_registers<ConsumerRegisters>();
    const auto rows = Rows<Products, Pair>::of(tiling, warp, lane);
    const StridedTiles tiles = StridedTiles::of_block();
    const int count = tiles.count(tiling.tiles);
    const uint32_t staged = first + tiling.stages * tiling.stage_bytes;
    RingPosition at;
#pragma unroll 1
    for (int m = 0; m < count; ++m) {
        float sums[Products][N / 2];
        multiply<Element, Products, N, Pair>(tiling, shared, first, rows, lane, at, sums);
        store<Element, Products, N, Pair>(tiling, Place::of<N>(tiling, tiles.tile(m), warp / 4),
                                          warp, lane, sums, staged, y, finish);
    }
    if constexpr (Pair == Pairs::Staged)
        wait_for_stores_to_read();
#else
    not_compiled();
#endif
}

// A tile as kernels are compiled for it: products of a warpgroup beside each other, and their
// columns.
struct Shape {
    int products, columns;
};
constexpr Shape Shapes[] = {{1, 64}, {1, 128}, {1, 256}, {2, 64}, {2, 128}};
// Addresses of single pixels leave no registers for larger ones.
constexpr bool is_compiled(Shape shape, Pairs pairs) {
    return pairs != Pairs::None || shape.products * shape.columns <= 128;
}

// The kernel of a shape, whose grid and shared memory the plan adds; a file of pointwise/ compiles
// those of a type of elements.
template <class Element>
Launched kernel_for(const Shape &shape, Pairs pairs, dim3 grid, size_t shared);

template <class Element, size_t... I>
Launched kernel_among(std::index_sequence<I...>, const Shape &shape, Pairs pairs, dim3 grid,
                      size_t shared) {
    Launched launched;
    const auto choose = [&](auto number, auto pair) {
        constexpr Shape Own = Shapes[number.value];
        constexpr auto Pair = Pairs(int(pair.value));
        if constexpr (is_compiled(Own, Pair))
            if (Own.products == shape.products && Own.columns == shape.columns && Pair == pairs)
                launched = kernel_of(
                    implicit_gemm_pointwise_kernel<Element, Own.products, Own.columns, Pair>, grid,
                    Threads, shared, true);
    };
    const auto choose_pairs = [&](auto number) {
        choose(number, Constant<int(Pairs::None)>());
        choose(number, Constant<int(Pairs::Staged)>());
        choose(number, Constant<int(Pairs::Both)>());
        choose(number, Constant<int(Pairs::Steps)>());
    };
    (choose_pairs(Constant<int(I)>()), ...);
    return launched;
}

} // namespace cf::pointwise
