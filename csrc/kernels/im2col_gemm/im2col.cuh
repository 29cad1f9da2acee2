// What the im2col_gemm family has in common: unroll, multiply, permute, in chunks of images, so
// that the unrolled matrix fits the workspace it is given. A row has the matrix product.
#pragma once

#include "core/chunks.cuh"
#include "core/estimate.cuh"
#include "core/plan.cuh"
#include "passes.h"

namespace cf {

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

// For these rows' `caveat`.
constexpr const char *Im2colCaveat = "where the filter hangs over the edge zeros are multiplied: "
                                     "an infinite or NaN weight gives NaN";

inline int64_t reduction_of(const cf_problem &p) { return int64_t(p.c / p.groups) * p.r * p.s; }

// What a plan of this family holds, beside the kernel of its product.
struct Im2col {
    cf_problem problem;
    int32_t storage;         // of the unrolled matrix's elements
    int pad;                 // rows of the matrix and of the product begin at multiples of this
    uint64_t unrolled_bytes; // of one image
    Chunks chunks;

    Im2col() = default;
    // `images` to a chunk at most; by itself as many as a chunk gains from.
    Im2col(const cf_problem &p, int32_t storage, int pad = 1, int images = 0)
        : problem(p), storage(storage), pad(pad) {
        const int64_t plane = int64_t(p.p) * p.q, reduction = reduction_of(p);
        const bool nchw = p.layout == CF_NCHW;
        // Of one image; so many images have enough for the padding of all their rows.
        const int64_t elements = nchw ? p.groups * reduction * round_up(plane, pad)
                                      : plane * p.groups * round_up(reduction, pad);
        const int64_t sums = nchw ? p.k * round_up(plane, pad) : plane * round_up(p.k, pad);
        // A multiple of 128, so that the product behind it is aligned.
        unrolled_bytes = uint64_t(round_up(elements * (storage == CF_STORE_F32 ? 4 : 2), 128));
        // However large the workspace, the pixels of a chunk stay within what a grid takes.
        const int64_t most = std::max<int64_t>(INT32_MAX / plane, 1);
        chunks = Chunks(p, unrolled_bytes + uint64_t(sums) * sizeof(float), most);
        if (images)
            chunks.most = std::min({int64_t(images), p.n, most});
    }

    // Of a chunk whose matrices lie one behind the other.
    Product product(char *matrices, int64_t images) const {
        const cf_problem &p = problem;
        Product m = {};
        m.unrolled = matrices;
        m.product = reinterpret_cast<float *>(matrices + images * unrolled_bytes);
        m.pixels = images * p.p * p.q;
        m.channels = p.k / p.groups;
        m.reduction = int(reduction_of(p));
        m.groups = p.groups;
        m.nchw = p.layout == CF_NCHW;
        m.pitch = round_up(m.nchw ? m.pixels : m.reduction, pad);
        m.out_pitch = out_pitch(images);
        return m;
    }

    // From row to row of the product of so many images.
    int64_t out_pitch(int64_t images) const {
        const cf_problem &p = problem;
        return round_up(p.layout == CF_NCHW ? images * p.p * p.q : p.k, pad);
    }

    // How it lies in memory.
    cf_strides strides(int64_t images) const {
        const int64_t plane = int64_t(problem.p) * problem.q, pitch = out_pitch(images);
        return problem.layout == CF_NCHW ? cf_strides{plane, pitch, problem.q, 1}
                                         : cf_strides{plane * pitch, 1, problem.q * pitch, pitch};
    }

    // Readies the passes around the product; a row may unroll in another way.
    int32_t prepare_finish() const { return cf_prepare_finish(&problem, strides(1)); }
    int32_t prepare() const {
        const int32_t error = problem.layout == CF_NCHW
                                  ? cf_prepare_unroll_columns(&problem, storage)
                                  : cf_prepare_unroll_rows(&problem, storage);
        return error ? error : prepare_finish();
    }

    // unroll(first, count, matrix) enqueues what writes the matrix, multiply(product) what writes
    // the sums; both answer 0 or an error.
    template <class Unroll, class Multiply>
    int32_t launch(const cf_args &args, Unroll unroll, Multiply multiply) const {
        return chunks.walk(args, [&](int64_t first, int64_t count) -> int32_t {
            auto *const matrices = static_cast<char *>(args.workspace);
            const Product m = product(matrices, count);
            if (const int32_t error = unroll(first, count, matrices))
                return error;
            stage(args, "unroll");
            if (const int32_t error = multiply(m))
                return error;
            stage(args, "gemm");
            const int32_t error =
                cf_finish(&problem, &args, first, count, m.product, strides(count));
            stage(args, "permute");
            return error;
        });
    }

