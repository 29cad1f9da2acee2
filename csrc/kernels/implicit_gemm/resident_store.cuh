// From the sums of implicit_gemm_resident to y: the epilogue in registers; then each warp puts its
// 16 channels of a strip into shared memory, a line each, and stores neighbours 16 bytes at a time.
#pragma once

#include "kernels/implicit_gemm/nhwc_store.cuh"
#include "kernels/implicit_gemm/resident_load.cuh"
#include "ptx/mma_half.cuh"

namespace cf::implicit_resident {

#if CF_SM90A
template <class Element, int N>
class RowStore {
    static constexpr int Moves = StagedStrip / (32 * 16); // of 16 bytes, by a lane
    static constexpr int MoveChannels = 16 / Moves;       // of a warp at a time
    const Tiling &t;
    const uint32_t staged; // of the warp
    const int lane;
    const int k, channels; // the warp's first of all, and how many there are from it on

    // Of a strip of a row: where what the lane moves begins in y, and whether it is there.
    struct Piece {
        int64_t offset;
        bool live;
    };
    __device__ __forceinline__ Piece piece(const Run &run, int row, int strip) const {
        const int first = run.margin() - strip * t.strip_columns; // of the strip's columns
        const int of_strip = lane % 8 * PieceColumns;
        const int column = run.column(t) + strip * t.strip_columns + of_strip;
        const int y_row = run.row + row + strip * t.strip_rows;
        const int64_t channel = int64_t(run.image) * t.k + k + lane / 8;
        return {channel * t.y_plane + int64_t(y_row) * t.q + column,
                of_strip >= first && of_strip < first + t.columns && column < t.q && y_row < t.p};
    }
    // body(number, elements from the first one on, whether they are there) for what a lane moves.
    template <class Body>
    __device__ __forceinline__ void for_moves(const Piece &piece, Body body) const {
#pragma unroll
        for (int i = 0; i < Moves; ++i)
            body(i, piece.offset + i * MoveChannels * t.y_plane,
                 piece.live && i * MoveChannels + lane / 8 < channels);
    }
    __device__ __forceinline__ uint32_t place(int move) const {
        return staged + implicit_gemm::staged_offset(move * MoveChannels + lane / 8, lane % 8);
    }
    // Where a lane lets stmatrix store, or ldmatrix read, of two eights of columns: channels 8 by
    // 8, then columns.
    __device__ __forceinline__ uint32_t matrices(int two) const {
        return staged + implicit_gemm::staged_offset(lane % 16, two * 2 + lane / 16);
    }

    template <class Map, int Count>
    __device__ __forceinline__ void stage(Map &map, Constant<Count>) const {
#pragma unroll
        for (int two = 0; two * 2 < Count; ++two) {
            uint32_t words[4] = {};
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (two * 2 + i / 2 < Count)
                    words[i] = pack<Element>(map.sum(two * 2 + i / 2, i % 2, 0),
                                             map.sum(two * 2 + i / 2, i % 2, 1));
            store_matrices(matrices(two), words);
        }
    }
    template <class Map, int Count>
    __device__ __forceinline__ void add_staged(Map &map, Constant<Count>) const {
#pragma unroll
        for (int two = 0; two * 2 < Count; ++two) {
            uint32_t words[4];
            load_matrices(words, matrices(two));
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (two * 2 + i / 2 < Count) {
                    const auto *both = reinterpret_cast<const Element *>(&words[i]);
                    map.sum(two * 2 + i / 2, i % 2, 0) += widen(both[0]);
                    map.sum(two * 2 + i / 2, i % 2, 1) += widen(both[1]);
                }
        }
    }
    template <class Map, int Count>
    __device__ __forceinline__ void add_residual(const Piece &piece, const Element *residual,
                                                 Map &map, Constant<Count> count) const {
        uint4 v[Moves];
        for_moves(piece, [&](int i, int64_t from, bool live) {
            v[i] = load_if(live, reinterpret_cast<const uint4 *>(residual + from));
        });
#pragma unroll
        for (int i = 0; i < Moves; ++i)
            store_shared4(place(i), v[i].x, v[i].y, v[i].z, v[i].w);
        __syncwarp();
        add_staged(map, count);
        __syncwarp();
    }

    // Of eights of a product's columns from number First on, so many.
    template <int First, int Count>
    __device__ __forceinline__ void store_strip(const Piece &piece, float (&sums)[N / 2],
                                                Element *y, const Finish &finish) const {
        constexpr Constant<Count> count;
        implicit_gemm::PieceMap<N, First, Count> map = {sums, k + lane / 4};
        if (t.finishes) {
            scale_and_add_bias(finish, t.k, map);
            if (finish.residual)
                add_residual(piece, static_cast<const Element *>(finish.residual), map, count);
            limit(finish, map);
            implicit_gemm::activate_piece(t.activation, map, count);
        }
        stage(map, count);
        __syncwarp();
        for_moves(piece, [&](int i, int64_t to, bool live) {
            const uint4 v = load_shared4(place(i));
            const uint32_t words[4] = {v.x, v.y, v.z, v.w};
            store_if(live, reinterpret_cast<char *>(y + to), words);
        });
        __syncwarp();
    }

  public:
    __device__ __forceinline__ RowStore(const Block &block, int warp, int lane)
        : t(block.tiling), staged(block.staged(warp)), lane(lane),
          k(block.group * t.group_k + block.k + warp % WarpgroupWarps * 16),
          channels(t.group_k - block.k - warp % WarpgroupWarps * 16) {}

    // A row of a run.
    __device__ __forceinline__ void store(const Run &run, int row, float (&sums)[N / 2], Element *y,
                                          const Finish &finish) const {
        constexpr int Strip = StripColumns / 8;
        store_strip<0, Strip>(piece(run, row, 0), sums, y, finish);
        store_strip<Strip, N / 8 - Strip>(piece(run, row, 1), sums, y, finish);
    }
};
#endif

} // namespace cf::implicit_resident
