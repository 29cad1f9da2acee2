// From the sums of implicit_gemm_nchw to y: the epilogue in registers; then each warp puts some
// channels of its 16 at a time into shared memory, as they lie in y, and stores neighbours
// together.
#pragma once

#include "kernels/implicit_gemm/nchw_tiling.cuh"
#include "kernels/implicit_gemm/nhwc_store.cuh"

namespace cf::implicit_nchw {

#if CF_SM90
constexpr uint32_t NoPlace = 0xffff; // of a product's column that is no pixel

// Neighbours in a row of y, from shared memory to memory.
template <class Word>
__device__ __forceinline__ Word load_word(uint32_t from) {
    if constexpr (sizeof(Word) == 16)
        return load_shared4(from);
    else if constexpr (sizeof(Word) == 8)
        return {load_shared(from), load_shared(from + 4)};
    else if constexpr (sizeof(Word) == 4)
        return load_shared(from);
    else
        return Word(load_shared_u16(from));
}
template <class Word>
__device__ __forceinline__ void store_word(bool live, char *to, const Word &v) {
    if constexpr (sizeof(Word) == 16)
        store_if(live, to, {v.x, v.y, v.z, v.w});
    else if constexpr (sizeof(Word) == 8)
        store_if(live, to, {v.x, v.y});
    else if constexpr (sizeof(Word) == 4)
        store_if(live, to, {v});
    else
        store_if(live, to, v);
}

template <class Word>
__device__ __forceinline__ void stage_word(uint32_t to, const Word &v) {
    if constexpr (sizeof(Word) == 16)
        store_shared4(to, v.x, v.y, v.z, v.w);
    else if constexpr (sizeof(Word) == 8)
        store_shared2(to, v.x, v.y);
    else if constexpr (sizeof(Word) == 4)
        store_shared(to, v);
    else
        store_shared_u16(to, v);
}

template <class Element>
constexpr int PassChannels = sizeof(Element) == 4 ? 4 : 8; // staged at a time
template <class Element, int N>
constexpr int StagedRow = staged_bytes(N) / PassChannels<Element>;
template <class Element>
constexpr int Passes = 16 / PassChannels<Element>;

// Where a product's columns lie in a channel's row of what is staged, two to a word: by all threads
// that multiply.
template <class Element, int N>
__device__ __forceinline__ void list_places(const Tiling &t, uint32_t places) {
    if (threadIdx.x >= N)
        return;
    const Spot spot(t, threadIdx.x);
    const int pixel = (spot.image * t.rows + spot.row) * t.columns + spot.column;
    const bool live = spot.column < t.columns && spot.row < t.rows;
    const int eight = threadIdx.x / 8, lane = threadIdx.x % 8 / 2, e = threadIdx.x % 2;
    store_shared_u16(places + lane * places_bytes(N) + eight * 4 + e * 2,
                     live ? pixel * sizeof(Element) : NoPlace);
}

// A tile of y, of a warp.
struct PlanarTarget {
    const Place &place;
    int channels;  // that there are, of the warp's 16
    int64_t first; // elements in front of the tile's first pixel in the first of these

    __device__ __forceinline__ PlanarTarget(const Tiling &t, const Planes &planes,
                                            const Place &place, int channel)
        : place(place), channels(t.group_k - place.k - channel),
          first(int64_t(place.n) * planes.y_image +
                (place.group * t.group_k + place.k + channel) * planes.y_plane +
                int64_t(place.row) * t.q + place.column) {}
};

// Where x is multiplied as it lies, columns of products are a tile's pixels, and no place is looked
// up.
template <class Element, int N, bool Straight>
struct PlanarStore {
    const Tiling &t;
    const Planes &planes;
    uint32_t staged; // of the warp
    uint32_t places; // of the lane's first column
    int lane;
    int worker, workers; // of those who store together

    // All warps stage behind each other, and behind them lie places; those of a warpgroup together
    // what parts of sums make.
    __device__ __forceinline__ PlanarStore(const Tiling &t, const Planes &planes, uint32_t all,
                                           int warp, int lane)
        : t(t), planes(planes), staged(all + (t.parts > 1 ? warp / 4 * 4 : warp) * staged_bytes(N)),
          places(all + ConsumerWarps * staged_bytes(N) + lane % 4 * places_bytes(N)), lane(lane),
          worker(t.parts > 1 ? warp % 4 * 32 + lane : lane), workers(t.parts > 1 ? Warpgroup : 32) {
    }

