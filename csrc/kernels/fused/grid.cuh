// What rows of the fused family with a tile of (pixels, output channels) have in common: their
// grid. Pixels of all images form one dimension, so tiles waste nothing at the edge of an image.
#pragma once

#include "core/launch.cuh"

namespace cf {

// Pixel tiles, channel tiles of a group, groups.
inline dim3 fused_grid(const cf_problem &p, int64_t pixels, int pixel_tile, int channel_tile) {
    return dim3(unsigned(ceil_div(pixels, pixel_tile)),
                unsigned(ceil_div(p.k / p.groups, channel_tile)), unsigned(p.groups));
}

// For `supports`: whether that grid can be launched.
inline int32_t fits_fused_grid(const cf_call *call, int pixel_tile, int channel_tile, char *why,
                               uint64_t bytes) {
    const cf_problem &p = call->problem;
    const int64_t pixel_tiles = ceil_div(p.n * p.p * p.q, pixel_tile);
    const int64_t channel_tiles = ceil_div(p.k / p.groups, channel_tile);
    if (p.groups > MaxGrid || channel_tiles > MaxGrid || pixel_tiles > INT32_MAX)
        return no(why, bytes, "needs a grid of %lld x %lld x %d blocks; the limit is %d x %d x %d",
                  (long long)pixel_tiles, (long long)channel_tiles, p.groups, INT32_MAX, MaxGrid,
                  MaxGrid);
    return 1;
}

} // namespace cf
