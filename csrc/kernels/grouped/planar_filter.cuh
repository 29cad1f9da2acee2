// How grouped_planar packs a filter: fragments as lanes of a warp hold them, 16 bytes to a lane.
#pragma once

#include "core/launch.cuh"
#include "core/strides.cuh"
#include "kernels/grouped/family.cuh"
#include "kernels/grouped/planar_fragment.cuh"

namespace cf::grouped_planar {

// Packed: by group, fragment, lane, and word of the lane's.
template <class Element, int Channels>
__global__ void __launch_bounds__(256) pack_kernel(Strides strides, const Element *__restrict__ w,
                                                   uint32_t *__restrict__ packed, int64_t all) {
    using Of = Products<Channels>;
    const int64_t step = int64_t(gridDim.x) * 256;
    for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < all; i += step) {
        const int word = int(i % 4), lane = int(i / 4 % 32);
        const int64_t others = i / 128;
        const int fragment = int(others % Of::Fragments);
        const int64_t group = others / Of::Fragments;
        const auto element = [&](int e) {
            const int m = lane / 4 + word % 2 * 8, at = (lane % 4 + word / 2 * 4) * 2 + e;
            const auto place = filter_place<Channels>(fragment, m, at);
            const bool live = unsigned(place.r) < FilterSide && place.s < FilterSide;
            const int64_t k = group * Channels + place.k;
            return live ? widen(w[strides.at(k, place.c, place.r, place.s)]) : 0.0f;
        };
        packed[i] = pack<Element>(element(0), element(1));
    }
}

// A row's packed filter, part of its plan's state.
class PackedFilter {
    Kernel<Strides, const void *, void *, int64_t> kernel;
    int64_t count; // of words

    template <class Element, int Channels>
    void plan_for(const cf_problem &p) {
        count = int64_t(p.groups) * Products<Channels>::Fragments * 128;
        kernel = kernel_of(pack_kernel<Element, Channels>, blocks(count, 256), 256);
    }

  public:
    void plan(const cf_problem &p, cf_plan &plan) {
        grouped::for_element(p, [&](auto element) {
            using Element = decltype(element);
            if constexpr (sizeof(Element) == Size)
                for_value<4, 8, 16>(p.c / p.groups / 8,
                                    [&](auto channels) { plan_for<Element, channels.value>(p); });
        });
        plan.packed_bytes = uint64_t(count) * 4;
        plan.filter_layout = 1;
    }
    int32_t prepare() { return kernel.prepare(); }
    int32_t pack(const cf_problem &p, const void *w, void *packed, void *stream) const {
        return kernel.launch(stream, filter_strides(p), w, packed, count);
    }
};

} // namespace cf::grouped_planar
