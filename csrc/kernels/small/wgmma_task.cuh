// A task of small_wgmma: 64 positions, Rows rows of y high, by a warpgroup. The products of R rows
// of the filter by N columns; Quads: four channels each of a pixel in shared memory, 0 where a
// position is two pixels.
#pragma once

#include "kernels/small/wgmma_block.cuh"
#include "ptx/shared.cuh"
#include "ptx/wgmma.cuh"

namespace cf::small_wgmma {

#if CF_SM90A
// A lane's two positions.
template <int Rows, int Quads>
struct LanePositions {
    int tile[2], column[2]; // row tile and first pixel
    int rows[2];            // of y that exist
    uint32_t at[2];         // where their windows begin, from the lane's words on

    // In an image that begins at `image` in shared memory. The last positions repeat.
    __device__ __forceinline__ LanePositions(const Tiling &tiling, int task, uint32_t image,
                                             int warp, int lane) {
        constexpr bool Pairs = Quads == 0;
        const int all = tiling.row_tiles * tiling.positions;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int of_warp = Pairs ? lane / 4 + 8 * i : lane / 4 * 2 + i;
            const int position = task * Positions + warp % 4 * 16 + of_warp;
            const int known = min(position, all - 1);
            tile[i] = tiling.by_positions.quotient(known);
            column[i] = (known - tile[i] * tiling.positions) * (Pairs ? 2 : 1);
            rows[i] = position == known ? tiling.p - tile[i] * Rows : 0;
            at[i] = image + tile[i] * Rows * tiling.pitch +
                    column[i] * (Pairs ? 2 : pixel_of(Quads) * 2) + lane % 4 * 4;
        }
    }
};

// The sums, and how they come about. Rows h, h + R, ... of x, those of phase h, together meet each
// row of y once.
template <class Element, int R, int N>
struct TaskSums {
    static constexpr int Rows = rows_of(R, N), Window = Rows + R - 1;
    static constexpr int PhaseRows = (Window + R - 1) / R; // at most
    using Phase = uint32_t[PhaseRows][4];                  // operands of a step

    float value[Rows][N / 2];

    // The products of a step and a phase, which run on while the next operands are loaded.
    __device__ __forceinline__ void multiply_phase(int h, const Phase &x, uint64_t weights,
                                                   bool add) {
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < Rows; ++j) {
            const int m = j > h ? (j - h + R - 1) / R : 0, r = h + m * R - j;
            wgmma_16bit<Element, N>(value[j], x[m], weights + (R - 1 - r) * N, add);
        }
        wgmma_commit();
        wgmma_wait<1>();
    }

    // Positions of two pixels; a step is two channels, whose planes lie `plane` bytes apart.
    __device__ __forceinline__ void multiply_pairs(const Tiling &tiling, const uint32_t (&first)[2],
                                                   uint64_t weights) {
        const uint32_t plane = tiling.h * tiling.pitch;
        uint32_t at[2] = {first[0], first[1]};
        Phase window[2]; // of the products that run, and of the next
        const auto load = [&](int h, Phase &to) {
#pragma unroll
            for (int m = 0; m < PhaseRows; ++m)
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const int row = h + m * R;
                    if (row >= Window)
                        continue;
                    to[m][i] = load_shared(at[i] + row * tiling.pitch);
                    to[m][2 + i] = load_shared(at[i] + row * tiling.pitch + plane);
                }
        };
        // R is odd: steps alternate between the two windows.
        const auto step_from = [&](auto first, int step) {
            constexpr int First = decltype(first)::value;
#pragma unroll
            for (int h = 0; h < R; ++h) {
                multiply_phase(h, window[(First + h) % 2], weights + step * (2 * R * N),
                               step > 0 || h > 0);
                if (h + 1 < R) {
                    load(h + 1, window[(First + h + 1) % 2]);
                } else if (step + 1 < tiling.steps) {
                    at[0] += 2 * plane, at[1] += 2 * plane;
                    load(0, window[1 - First]);
                }
            }
        };
        load(0, window[0]);
#pragma unroll 1
        for (int step = 0; step < tiling.steps; step += 2) {
            step_from(Constant<0>{}, step);
            if (step + 1 < tiling.steps)
                step_from(Constant<1>{}, step + 1);
        }
    }

    // Positions of one pixel, the lane's two of them neighbours. Halves of steps, 8 elements: 8
    // channels tap by tap, then, where 4 are left, these at two taps. The second pixel's operand is
    // the first one's at the next tap, and is loaded once.
    template <int Quads>
    __device__ __forceinline__ void multiply_pixels(const Tiling &tiling, uint32_t at, int lane,
                                                    uint64_t weights) {
        constexpr int Whole = Quads / 2, Steps = (halves_of(Quads, R) + 1) / 2;
        constexpr int Pixel = pixel_of(Quads) * 2;
        constexpr int Split = (R + 1) / 2; // taps of the rest's first lane
        const int pair = lane % 4;
        const uint32_t rest =
            at - pair * 4 + Whole * 16 + pair / 2 * 4 + pair % 2 * (Split * Pixel);
        // Makes a copy that the compiler does not see through: ptxas lets products wait for each
        // other where a register is an operand of two.
        const uint32_t zero = tiling.strips >> 31;
        Phase window[2]; // of the products that run, and of the next
        const auto load = [&](int g, Phase &to, const Phase &last) {
#pragma unroll
            for (int m = 0; m < PhaseRows; ++m)
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const int row = g / Steps + m * R, half = g % Steps * 2 + i;
                    if (row >= Window)
                        continue;
                    const bool whole = half < Whole * R;
                    const int tap = whole ? half % R : half - Whole * R;
                    const uint32_t from =
                        (whole ? at + half / R * 16 : rest) + row * tiling.pitch + tap * Pixel;
                    const uint32_t before = i ? to[m][1] : last[m][3];
                    to[m][2 * i] = tap > 0 ? before | zero : load_shared(from);
                    to[m][2 * i + 1] = load_shared(from + Pixel);
                }
        };
        load(0, window[0], window[1]);
#pragma unroll
        for (int g = 0; g < R * Steps; ++g) {
            multiply_phase(g / Steps, window[g % 2], weights + g % Steps * (2 * R * N), g > 0);
            if (g + 1 < R * Steps)
                load(g + 1, window[(g + 1) % 2], window[g % 2]);
        }
    }

    // Until all products are there.
    __device__ __forceinline__ void wait() {
        wgmma_wait<0>();
#pragma unroll
        for (int j = 0; j < Rows; ++j)
#pragma unroll
            for (int v = 0; v < N / 2; ++v)
                settle(value[j][v]);
    }
};
#endif

} // namespace cf::small_wgmma
