// A warp's task of depthwise_mma: four channels of a strip's column tiles, a row of x after the
// other, with products of tensor cores.
//
// Row r of the filter, laid along the diagonal of a matrix, takes 16 columns of x to the columns of
// y whose windows they hold:
//     y[p][n] += sum over k < 16 of x[stride * p + r][k] band_r[k][n]
// so that a step of mma.sync has a row of the filter for one channel and 16 units, which are column
// tiles of images. A lane loads four channels of a pixel together and exchanges neighbours of two
// pixels for neighbours along the sum.
#pragma once

#include "core/epilogue.cuh"
#include "kernels/depthwise/bands.cuh"
#include "kernels/depthwise/mma_store.cuh"
#include "ptx/mma.cuh"

namespace cf::depthwise_mma {

// What a kernel is compiled for: stored elements, filter and stride.
template <class StoredOf, int FilterOf, int StrideOf>
struct Shape {
    using Stored = StoredOf;
    static constexpr int R = FilterOf, Stride = StrideOf;
    static constexpr bool OfPlanes = false;                  // but of pixels
    static constexpr bool AnyChannels = false;               // but whole pieces of 16 bytes
    static constexpr int Channels = depthwise_mma::Channels; // of a strip
    static constexpr int Columns = columns_of(R, Stride);
    static constexpr int Rows = rows_of(R, Stride);
    static constexpr int Window = (Columns - 1) * Stride + R; // columns of x that a unit needs
    static_assert(Window <= TileWidth, "a product holds them");
};

#if CF_SM90
// A lane's units g and g + 8.
struct Unit {
    int image, tile; // in the strip
    bool busy;       // units that do not exist read the first one's pixels
};
__device__ __forceinline__ Unit unit_of(const depthwise::Tiling &t, int number) {
    Unit unit;
    unit.busy = number < t.images * t.tiles;
    const int existing = unit.busy ? number : 0;
    unit.image = t.by_tiles.quotient(existing);
    unit.tile = existing - unit.image * t.tiles;
    return unit;
}

// Where a lane's pixels lie, of its two units: in a row of x the columns that are units 2 t,
// 2 t + 1, 2 t + 8 and 2 t + 9 along the sum, in a row of y columns 2 t and 2 t + 1. Where g is
// odd, the second of two neighbours comes first: so 16 lanes, which shared memory serves together,
// are at 8 bytes of all its 16-byte places, two at each.
template <class Shape>
struct Pixels {
    uint32_t x[2][4], y[2][2];
    bool live[2][2]; // of y
    bool odd;
    uint32_t select[2]; // the lower or upper halves of two neighbours' words, for __byte_perm

    __device__ __forceinline__ Pixels(const depthwise::Tiling &tiling, int warp, int lane) {
        const int g = lane / 4, t = lane % 4, of_warp = warp * (WarpChannels * 2);
        odd = g % 2 != 0;
        select[0] = odd ? 0x1054 : 0x5410, select[1] = odd ? 0x3276 : 0x7632;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int number = g + 8 * half;
            const Unit unit = unit_of(tiling, number);
            const int first = unit.tile * Shape::Columns * Shape::Stride;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                // Beside the window bands are zeros: any column of it will do.
                const int column = min(2 * t + (i % 2 ^ g % 2) + i / 2 * 8, Shape::Window - 1);
                x[half][i] = in_half_lines(unit.image * tiling.image +
                                           (first + column) * PixelBytes + of_warp);
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int column = 2 * t + (i ^ g % 2);
                live[half][i] = unit.busy && column < Shape::Columns;
                y[half][i] =
                    in_half_lines((number * Shape::Columns + column) * PixelBytes + of_warp);
            }
        }
    }
};

// A lane's pixels of a row of x, four channels each.
template <class Shape>
struct RowOfX {
    const Pixels<Shape> &pixels;
    uint2 pixel[2][4];

    __device__ __forceinline__ RowOfX(uint32_t row, const Pixels<Shape> &pixels) : pixels(pixels) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                pixel[half][i] = load_shared2(row + pixels.x[half][i]);
    }
    // Units [g][t], [g + 8][t], [g][t + 4] and [g + 8][t + 4] of A, of one of the channels.
    __device__ __forceinline__ void channel(int e, uint32_t (&a)[4]) const {
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                const uint2 &one = pixel[half][i], &other = pixel[half][i + 1];
                a[half + i] = __byte_perm(e < 2 ? one.x : one.y, e < 2 ? other.x : other.y,
                                          pixels.select[e % 2]);
            }
    }
};

template <class Shape>
using SumsOf = Fragment<typename Shape::Stored, float>[WarpChannels];

