// How grouped_planar packs a filter: fragments as lanes of a warp hold them, 16 bytes to a lane.
#pragma once

#include "core/launch.cuh"
#include "core/strides.cuh"
#include "kernels/grouped/family.cuh"
#include "kernels/grouped/planar_fragment.cuh"
#include "kernels/grouped/split.cuh"

namespace cf::grouped_planar {

// Packed: by group, fragment, part (of an f32 in math fp32: what is nearest in tf32, and what is
// left), lane, and word of the lane's.
template <class Element, int Channels>
__global__ void __launch_bounds__(256)
    pack_kernel(Strides strides, const Element *__restrict__ w, uint32_t *__restrict__ packed,
                int parts, int64_t all) {
    constexpr int Size = sizeof(Element), Each = 4 / Size;
    using Of = ProductLayout<Size, Channels>;
    const int64_t step = int64_t(gridDim.x) * 256;
    for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < all; i += step) {
        const int word = int(i % 4), lane = int(i / 4 % 32);
        const int64_t others = i / 128;
        const int part = int(others % parts), fragment = int(others / parts % Of::Fragments);
        const int64_t group = others / parts / Of::Fragments;
        const auto element = [&](int e) {
            const int m = lane / 4 + word % 2 * 8, at = (lane % 4 + word / 2 * 4) * Each + e;
            const auto place = filter_place<Size, Channels>(fragment, m, at);
            const bool live = unsigned(place.r) < FilterSide && place.s < FilterSide;
            const int64_t k = group * Channels + place.k;
            return live ? widen(w[strides.at(k, place.c, place.r, place.s)]) : 0.0f;
        };
        if constexpr (Size == 4)
            packed[i] = grouped::word_of(element(0), part);
        else
            packed[i] = pack<Element>(element(0), element(1));
    }
}

// A row's packed filter, part of its plan's state.
class PackedFilter {
    Kernel<Strides, const void *, void *, int, int64_t> kernel;
    int parts;
    int64_t count; // of words

    template <class Element, int Channels>
    void plan_for(const cf_problem &p) {
        count =
            int64_t(p.groups) * ProductLayout<sizeof(Element), Channels>::Fragments * parts * 128;
        kernel = kernel_of(pack_kernel<Element, Channels>, blocks(count, 256), 256);
    }

  public:
    void plan(const cf_problem &p, int of_parts, cf_plan &plan) {
        parts = of_parts;
        grouped::for_element(p, [&](auto element) {
            using Element = decltype(element);
            for_value<4, 8, 16>(p.c / p.groups / 8,
                                [&](auto channels) { plan_for<Element, channels.value>(p); });
        });
        plan.packed_bytes = uint64_t(count) * 4;
        plan.filter_layout = uint64_t(parts);
    }
    int32_t prepare() { return kernel.prepare(); }
    int32_t pack(const cf_problem &p, const void *w, void *packed, void *stream) const {
        return kernel.launch(stream, filter_strides(p), w, packed, parts, count);
    }
};

} // namespace cf::grouped_planar
