// The arithmetic of the depthwise family: a thread slides down over rows of x, and keeps the sums
// of all rows of y that a row of x meets.
#pragma once

#include "core/epilogue.cuh"
#include "core/vector.cuh"
#include "kernels/depthwise/family.cuh"
#include "ptx/keep_order.cuh"

namespace cf::depthwise {

// Two neighbours in a word.
template <class Stored>
__device__ __forceinline__ void widen_pair(uint32_t word, float (&v)[2]) {
    const auto &two = reinterpret_cast<const Pack<Stored, 2> &>(word);
    v[0] = widen(two.v[0]), v[1] = widen(two.v[1]);
}

// Bits from `least` to `most`, those of them that a word has.
__device__ __forceinline__ uint32_t bits_between(int least, int most) {
    return ~0u << max(least, 0) & ~(~1u << min(most, 30));
}

// A thread's filters, of neighbouring channels.
template <int R, int Channels>
struct Weights {
    float value[R][R][Channels];
};

// Sums of adjacent columns and neighbouring channels, in the rows of y that the present rows of x
// meet, the oldest row last.
template <int R, int Stride, int ColumnsOf, int Channels>
struct Sums {
    static constexpr int Rows = rows_of(R, Stride), Columns = ColumnsOf;
    static constexpr int Width = (Columns - 1) * Stride + R; // of the window
    float value[Rows][Columns][Channels];

    __device__ __forceinline__ float &oldest(int column, int channel) {
        return value[Rows - 1][column][channel];
    }
    // The next rows of x, as many as the stride: row(i, x) fills in the window of the i-th. Rows of
    // sums move up by one with the first product of each, which writes to the next one's registers;
    // the oldest is whole behind it. Rows of sums from `least` to `most` are those that matter: at
    // the edges of a strip others are left out if `Asks`.
    template <bool Asks, class Row>
    __device__ __forceinline__ void step(const Weights<R, Channels> &weights, int least, int most,
                                         Row row) {
        const uint32_t live = Asks ? bits_between(least, most) : 0;
#pragma unroll
        for (int i = 0; i < Stride; ++i) {
            float x[Width][Channels];
            row(i, x);
            const auto add = [&](int a, int s, int q) { add_products(weights, x, i, a, s, q); };
            if constexpr (ByPixels && !Asks)
                by_pixels(i, add);
            else
                by_rows(i, [&](int a) { return !Asks || (live & 1u << a); }, add);
        }
    }
    // What comes last in the epilogue; nothing for those that cf::Finish has limits for.
    __device__ __forceinline__ void activate_oldest(int activation) {
        if (activation == CF_ACT_NONE)
            return;
#pragma unroll
        for (int q = 0; q < Columns; ++q)
#pragma unroll
            for (int e = 0; e < Channels; ++e)
                oldest(q, e) = activate_keeping_nan(activation, oldest(q, e));
    }

  private:
    // An FFMA that keeps no operand for the next one takes a clock more. Of the 343 products of 7x7
    // with 7 columns these are 52 as ptxas orders them, which goes back and forth between pixels,
    // and 13 by pixels. That is of f32 in NHWC: in NCHW steps of 7x7 always ask. Of others see
    // docs/notes/depthwise.md.
    static constexpr bool ByPixels = R == 7 && Stride == 1 && Channels == 1;

    // Calls add(a, s, q) for the i-th row of x, the rows of sums that are live(a), taps and
    // columns.
    template <class Live, class Add>
    __device__ __forceinline__ static void by_rows(int i, Live live, Add add) {
#pragma unroll
        for (int a = Rows - 1; a >= 0; --a) {
            if (Stride * a + i >= R || !live(a))
                continue;
#pragma unroll
            for (int s = 0; s < R; ++s)
#pragma unroll
                for (int q = 0; q < Columns; ++q)
                    add(a, s, q);
        }
    }
    template <class Add>
    __device__ __forceinline__ static void by_pixels(int i, Add add) {
#pragma unroll
        for (int pixel = 0; pixel < Width; ++pixel) {
            if (pixel > 0)
                keep_order();
#pragma unroll
            for (int a = Rows - 1; a >= 0; --a)
#pragma unroll
                for (int q = 0; q < Columns; ++q) {
                    const int s = pixel - q * Stride;
                    if (s >= 0 && s < R && Stride * a + i < R)
                        add(a, s, q);
                }
        }
    }
    template <class Window>
    __device__ __forceinline__ void add_products(const Weights<R, Channels> &weights,
                                                 const Window &x, int i, int a, int s, int q) {
#pragma unroll
        for (int e = 0; e < Channels; ++e) {
            const float v = x[q * Stride + s][e], w = weights.value[Stride * a + i][s][e];
            float &sum = value[a][q][e];
            if (i > 0 || s > 0)
                sum = fmaf(v, w, sum);
            else
                sum = a > 0 ? fmaf(v, w, value[a > 0 ? a - 1 : 0][q][e]) : v * w;
        }
    }
};

} // namespace cf::depthwise
