// From the sums of implicit_gemm_nhwc to y: the epilogue in registers, then through shared memory,
// where the 64 channels of a pixel come together in a line, so that whole sectors are stored.
#pragma once

#include "core/epilogue.cuh"
#include "core/fragment_epilogue.cuh"
#include "kernels/implicit_gemm/nhwc_load.cuh"
#include "ptx/bar_number.cuh"
#include "ptx/matrix_transposed.cuh"
#include "ptx/mma.cuh"

namespace cf::implicit_gemm {

#if CF_SM90
constexpr int PieceChannels = 8; // 16 bytes of a pixel

// Where 8 channels of a staged pixel lie: those of eight neighbours in all banks.
__device__ __forceinline__ uint32_t staged_offset(int pixel, int eight) {
    return uint32_t(pixel) * LineBytes + uint32_t((eight ^ pixel) & 7) * 16;
}

// What a warpgroup has of y.
template <class Element>
struct Target {
    const Tiling &tiling;
    const Place &place;
    int channels;              // that there are, of the warpgroup's 64
    int k;                     // the first of these, of all
    int64_t first;             // where the tile's first pixel begins in y, at that channel
    int first_column, columns; // of the tile, that the first of the sums are of, and the next ones

    __device__ __forceinline__ Target(const Tiling &t, const Place &place, int warpgroup,
                                      int first_column, int columns)
        : tiling(t), place(place), first_column(first_column), columns(columns) {
        const int of_group = place.k + (t.apart ? 0 : warpgroup * RowChannels);
        channels = place.n < t.n ? t.group_k - of_group : 0;
        k = place.group * t.group_k + of_group;
        first = ((int64_t(place.n) * t.p + place.row) * t.q + place.column) * t.k + k;
    }
    // Elements from the tile's first pixel to that of a product's column; false where there is
    // none.
    __device__ __forceinline__ bool find(int column, int64_t &offset) const {
        const Tiling &t = tiling;
        const int rows = t.by_pitch.quotient(column), row = t.by_images.quotient(rows);
        const int of_row = column - rows * t.pitch, image = rows - row * t.images;
        offset = ((int64_t(image) * t.p + row) * t.q + of_row) * t.k;
        return of_row < min(t.columns, t.q - place.column) && row < min(t.rows, t.p - place.row) &&
               image < t.n - place.n;
    }
};

// 16 bytes of a pixel, by a lane, or as much of them as there is; zeros for the rest.
template <class Element>
__device__ __forceinline__ uint4 load_some(const Element *from, int channels) {
    uint32_t words[4] = {};
#pragma unroll
    for (int i = 0; i < PieceChannels; ++i)
        words[i / 2] |= load_if(i < channels, reinterpret_cast<const uint16_t *>(from) + i)
                        << i % 2 * 16;
    return {words[0], words[1], words[2], words[3]};
}
template <class Element>
__device__ __forceinline__ void store_some(Element *to, int channels, uint4 v) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < PieceChannels; ++i)
        store_if(i < channels, reinterpret_cast<char *>(to + i),
                 uint16_t(words[i / 2] >> i % 2 * 16));
}

// Some columns of products, for core/fragment_epilogue.cuh: those of so many 8.
template <int N, int First, int Count>
struct PieceMap {
    float (&sums)[N / 2];
    int k; // of all channels, the lane's first

    __device__ __forceinline__ float &sum(int eight, int half, int e) {
        return sums[(First + eight) * 4 + half * 2 + e];
    }
    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
            body(k + half * 8, Constant<Count * 2>(),
                 [&](int i) -> float & { return sum(i / 2, half, i % 2); });
    }
};

// Of a warpgroup's threads.
struct StoreLane {
    uint32_t staged;        // of the warpgroup
    int thread, lane, warp; // in the warpgroup; warps have 16 channels each
    int barrier;

    __device__ __forceinline__ StoreLane(uint32_t staged, int warp, int lane)
        : staged(staged), thread(warp % 4 * 32 + lane), lane(lane), warp(warp % 4),
          barrier(1 + warp / 4) {}
    __device__ __forceinline__ void meet() const { wait_at_bar(barrier, Warpgroup); }
    // Where a lane lets stmatrix store, or ldmatrix read, of 16 pixels: channels 8 by 8, then
    // pixels.
    __device__ __forceinline__ uint32_t matrices(int sixteen) const {
        return staged +
               staged_offset(sixteen * 16 + lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2);
    }
    // Of 16 bytes that threads move to and from memory, number i of a thread.
    __device__ __forceinline__ int pixel(int i) const { return i * 16 + thread / 8; }
    __device__ __forceinline__ int eight() const { return thread % 8; }
    __device__ __forceinline__ uint32_t piece(int i) const {
        return staged + staged_offset(pixel(i), eight());
    }
};

// Adds what is staged of a residual.
template <class Element, class Map, int Count>
__device__ __forceinline__ void add_staged(const StoreLane &at, Map &map, Constant<Count>) {
#pragma unroll
    for (int sixteen = 0; sixteen * 2 < Count; ++sixteen) {
        uint32_t words[4];
        load_matrices_transposed(words, at.matrices(sixteen));
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (sixteen * 2 + i / 2 < Count) {
                const auto *two = reinterpret_cast<const Element *>(&words[i]);
                map.sum(sixteen * 2 + i / 2, i % 2, 0) += widen(two[0]);
                map.sum(sixteen * 2 + i / 2, i % 2, 1) += widen(two[1]);
            }
    }
}