// A row of sums, for core/fragment_epilogue.cuh.
template <class Shape>
struct OutputMap {
    SumsOf<Shape> &sums;
    int64_t place[2][2]; // of the pixels in y
    bool live[2][2];
    int channel;

    __device__ __forceinline__ OutputMap(SumsOf<Shape> &sums, const depthwise::Tiling &tiling,
                                         const Strip &strip, int p, int warp, int lane)
        : sums(sums), channel(strip.channel + warp * WarpChannels) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const Unit unit = unit_of(tiling, lane / 4 + 8 * half);
            const int64_t n = strip.n + unit.image;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int of_tile = lane % 4 * 2 + i;
                const int q = strip.column + unit.tile * Shape::Columns + of_tile;
                live[half][i] = unit.busy && of_tile < Shape::Columns && q < tiling.q &&
                                n < tiling.n && channel < tiling.c;
                place[half][i] = ((n * tiling.p + p) * tiling.q + q) * tiling.c + channel;
            }
        }
    }
    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
#pragma unroll
        for (int e = 0; e < WarpChannels; ++e)
            body(channel + e, Constant<4>(), [&](int i) -> float & { return sums[e].value[i]; });
    }
    template <class T, class Body>
    __device__ __forceinline__ void for_runs(T *tensor, Body body) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int i = 0; i < 2; ++i)
                body(Constant<WarpChannels>(), tensor + place[half][i], live[half][i],
                     [&](int e) -> float & { return sums[e].value[2 * half + i]; });
    }
};

// A warp's sums, of the rows of y that the present rows of x meet, the oldest row last.
template <class Shape>
struct Sums {
    SumsOf<Shape> value[Shape::Rows];

    __device__ __forceinline__ SumsOf<Shape> &oldest() { return value[Shape::Rows - 1]; }
    // The next rows of x, as many as the stride, from `row` on. Rows of sums move up by one with
    // the first product of each; the oldest is whole behind it.
    __device__ __forceinline__ void step(const Bands<Shape::R> (&bands)[WarpChannels],
                                         const Pixels<Shape> &pixels, uint32_t row,
                                         uint32_t pitch) {
#pragma unroll
        for (int i = 0; i < Shape::Stride; ++i) {
            const RowOfX<Shape> x(row + i * pitch, pixels);
#pragma unroll
            for (int e = 0; e < WarpChannels; ++e) {
                uint32_t a[4];
                x.channel(e, a);
#pragma unroll
                for (int of = Shape::Rows - 1; of >= 0; --of) {
                    const int r = Shape::Stride * of + i;
                    if (r >= Shape::R)
                        continue;
                    auto &sum = value[of][e];
                    if (i == 0) {
                        if (of > 0)
                            sum = value[of > 0 ? of - 1 : 0][e];
                        else
                            sum = {};
                    }
                    sum.add(a, bands[e].word[r]);
                }
            }
        }
    }
    // The oldest row, to a row of y in a slot.
    __device__ __forceinline__ void store(uint32_t row, const Pixels<Shape> &pixels) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            uint32_t pixel[2][2]; // columns 2 t and 2 t + 1
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int pair = 0; pair < 2; ++pair)
                    pixel[i][pair] =
                        pack<typename Shape::Stored>(oldest()[2 * pair].value[2 * half + i],
                                                     oldest()[2 * pair + 1].value[2 * half + i]);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const uint32_t word[2] = {pixels.odd ? pixel[1 - i][0] : pixel[i][0],
                                          pixels.odd ? pixel[1 - i][1] : pixel[i][1]};
                store_if(pixels.live[half][i], row + pixels.y[half][i], word);
            }
        }
    }
};

template <class Shape>
__device__ __forceinline__ void finish_row(const depthwise::Tiling &tiling, Sums<Shape> &sums,
                                           const Strip &strip, int p, int warp, int lane,
                                           const Finish &finish) {
    const OutputMap<Shape> map(sums.oldest(), tiling, strip, p, warp, lane);
    finish_fragment<typename Shape::Stored>(finish, tiling.c, map);
    if (tiling.activation != CF_ACT_NONE)
#pragma unroll
        for (auto &of_channel : sums.oldest())
#pragma unroll
            for (float &sum : of_channel.value)
                sum = activate_keeping_nan(tiling.activation, sum);
}

// A warp's filters, of the strip's in shared memory.
template <class Shape>
__device__ __forceinline__ void load_bands(uint32_t filters, int warp, int lane,
                                           Bands<Shape::R> (&bands)[WarpChannels]) {
    constexpr int FilterBytes = Shape::R * Shape::R * 2;
#pragma unroll
    for (int e = 0; e < WarpChannels; ++e)
        bands[e].template load<Shape::Stride, 0, 0>(
            filters + (warp * WarpChannels + e) * FilterBytes, lane);
}
#endif

} // namespace cf::depthwise_mma
