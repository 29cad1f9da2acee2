// The plainest tiled matrix product: square tiles in shared memory, one sum per thread. Several
// rows of the im2col_gemm family are this code with one thing changed, so it stands here once.
#pragma once

#include "core/element.cuh"
#include "kernels/im2col_gemm/im2col.cuh"

namespace cf {

// product[pixel, k] = sum over i of unrolled[i, pixel] * filter[k, i], without padding of rows.
// Threads run along the dimension that is contiguous in the product.
//
// `Slice` products at a time have their operands in registers. `SlicesPerPass` of
// them make one pass of the loop over a tile, and `Ahead` tiles one pass of the loop over all.
//
// A body for kernels: what their pointers promise is their own.
template <class T, int Math, bool Nchw, int Tile, int Slice, int SlicesPerPass, int Ahead>
__device__ __forceinline__ void tile_product(const T *unrolled, const T *filter, float *product,
                                             int64_t pixels, int channels, int reduction,
                                             int groups) {
    static_assert(Tile % Slice == 0, "a tile is whole slices");
    using Sum = cf::Sum<Math>;
    __shared__ typename Sum::Operand us[Tile][Tile + 1]; // [reduction][pixel]
    __shared__ typename Sum::Operand fs[Tile][Tile + 1]; // [channel][reduction]
    const int tx = threadIdx.x, ty = threadIdx.y, group = blockIdx.z;
    const int64_t pixel0 = int64_t(blockIdx.x) * Tile;
    const int channel0 = blockIdx.y * Tile;
    const int64_t pixel = pixel0 + (Nchw ? tx : ty);
    const int channel = channel0 + (Nchw ? ty : tx);

    Sum sum;
#pragma unroll Ahead
    for (int i0 = 0; i0 < reduction; i0 += Tile) {
        // Both loads run along the rows as they lie in memory.
        if (Nchw) {
            const int i = i0 + ty;
            us[ty][tx] = Sum::operand(
                i < reduction && pixel0 + tx < pixels
                    ? widen(unrolled[(int64_t(group) * reduction + i) * pixels + pixel0 + tx])
                    : 0.0f);
        } else {
            const int i = i0 + tx;
            us[tx][ty] = Sum::operand(
                i < reduction && pixel0 + ty < pixels
                    ? widen(unrolled[((pixel0 + ty) * groups + group) * int64_t(reduction) + i])
                    : 0.0f);
        }
        fs[ty][tx] = Sum::operand(
            channel0 + ty < channels && i0 + tx < reduction
                ? widen(filter[(int64_t(group) * channels + channel0 + ty) * reduction + i0 + tx])
                : 0.0f);
        __syncthreads();
#pragma unroll SlicesPerPass
        for (int i = 0; i < Tile; i += Slice) {
            typename Sum::Operand u[Slice], f[Slice];
#pragma unroll
            for (int j = 0; j < Slice; ++j) {
                u[j] = us[i + j][Nchw ? tx : ty];
                f[j] = fs[Nchw ? ty : tx][i + j];
            }
#pragma unroll
            for (int j = 0; j < Slice; ++j)
                sum.add(u[j], f[j]);
        }
        __syncthreads();
    }
    if (pixel < pixels && channel < channels) {
        const int64_t k = int64_t(group) * channels + channel;
        product[Nchw ? k * pixels + pixel : pixel * channels * groups + k] = sum.get();
    }
}

// With plain pointers.
template <class T, int Math, bool Nchw, int Tile, int Slice, int SlicesPerPass, int Ahead>
__global__ void __launch_bounds__(Tile *Tile)
    tile_product_plain(const T *unrolled, const T *filter, float *product, int64_t pixels,
                       int channels, int reduction, int groups) {
    tile_product<T, Math, Nchw, Tile, Slice, SlicesPerPass, Ahead>(
        unrolled, filter, product, pixels, channels, reduction, groups);
}

// With pointers that promise not to overlap.
template <class T, int Math, bool Nchw, int Tile, int Slice, int SlicesPerPass, int Ahead>
__global__ void __launch_bounds__(Tile *Tile)
    tile_product_restrict(const T *__restrict__ unrolled, const T *__restrict__ filter,
                          float *__restrict__ product, int64_t pixels, int channels, int reduction,
                          int groups) {
    tile_product<T, Math, Nchw, Tile, Slice, SlicesPerPass, Ahead>(
        unrolled, filter, product, pixels, channels, reduction, groups);
}

using TileKernel = Kernel<const void *, const void *, void *, int64_t, int32_t, int32_t, int32_t>;

// The kernel for a problem's elements as they are stored.
template <int Tile, int Slice = 1, int SlicesPerPass = Tile / Slice, int Ahead = 1,
          bool Restrict = false>
TileKernel tile_kernel(const cf_problem &p) {
    TileKernel kernel;
    for_storage_and_math(p, [&](auto storage, auto math) {
        using T = typename StorageType<decltype(storage)::value>::type;
        constexpr int Math = decltype(math)::value;
        const auto choose = [&](auto in_nchw, auto in_nhwc) {
            kernel = kernel_of(p.layout == CF_NCHW ? in_nchw : in_nhwc, dim3(), dim3(Tile, Tile));
        };
        if constexpr (Restrict)
            choose(tile_product_restrict<T, Math, true, Tile, Slice, SlicesPerPass, Ahead>,
                   tile_product_restrict<T, Math, false, Tile, Slice, SlicesPerPass, Ahead>);
        else
            choose(tile_product_plain<T, Math, true, Tile, Slice, SlicesPerPass, Ahead>,
                   tile_product_plain<T, Math, false, Tile, Slice, SlicesPerPass, Ahead>);
    });
    return kernel;
}

// What a plan of these rows holds at least.
struct TileState {
    Im2col im2col;
    TileKernel kernel;
};

inline int32_t multiply_tiles(TileKernel kernel, const cf_args &args, const Product &m) {
    kernel.grid = im2col_grid(m, kernel.block);
    return kernel.launch(args.stream, m.unrolled, args.w, m.product, m.pixels, m.channels,
                         m.reduction, m.groups);
}

// Of rows with the shared unrolling.
inline int32_t launch_tiles(const TileState &state, const cf_args &args) {
    return state.im2col.launch(
        args, [&](const Product &m) { return multiply_tiles(state.kernel, args, m); });
}

// Operations of a multiprocessor in a clock, the idle ones of its tiles included: 5.9 TFLOP/s on
// 132 at 1980 MHz, within 3 % of what tiles of 16 took on three layers, 11 % on 1 -> 12, k5
// (h200-sweep.jsonl).
constexpr double TileRate = 22.6;
// What a tile takes by itself for each product of a sum, in the same results and
// h200-small-*.jsonl: 74 to 97.
constexpr double TileClocks = 88;

// Other tiles are assumed to spend a product's time on T products and that of 8 on staging, and to
// suffer from lanes that a block's last warp leaves idle.
inline double tile_product_us(const cf_query &q, int tile) {
    const int threads = tile * tile;
    const double lanes = threads / padded(threads, 32);
    const double rate = TileRate * lanes * (1 + 8.0 / 16) / (1 + 8.0 / tile);
    return busy_us(q.device, tiled_flops(q.problem, tile), rate, TileClocks * reduction(q.problem));
}

// Plans the rest for a kernel that was chosen and the shared unrolling, or says why not.
inline bool plan_tiles(const cf_query &query, TileState &state, cf_plan &plan, const Refusal &no) {
    const cf_problem &p = query.problem;
    if (!im2col_fits(p, state.kernel.block, no))
        return false;
    state.im2col = Im2col(p, p.storage);
    state.im2col.chunks.workspace(plan);
    plan.us = im2col_us(query, gather_us(query, p.storage),
                        tile_product_us(query, int(state.kernel.block.x)));
    return true;
}

} // namespace cf
