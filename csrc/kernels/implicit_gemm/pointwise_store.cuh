// From the sums of implicit_gemm_pointwise to y, from registers: a lane has two neighbouring pixels
// of a channel, and eight lanes sixteen.
#pragma once

#include "kernels/implicit_gemm/nhwc_store.cuh"
#include "kernels/implicit_gemm/pointwise_task.cuh"
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

template <class Element, int Products, int N, bool Paired>
__device__ __forceinline__ void store(const Tiling &t, const Place &place, int warp, int lane,
                                      float (&sums)[Products][N / 2], Element *y,
                                      const Finish &finish) {
    RowMap<Products, N, Paired> map = {t, place, warp, lane, place.k + lane % 4 * 2, sums};
    if (t.finishes) {
        finish_fragment<Element>(finish, t.k, map);
        implicit_gemm::activate_piece(t.activation, map, Constant<Products * N / 8>());
    }
    map.for_runs(y, [](auto count, Element *to, bool live, auto value) {
        float v[count.value];
#pragma unroll
        for (int i = 0; i < count.value; ++i)
            v[i] = value(i);
        store_run(to, live, v);
    });
}
#endif

} // namespace cf::pointwise
