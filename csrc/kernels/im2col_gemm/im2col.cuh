// What the im2col_gemm family has in common: unroll, multiply, permute, in chunks of images, so
// that the unrolled matrix fits the workspace it is given. A row brings the matrix product.
#pragma once

#include "core/launch.cuh"
#include "core/estimate.cuh"

namespace cf {

// How a row wants the unrolled matrix.
struct Unrolled {
    int32_t storage; // what its elements are
    int pad = 1; // rows of the matrix and of the product begin at multiples of this; a power of 2
    int64_t images = INT32_MAX; // most in a chunk
};

// One matrix product: for each group, product[pixel, k] = sum over i of unrolled[i, pixel] *
// filter[k, i]. The filter is [group][k][i], with i in its own order. Rows of the two matrices
// have zeros (unrolled) or room (product) behind them, up to the pitch.
//
// | | unrolled | pitch >= | product | out_pitch >= |
// | NCHW | [group][i][pixel] | pixels | [group][k][pixel] | pixels |
// | NHWC | [pixel][group][i] | reduction | [pixel][group k] | channels * groups |
struct Product {
    const void *unrolled;
    float *product;
    int64_t pixels, pitch, out_pitch;
    int channels;  // output channels of a group
    int reduction; // products of a sum
    int groups;
    bool nchw;
};

inline int64_t round_up(int64_t v, int64_t multiple) { return ceil_div(v, multiple) * multiple; }

inline int64_t reduction_of(const cf_problem &p) { return int64_t(p.c / p.groups) * p.r * p.s; }

// Of one image; so many images have enough for the padding of all their rows.
inline uint64_t unrolled_bytes(const cf_problem &p, const Unrolled &u) {
    const int64_t plane = int64_t(p.p) * p.q, reduction = reduction_of(p);
    const int64_t elements = p.layout == CF_NCHW ? p.groups * reduction * round_up(plane, u.pad)
                                                 : plane * p.groups * round_up(reduction, u.pad);
    // A multiple of 128, so that the product behind it is aligned.
    return uint64_t(round_up(elements * (u.storage == CF_STORE_F32 ? 4 : 2), 128));
}

inline uint64_t im2col_bytes(const cf_problem &p, const Unrolled &u) {
    const int64_t plane = int64_t(p.p) * p.q;
    const int64_t sums =
        p.layout == CF_NCHW ? p.k * round_up(plane, u.pad) : plane * round_up(p.k, u.pad);
    return unrolled_bytes(p, u) + uint64_t(sums) * sizeof(float);
}

inline cf_bytes im2col_workspace(const cf_problem &p, const Unrolled &u) {
    return chunked_workspace(p, im2col_bytes(p, u));
}

// For rows that keep the elements as they are stored.
inline cf_bytes im2col_workspace(const cf_call *call) {
    return im2col_workspace(call->problem, {call->problem.storage});
}

// For `supports` of products with a grid of (pixel tiles, channel tiles, groups).
inline int32_t im2col_supports(const cf_call *call, int pixel_tile, int channel_tile, char *why,
                               uint64_t bytes) {
    const cf_problem &p = call->problem;
    const int64_t pixel_tiles = ceil_div(int64_t(p.p) * p.q, pixel_tile);
    const int64_t channel_tiles = ceil_div(p.k / p.groups, channel_tile);
    if (p.groups > MaxGrid)
        return no(why, bytes, "has one layer of blocks per group, at most %d; this has %d", MaxGrid,
                  p.groups);
    if (channel_tiles > MaxGrid)
        return no(why, bytes, "has %lld tiles of %d output channels; the grid takes %d",
                  (long long)channel_tiles, channel_tile, MaxGrid);
    if (pixel_tiles > INT32_MAX)
        return no(why, bytes, "has %lld tiles of %d pixels in an image; the grid takes %d",
                  (long long)pixel_tiles, pixel_tile, INT32_MAX);
    return 1;
}

inline dim3 im2col_grid(const Product &m, int pixel_tile, int channel_tile) {
    return dim3(unsigned(ceil_div(m.pixels, pixel_tile)),
                unsigned(ceil_div(m.channels, channel_tile)), unsigned(m.groups));
}

// Channel tiles and pixel tiles in one dimension, channels first: blocks that run together read the
// same pixels, so that the unrolled matrix comes from memory once and the filter from the L2.
inline int32_t im2col_supports_flat(const cf_call *call, int pixel_tile, int channel_tile,
                                    char *why, uint64_t bytes) {
    const cf_problem &p = call->problem;
    const int64_t tiles =
        ceil_div(int64_t(p.p) * p.q, pixel_tile) * ceil_div(p.k / p.groups, channel_tile);
    if (p.groups > MaxGrid)
        return no(why, bytes, "has one layer of blocks per group, at most %d; this has %d", MaxGrid,
                  p.groups);
    if (tiles > INT32_MAX)
        return no(why, bytes, "has %lld tiles of %dx%d (channels x pixels); the grid takes %d",
                  (long long)tiles, channel_tile, pixel_tile, INT32_MAX);
    return 1;
}

inline dim3 im2col_grid_flat(const Product &m, int pixel_tile, int channel_tile) {
    return dim3(unsigned(ceil_div(m.pixels, pixel_tile) * ceil_div(m.channels, channel_tile)), 1,
                unsigned(m.groups));
}

// unroll(first, count, out) writes the matrix, multiply(product) the sums; both answer 0 or an
// error.
template <class Unroll, class Multiply>
int32_t im2col_gemm(const cf_call *call, const Unrolled &u, Unroll unroll, Multiply multiply) {
    const cf_problem &p = call->problem;
    const int64_t plane = int64_t(p.p) * p.q;
    const uint64_t bytes = im2col_bytes(p, u);
    // However large the workspace, the pixels of a chunk stay within what a grid takes.
    const int64_t images = std::clamp<int64_t>(INT32_MAX / plane, 1, u.images);
    cf_call part = *call;
    part.workspace_bytes = std::min<uint64_t>(call->workspace_bytes, images * bytes);
    return for_chunks(&part, bytes, [&](int64_t first, int64_t count) -> int32_t {
        char *base = static_cast<char *>(call->workspace);
        Product m = {};
        m.unrolled = base;
        m.product = reinterpret_cast<float *>(base + count * unrolled_bytes(p, u));
        m.pixels = count * plane;
        m.channels = p.k / p.groups;
        m.reduction = int(reduction_of(p));
        m.groups = p.groups;
        m.nchw = p.layout == CF_NCHW;
        m.pitch = round_up(m.nchw ? m.pixels : m.reduction, u.pad);
        m.out_pitch = round_up(m.nchw ? m.pixels : p.k, u.pad);
        if (const int32_t error = unroll(first, count, base))
            return error;
        stage(call, "unroll");
        if (const int32_t error = multiply(m))
            return error;
        stage(call, "gemm");
        const cf_strides strides =
            m.nchw ? cf_strides{plane, m.out_pitch, p.q, 1}
                   : cf_strides{plane * m.out_pitch, 1, p.q * m.out_pitch, m.out_pitch};
        const int32_t error = cf_finish(call, first, count, m.product, strides);
        stage(call, "permute");
        return error;
    });
}

// With the shared gathering pass.
template <class Multiply>
int32_t im2col_gemm(const cf_call *call, const Unrolled &u, Multiply multiply) {
    const auto gather = [&](int64_t first, int64_t count, void *out) {
        const cf_problem &p = call->problem;
        const int64_t pixels = round_up(count * p.p * p.q, u.pad), reduction = reduction_of(p);
        return p.layout == CF_NCHW
                   ? cf_unroll_columns(call, first, count, u.storage, reduction, pixels, out)
                   : cf_unroll_rows(call, first, count, u.storage, round_up(reduction, u.pad), out);
    };
    return im2col_gemm(call, u, gather, multiply);
}

// With the shared gathering pass, elements as they are stored.
template <class Multiply>
int32_t im2col_gemm(const cf_call *call, Multiply multiply) {
    return im2col_gemm(call, Unrolled{call->problem.storage}, multiply);
}

// Elements of the unrolled matrix, all images together.
inline double unrolled_elements(const cf_problem &p) { return pixels(p) * reduction(p) * p.groups; }

// Near what the shared gathering pass took per element in f32 before it wrote whole words; now it
// is 1.1 to 1.4 ps there and 0.6 to 1.1 in 16 bits, and no row was compared with an estimate of
// that.
inline double gather_us(const cf_problem &p) { return unrolled_elements(p) * 1.8e-6; }

// A product between the passes around it.
inline double im2col_us(const cf_problem &p, double unroll_us, double product_us) {
    return 3 * LaunchUs + unroll_us + product_us + finish_us(p);
}

// Operations of a product in tiles that are not square, the idle parts of its tiles included.
inline double tiled_flops(const cf_problem &p, int pixel_tile, int channel_tile, int depth) {
    return 2 * padded(pixels(p), pixel_tile) * padded(p.k / p.groups, channel_tile) *
           padded(reduction(p), depth) * p.groups;
}

} // namespace cf