    // The same for slice number `slice` of those that a warpgroup stages together, by so many of
    // its warps, this one among them.
    __device__ __forceinline__ PlanarStore of_slice(int slice, int warp, int warps) const {
        PlanarStore store = *this;
        store.staged += slice * SliceChannels * StagedRow<Element, N>;
        store.worker = warp * 32 + lane, store.workers = warps * 32;
        return store;
    }

    // Body(place, next place, sum, the one behind) for the lane's sums of a half of the warp's
    // channels.
    template <class Body>
    __device__ __forceinline__ void for_pairs(float (&sums)[N / 2], int half, Body body) const {
        constexpr int Eights = N / 8;
        const auto one = [&](int eight, uint32_t two) {
            if (eight < Eights)
                body(two & 0xffff, two >> 16, sums[eight * 4 + half * 2],
                     sums[eight * 4 + half * 2 + 1]);
        };
        if constexpr (Straight) {
            const uint32_t first = lane % 4 * 2 * sizeof(Element);
#pragma unroll
            for (int eight = 0; eight < Eights; ++eight) {
                const uint32_t place = first + eight * 8 * sizeof(Element);
                body(place, place + uint32_t(sizeof(Element)), sums[eight * 4 + half * 2],
                     sums[eight * 4 + half * 2 + 1]);
            }
        } else {
            uint4 next = load_shared4(places);
#pragma unroll
            for (int four = 0; four < Eights; four += 4) {
                const uint4 now = next;
                if (four + 4 < Eights)
                    next = load_shared4(places + four * 4 + 16);
                one(four, now.x);
                one(four + 1, now.y);
                one(four + 2, now.z);
                one(four + 3, now.w);
            }
        }
    }
    // Those of a pair alone.
    __device__ __forceinline__ void find(int eight, uint32_t (&pair)[2]) const {
        if constexpr (Straight) {
            pair[0] = (eight * 8 + lane % 4 * 2) * sizeof(Element);
            pair[1] = pair[0] + sizeof(Element);
        } else {
            const uint32_t two = load_shared(places + eight * 4);
            pair[0] = two & 0xffff, pair[1] = two >> 16;
        }
    }
    static __device__ __forceinline__ bool is_there(uint32_t place) {
        return Straight || place != NoPlace;
    }
    // Of a pass; lanes whose channels are of another one have none.
    __device__ __forceinline__ uint32_t row() const {
        return staged + lane / 4 % PassChannels<Element> * StagedRow<Element, N>;
    }
    __device__ __forceinline__ bool of_pass(int pass) const {
        return PassChannels<Element> == 8 || lane / 16 == pass % 2;
    }
    __device__ __forceinline__ void stage(float (&sums)[N / 2], int half, int pass) const {
        const uint32_t row = this->row();
        const bool mine = of_pass(pass);
        const auto word = [&](uint32_t place, float sum) {
            store_if(mine && is_there(place), row + place, sum);
        };
        const auto halves = [&](uint32_t place, uint32_t next, uint32_t two) {
            store_if(is_there(place), row + place, uint16_t(two));
            store_if(is_there(next), row + next, uint16_t(two >> 16));
        };
        if constexpr (sizeof(Element) == 4) {
            for_pairs(sums, half, [&](uint32_t place, uint32_t next, float a, float b) {
                word(place, a);
                word(next, b);
            });
        } else if (Straight || planes.paired) {
            for_pairs(sums, half, [&](uint32_t place, uint32_t, float a, float b) {
                const uint32_t two[1] = {pack<Element>(a, b)};
                store_if(is_there(place), row + place, two);
            });
        } else {
            for_pairs(sums, half, [&](uint32_t place, uint32_t next, float a, float b) {
                halves(place, next, pack<Element>(a, b));
            });
        }
    }
    // What is staged at a place of a channel's row; of no place anything.
    static __device__ __forceinline__ float staged_element(uint32_t row, uint32_t place) {
        const uint32_t from = row + (is_there(place) ? place : 0);
        if constexpr (sizeof(Element) == 4) {
            return load_shared_f32(from);
        } else {
            const auto bits = uint16_t(load_shared_u16(from));
            return widen(reinterpret_cast<const Element &>(bits));
        }
    }
    // Adds what is staged of a residual.
    __device__ __forceinline__ void add(float (&sums)[N / 2], int half, int pass) const {
        const uint32_t row = this->row();
        const bool mine = of_pass(pass);
        for_pairs(sums, half, [&](uint32_t place, uint32_t next, float &a, float &b) {
            a += mine ? staged_element(row, place) : 0.0f;
            b += mine ? staged_element(row, next) : 0.0f;
        });
    }
    // Body(elements behind the tile's first, bytes in a channel's row) for units of a channel that
    // are there.
    template <class Body>
    __device__ __forceinline__ void for_units(const PlanarTarget &target, int bytes,
                                              Body body) const {
        const Place &place = target.place;
#pragma unroll 1
        for (int unit = worker; unit < planes.units; unit += workers) {
            const int pixel = unit * planes.unit;
            const int image = planes.by_tile_pixels.quotient(pixel);
            const int of_image = pixel - image * planes.tile_pixels;
            const int row = planes.by_columns.quotient(of_image);
            const int column = of_image - row * t.columns;
            if (place.n + image < t.n && place.row + row < t.p && place.column + column < t.q)
                body(image * planes.y_image + int64_t(row) * t.q + column, unit * bytes);
        }
    }
    // Of some channels, from one of the target's on: move(where a unit of the first lies in the
    // tensor, where it is staged).
    template <class Word, class T, class Move>
    __device__ __forceinline__ void for_words(const PlanarTarget &target, T *tensor, int channel,
                                              Move move) const {
        tensor += target.first + channel * planes.y_plane;
        for_units(target, sizeof(Word), [&](int64_t behind, int bytes) {
            move(tensor + behind, staged + bytes, Word());
        });
    }
    // The same of words as long as a unit is.
    template <class T, class Move>
    __device__ __forceinline__ void for_words(const PlanarTarget &target, T *tensor, int channel,
                                              Move move) const {
        switch (planes.unit * int(sizeof(Element))) {
        case 16:
            return for_words<uint4>(target, tensor, channel, move);
        case 8:
            return for_words<uint2>(target, tensor, channel, move);
        case 4:
            return for_words<uint32_t>(target, tensor, channel, move);
        default:
            if constexpr (sizeof(Element) == 2)
                for_words<uint16_t>(target, tensor, channel, move);
        }
    }
    // What is staged of some channels, to y. All of them are read before any is stored.
    template <int Channels>
    __device__ __forceinline__ void store(const PlanarTarget &target, Element *y,
                                          int channel) const {
        for_words(target, y, channel, [&](Element *to, uint32_t from, auto word) {
            using Word = decltype(word);
            Word v[Channels];
#pragma unroll
            for (int i = 0; i < Channels; ++i)
                v[i] = load_word<Word>(from + i * StagedRow<Element, N>);
#pragma unroll
            for (int i = 0; i < Channels; ++i, to += planes.y_plane)
                store_word(channel + i < target.channels, reinterpret_cast<char *>(to), v[i]);
        });
    }
    // A residual's, the other way.
    template <int Channels>
    __device__ __forceinline__ void load(const PlanarTarget &target, const Element *residual,
                                         int channel) const {
        for_words(target, residual, channel, [&](const Element *from, uint32_t to, auto word) {
            using Word = decltype(word);
            Word v[Channels];
#pragma unroll
            for (int i = 0; i < Channels; ++i, from += planes.y_plane)
                v[i] = Word(
                    load_if(channel + i < target.channels, reinterpret_cast<const Word *>(from)));
#pragma unroll
            for (int i = 0; i < Channels; ++i)
                stage_word(to + i * StagedRow<Element, N>, v[i]);
        });
    }

