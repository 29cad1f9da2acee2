// From the sums of planes in f32 straight to y: a lane has pairs of neighbouring pixels of a
// channel, and four lanes together a whole sector, so nothing is staged.
#pragma once

#include "kernels/implicit_gemm/nchw_store.cuh"
#include "ptx/predicated_pair.cuh"

namespace cf::implicit_nchw {

#if CF_SM90
// Where a pair of a product's columns lies in a tile of y: elements behind its first pixel, and the
// column, row and image as fields of 8 bits with a bit between them; of no pixels all too large.
struct PairPlaces {
    static constexpr uint32_t None = 0xff | 0xff << 9 | 0xff << 18;
    static constexpr uint32_t Between = 1 << 8 | 1 << 17 | 1 << 26;

    static __device__ __forceinline__ uint32_t fields(int column, int row, int image) {
        return uint32_t(column) | uint32_t(row) << 9 | uint32_t(image) << 18;
    }
    // Of so many pairs, by all threads that multiply.
    static __device__ __forceinline__ void list(const Tiling &t, const Planes &planes, int pairs,
                                                uint32_t places) {
        if (int(threadIdx.x) >= pairs)
            return;
        const Spot spot(t, threadIdx.x * 2);
        const bool there = spot.column < t.columns && spot.row < t.rows && spot.image < t.images;
        const int64_t offset = spot.image * planes.y_image + int64_t(spot.row) * t.q + spot.column;
        store_shared2(places + threadIdx.x * PairPlaceBytes, uint32_t(offset),
                      there ? fields(spot.column, spot.row, spot.image) : None);
    }
    // The largest fields that are there of a tile, and the bits between them: a smaller field
    // leaves its bit as it is when it is taken off.
    static __device__ __forceinline__ uint32_t largest(const Tiling &t, const Place &place) {
        const auto field = [](int left) { return min(left, 255) - 1; };
        return Between |
               fields(field(t.q - place.column), field(t.p - place.row), field(t.n - place.n));
    }
};

template <int N>
struct DirectStore {
    const Tiling &t;
    const Planes &planes;
    uint32_t places; // of the lane's first pair
    int lane;

    __device__ __forceinline__ DirectStore(const Tiling &t, const Planes &planes, uint32_t all,
                                           int lane)
        : t(t), planes(planes), places(all + lane % 4 * PairPlaceBytes), lane(lane) {}

    // Body(address of a pair, whether it is there, its two sums).
    template <class T, class Body>
    __device__ __forceinline__ void for_pairs(const PlanarTarget &target, T *tensor,
                                              float (&sums)[N / 2], Body body) const {
        const uint32_t largest = PairPlaces::largest(t, target.place);
        T *const row = tensor + target.first + lane / 4 * planes.y_plane;
        T *const other = row + 8 * planes.y_plane;
        const int channels = target.place.n < t.n ? target.channels - lane / 4 : 0;
#pragma unroll
        for (int eight = 0; eight < N / 8; ++eight) {
            const uint2 pair = load_shared2(places + eight * 4 * PairPlaceBytes);
            const bool there = ((largest - pair.y) & PairPlaces::Between) == PairPlaces::Between;
            body(row + int(pair.x), there && channels > 0, sums[eight * 4], sums[eight * 4 + 1]);
            body(other + int(pair.x), there && channels > 8, sums[eight * 4 + 2],
                 sums[eight * 4 + 3]);
        }
    }
    // The sums of a tile; `channel` is the warp's first, of the tile's.
    __device__ __forceinline__ void run(const Place &place, int channel, float (&sums)[N / 2],
                                        float *y, const Finish &finish) const {
        const PlanarTarget target(t, planes, place, channel);
        if (t.finishes) {
            PieceMap<N, 0, N / 8> map = {sums,
                                         place.group * t.group_k + place.k + channel + lane / 4};
            scale_and_add_bias(finish, t.k, map);
            if (finish.residual)
                for_pairs(target, static_cast<const float *>(finish.residual), sums,
                          [](const float *from, bool there, float &a, float &b) {
                              const uint2 two =
                                  load_if(there, reinterpret_cast<const uint2 *>(from));
                              a += __uint_as_float(two.x), b += __uint_as_float(two.y);
                          });
            limit(finish, map);
            activate_piece(t.activation, map, Constant<N / 8>());
        }
        for_pairs(target, y, sums, [](float *to, bool there, float &a, float &b) {
            store_pair_if(there, to, a, b);
        });
    }
};

// What a block of either store needs in shared memory, by all threads that multiply.
template <class Element, int N>
__device__ __forceinline__ void list_all_places(const Tiling &t, const Planes &planes,
                                                uint32_t staged) {
    if (sizeof(Element) == 4 && planes.direct)
        PairPlaces::list(t, planes, N / 2, staged);
    else
        list_places<Element, N>(t, staged + ConsumerWarps * staged_bytes(N));
}

// The sums of a tile that has no parts, in the way that the plan says.
template <class Element, int N, bool Straight>
__device__ __forceinline__ void
store_whole(const PlanarStore<Element, N, Straight> &store, uint32_t staged, const Place &place,
            int channel, float (&sums)[N / 2], Element *y, const Finish &finish) {
    if constexpr (sizeof(Element) == 4) {
        const DirectStore<N> direct(store.t, store.planes, staged, store.lane);
        if (store.planes.direct)
            return direct.run(place, channel, sums, y, finish);
    }
    store.run(place, channel, sums, y, finish);
}
#endif

} // namespace cf::implicit_nchw
