// How the rows of the grouped family that multiply by mma.sync pack a filter.
#pragma once

#include "core/launch.cuh"
#include "core/strides.cuh"
#include "kernels/grouped/family.cuh"
#include "kernels/grouped/nhwc_fragment.cuh"
#include "kernels/grouped/split.cuh"

namespace cf::grouped {

// A filter as words of fragments.
template <class Element>
__global__ void __launch_bounds__(256)
    pack_kernel(FilterWords words, Strides strides, const Element *__restrict__ w,
                uint32_t *__restrict__ packed, int k, int group_channels, int64_t all) {
    const int count = words.count();
    const int64_t step = int64_t(gridDim.x) * 256;
    for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < all; i += step) {
        const auto element = [&](int e) {
            const auto at =
                filter_place(words, int(i / 32 / count), int(i / 32 % count), int(i % 32), e);
            const bool live = at.k < k && at.c / group_channels == at.k / group_channels;
            return live ? widen(w[strides.at(at.k, at.c % group_channels, at.r, at.s)]) : 0.0f;
        };
        if constexpr (std::is_same_v<Element, float>)
            packed[i] = word_of(element(0), int(i / 32 % words.parts));
        else
            packed[i] = pack<Element>(element(0), element(1));
    }
}

// A row's packed filter, part of its plan's state.
class PackedFilter {
    Kernel<FilterWords, Strides, const void *, void *, int, int, int64_t> kernel;
    FilterWords words;
    int64_t count; // of words

  public:
    // For so many chunks of tiles.
    void plan(const cf_problem &p, const FilterWords &of, int chunks, cf_plan &plan) {
        words = of;
        count = int64_t(chunks) * words.count() * 32;
        plan.packed_bytes = uint64_t(count) * 4;
        plan.filter_layout =
            uint64_t(words.parts) << 16 | uint64_t(words.set_bytes) << 8 | uint64_t(words.tiles);
        for_element(p, [&](auto element) {
            kernel = kernel_of(pack_kernel<decltype(element)>, blocks(count, 256), 256);
        });
    }
    int32_t prepare() { return kernel.prepare(); }
    int32_t pack(const cf_problem &p, const void *w, void *packed, void *stream) const {
        return kernel.launch(stream, words, filter_strides(p), w, packed, p.k, p.c / p.groups,
                             count);
    }
};

} // namespace cf::grouped
