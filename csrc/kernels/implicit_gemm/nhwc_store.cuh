// From the sums of implicit_gemm_nhwc to y: the epilogue in registers, then through shared memory,
// where the 64 channels of a pixel come together in a line, in f32 two lines, so that whole sectors
// are stored.
#pragma once

#include "core/epilogue.cuh"
#include "core/fragment_epilogue.cuh"
#include "kernels/implicit_gemm/nhwc_load.cuh"
#include "ptx/bar_number.cuh"
#include "ptx/load_store.cuh"
#include "ptx/matrix_transposed.cuh"
#include "ptx/mma.cuh"

namespace cf::implicit_gemm {

#if CF_SM90
template <class Element>
constexpr int PixelLines = RowChannels / LineChannels<Element>; // of a staged pixel
template <class Element>
constexpr int PiecePixels = StagedBytes / (PixelLines<Element> * LineBytes); // staged at a time

// Where 16 bytes of a staged line lie: those of eight neighbours in all banks. First lines of all
// pixels lie in front of second ones.
__device__ __forceinline__ uint32_t staged_offset(int line, int number) {
    return uint32_t(line) * LineBytes + uint32_t((number ^ line) & 7) * 16;
}

// Where a product's column lies in a tile of y.
struct Spot {
    int column, row, image;

    __device__ __forceinline__ Spot(const Tiling &t, int of_product) {
        const int rows = t.by_pitch.quotient(of_product);
        row = t.by_images.quotient(rows);
        column = of_product - rows * t.pitch;
        image = rows - row * t.images;
    }
    __device__ __forceinline__ int64_t offset(const Tiling &t) const {
        return ((int64_t(image) * t.p + row) * t.q + column) * t.k;
    }
};

// What a warpgroup has of y.
template <class Element>
struct Target {
    const Tiling &tiling;
    const Place &place;
    int channels;              // that there are, of the warpgroup's 64
    int k;                     // the first of these, of all
    int64_t first;             // where the tile's first pixel begins in y, at that channel
    int first_column, columns; // of the tile, that the first of the sums are of, and the next ones
    bool full;                 // all pixels of the tile are there, and are stored as whole pieces

    __device__ __forceinline__ Target(const Tiling &t, const Place &place, int warpgroup,
                                      int first_column, int columns)
        : tiling(t), place(place), first_column(first_column), columns(columns) {
        const int of_group = place.k + (t.apart ? 0 : warpgroup * RowChannels);
        channels = place.n < t.n ? t.group_k - of_group : 0;
        k = place.group * t.group_k + of_group;
        first = ((int64_t(place.n) * t.p + place.row) * t.q + place.column) * t.k + k;
        full = t.whole && t.near && t.parts == 1 && place.column + t.columns <= t.q &&
               place.row + t.rows <= t.p && place.n + t.images <= t.n;
    }
    // Elements from the tile's first pixel to that of a product's column; false where there is
    // none.
    __device__ __forceinline__ bool find(int column, int64_t &offset) const {
        const Spot spot(tiling, column);
        offset = spot.offset(tiling);
        return spot.column < min(tiling.columns, tiling.q - place.column) &&
               spot.row < min(tiling.rows, tiling.p - place.row) && spot.image < tiling.n - place.n;
    }
};

// 16 bytes of a pixel, by a lane, or as much of them as there is; zeros for the rest.
template <class Element>
__device__ __forceinline__ uint4 load_some(const Element *from, int channels) {
    uint32_t words[4] = {};
#pragma unroll
    for (int i = 0; i < PieceChannels<Element>; ++i)
        if constexpr (sizeof(Element) == 4)
            words[i] = load_if(i < channels, reinterpret_cast<const uint32_t *>(from) + i);
        else
            words[i / 2] |= load_if(i < channels, reinterpret_cast<const uint16_t *>(from) + i)
                            << i % 2 * 16;
    return {words[0], words[1], words[2], words[3]};
}
template <class Element>
__device__ __forceinline__ void store_some(Element *to, int channels, uint4 v) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < PieceChannels<Element>; ++i)
        if constexpr (sizeof(Element) == 4)
            store_if(i < channels, reinterpret_cast<char *>(to + i), {words[i]});
        else
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
template <class Element, int N>
struct StoreLane {
    static constexpr int Moves = (N + 15) / 16; // of 16 bytes of each line, by a thread
    // Where each lies in a full tile is the same for all tiles: it is worked out once, where
    // registers have room for it.
    static constexpr bool Kept = N <= 232;
    const Tiling &tiling;
    int offsets[Kept ? Moves : 1];
    uint32_t staged;        // of the warpgroup
    int thread, lane, warp; // in the warpgroup; warps have 16 channels each
    int barrier;

