// How the rows of the grouped family that multiply by mma.sync pack a filter.
#pragma once

#include "core/element.cuh"
#include "core/launch.cuh"
#include "core/strides.cuh"
#include "kernels/grouped/nhwc_fragment.cuh"

namespace cf::grouped {

using PackKernel = cf::Kernel<FilterWords, Strides, const void *, void *, int, int, int64_t>;

// Part 0 of an f32 is the tf32 that is nearest, part 1 that of what is left.
__device__ __forceinline__ uint32_t word_of(float v, int part) {
    const float hi = Sum<CF_MATH_TF32>::operand(v);
    return __float_as_uint(part ? Sum<CF_MATH_TF32>::operand(v - hi) : hi);
}

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

template <class Element>
PackKernel pack_kernel_of(int64_t words) {
    return kernel_of(pack_kernel<Element>, blocks(words, 256), 256);
}

// Launches the kernel for so many words.
inline int32_t pack_filter(const PackKernel &kernel, const cf_problem &p, const FilterWords &words,
                           int64_t all, const void *w, void *packed, void *stream) {
    return kernel.launch(stream, words, filter_strides(p), w, packed, p.k, p.c / p.groups, all);
}

} // namespace cf::grouped
