// What rows with one thread per output and no tile share: where the threads lie, pooling inside a
// thread, the epilogue. A row says what the sum of one output is.
#pragma once

#include "core/element.cuh"
#include "core/epilogue.cuh"
#include "core/plan.cuh"
#include "core/strides.cuh"
#include "core/tensors.cuh"

namespace cf {

constexpr int DirectTile = 16; // threads of a block: 16x16

// What the threads of a block run over, of the stored output: with `planes` a tile of columns and
// rows of one channel, else of channels and columns of one row. `rest` counts the others.
struct DirectTiles {
    int width, height;
    int64_t rest;

    __host__ __device__ __forceinline__ DirectTiles(const cf_problem &p, bool planes)
        : width(planes ? p.epilogue.out_w : p.k),
          height(planes ? p.epilogue.out_h : p.epilogue.out_w),
          rest(p.n * (planes ? p.k : p.epilogue.out_h)) {}
    __host__ __device__ __forceinline__ int across() const { return (width - 1) / DirectTile + 1; }
    __host__ __device__ __forceinline__ int down() const { return (height - 1) / DirectTile + 1; }
    __host__ __device__ __forceinline__ int64_t blocks() const { return rest * across() * down(); }
};

inline unsigned direct_grid(int64_t blocks) {
    return unsigned(std::min<int64_t>(blocks, INT32_MAX));
}

// sum(n, k, row, column) is one output of the convolution before the epilogue. With pooling a
// thread asks for all sums of its window. `blocks` is DirectTiles::blocks(), counted on the host.
template <class T, class Sum>
__device__ __forceinline__ void direct_outputs(const cf_problem &p, bool planes, const float *bias,
                                               const T *residual, T *y, int64_t blocks, Sum sum) {
    const cf_epilogue &e = p.epilogue;
    const DirectTiles tiles(p, planes);
    // More than 2^31 blocks are possible, so each walks with a stride.
    for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
        const unsigned a = unsigned(block % tiles.across()) * DirectTile + threadIdx.x;
        const unsigned b =
            unsigned(block / tiles.across() % tiles.down()) * DirectTile + threadIdx.y;
        const int64_t rest = block / tiles.across() / tiles.down();
        if (a >= unsigned(tiles.width) || b >= unsigned(tiles.height))
            continue;
        const int64_t n = rest / (planes ? p.k : e.out_h);
        const int inner = int(rest % (planes ? p.k : e.out_h));
        const int k = planes ? inner : int(a);
        const int row = planes ? int(b) : inner, column = planes ? int(a) : int(b);

        // Without pooling the window is the one sum.
        const bool pooled = e.pool_h > 0;
        const int top = pooled ? row * e.pool_stride_h : row;
        const int left = pooled ? column * e.pool_stride_w : column;
        const int bottom = pooled ? int(min(int64_t(top) + e.pool_h, int64_t(p.p))) : top + 1;
        const int right = pooled ? int(min(int64_t(left) + e.pool_w, int64_t(p.q))) : left + 1;
        const Strides rs = residual_strides(p);
        float v = -INFINITY;
        for (int i = top; i < bottom; ++i) {
            for (int j = left; j < right; ++j) {
                const float added = e.residual ? widen(residual[rs.at(n, k, i, j)]) : 0.0f;
                v = max_keeping_nan(
                    v, epilogue(e, sum(n, k, i, j), e.bias ? bias + k : nullptr, added));
            }
        }
        y[output_strides(p).at(n, k, row, column)] = narrow<T>(v);
    }
}

// Square filters whose loops are unrolled: one copy of the code per side.
inline bool has_unrolled_side(const cf_problem &p, const Refusal &no) {
    if (p.r == p.s && (p.r == 1 || p.r == 3 || p.r == 5 || p.r == 7))
        return true;
    return no("is compiled for filters of 1x1, 3x3, 5x5 and 7x7; this one is %dx%d", p.r, p.s);
}

// Calls body with the side of the filter as a compile-time constant.
template <class Body>
void for_unrolled_side(const cf_problem &p, Body body) {
    switch (p.r) {
    case 1:
        return body(Constant<1>{});
    case 3:
        return body(Constant<3>{});
    case 5:
        return body(Constant<5>{});
    case 7:
        return body(Constant<7>{});
    }
}

// For estimates: sums that are computed, those that pooling windows share more than once.
inline double direct_sums(const cf_problem &p) {
    const cf_epilogue &e = p.epilogue;
    const double window = e.pool_h ? double(e.pool_h) * e.pool_w : 1;
    return double(p.n) * p.k * e.out_h * e.out_w * window;
}

// For estimates: what a row takes that does so many operations of its sums in a clock of a
// multiprocessor, and by itself takes so many clocks for each. A warp has 16 columns of two rows,
// idle where the output has none, and each thread of a tile costs some clocks beside its sum,
// whether it has one or not. Fitted to 1137 times of the three rows on an H200; 123 of random
// problems (benches/results/evidence/h200-random-fp32.csv) are 0.30 to 0.36 off (root of the mean
// square of logarithms).
inline double direct_us(const cf_query &q, bool planes, double per_clock, double product) {
    const cf_problem &p = q.problem;
    const DirectTiles tiles(p, planes);
    const double outputs = std::max(double(tiles.rest) * tiles.width * tiles.height, 1.0);
    const double threads = double(tiles.blocks()) * DirectTile * DirectTile;
    const double of_warps =
        double(tiles.rest) * tiles.across() * DirectTile * padded(tiles.height, 2);
    const double sums = direct_sums(p), of_thread = sums / outputs * reduction(p);
    const double clocks = 2 * of_thread * of_warps / per_clock + 5.7 * threads;
    const double alone = clocks_us(q.device, of_thread * product, 1);
    return LaunchUs + beside_tensors_us(q, together_us(busy_us(q.device, clocks, 1), alone));
}

} // namespace cf
