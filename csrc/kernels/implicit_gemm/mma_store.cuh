// From a warp's sums in implicit_gemm_mma to y: the epilogue in registers, and the stores.
#pragma once

#include "core/epilogue.cuh"
#include "core/fragment_epilogue.cuh"
#include "kernels/implicit_gemm/mma_product.cuh"
#include "kernels/implicit_gemm/mma_window.cuh"

namespace cf::implicit_mma {

// Of a lane, for core/fragment_epilogue.cuh. A line is a row of the product that the lane has sums
// of: of each 16 rows two. Of as many columns as four lanes share it has a run of neighbours.
template <class Shape>
struct OutputMap {
    static constexpr int Run = Shape::Run, Together = Shape::Together;
    static constexpr int Lines = Shape::RowTiles * 2, Runs = Shape::Columns / Together;
    static constexpr bool Nchw = Shape::Nchw;
    const Tiling &t;
    const Place &place;
    Sums<Shape> &sums;
    int row, column; // the lane's first, in the tile

    __device__ __forceinline__ OutputMap(const Tiling &t, const Place &place, Sums<Shape> &sums,
                                         int warp, int lane)
        : t(t), place(place), sums(sums), row(first_row<Shape>(warp) + lane / 4),
          column(first_column<Shape>(warp) + lane % 4 * Run) {}

    // Of line number `line`, column i of all runs.
    __device__ __forceinline__ float &at(int line, int i) {
        return sums.tile[line / 2][i / 2].value[line % 2 * 2 + i % 2];
    }
    static __device__ __forceinline__ int row_of(int line) { return line / 2 * 16 + line % 2 * 8; }
    static __device__ __forceinline__ int column_of(int i) { return i / Run * Together + i % Run; }
    __device__ __forceinline__ int first_channel() const {
        return place.group * t.order.k + place.filter + (Nchw ? row : column);
    }
    // Of the group, from the lane's first on.
    __device__ __forceinline__ int channels_left() const {
        return t.order.k - place.filter - (Nchw ? row : column);
    }

    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
        if constexpr (Nchw) {
#pragma unroll
            for (int line = 0; line < Lines; ++line)
                body(first_channel() + row_of(line), Constant<Runs * Run>(),
                     [&](int i) -> float & { return at(line, i); });
        } else {
#pragma unroll
            for (int i = 0; i < Runs * Run; ++i)
                body(first_channel() + column_of(i), Constant<Lines>(),
                     [&](int line) -> float & { return at(line, i); });
        }
    }
    // In NHWC pixels are output channels apart.
    template <int Count, class T, class Body>
    __device__ __forceinline__ void for_runs_of_pixels(T *tensor, Body body) {
        const int left = channels_left();
#pragma unroll
        for (int line = 0; line < Lines; ++line) {
            const int pixel = row + row_of(line);
            T *const from = tensor + (place.pixel + pixel) * t.k + first_channel();
#pragma unroll
            for (int i = 0; i < Runs * Run; i += Count)
                body(Constant<Count>(), from + column_of(i),
                     pixel < place.left && column_of(i) < left,
                     [&](int j) -> float & { return at(line, i + j); });
        }
    }
    // In NCHW output channels are planes apart, and images those of all other channels.
    template <int Count, class T, class Body>
    __device__ __forceinline__ void for_runs_of_channels(T *tensor, Body body) {
        const int left = channels_left();
        const int64_t others = int64_t(t.k - 1) * t.plane;
        T *const first = tensor + place.pixel + int64_t(first_channel()) * t.plane;
#pragma unroll
        for (int i = 0; i < Runs * Run; i += Count) {
            const int pixel = column + column_of(i);
            const int64_t image = place.image + t.by_plane.fast.quotient(place.first + pixel);
            T *const from = first + pixel + image * others;
#pragma unroll
            for (int line = 0; line < Lines; ++line)
                body(Constant<Count>(), from + int64_t(row_of(line)) * t.plane,
                     pixel < place.left && row_of(line) < left,
                     [&](int j) -> float & { return at(line, i + j); });
        }
    }
    template <int Count, class T, class Body>
    __device__ __forceinline__ void for_runs_of(T *tensor, Body body) {
        if constexpr (Nchw)
            for_runs_of_channels<Count>(tensor, body);
        else
            for_runs_of_pixels<Count>(tensor, body);
    }
    template <class T, class Body>
    __device__ __forceinline__ void for_runs(T *tensor, Body body) {
        if (t.run == Run)
            return for_runs_of<Run>(tensor, body);
        if constexpr (Nchw && Run > 4)
            if (t.run == 4) // 14x14
                return for_runs_of<4>(tensor, body);
        for_runs_of<1>(tensor, body);
    }
    __device__ __forceinline__ void activate() {
#pragma unroll
        for (int line = 0; line < Lines; ++line)
#pragma unroll
            for (int i = 0; i < Runs * Run; ++i)
                at(line, i) = activate_keeping_nan(t.activation, at(line, i));
    }
    template <class T>
    __device__ __forceinline__ void store(T *tensor) {
        for_runs(tensor, [](auto count, T *to, bool live, auto value) {
            float v[count.value];
#pragma unroll
            for (int i = 0; i < count.value; ++i)
                v[i] = value(i);
            store_neighbours<T>(reinterpret_cast<char *>(to), live, v);
        });
    }
};

template <class Shape>
__device__ __forceinline__ void store_sums(const Tiling &t, const Place &place, const Target &to,
                                           int warp, int lane, Sums<Shape> &sums) {
    using Stored = typename Shape::Stored;
    OutputMap<Shape> map(t, place, sums, warp, lane);
    // By itself, so that it costs one branch where there is none.
    if (t.finishes) {
        finish_fragment<Stored>(to.finish, t.k, map);
        if (t.activation != CF_ACT_NONE)
            map.activate();
    }
    map.store(static_cast<Stored *>(to.y));
}

} // namespace cf::implicit_mma
