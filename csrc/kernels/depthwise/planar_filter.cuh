// How depthwise_planar packs a filter. Of a channel's filter a product takes a band matrix for each
// of its columns: the element for a row of y and a row of x is the filter's in the row that their
// distance says. So a lane's words are pairs of weights, `gap` rows apart, by the distance of their
// rows: a channel's places, each with the pairs of all columns.
#pragma once

#include "core/element.cuh"
#include "core/launch.cuh"
#include "core/strides.cuh"
#include "kernels/depthwise/planar_plan.cuh"

namespace cf::depthwise_planar {

// The place of pairs that begin in that row of the filter, which may be none: the last one's are
// zeros.
__host__ __device__ __forceinline__ int place_of(int row, int side, int gap) {
    return row >= -gap && row < side ? row + gap : side + gap;
}

// Packed: by channel, place and column, and to whole vectors.
template <class Element>
__global__ void __launch_bounds__(256)
    pack_kernel(Strides strides, const Element *__restrict__ w, uint32_t *__restrict__ packed,
                int side, int gap, int words, int64_t all) {
    const int64_t step = int64_t(gridDim.x) * 256;
    for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < all; i += step) {
        const int at = int(i % words), row = at / side - gap, column = at % side;
        const auto weight = [&](int row) {
            const bool live = row >= 0 && row < side;
            return live ? widen(w[strides.at(i / words, 0, row, column)]) : 0.0f;
        };
        const bool is_pair = row < side; // the last place has none
        packed[i] = is_pair ? pack<Element>(weight(row), weight(row + gap)) : 0;
    }
}

// A row's packed filter, part of its plan's state.
class PackedFilter {
    Kernel<Strides, const void *, void *, int, int, int, int64_t> kernel;
    int side, gap, words; // of a channel
    int64_t count;        // of words

  public:
    void plan(const cf_problem &p, const Tiling &tiling, cf_plan &plan) {
        side = p.s, gap = tiling.gap, words = int(tiling.strips.filter_bytes / 4);
        count = int64_t(p.c) * words;
        kernel = p.storage == CF_STORE_F16
                     ? kernel_of(pack_kernel<__half>, blocks(count, 256), 256)
                     : kernel_of(pack_kernel<__nv_bfloat16>, blocks(count, 256), 256);
        plan.packed_bytes = uint64_t(count) * 4;
        plan.filter_layout = uint64_t(gap);
    }
    int32_t prepare() { return kernel.prepare(); }
    int32_t pack(const cf_problem &p, const void *w, void *packed, void *stream) const {
        return kernel.launch(stream, filter_strides(p), w, packed, side, gap, words, count);
    }
};

} // namespace cf::depthwise_planar
