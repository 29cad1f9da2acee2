// The main loop of implicit_gemm_pointwise: a warpgroup's sums, of some pixels in N output
// channels.
#pragma once

#include "kernels/implicit_gemm/pointwise_load.cuh"
#include "ptx/wgmma_rows.cuh"

namespace cf::pointwise {

#if CF_SM90A
// A pixel that a lane has of a tile: of product i row g, or g + 8 (`other`). They are neighbours.
struct Pixel {
    int image, pixel; // behind the tile's first ones; of no pixel, behind all there are

    template <int Products>
    static __device__ __forceinline__ Pixel of(const Tiling &t, int i, int other, int warp,
                                               int lane) {
        const int row = (i * 4 + warp % 4) * 16 + lane / 4 * 2 + other;
        if (t.images == 0)
            return {0, row};
        const int all = warp / 4 * Products * ProductRows + row;
        const int image = t.by_pixels.quotient(all), pixel = all - image * t.pixels;
        if (image >= t.images)
            return {0, INT32_MAX / 2};
        return {image, pixel};
    }

    // Where it lies in a stage, in bytes; of no pixel of the piece where another one does.
    __device__ __forceinline__ uint32_t in_stage(const Tiling &t, int warp) const {
        if (pixel >= t.piece_pixels)
            return 0;
        const int set = t.images == 0 ? warp / 4 : image;
        const int row = t.by_row_pixels.quotient(pixel), column = pixel - row * t.row_pixels;
        return uint32_t(set * t.set_bytes + row * t.row_bytes + column * t.pixel_bytes);
    }
};

// How many places a lane knows for two pixels: that of the first one where one load brings both.
template <Pairs Pair>
constexpr int Places = loads_both(Pair) ? 1 : 2;

// Where a lane's pixels lie in a stage.
template <int Products, Pairs Pair>
struct Rows {
    static constexpr int Count = Places<Pair>;
    uint32_t in_stage[Products][Count];

    static __device__ __forceinline__ Rows of(const Tiling &t, int warp, int lane) {
        Rows rows;
#pragma unroll
        for (int i = 0; i < Products; ++i)
#pragma unroll
            for (int j = 0; j < Count; ++j)
                rows.in_stage[i][j] = Pixel::of<Products>(t, i, j, warp, lane).in_stage(t, warp);
        return rows;
    }
};

// A lane's part of the rows of products, all steps of a block.
template <int Products>
using Fragment = uint32_t[Products][Steps][4];

// What a lane reads of a channel: its two pixels, in 16 bits as the low halves of two words, or
// both in `low` (Pairs::Both).
template <class Element, Pairs Pair>
struct TwoPixels {
    uint32_t low, high;

    __device__ __forceinline__ TwoPixels(const uint32_t (&at)[Places<Pair>], uint32_t behind,
                                         bool there) {
        constexpr bool Floats = sizeof(Element) == 4;
        if constexpr (!loads_both(Pair) && Floats) {
            low = load_shared(at[0] + behind), high = load_shared(at[1] + behind);
        } else if constexpr (!loads_both(Pair)) {
            low = load_shared_u16(at[0] + behind), high = load_shared_u16(at[1] + behind);
        } else if constexpr (Pair == Pairs::Both && !Floats) {
            low = load_shared(at[0] + behind);
        } else if constexpr (Pair == Pairs::Steps && Floats) {
            const uint4 four = load_shared4(at[0] + behind);
            low = four.x, high = four.z;
        } else {
            const uint2 two = load_shared2(at[0] + behind);
            low = two.x, high = two.y;
        }
        if (!there)
            low = high = 0;
    }
};

// The nearest tf32, of whose bits wgmma drops those below: ties go away from zero, what is not
// finite stays as it is.
__device__ __forceinline__ uint32_t nearest_tf32(uint32_t bits) {
    return fabsf(__uint_as_float(bits)) < INFINITY ? bits + 0x1000 : bits;
}

// Registers of wgmma_rows for one step, of the lane's channels behind `at`. All of a whole block's
// channels are there, of others those of so many `bytes` of x.
template <class Element, Pairs Pair, bool Whole>
__device__ __forceinline__ void load_step(const Tiling &t, const uint32_t (&at)[Places<Pair>],
                                          int step, int bytes, uint32_t (&a)[4]) {
    constexpr int Own = sizeof(Element) == 4 ? 1 : 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const auto of = [&](int i) {
            const int behind = t.channel_bytes[(step * 2 + half) * Own + i];
            return TwoPixels<Element, Pair>(at, behind, Whole || behind < bytes);
        };
        const auto one = of(0);
        if constexpr (sizeof(Element) == 4) {
            a[2 * half] = nearest_tf32(one.low), a[2 * half + 1] = nearest_tf32(one.high);
        } else {
            const auto other = of(1);
            a[2 * half] = __byte_perm(one.low, other.low, 0x5410);
            a[2 * half + 1] = Pair == Pairs::Both ? __byte_perm(one.low, other.low, 0x7632)
                                                  : __byte_perm(one.high, other.high, 0x5410);
        }
    }
}

template <class Element, int Products, Pairs Pair, bool Whole>
__device__ __forceinline__ void load_block(const Tiling &t, const Rows<Products, Pair> &rows,
                                           uint32_t stage, int lane, Fragment<Products> &a) {
    const int first = (lane % 4 << t.order) * t.pitch;
#pragma unroll
    for (int i = 0; i < Products; ++i) {
        uint32_t at[Places<Pair>];
#pragma unroll
        for (int j = 0; j < Places<Pair>; ++j)
            at[j] = stage + first + rows.in_stage[i][j];
#pragma unroll
        for (int step = 0; step < Steps; ++step)
            load_step<Element, Pair, Whole>(t, at, step, t.last_channels * t.pitch - first,
                                            a[i][step]);
    }
}

// The sums of a tile, from nothing. A warpgroup waits for a block's products before it loads the
// registers of the next one: ptxas takes registers of rows to be free as soon as products were
// asked for, and would let the loads write what these still read. Meanwhile the other warpgroup's
// products run.
template <class Element, int Products, int N, Pairs Pair>
__device__ __forceinline__ void multiply(const Tiling &t, Shared &shared, uint32_t dynamic,
                                         const Rows<Products, Pair> &rows, int lane,
                                         RingPosition &at, float (&sums)[Products][N / 2]) {
#pragma unroll 1
    for (int b = 0; b < t.blocks; ++b, at.next(t.stages)) {
        const uint32_t stage = dynamic + at.stage * t.stage_bytes;
        const WgmmaLines weights(stage + t.pixel_stage_bytes, LineAlign);
        Fragment<Products> a;
        shared.ring.wait_full(at);
        if (b + 1 < t.blocks)
            load_block<Element, Products, Pair, true>(t, rows, stage, lane, a);
        else
            load_block<Element, Products, Pair, false>(t, rows, stage, lane, a);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < Steps; ++step)
#pragma unroll
            for (int i = 0; i < Products; ++i)
                wgmma_rows<Element, N>(sums[i], a[i][step], weights.behind(step * StepBytes),
                                       step > 0 || b > 0);
        wgmma_commit();
        wgmma_wait<0>();
        shared.ring.release(at);
    }
#pragma unroll
    for (int i = 0; i < Products; ++i)
#pragma unroll
        for (int j = 0; j < N / 2; ++j)
            settle(sums[i][j]);
}
#endif

} // namespace cf::pointwise