    // The unrolling that most rows share.
    int32_t gather(const cf_args &args, int64_t first, int64_t count, void *out) const {
        const cf_problem &p = problem;
        const int64_t pixels = round_up(count * p.p * p.q, pad), reduction = reduction_of(p);
        if (p.layout == CF_NCHW)
            return cf_unroll_columns(&p, &args, first, count, storage, reduction, pixels, out);
        return cf_unroll_rows(&p, &args, first, count, storage, round_up(reduction, pad), out);
    }

    template <class Multiply>
    int32_t launch(const cf_args &args, Multiply multiply) const {
        const auto unroll = [&](int64_t first, int64_t count, void *out) {
            return gather(args, first, count, out);
        };
        return launch(args, unroll, multiply);
    }
};

// cf_functions::prepare of a State with the kernel of its product.
template <class State>
int32_t prepare_im2col(State &state) {
    const int32_t error = state.kernel.prepare();
    return error ? error : state.im2col.prepare();
}

// A grid of (pixel tiles, channel tiles, groups); a block has a thread for each output of its tile,
// pixels along x.
inline dim3 im2col_grid(const Product &m, dim3 tile) {
    return dim3(unsigned(ceil_div(m.pixels, tile.x)), unsigned(ceil_div(m.channels, tile.y)),
                unsigned(m.groups));
}

inline bool im2col_fits(const cf_problem &p, dim3 tile, const Refusal &no) {
    const int pixel_tile = int(tile.x), channel_tile = int(tile.y);
    const int64_t pixel_tiles = ceil_div(int64_t(p.p) * p.q, pixel_tile);
    const int64_t channel_tiles = ceil_div(p.k / p.groups, channel_tile);
    if (p.groups > MaxGrid)
        return no("has one layer of blocks per group, at most %d; this has %d", MaxGrid, p.groups);
    if (channel_tiles > MaxGrid)
        return no("has %lld tiles of %d output channels; the grid takes %d",
                  (long long)channel_tiles, channel_tile, MaxGrid);
    if (pixel_tiles > INT32_MAX)
        return no("has %lld tiles of %d pixels in an image; the grid takes %d",
                  (long long)pixel_tiles, pixel_tile, INT32_MAX);
    return true;
}

// Channel tiles and pixel tiles in one dimension, channels first: blocks that run together read the
// same pixels, so that the unrolled matrix comes from memory once and the filter from the L2.
inline dim3 im2col_flat_grid(const Product &m, int pixel_tile, int channel_tile) {
    return dim3(unsigned(ceil_div(m.pixels, pixel_tile) * ceil_div(m.channels, channel_tile)), 1,
                unsigned(m.groups));
}

inline bool im2col_fits_flat(const cf_problem &p, int pixel_tile, int channel_tile,
                             const Refusal &no) {
    const int64_t tiles =
        ceil_div(int64_t(p.p) * p.q, pixel_tile) * ceil_div(p.k / p.groups, channel_tile);
    if (p.groups > MaxGrid)
        return no("has one layer of blocks per group, at most %d; this has %d", MaxGrid, p.groups);
    if (tiles > INT32_MAX)
        return no("has %lld tiles of %dx%d (channels x pixels); the grid takes %d",
                  (long long)tiles, channel_tile, pixel_tile, INT32_MAX);
    return true;
}

// Elements of the unrolled matrix, all images together.
inline double unrolled_elements(const cf_problem &p) { return pixels(p) * reduction(p) * p.groups; }

// Bytes of memory in whose time the shared pass writes an element of the matrix: medians of the
// stages over 100 us in h200-small-*.jsonl and h200-suites-*.jsonl, three quarters of which are
// within 10 % in f32; in 16 bits half are within 2.6 and 3.5.
inline double gather_us(const cf_query &q, int32_t storage) {
    const double bytes = storage == CF_STORE_F32 ? 4.6 : 3.0;
    return memory_us(q.device, bytes * unrolled_elements(q.problem));
}

// A product between the passes around it.
inline double im2col_us(const cf_query &q, double unroll_us, double product_us) {
    return 3 * LaunchUs + unroll_us + product_us + finish_us(q);
}

// Operations of a product in tiles that are not square, the idle parts of its tiles included.
inline double tiled_flops(const cf_problem &p, int pixel_tile, int channel_tile, int depth) {
    return 2 * padded(pixels(p), pixel_tile) * padded(p.k / p.groups, channel_tile) *
           padded(reduction(p), depth) * p.groups;
}

} // namespace cf