// Other activations than limits, of a piece's sums. They are long: a few at a time, so that the
// code is not.
template <class Map, int Count>
__device__ __forceinline__ void activate_piece(int activation, Map &map, Constant<Count>) {
    if (activation == CF_ACT_NONE)
        return;
#pragma unroll 1
    for (int turn = 0; turn < Count; ++turn) {
        float done[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            done[i] = activate_keeping_nan(activation, map.sum(0, i / 2, i % 2));
#pragma unroll
        for (int eight = 0; eight < Count; ++eight)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                map.sum(eight, i / 2, i % 2) =
                    eight + 1 < Count ? map.sum(eight + 1 < Count ? eight + 1 : 0, i / 2, i % 2)
                                      : done[i];
    }
}

// The 16 bytes that a thread moves between memory and what is staged of a piece.
template <class Element, int First, int Count>
struct Moves {
    static constexpr int All = (Count + 1) / 2;
    const StoreLane &at;
    const Target<Element> &target;

    // body(address in shared memory, elements behind the beginning of y, channels there).
    template <class Body>
    __device__ __forceinline__ void visit(int i, Body body) const {
        int64_t offset;
        const int of_piece = at.pixel(i), column = First * 8 + of_piece;
        const bool live = target.find(target.first_column + column, offset) &&
                          of_piece < Count * 8 && column < target.columns;
        body(at.piece(i), target.first + offset + at.eight() * PieceChannels,
             live ? target.channels - at.eight() * PieceChannels : 0);
    }
    // Where pixels are whole pieces of 16 bytes, or not.
    __device__ __forceinline__ void load(const Element *residual) const {
        if (target.tiling.whole) {
            uint4 v[All];
#pragma unroll
            for (int i = 0; i < All; ++i)
                visit(i, [&](uint32_t, int64_t from, int channels) {
                    v[i] = load_if(channels > 0, reinterpret_cast<const uint4 *>(residual + from));
                });
#pragma unroll
            for (int i = 0; i < All; ++i)
                store_shared4(at.piece(i), v[i].x, v[i].y, v[i].z, v[i].w);
        } else {
#pragma unroll 1
            for (int i = 0; i < All; ++i)
                visit(i, [&](uint32_t to, int64_t from, int channels) {
                    const uint4 v = load_some(residual + from, channels);
                    store_shared4(to, v.x, v.y, v.z, v.w);
                });
        }
    }
    __device__ __forceinline__ void store(Element *y) const {
        if (target.tiling.whole) {
#pragma unroll
            for (int i = 0; i < All; ++i)
                visit(i, [&](uint32_t from, int64_t to, int channels) {
                    const uint4 v = load_shared4(from);
                    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
                    store_if(channels > 0, reinterpret_cast<char *>(y + to), words);
                });
        } else {
#pragma unroll 1
            for (int i = 0; i < All; ++i)
                visit(i, [&](uint32_t from, int64_t to, int channels) {
                    store_some(y + to, channels, load_shared4(from));
                });
        }
    }
};

// Products' columns from 8 First on, so many 8.
template <class Element, int N, int First, int Count>
__device__ __forceinline__ void store_piece(const StoreLane &at, const Target<Element> &target,
                                            float (&sums)[N / 2], Element *y,
                                            const Finish &finish) {
    const Tiling &t = target.tiling;
    const Moves<Element, First, Count> moves = {at, target};
    PieceMap<N, First, Count> map = {sums, target.k + at.warp * 16 + at.lane / 4};
    at.meet(); // what is staged has been read
    if (t.finishes) {
        scale_and_add_bias(finish, t.k, map);
        if (finish.residual) {
            moves.load(static_cast<const Element *>(finish.residual));
            at.meet();
            add_staged<Element>(at, map, Constant<Count>());
            __syncwarp();
        }
        limit(finish, map);
        activate_piece(t.activation, map, Constant<Count>());
    }
#pragma unroll
    for (int eight = 0; eight < Count; eight += 2) {
        const auto word = [&](int i) {
            return pack<Element>(map.sum(eight + i / 2, i % 2, 0),
                                 map.sum(eight + i / 2, i % 2, 1));
        };
        if (eight + 1 < Count)
            store_matrices_transposed(at.matrices(eight / 2), {word(0), word(1), word(2), word(3)});
        else
            store_matrices_transposed(at.matrices(eight / 2), {word(0), word(1)});
    }
    at.meet();
    moves.store(y);
}

template <class Element, int N, int First = 0>
__device__ __forceinline__ void store_tile(const StoreLane &at, const Target<Element> &target,
                                           float (&sums)[N / 2], Element *y, const Finish &finish) {
    constexpr int Left = N / 8 - First, Most = PiecePixels / 8;
    store_piece<Element, N, First, (Left < Most ? Left : Most)>(at, target, sums, y, finish);
    if constexpr (Left > Most)
        if ((First + Most) * 8 < target.columns)
            store_tile<Element, N, First + Most>(at, target, sums, y, finish);
}
#endif

} // namespace cf::implicit_gemm