    // The sums of a tile; `channel` is the warp's first, of the tile's.
    __device__ __forceinline__ void run(const Place &place, int channel, float (&sums)[N / 2],
                                        Element *y, const Finish &finish) const {
        const PlanarTarget target(t, planes, place, channel);
        if (t.finishes) {
            PieceMap<N, 0, N / 8> map = {sums,
                                         place.group * t.group_k + place.k + channel + lane / 4};
            scale_and_add_bias(finish, t.k, map);
            if (finish.residual) {
#pragma unroll
                for (int pass = 0; pass < Passes<Element>; ++pass) {
                    load<PassChannels<Element>>(target,
                                                static_cast<const Element *>(finish.residual),
                                                pass * PassChannels<Element>);
                    __syncwarp();
                    add(sums, pass * 2 / Passes<Element>, pass);
                    __syncwarp();
                }
            }
            limit(finish, map);
            activate_piece(t.activation, map, Constant<N / 8>());
        }
#pragma unroll
        for (int pass = 0; pass < Passes<Element>; ++pass) {
            stage(sums, pass * 2 / Passes<Element>, pass);
            __syncwarp();
            store<PassChannels<Element>>(target, y, pass * PassChannels<Element>);
            __syncwarp();
        }
    }
};
#endif

} // namespace cf::implicit_nchw
