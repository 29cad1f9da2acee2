// The kernels of small_mma16 that keep their weights in shared memory: each file of mma16/ compiles
// those of one type of operands and one height of filters.
#pragma once

#include "core/element.cuh"
#include "kernels/small/mma16_kernel.cuh"

namespace cf::small16 {

template <class Element, int R>
Kernel unrolled_kernel(const Tiling &tiling, bool residual, dim3 grid, size_t shared) {
    Kernel kernel;
    if (tiling.stride_h == 2)
        kernel = kernel_for<Element, R, 2, most_tiles(false, 2), false>(grid, shared);
    else if (tiling.pixels_per_position == 2)
        for_value<1, 2, 3>(tiling.column_tiles - 1, [&](auto tiles) {
            kernel = kernel_for<Element, R, 1, decltype(tiles)::value, true>(grid, shared);
        });
    else if (tiling.column_tiles < MaxTiles)
        for_value<1, 2, 3>(tiling.column_tiles - 1, [&](auto tiles) {
            kernel = kernel_for<Element, R, 1, decltype(tiles)::value, false>(grid, shared);
        });
    else if (residual && tiling.nchw && tiling.to_floats)
        kernel = kernel_of(small_mma16_apart_kernel<Element, R>, grid, Threads, shared, true);
    else if (residual)
        kernel =
            kernel_of(small_mma16_most_sums_kernel<Element, R, true>, grid, Threads, shared, true);
    else
        kernel =
            kernel_of(small_mma16_most_sums_kernel<Element, R, false>, grid, Threads, shared, true);
    return kernel;
}

} // namespace cf::small16