    __device__ __forceinline__ StoreLane(const Tiling &t, uint32_t staged, int warp, int lane)
        : tiling(t), staged(staged), thread(warp % 4 * 32 + lane), lane(lane), warp(warp % 4),
          barrier(1 + warp / 4) {
        if constexpr (Kept) {
#pragma unroll
            for (int i = 0; i < Moves; ++i) {
                offsets[i] = find(i);
                keep(offsets[i]);
            }
        }
    }
    // In elements of y behind the tile's first pixel; negative where there is nothing.
    __device__ __forceinline__ int find(int i) const {
        const Spot spot(tiling, pixel(i));
        const bool live = pixel(i) < N && spot.column < tiling.columns && spot.row < tiling.rows;
        return live ? int(spot.offset(tiling)) + first_channel() : -1;
    }
    __device__ __forceinline__ int offset(int i) const {
        if constexpr (Kept)
            return offsets[i];
        else
            return find(i);
    }
    __device__ __forceinline__ void meet() const { wait_at_bar(barrier, Warpgroup); }
    // Where a lane lets stmatrix store, or ldmatrix read, of 16 pixels: channels 8 by 8, then
    // pixels.
    __device__ __forceinline__ uint32_t matrices(int sixteen) const {
        return staged +
               staged_offset(sixteen * 16 + lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2);
    }
    // Where a lane has f32 of the first 8 pixels: of its first channel or the one 8 behind, of
    // its first pixel or the next. Those of a warp lie in all banks.
    __device__ __forceinline__ uint32_t word(int half, int e) const {
        constexpr int Channels = LineChannels<float>;
        const int channel = warp * 16 + half * 8 + lane / 4;
        return staged +
               staged_offset(channel / Channels * PiecePixels<float> + lane % 4 * 2 + e,
                             channel % Channels / 4) +
               channel % 4 * 4;
    }
    // Of 16 bytes that threads move to and from memory, number i of a thread in each line.
    __device__ __forceinline__ int pixel(int i) const { return i * 16 + thread / 8; }
    __device__ __forceinline__ int first_channel() const {
        return thread % 8 * PieceChannels<Element>;
    }
    __device__ __forceinline__ uint32_t piece(int i, int line) const {
        return staged + staged_offset(line * PiecePixels<Element> + pixel(i), thread % 8);
    }
};

// f32 of a piece, one by one: body(sum, its address).
template <class Lane, class Map, class Body, int Count>
__device__ __forceinline__ void for_words(const Lane &at, Map &map, Constant<Count>, Body body) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const uint32_t first = at.word(half, e);
#pragma unroll
            for (int eight = 0; eight < Count; ++eight)
                body(map.sum(eight, half, e), first + eight * 8 * LineBytes);
        }
}

