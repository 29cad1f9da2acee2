// The kernel of depthwise_nchw: planes, or rows of them, go through a ring of stages in shared
// memory, and warps compute what lies there.
#pragma once

#include "kernels/depthwise/nchw_bands.cuh"
#include "kernels/depthwise/nchw_task.cuh"
#include "ptx/grid.cuh"

namespace cf::depthwise_nchw {

#if CF_SM90
template <class Shape>
__device__ __forceinline__ void
compute(const Strips &strips, int warp, int lane, uint32_t scratch, const typename Shape::Stored *x,
        const typename Shape::Stored *w, typename Shape::Stored *y, const Finish &finish) {
    const Tiling &tiling = strips.tiling;
    const int sets = sets_of(tiling, Shape::OnBands); // of tasks, for a warp each
    RingPosition at;
    int set = warp; // counted on from strip to strip, so that warps share the sets evenly
    for (int m = 0; m < strips.count; ++m, at.next(tiling.stages)) {
        strips.shared.ring.wait_full(at);
        if (set < sets) {
            const Strip strip = strips.strip<Shape>(m);
            const auto skew = uint32_t(reinterpret_cast<uint64_t>(strips.begin(x, strip)) & 15);
            const uint32_t gathered = strips.gathered(strips.output(y, strip), at.stage);
            const uint32_t rows = strips.rows(at.stage) + skew;
            for (; set < sets; set += Warps)
                if constexpr (Shape::OnBands)
                    compute_bands<Shape>(strips, strip, at.stage, rows, gathered, set, lane,
                                         scratch, w, finish);
                else
                    compute_task<Shape>(strips, strip, at.stage, rows, gathered, set * 32 + lane,
                                        scratch, w, y, finish);
            if constexpr (!Shape::StoresDirectly)
                publish_to_bulk_copies();
        }
        set -= sets;
        // The last warp to leave a stage stores what all have gathered, and loads the next strip.
        if (strips.shared.leave(at, lane)) {
            if constexpr (!Shape::StoresDirectly)
                strips.store(y, strips.strip<Shape>(m), at.stage, lane);
            if (m + tiling.stages < strips.count)
                strips.load<Shape>(x, w, m + tiling.stages, at.stage, lane);
        }
        __syncwarp();
    }
    wait_for_copies(); // nobody leaves before its own have arrived, and its stores have read
    wait_for_stores_to_read();
}
#endif

template <class Stored, int R, int Stride, int Vector, int Columns, bool OnBands>
__global__ void __launch_bounds__(Warps * 32, OnBands ? BandBlocks : blocks_of(R, Columns))
    depthwise_nchw_kernel(const __grid_constant__ Tiling tiling, const Stored *__restrict__ x,
                          const Stored *__restrict__ w, Stored *__restrict__ y,
                          const __grid_constant__ Finish finish) {
#if CF_SM90
    using Shape = Shape<Stored, R, Stride, Vector, Columns, OnBands>;
    extern __shared__ __align__(128) unsigned char dynamic[];
    __shared__ Stages shared;
    static_assert(sizeof(shared) <= StaticShared, "the plan leaves room for it");
    uint32_t scratch = shared_address(dynamic);
    keep(scratch); // or each use reads a special register anew
    const auto mine = StridedTiles::of_block();
    const Strips strips = {tiling, shared, scratch + ZeroBytes, mine, mine.count(tiling.strips)};
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (warp == 0) {
        shared.init(tiling.stages, lane);
        publish_barriers();
    }
    if (threadIdx.x < ZeroBytes / 4)
        store_shared(scratch + threadIdx.x * 4, 0);
    __syncthreads();
    let_next_kernel_begin();
    wait_for_kernels_before();
    // The first strip alone: all blocks begin at the same time, and what they ask for together
    // comes together, late.
    for (int m = warp; m < min(strips.count, tiling.stages); m += Warps) {
        if (m > 0)
            shared.ring.full[0].wait(0);
        strips.load<Shape>(x, w, m, m, lane);
    }
    __syncwarp();
    compute<Shape>(strips, warp, lane, scratch, x, w, y, finish);
#else
    not_compiled();
#endif
}

using Launched = Kernel<Tiling, const void *, const void *, void *, Finish>;

// The kernel of an option. The files of nchw/ compile those of one type of elements.
template <class Stored>
Launched kernel_for(const cf_problem &p, const Option &option);

template <class Stored>
Launched kernel_among(const cf_problem &p, const Option &option) {
    constexpr int Size = sizeof(Stored);
    Launched kernel;
    for_filter(p, [&](auto r, auto stride) {
        constexpr int R = decltype(r)::value, Stride = decltype(stride)::value;
        const auto choose = [&](auto vector, auto columns, auto on_bands) {
            kernel = kernel_of(depthwise_nchw_kernel<Stored, R, Stride, vector.value, columns.value,
                                                     on_bands.value != 0>,
                               unsigned(option.blocks), Warps * 32, option.shared, true);
        };
        const auto with_vector = [&](auto vector, auto on_bands) {
            choose(vector, Constant<columns_of(Stride, Size, vector.value)>(), on_bands);
        };
        if constexpr (Size == 2 && Stride == 1)
            if (option.on_bands)
                return with_vector(Constant<16>(), Constant<1>());
        if constexpr (has_words(Stride, Size))
            if (option.form.columns == WordColumns)
                return choose(Constant<Size>(), Constant<WordColumns>(), Constant<0>());
        const auto fits = [&](int bytes) { return bytes == option.form.vector; };
        const auto with_vectors = [&](auto vector) { with_vector(vector, Constant<0>()); };
        if constexpr (has_vectors(R, Stride, Size, Size))
            largest<16, 8, 4, Size>(fits, with_vectors);
        else
            largest<16>(fits, with_vectors);
    });
    return kernel;
}

} // namespace cf::depthwise_nchw
