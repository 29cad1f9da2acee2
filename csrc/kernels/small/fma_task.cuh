// The products of small_fma: a column of Rows output pixels, or two columns beside each other, in
// ThreadChannels output channels by one thread.
#pragma once

#include "kernels/small/fma_plan.cuh"
#include "ptx/load_store.cuh"

namespace cf::small_fma {

// Addresses within the window: those of one row in so many, to which a loop adds where it is and,
// for the rows between, their distance, in uniform registers.
template <int Height, int Every>
struct WindowRows {
    uint32_t at[(Height + Every - 1) / Every];

    __device__ __forceinline__ WindowRows(uint32_t first, uint32_t pitch) {
        at[0] = first;
#pragma unroll
        for (int a = 0; a < (Height + Every - 1) / Every; ++a) {
            if (a > 0)
                at[a] = at[a - 1] + Every * pitch;
            keep(at[a]);
        }
    }
    // Calls body(j, address) with each row, so many bytes on.
    template <bool LastFirst, class Body>
    __device__ __forceinline__ void each(uint32_t on, uint32_t pitch, Body body) const {
        uint32_t moved[Every];
        moved[0] = on;
#pragma unroll
        for (int a = 1; a < Every; ++a) {
            moved[a] = moved[a - 1] + pitch;
            keep(moved[a]);
        }
#pragma unroll
        for (int i = 0; i < Height; ++i) {
            const int j = LastFirst ? Height - 1 - i : i;
            body(j, at[j / Every] + moved[j % Every]);
        }
    }
};

template <int R, int Rows, int Columns, int Stride>
struct ThreadSums {
    static constexpr int Height = (Rows - 1) * Stride + R;
    // With a stride of 2 and two columns the compiler has products wait for each other's registers,
    // which have two banks: 26 of 504 with an address for every other row, 12 with one for every
    // fourth, which is the fastest.
    static constexpr int AddressEvery = Columns == 2 && Stride == 2 ? 4 : 2;
    using Window = WindowRows<Height, AddressEvery>;
    float value[ThreadChannels][Rows][Columns] = {};

    // Products of one filter column, whose weights `weights(r, w)` fills in, with the window's
    // columns from number s on.
    template <int Width, class Weights>
    __device__ __forceinline__ void add(const float (&window)[Width][Height], int s,
                                        Weights weights) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
            float w[ThreadChannels];
            weights(r, w);
#pragma unroll
            for (int k = 0; k < ThreadChannels; ++k) {
#pragma unroll
                for (int j = 0; j < Rows; ++j) {
#pragma unroll
                    for (int i = 0; i < Columns; ++i)
                        value[k][j][i] =
                            fmaf(window[i * Stride + s][j * Stride + r], w[k], value[k][j][i]);
                }
            }
        }
    }

    // One filter column of one channel after another; the loop is not unrolled, see fma.cu.
    template <class Weights>
    __device__ __forceinline__ void add_column(const Window &rows, uint32_t plane, uint32_t pitch,
                                               int s_count, Weights &weights) {
#pragma unroll 1
        for (uint32_t on = plane; on < plane + s_count * 4; on += 4) {
            float window[1][Height];
            // Few rows wait for constant weights. With a stride of 2 the compiler reads these in
            // the order in which they lie if the last row of x comes first; otherwise it returns to
            // lines of the constant cache that other warps have replaced.
            rows.template each<Stride == 2 && Rows <= 8>(
                on, pitch, [&](int j, uint32_t at) { window[0][j] = load_shared_f32(at); });
            add(window, 0, [&](int r, float(&w)[ThreadChannels]) { weights.read(r, w); });
            weights.advance(R);
        }
    }

    // All three filter columns of a channel. The columns of x that both of a thread's need come in
    // words that are aligned behind the first.
    template <class Weights>
    __device__ __forceinline__ void add_columns(const Window &rows, uint32_t plane, uint32_t pitch,
                                                Weights &weights) {
        float window[Stride + 3][Height];
        rows.template each<false>(plane, pitch, [&](int j, uint32_t at) {
            window[0][j] = load_shared_f32(at);
            if constexpr (Stride == 1) {
                const float2 two = load_shared_f32x2<4>(at);
                window[1][j] = two.x, window[2][j] = two.y;
                window[3][j] = load_shared_f32<12>(at);
            } else {
                const float4 four = load_shared_f32x4<4>(at);
                window[1][j] = four.x, window[2][j] = four.y;
                window[3][j] = four.z, window[4][j] = four.w;
            }
        });
#pragma unroll
        for (int s = 0; s < 3; ++s)
            add(window, s, [&](int r, float(&w)[ThreadChannels]) { weights.read(s * R + r, w); });
        weights.advance(3 * R);
    }

    // All products; the window begins at `first` in shared memory.
    template <class Weights>
    __device__ __forceinline__ void multiply(const Tiling &tiling, uint32_t first,
                                             Weights weights) {
        const Window rows(first, tiling.pitch);
#pragma unroll 1
        for (uint32_t plane = 0; plane < tiling.c * tiling.plane; plane += tiling.plane) {
            if constexpr (Columns == 1)
                add_column(rows, plane, tiling.pitch, tiling.s, weights);
            else
                add_columns(rows, plane, tiling.pitch, weights);
        }
    }
};

} // namespace cf::small_fma
