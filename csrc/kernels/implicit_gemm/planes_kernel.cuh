// The kernel of implicit_gemm_planes: two warpgroups multiply and store, a warp asks for planes and
// one for weights.
#pragma once

#include "kernels/implicit_gemm/planes_task.cuh"
#include "kernels/implicit_gemm/pointwise_kernel.cuh"

namespace cf::planes {

using Launched = cf::Kernel<Tiling, CUtensorMap, const void *, const void *, void *, Finish>;
using pointwise::Pairs, pointwise::Shape, pointwise::Shapes;

template <class Element, int Products, int N, int Step>
__global__ void __launch_bounds__(Threads, 1)
    implicit_gemm_planes_kernel(const __grid_constant__ Tiling tiling,
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
        shared.planes.init(tiling.stages, 1, ConsumerWarps * 32, lane);
        shared.weights.init(tiling.weight_stages, 1, ConsumerWarps * 32, lane);
        publish_barriers();
    }
    __syncthreads();
    wait_for_kernels_before();
    if (warp >= ConsumerWarps) {
        give_registers<ProducerRegisters>();
        if (warp == ConsumerWarps)
            produce_planes<Element, N, Step>(tiling, shared, first, map, x, lane);
        else if (warp == ConsumerWarps + 1)
            produce_weights<N>(tiling, shared, first, filter, lane);
        return;
    }
    take_registers<ConsumerRegisters>();
    const StridedTiles tiles = StridedTiles::of_block();
    const int count = tiles.count(tiling.tiles);
    RingPosition planes, weights;
#pragma unroll 1
    for (int m = 0; m < count; ++m) {
        const auto place = Place::of<N>(tiling, tiles.tile(m), warp / 4);
        float sums[Products][N / 2];
        multiply<Element, Step, Products, N>(tiling, shared, first, place, warp, lane, planes,
                                             weights, sums);
        pointwise::store<Element, Products, N, Pairs::Both>(tiling, place, warp, lane, sums, 0, y,
                                                            finish);
    }
#else
    not_compiled();
#endif
}

// Two products of 128 columns leave no registers to round f32 in, nor for a fifth column.
constexpr bool is_compiled(int element, int step, Shape shape) {
    return shape.products == 1 || shape.columns < 128 || (element == 2 && step == 1);
}

// The kernel of a shape, whose grid and shared memory the plan adds; a file of planes/ compiles
// those of a type of elements.
template <class Element>
Launched kernel_for(const Shape &shape, int step, dim3 grid, size_t shared);

template <class Element, size_t... I>
Launched kernel_among(std::index_sequence<I...>, const Shape &shape, int step, dim3 grid,
                      size_t shared) {
    Launched launched;
    const auto choose = [&](auto number, auto own_step) {
        constexpr Shape Own = Shapes[number.value];
        constexpr int Step = own_step.value;
        if constexpr (is_compiled(sizeof(Element), Step, Own))
            if (Own.products == shape.products && Own.columns == shape.columns && Step == step)
                launched =
                    kernel_of(implicit_gemm_planes_kernel<Element, Own.products, Own.columns, Step>,
                              grid, Threads, shared, true);
    };
    (choose(Constant<int(I)>(), Constant<1>()), ...);
    (choose(Constant<int(I)>(), Constant<2>()), ...);
    return launched;
}

} // namespace cf::planes
