// The plainest tiled matrix product: square tiles in shared memory, one sum per thread. Several
// rows of the im2col_gemm family are this code with one thing changed, so it stands here once.
#pragma once

#include "core/element.cuh"
#include "kernels/im2col_gemm/im2col.cuh"

namespace cf {

// product[pixel, k] = sum over i of unrolled[i, pixel] * filter[k, i], without padding of rows.
// Threads run along the dimension that is contiguous in the product.
//
// `Slice` products at a time have their operands in registers. `AtOnce` slices make one pass of
// the loop over a tile, and `Ahead` tiles one pass of the loop over all.
//
// A body for kernels: what their pointers promise is their own.
template <class T, int Math, bool Nchw, int Tile, int Slice, int AtOnce, int Ahead>
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
#pragma unroll AtOnce
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
template <class T, int Math, bool Nchw, int Tile, int Slice, int AtOnce, int Ahead>
__global__ void __launch_bounds__(Tile *Tile)
    tile_product_plain(const T *unrolled, const T *filter, float *product, int64_t pixels,
                       int channels, int reduction, int groups) {
    tile_product<T, Math, Nchw, Tile, Slice, AtOnce, Ahead>(unrolled, filter, product, pixels,
                                                            channels, reduction, groups);
}

// With pointers that promise not to overlap.
template <class T, int Math, bool Nchw, int Tile, int Slice, int AtOnce, int Ahead>
__global__ void __launch_bounds__(Tile *Tile)
    tile_product_restrict(const T *__restrict__ unrolled, const T *__restrict__ filter,
                          float *__restrict__ product, int64_t pixels, int channels, int reduction,
                          int groups) {
    tile_product<T, Math, Nchw, Tile, Slice, AtOnce, Ahead>(unrolled, filter, product, pixels,
                                                            channels, reduction, groups);
}

// Enqueues the product of elements as they are stored.
template <int Tile, int Slice = 1, int AtOnce = Tile / Slice, int Ahead = 1, bool Restrict = false>
int32_t multiply_tiles(const cf_call *call, const Product &m) {
    return for_storage_and_math(call->problem, [&](auto storage, auto math) -> int32_t {
        using T = typename StorageType<decltype(storage)::value>::type;
        constexpr int Math = decltype(math)::value;
        const auto run = [&](auto kernel) {
            kernel<<<im2col_grid(m, Tile, Tile), dim3(Tile, Tile), 0, stream(call)>>>(
                static_cast<const T *>(m.unrolled), static_cast<const T *>(call->w), m.product,
                m.pixels, m.channels, m.reduction, m.groups);
        };
        if constexpr (Restrict) {
            if (m.nchw)
                run(tile_product_restrict<T, Math, true, Tile, Slice, AtOnce, Ahead>);
            else
                run(tile_product_restrict<T, Math, false, Tile, Slice, AtOnce, Ahead>);
        } else {
            if (m.nchw)
                run(tile_product_plain<T, Math, true, Tile, Slice, AtOnce, Ahead>);
            else
                run(tile_product_plain<T, Math, false, Tile, Slice, AtOnce, Ahead>);
        }
        return cudaGetLastError();
    });
}

} // namespace cf
