// What the im2col_gemm family has in common: unroll, multiply, permute, in chunks of images, so
// that the unrolled matrix fits the workspace it is given. A row brings the matrix product.
#pragma once

#include "device/launch.cuh"
#include "device/rank.cuh"

namespace cf {

// One matrix product: for each group, product[pixel, k] = sum over i of unrolled[i, pixel] *
// filter[k, i]. In NCHW unrolled is [group][i][pixel] and product [group][k][pixel]; in NHWC they
// are [pixel][group][i] and [pixel][group][k]. The filter is [group][k][i] in both, with i in the
// filter's own order.
struct Product {
    const void *unrolled;
    float *product;
    int64_t pixels;
    int channels;  // output channels of a group
    int reduction; // products of a sum
    int groups;
    bool nchw;
};

inline uint64_t unrolled_bytes(const cf_problem &p) {
    const uint64_t element = p.storage == CF_STORE_F32 ? 4 : 2;
    // A multiple of 128, so that the product behind it is aligned.
    return (uint64_t(p.p) * p.q * p.c * p.r * p.s * element + 127) / 128 * 128;
}

inline uint64_t im2col_bytes(const cf_problem &p) {
    return unrolled_bytes(p) + uint64_t(p.p) * p.q * p.k * sizeof(float);
}

inline cf_bytes im2col_workspace(const cf_call *call) {
    return chunked_workspace(call->problem, im2col_bytes(call->problem));
}

// For `supports` of products with a grid of (pixel tiles, channel tiles, groups).
inline int32_t im2col_supports(const cf_call *call, int channel_tile, char *why, uint64_t bytes) {
    const cf_problem &p = call->problem;
    const int64_t tiles = ceil_div(p.k / p.groups, channel_tile);
    if (p.groups > MaxGrid)
        return no(why, bytes, "has one layer of blocks per group, at most %d; this has %d", MaxGrid,
                  p.groups);
    if (tiles > MaxGrid)
        return no(why, bytes, "has %lld tiles of %d output channels; the grid takes %d",
                  (long long)tiles, channel_tile, MaxGrid);
    return 1;
}

inline dim3 im2col_grid(const Product &m, int pixel_tile, int channel_tile) {
    return dim3(unsigned(ceil_div(m.pixels, pixel_tile)),
                unsigned(ceil_div(m.channels, channel_tile)), unsigned(m.groups));
}

// unroll(first, count, out) writes the matrix, multiply(product) the sums; both answer 0 or an
// error.
template <class Unroll, class Multiply>
int32_t im2col_gemm(const cf_call *call, Unroll unroll, Multiply multiply) {
    const cf_problem &p = call->problem;
    return for_chunks(call, im2col_bytes(p), [&](int64_t first, int64_t count) -> int32_t {
        char *base = static_cast<char *>(call->workspace);
        const Product m = {base,
                           reinterpret_cast<float *>(base + count * unrolled_bytes(p)),
                           count * p.p * p.q,
                           p.k / p.groups,
                           p.c / p.groups * p.r * p.s,
                           p.groups,
                           p.layout == CF_NCHW};
        if (const int32_t error = unroll(first, count, base))
            return error;
        stage(call, "unroll");
        if (const int32_t error = multiply(m))
            return error;
        stage(call, "gemm");
        const int64_t plane = int64_t(p.p) * p.q;
        const cf_strides strides = m.nchw ? cf_strides{plane, m.pixels, p.q, 1}
                                          : cf_strides{plane * p.k, 1, int64_t(p.q) * p.k, p.k};
        const int32_t error = cf_finish(call, first, count, m.product, strides);
        stage(call, "permute");
        return error;
    });
}

// With the shared gathering pass.
template <class Multiply>
int32_t im2col_gemm(const cf_call *call, Multiply multiply) {
    const auto gather = [&](int64_t first, int64_t count, void *out) {
        return cf_unroll(call, first, count, call->problem.storage, out);
    };
    return im2col_gemm(call, gather, multiply);
}

// The product at `flops_per_us`, counted in whole tiles, behind the passes around it. Unrolling
// takes 12 ps per element of the matrix, in f16 as in f32, so its divisions bound it and not
// memory.
inline double im2col_us(const cf_problem &p, int tile, double flops_per_us) {
    const double unrolled = pixels(p) * reduction(p) * p.groups;
    return 3 * LaunchUs + unrolled * 1.2e-5 + tiled_flops(p, tile) / flops_per_us + finish_us(p);
}

} // namespace cf
