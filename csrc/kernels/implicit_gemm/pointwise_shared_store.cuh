// From the sums of implicit_gemm_pointwise_shared to y: the epilogue in registers; then through
// shared memory, by output channels, from where a warpgroup's leave in one copy.
#pragma once

#include "kernels/implicit_gemm/nhwc_store.cuh"
#include "kernels/implicit_gemm/pointwise_shared_load.cuh"
#include "ptx/bar_number.cuh"
#include "ptx/tensor_store.cuh"

namespace cf::pointwise_shared {

#if CF_SM90A
// A warpgroup's part of a tile in y.
struct Target {
    int n, pixel, pixels; // the image, the first one of that, and how many there are from it on
    int group, k;         // of the group, the first one
    int channels;         // that there are of 64 from it on

    __device__ __forceinline__ Target(const Tiling &t, const Place &place, int warpgroup)
        : n(place.n), pixel(place.pixel), pixels(min(t.piece_pixels, t.pixels - place.pixel)),
          group(place.group), k(place.k + warpgroup * RowChannels),
          channels(min(t.group_k - k, RowChannels)) {}
    // Elements of y before it.
    __device__ __forceinline__ int64_t first(const Tiling &t) const {
        return (int64_t(n) * t.k + group * t.group_k + k) * t.pixels + pixel;
    }
};

// The epilogue's coordinate map: a lane has sums of two channels, eight apart, in two pixels of
// each eight.
template <int Columns>
struct RowMap : implicit_gemm::PieceMap<Columns, 0, Columns / 8> {
    const Tiling &t;
    const Target &target;
    int row, column; // the lane's first

    __device__ __forceinline__ RowMap(float (&sums)[Columns / 2], const Tiling &t,
                                      const Target &target, int row, int column)
        : implicit_gemm::PieceMap<Columns, 0, Columns / 8>{sums, target.group * t.group_k +
                                                                     target.k + row},
          t(t), target(target), row(row), column(column) {}

    template <class Stored, class Body>
    __device__ __forceinline__ void for_runs(const Stored *tensor, Body body) {
        const Stored *const first = tensor + target.first(t) + int64_t(row) * t.pixels + column;
#pragma unroll
        for (int eight = 0; eight < Columns / 8; ++eight)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                body(Constant<2>(), first + int64_t(half * 8) * t.pixels + eight * 8,
                     eight * 8 + column < target.pixels && row + half * 8 < target.channels,
                     [&](int i) -> float & { return this->sum(eight, half, i); });
    }
};

// A warp has 16 output channels. Of whole planes what is staged is contiguous in y; of pieces a
// tensor copy leaves out what is not there.
template <class Element, int Columns, int Parities>
__device__ __forceinline__ void store(const Tiling &t, const Place &place, int warp, int lane,
                                      float (&sums)[Columns / 2], uint32_t staged,
                                      const CUtensorMap &map, Element *y, const Finish &finish) {
    const int warpgroup = warp / WarpgroupWarps;
    const Target target(t, place, warpgroup);
    const int row = warp % WarpgroupWarps * 16 + lane / 4, column = lane % 4 * 2;
    RowMap<Columns> sums_of(sums, t, target, row, column);
    if (t.finishes) {
        finish_fragment<Element>(finish, t.k, sums_of);
        implicit_gemm::activate_piece(t.activation, sums_of, Constant<Columns / 8>());
    }
    const bool stores = warp % WarpgroupWarps == 0 && lane == 0;
    const auto meet = [&] { wait_at_bar(1 + warpgroup, Warpgroup); };
    if (stores)
        wait_for_stores_to_read(); // of the tile before
    meet();
    const uint32_t own = staged + warpgroup * staged_bytes(t);
    const uint32_t to = own + row * t.staged_pitch + column * int(sizeof(Element));
#pragma unroll
    for (int eight = 0; eight < Columns / 8; ++eight)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            // Behind a plane the next one begins.
            const bool there = Parities == 1 || eight * 8 + column < t.piece_pixels;
            const uint32_t word[1] = {
                pack<Element>(sums_of.sum(eight, half, 0), sums_of.sum(eight, half, 1))};
            store_if(there, to + half * 8 * t.staged_pitch + eight * 16, word);
        }
    publish_to_bulk_copies();
    meet();
    if (!stores)
        return;
    if constexpr (Parities == 1)
        store_box(own, map, target.pixel, target.k, target.n * t.groups + target.group, 0);
    else
        store_bulk(uint64_t(y + target.first(t)), own, target.channels * t.staged_pitch);
}
#endif

} // namespace cf::pointwise_shared
