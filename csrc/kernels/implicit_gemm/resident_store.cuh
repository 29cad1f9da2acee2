// From the sums of implicit_gemm_resident to y: the epilogue in registers; then four lanes exchange
// words, so that each has eight neighbouring columns of a channel, and stores them.
#pragma once

#include "kernels/implicit_gemm/nhwc_store.cuh"
#include "kernels/implicit_gemm/resident_load.cuh"

namespace cf::implicit_resident {

#if CF_SM90A
constexpr int StripEights = StripColumns / 8;

// A strip of a row in y, of a lane's first channel.
struct Strip {
    int64_t first;  // element, in the strip's first column
    int begin, end; // columns of the strip that are stored

    __device__ __forceinline__ bool has(int column) const {
        return column >= begin && column < end;
    }
};

// The epilogue's coordinate map: a lane has sums of two channels, eight apart, in two columns of
// each eight.
template <int N>
struct RowMap : implicit_gemm::PieceMap<N, 0, N / 8> {
    const Strip (&strips)[2];
    int lane, channels;
    int64_t y_plane;

    __device__ __forceinline__ RowMap(float (&sums)[N / 2], int k, const Strip (&strips)[2],
                                      int lane, int channels, int64_t y_plane)
        : implicit_gemm::PieceMap<N, 0, N / 8>{sums, k}, strips(strips), lane(lane),
          channels(channels), y_plane(y_plane) {}

    template <class Stored, class Body>
    __device__ __forceinline__ void for_runs(const Stored *tensor, Body body) {
#pragma unroll
        for (int eight = 0; eight < N / 8; ++eight) {
            const Strip &strip = strips[eight / StripEights];
            const int column = eight % StripEights * 8;
#pragma unroll
            for (int half = 0; half < 2; ++half)
                body(Constant<2>(),
                     tensor + strip.first + half * 8 * y_plane + column + lane % 4 * 2,
                     strip.has(column) && half * 8 < channels,
                     [&](int i) -> float & { return this->sum(eight, half, i); });
        }
    }
};

// Of four lanes, each with a word of four eights of columns: afterwards each has the four words of
// one.
__device__ __forceinline__ void transpose_words(uint32_t (&words)[4], int lane) {
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
        const bool upper = lane & distance;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (!(i & distance)) {
                uint32_t &low = words[i], &high = words[i | distance];
                const uint32_t other = __shfl_xor_sync(~0u, upper ? low : high, distance);
                (upper ? low : high) = other;
            }
    }
}

template <class Element, int N>
class RowStore {
    static constexpr int Eights = N / 8;
    const Tiling &t;
    const int lane;
    const int k, channels; // the lane's first of all, and how many there are from it on

    __device__ __forceinline__ Strip strip(const Run &run, int row, int number) const {
        const int column = run.column(t) + number * t.strip_columns;
        const int begin = run.margin() - number * t.strip_columns;
        const int y_row = run.row + row + number * t.strip_rows;
        const int64_t plane = int64_t(run.image) * t.k + k;
        return {plane * t.y_plane + int64_t(y_row) * t.q + column, begin,
                y_row < t.p ? min(begin + t.columns, t.q - column) : begin};
    }

  public:
    __device__ __forceinline__ RowStore(const Block &block, int warp, int lane)
        : t(block.tiling), lane(lane),
          k(block.group * t.group_k + block.k + warp % WarpgroupWarps * 16 + lane / 4),
          channels(t.group_k - block.k - warp % WarpgroupWarps * 16 - lane / 4) {}

    // A row of a run.
    __device__ __forceinline__ void store(const Run &run, int row, float (&sums)[N / 2], Element *y,
                                          const Finish &finish) const {
        const Strip strips[2] = {strip(run, row, 0), strip(run, row, 1)};
        RowMap<N> map(sums, k, strips, lane, channels, t.y_plane);
        if (t.finishes) {
            finish_fragment<Element>(finish, t.k, map);
            implicit_gemm::activate_piece(t.activation, map, Constant<Eights>());
        }
#pragma unroll
        for (int first = 0; first < Eights; first += 4) {
            const Strip &strip = strips[first / StripEights];
            const int column = (first % StripEights + lane % 4) * 8;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                uint32_t words[4] = {};
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    if (first + i < Eights)
                        words[i] =
                            pack<Element>(map.sum(first + i, half, 0), map.sum(first + i, half, 1));
                transpose_words(words, lane);
                const int64_t to = strip.first + half * 8 * t.y_plane + column;
                store_if(strip.has(column) && half * 8 < channels, reinterpret_cast<char *>(y + to),
                         words);
            }
        }
    }
};
#endif

} // namespace cf::implicit_resident
