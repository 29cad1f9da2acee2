// From the sums of implicit_gemm_pointwise to y: from registers, where a lane has two neighbouring
// pixels of a channel, and eight lanes sixteen; or, of whole planes with an odd number of pixels,
// by way of shared memory, from which an image's output channels leave in one copy.
#pragma once

#include "kernels/implicit_gemm/nhwc_store.cuh"
#include "kernels/implicit_gemm/pointwise_task.cuh"
#include "ptx/bar.cuh"
#include "ptx/predicated_float.cuh"
#include "ptx/predicated_pair.cuh"

namespace cf::pointwise {

#if CF_SM90A
// The coordinate map of the epilogue (core/fragment_epilogue.cuh).
template <int Products, int N, bool Paired>
struct RowMap {
    static constexpr int Eights = N / 8;
    const Tiling &t;
    const Place &place;
    int warp, lane;
    int k; // of the lane's first output channel, in its group
    float (&sums)[Products][N / 2];

    __device__ __forceinline__ float &sum(int eight, int row, int channel) const {
        return sums[eight / Eights][eight % Eights * 4 + row * 2 + channel];
    }
    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
#pragma unroll
        for (int eight = 0; eight < Eights; ++eight)
#pragma unroll
            for (int c = 0; c < 2; ++c)
                body(place.group * t.group_k + k + eight * 8 + c, Constant<2 * Products>(),
                     [&](int i) -> float & { return sum(i / 2 * Eights + eight, i % 2, c); });
    }
    template <class Stored, class Body>
    __device__ __forceinline__ void for_runs(Stored *tensor, Body body) {
        constexpr int Count = Paired ? 2 : 1;
        const int64_t channel = int64_t(place.group * t.group_k + k) * t.pixels;
        const int begin = place.piece * t.piece_pixels;
#pragma unroll
        for (int i = 0; i < Products; ++i)
#pragma unroll
            for (int j = 0; j < 2 / Count; ++j) {
                const auto at = Pixel::of<Products>(t, i, j, warp, lane);
                const int n = place.n + at.image, pixel = begin + at.pixel;
                const bool there = n < t.n && pixel < t.pixels && at.pixel < t.piece_pixels;
                Stored *const first = tensor + (there ? n * t.y_image + channel + pixel : 0);
#pragma unroll
                for (int eight = 0; eight < Eights; ++eight)
#pragma unroll
                    for (int c = 0; c < 2; ++c)
                        body(Constant<Count>(), first + int64_t(eight * 8 + c) * t.pixels,
                             there && k + eight * 8 + c < t.group_k,
                             [&](int e) -> float & { return sum(i * Eights + eight, j + e, c); });
            }
    }
};

// As floats where they are: ptxas would want words in other registers.
template <class Element, int Count>
__device__ __forceinline__ void store_run(Element *to, bool live, const float (&v)[Count]) {
    if constexpr (sizeof(Element) == 2)
        store_neighbours<Element>(reinterpret_cast<char *>(to), live, v);
    else if constexpr (Count == 2)
        store_pair_if(live, to, v[0], v[1]);
    else
        store_float_if(live, to, v[0]);
}

// One output channel of a lane's two pixels of a product, into shared memory; floats as store_run.
template <class Element>
__device__ __forceinline__ void stage_pixels(const uint32_t (&to)[2], const bool (&there)[2],
                                             float first, float second) {
    if constexpr (sizeof(Element) == 4) {
        store_if(there[0], to[0], first);
        store_if(there[1], to[1], second);
    } else {
        const uint32_t both = pack<Element>(first, second);
        if (there[0])
            store_shared_u16(to[0], both);
        if (there[1])
            store_shared_u16(to[1], both >> 16);
    }
}

// Through shared memory, as [image][output channel][pixel].
template <class Element, int Products, int N>
__device__ __forceinline__ void store_planes(const Tiling &t, const Place &place, int warp,
                                             int lane, float (&sums)[Products][N / 2],
                                             uint32_t staged, Element *y) {
    constexpr int Eights = N / 8;
    const int plane_bytes = t.pixels * int(sizeof(Element));
    wait_for_stores_to_read(); // of the tile before
    wait_at_bar<1>(ConsumerWarps * 32);
#pragma unroll
    for (int i = 0; i < Products; ++i) {
        uint32_t to[2];
        bool there[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const auto at = Pixel::of<Products>(t, i, j, warp, lane);
            there[j] = at.pixel < t.pixels;
            to[j] = staged + at.image * t.staged_bytes + lane % 4 * 2 * plane_bytes +
                    at.pixel * int(sizeof(Element));
        }
#pragma unroll
        for (int eight = 0; eight < Eights; ++eight)
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                const uint32_t behind = (eight * 8 + c) * plane_bytes;
                const float *const sum = &sums[i][eight * 4 + c];
                stage_pixels<Element>({to[0] + behind, to[1] + behind}, there, sum[0], sum[2]);
            }
    }
    publish_to_bulk_copies();
    wait_at_bar<1>(ConsumerWarps * 32);
    const int image = warp * 32 + lane;
    if (image < min(t.images, t.n - place.n))
        store_bulk(uint64_t(y + (place.n + image) * t.y_image +
                            int64_t(place.group * t.group_k + place.k) * t.pixels),
                   staged + image * t.staged_bytes, min(N, t.group_k - place.k) * plane_bytes);
}

template <class Element, int Products, int N, Pairs Pair>
__device__ __forceinline__ void store(const Tiling &t, const Place &place, int warp, int lane,
                                      float (&sums)[Products][N / 2], uint32_t staged, Element *y,
                                      const Finish &finish) {
    RowMap<Products, N, loads_both(Pair)> map = {t,   place, warp, lane, place.k + lane % 4 * 2,
                                                 sums};
    if (t.finishes) {
        finish_fragment<Element>(finish, t.k, map);
        implicit_gemm::activate_piece(t.activation, map, Constant<Products * N / 8>());
    }
    if constexpr (Pair == Pairs::Staged) {
        store_planes<Element, Products, N>(t, place, warp, lane, sums, staged, y);
    } else {
        map.for_runs(y, [](auto count, Element *to, bool live, auto value) {
            float v[count.value];
#pragma unroll
            for (int i = 0; i < count.value; ++i)
                v[i] = value(i);
            store_run(to, live, v);
        });
    }
}
#endif

} // namespace cf::pointwise
