// The main loop of implicit_gemm_pointwise: a warpgroup's sums, of some pixels in N output
// channels.
#pragma once

#include "kernels/implicit_gemm/pointwise_load.cuh"
#include "ptx/wgmma_rows.cuh"

namespace cf::pointwise {

#if CF_SM90A
// A pixel that a lane has of a tile: of product i row g, or g + 8 (`other`). They are neighbours.
struct Pixel {
    int image, pixel;  // behind the tile's first ones; of no pixel, behind all there are
    uint32_t in_stage; // bytes; of no pixel those of another one

    template <class Element, int Products>
    static __device__ __forceinline__ Pixel of(const Tiling &t, int i, int other, int warp,
                                               int lane) {
        const int row = (i * 4 + warp % 4) * 16 + lane / 4 * 2 + other;
        if (t.images == 0)
            return {0, row, uint32_t(warp / 4 * t.set_bytes + row * int(sizeof(Element)))};
        const int all = warp / 4 * Products * ProductRows + row;
        const int image = t.by_pixels.quotient(all), pixel = all - image * t.pixels;
        if (image >= t.images)
            return {0, INT32_MAX / 2, 0};
        return {image, pixel, uint32_t(image * t.set_bytes + pixel * int(sizeof(Element)))};
    }
};

// Where a lane's pixels lie in a stage. Where planes have an even number of pixels, its two are one
// word, or two of f32: `Paired`.
template <int Products, bool Paired>
struct Rows {
    static constexpr int Count = Paired ? 1 : 2;
    uint32_t in_stage[Products][Count];

    template <class Element>
    static __device__ __forceinline__ Rows of(const Tiling &t, int warp, int lane) {
        Rows rows;
#pragma unroll
        for (int i = 0; i < Products; ++i)
#pragma unroll
            for (int j = 0; j < Count; ++j)
                rows.in_stage[i][j] = Pixel::of<Element, Products>(t, i, j, warp, lane).in_stage;
        return rows;
    }
};

// A lane's part of the rows of products, all steps of a block.
template <int Products>
using Fragment = uint32_t[Products][Steps][4];

// What a lane reads of a channel: its two pixels.
template <class Element, bool Paired>
struct TwoPixels {
    uint32_t low, high;

    __device__ __forceinline__ TwoPixels(const uint32_t (&at)[Paired ? 1 : 2], uint32_t behind,
                                         bool there) {
        if constexpr (sizeof(Element) == 4 && Paired) {
            const uint2 two = load_shared2(at[0] + behind);
            low = two.x, high = two.y;
        } else if constexpr (sizeof(Element) == 4) {
            low = load_shared(at[0] + behind), high = load_shared(at[1] + behind);
        } else if constexpr (Paired) {
            low = load_shared(at[0] + behind);
        } else {
            low = load_shared_u16(at[0] + behind), high = load_shared_u16(at[1] + behind);
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
template <class Element, bool Paired, bool Whole>
__device__ __forceinline__ void load_step(const Tiling &t, const uint32_t (&at)[Paired ? 1 : 2],
                                          int step, int bytes, uint32_t (&a)[4]) {
    constexpr int Own = sizeof(Element) == 4 ? 1 : 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const auto of = [&](int i) {
            const int behind = t.channel_bytes[(step * 2 + half) * Own + i];
            return TwoPixels<Element, Paired>(at, behind, Whole || behind < bytes);
        };
        const auto one = of(0);
        if constexpr (sizeof(Element) == 4) {
            a[2 * half] = nearest_tf32(one.low), a[2 * half + 1] = nearest_tf32(one.high);
        } else {
            const auto other = of(1);
            a[2 * half] = __byte_perm(one.low, other.low, 0x5410);
            a[2 * half + 1] = Paired ? __byte_perm(one.low, other.low, 0x7632)
                                     : __byte_perm(one.high, other.high, 0x5410);
        }
    }
}

template <class Element, int Products, bool Paired, bool Whole>
__device__ __forceinline__ void load_block(const Tiling &t, const Rows<Products, Paired> &rows,
                                           uint32_t stage, int lane, Fragment<Products> &a) {
    const int first = (lane % 4 << t.order) * t.pitch;
#pragma unroll
    for (int i = 0; i < Products; ++i) {
        uint32_t at[Paired ? 1 : 2];
#pragma unroll
        for (int j = 0; j < (Paired ? 1 : 2); ++j)
            at[j] = stage + first + rows.in_stage[i][j];
#pragma unroll
        for (int step = 0; step < Steps; ++step)
            load_step<Element, Paired, Whole>(t, at, step, t.last_channels * t.pitch - first,
                                              a[i][step]);
    }
}

// The sums of a tile, from nothing. A warpgroup waits for a block's products before it loads the
// registers of the next one: ptxas takes registers of rows to be free as soon as products were
// asked for, and would let the loads write what these still read. Meanwhile the other warpgroup's
// products run.
template <class Element, int Products, int N, bool Paired>
__device__ __forceinline__ void multiply(const Tiling &t, Shared &shared, uint32_t dynamic,
                                         const Rows<Products, Paired> &rows, int lane,
                                         RingPosition &at, float (&sums)[Products][N / 2]) {
#pragma unroll 1
    for (int b = 0; b < t.blocks; ++b, at.next(t.stages)) {
        const uint32_t stage = dynamic + at.stage * t.stage_bytes;
        const WgmmaLines weights(stage + t.pixel_stage_bytes, LineAlign);
        Fragment<Products> a;
        shared.ring.wait_full(at);
        if (b + 1 < t.blocks)
            load_block<Element, Products, Paired, true>(t, rows, stage, lane, a);
        else
            load_block<Element, Products, Paired, false>(t, rows, stage, lane, a);
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