// Adds what is staged of a residual, in 16 bits.
template <class Element, class Lane, class Map, int Count>
__device__ __forceinline__ void add_staged(const Lane &at, Map &map, Constant<Count>) {
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
template <class Element, int N, int First, int Count>
struct Moves {
    static constexpr int Lines = PixelLines<Element>, All = (Count + 1) / 2 * Lines;
    const StoreLane<Element, N> &at;
    const Target<Element> &target;

    // Of the line that number i is of.
    static __device__ __forceinline__ int first_channel(int i) {
        return i % Lines * LineChannels<Element>;
    }
    __device__ __forceinline__ uint32_t piece(int i) const {
        return at.piece(i / Lines, i % Lines);
    }
    // Of a full tile: body(number, elements behind the tile's first pixel, whether they are there).
    template <class Body>
    __device__ __forceinline__ void visit(Body body) const {
        static_assert(Lines <= 2);
        const bool live[2] = {at.first_channel() < target.channels,
                              at.first_channel() + first_channel(1) < target.channels};
#pragma unroll
        for (int i = 0; i < All; ++i) {
            const int offset = at.offset(First / 2 + i / Lines);
            body(i, offset + first_channel(i),
                 live[i % Lines] && offset >= 0 &&
                     (Count % 2 == 0 || at.pixel(i / Lines) < Count * 8));
        }
    }
    // Of any: body(number, the same, channels there). One by one: it is rare, and long.
    template <class Body>
    __device__ __forceinline__ void visit_some(Body body) const {
#pragma unroll 1
        for (int i = 0; i < All; ++i) {
            int64_t offset;
            const int of_piece = at.pixel(i / Lines), column = First * 8 + of_piece;
            const bool live = target.find(target.first_column + column, offset) &&
                              of_piece < Count * 8 && column < target.columns;
            const int channel = at.first_channel() + first_channel(i);
            const int channels = target.channels - channel;
            body(i, offset + channel, live ? channels : 0);
        }
    }
    __device__ __forceinline__ void load(const Element *residual) const {
        residual += target.first;
        const auto put = [&](int i, const uint4 &v) {
            store_shared4(piece(i), v.x, v.y, v.z, v.w);
        };
        const auto sixteen_bytes = [&](int64_t from) {
            return reinterpret_cast<const uint4 *>(residual + from);
        };
        if (target.full) {
            uint4 v[All];
            visit([&](int i, int from, bool live) { v[i] = load_if(live, sixteen_bytes(from)); });
#pragma unroll
            for (int i = 0; i < All; ++i)
                put(i, v[i]);
        } else if (target.tiling.whole)
            visit_some([&](int i, int64_t from, int channels) {
                put(i, load_if(channels > 0, sixteen_bytes(from)));
            });
        else
            visit_some([&](int i, int64_t from, int channels) {
                put(i, load_some(residual + from, channels));
            });
    }
    __device__ __forceinline__ void store(Element *y) const {
        y += target.first;
        const auto store = [&](int i, int64_t to, bool live) {
            const uint4 v = load_shared4(piece(i));
            const uint32_t words[4] = {v.x, v.y, v.z, v.w};
            store_if(live, reinterpret_cast<char *>(y + to), words);
        };
        if (target.full)
            visit([&](int i, int to, bool live) { store(i, to, live); });
        else if (target.tiling.whole)
            visit_some([&](int i, int64_t to, int channels) { store(i, to, channels > 0); });
        else
            visit_some([&](int i, int64_t to, int channels) {
                store_some(y + to, channels, load_shared4(piece(i)));
            });
    }
};

// Products' columns from 8 First on, so many 8.
template <class Element, int N, int First, int Count>
__device__ __forceinline__ void store_piece(const StoreLane<Element, N> &at,
                                            const Target<Element> &target, float (&sums)[N / 2],
                                            Element *y, const Finish &finish) {
    constexpr Constant<Count> count;
    const Tiling &t = target.tiling;
    const Moves<Element, N, First, Count> moves = {at, target};
    PieceMap<N, First, Count> map = {sums, target.k + at.warp * 16 + at.lane / 4};
    at.meet(); // what is staged has been read
    if (t.finishes) {
        scale_and_add_bias(finish, t.k, map);
        if (finish.residual) {
            moves.load(static_cast<const Element *>(finish.residual));
            at.meet();
            if constexpr (sizeof(Element) == 4)
                for_words(at, map, count,
                          [](float &sum, uint32_t from) { sum += load_shared_f32(from); });
            else
                add_staged<Element>(at, map, count);
            __syncwarp();
        }
        limit(finish, map);
        activate_piece(t.activation, map, count);
    }
    if constexpr (sizeof(Element) == 4) {
        // As floats: ptxas would want words in other registers.
        for_words(at, map, count, [](float &sum, uint32_t to) { store_if(true, to, sum); });
    } else {
#pragma unroll
        for (int eight = 0; eight < Count; eight += 2) {
            const auto word = [&](int i) {
                return pack<Element>(map.sum(eight + i / 2, i % 2, 0),
                                     map.sum(eight + i / 2, i % 2, 1));
            };
            if (eight + 1 < Count)
                store_matrices_transposed(at.matrices(eight / 2),
                                          {word(0), word(1), word(2), word(3)});
            else
                store_matrices_transposed(at.matrices(eight / 2), {word(0), word(1)});
        }
    }
    at.meet();
    moves.store(y);
}

template <class Element, int N, int First = 0>
__device__ __forceinline__ void store_tile(const StoreLane<Element, N> &at,
                                           const Target<Element> &target, float (&sums)[N / 2],
                                           Element *y, const Finish &finish) {
    constexpr int Left = N / 8 - First, Most = PiecePixels<Element> / 8;
    store_piece<Element, N, First, (Left < Most ? Left : Most)>(at, target, sums, y, finish);
    if constexpr (Left > Most)
        if ((First + Most) * 8 < target.columns)
            store_tile<Element, N, First + Most>(at, target, sums, y, finish);
}
#endif

} // namespace cf::implicit_gemm
