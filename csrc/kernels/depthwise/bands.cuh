// A filter as band matrices: each of its rows lies along the diagonal of a matrix of 16 columns of
// x by columns of y (a Toeplitz matrix).
#pragma once

#include "ptx/load_over.cuh"

namespace cf::depthwise {

// What lane 4 g + t of mma.sync has of a filter of 16-bit elements: for each of its rows, and
// 8 columns of x and the next 8, unit [t][g] of B (ptx/mma.cuh).
template <int R>
struct Bands {
    uint32_t word[R][2];

    // From the filter's elements in shared memory. Windows are Stride columns apart, and the first
    // begins Pad columns before column Lead of x. Of the two halves of a row, 8 columns apart, a
    // lane has taps in one at most.
    template <int Stride, int Lead, int Pad>
    __device__ __forceinline__ void load(uint32_t filter, int lane) {
        // The column of the filter that the lane's first element of the left half multiplies.
        const int tap = 2 * (lane % 4) - Stride * (lane / 4) - Lead + Pad;
        const bool right = tap < -1;
        const int first = right ? tap + 8 : tap;
        uint32_t element[2][R] = {};
#pragma unroll
        for (int e = 0; e < 2; ++e)
            load_column<0>(unsigned(first + e) < unsigned(R), filter + (first + e) * 2, element[e]);
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const uint32_t pair = __byte_perm(element[0][r], element[1][r], 0x5410);
            word[r][0] = right ? 0 : pair, word[r][1] = right ? pair : 0;
        }
    }

  private:
    template <int Row>
    static __device__ __forceinline__ void load_column(bool live, uint32_t at,
                                                       uint32_t (&element)[R]) {
        if constexpr (Row < R) {
            load_over_u16<Row * R * 2>(live, at, element[Row]);
            load_column<Row + 1>(live, at, element);
        }
    }
};

} // namespace cf::depthwise
