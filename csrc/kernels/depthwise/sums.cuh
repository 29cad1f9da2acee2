// The arithmetic of the depthwise family: a thread slides down over rows of x, and keeps the sums
// of all rows of y that a row of x meets.
#pragma once

#include "core/epilogue.cuh"
#include "core/fragment_epilogue.cuh"
#include "core/vector.cuh"
#include "kernels/depthwise/family.cuh"

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
#pragma unroll
            for (int a = Rows - 1; a >= 0; --a) {
                const int r = Stride * a + i;
                if (r >= R || (Asks && !(live & 1u << a)))
                    continue;
#pragma unroll
                for (int s = 0; s < R; ++s)
#pragma unroll
                    for (int q = 0; q < Columns; ++q)
#pragma unroll
                        for (int e = 0; e < Channels; ++e) {
                            const float v = x[q * Stride + s][e], w = weights.value[r][s][e];
                            float &sum = value[a][q][e];
                            if (i > 0 || s > 0)
                                sum = fmaf(v, w, sum);
                            else
                                sum = a > 0 ? fmaf(v, w, value[a > 0 ? a - 1 : 0][q][e]) : v * w;
                        }
            }
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
};

// The oldest row of sums of adjacent columns of a plane, for core/fragment_epilogue.cuh, in runs of
// so many.
template <class Sums, int Together>
struct PlaneOutputMap {
    Sums &sums;
    int64_t place; // of the first sum in y
    int channel, columns;

    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
        body(channel, Constant<Sums::Columns>(),
             [&](int q) -> float & { return sums.oldest(q, 0); });
    }
    template <class T, class Body>
    __device__ __forceinline__ void for_runs(T *tensor, Body body) {
#pragma unroll
        for (int q = 0; q < Sums::Columns; q += Together)
            body(Constant<Together>(), tensor + place + q, q < columns,
                 [&](int i) -> float & { return sums.oldest(q + i, 0); });
    }
};

} // namespace cf::depthwise
