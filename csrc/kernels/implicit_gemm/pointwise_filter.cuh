// The filter of rows whose pixels are in registers: lines as the family's, whose channels lie in
// the order in which lanes have them.
#pragma once

#include "core/element.cuh"
#include "core/launch.cuh"
#include "core/strides.cuh"
#include "kernels/implicit_gemm/pointwise_tiling.cuh"

namespace cf::pointwise {

// [group][block of channels][tap][output channel][channel], in 16 bytes that are swizzled as in
// shared memory, zeros where nothing is; of f32 the nearest tf32. A thread writes 16 bytes.
template <class Element>
__global__ void __launch_bounds__(256)
    pack_pointwise_kernel(Strides strides, const Element *__restrict__ w,
                          uint4 *__restrict__ packed, int order, int s_count, int taps, int blocks,
                          int lines, int group_c, int group_k, int64_t all) {
    constexpr int Piece = 16 / int(sizeof(Element));
    const int64_t step = int64_t(gridDim.x) * 256;
    for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < all; i += step) {
        int64_t rest = i / 8;
        const auto digit = [&](int base) {
            const int64_t others = rest / base;
            const int last = int(rest - others * base);
            rest = others;
            return last;
        };
        const int k = digit(lines), tap = digit(taps), block = digit(blocks);
        const int64_t group = rest;
        const auto element = [&](int e) {
            const int place = (int(i % 8) ^ k % 8) * Piece + e;
            const int c = block * BlockChannels<Element> + channel_of<Element>(place, order);
            return k < group_k && c < group_c
                       ? widen(w[strides.at(group * group_k + k, c, tap / s_count, tap % s_count)])
                       : 0.0f;
        };
        const auto word = [&](int n) {
            if constexpr (sizeof(Element) == 4)
                return __float_as_uint(Sum<CF_MATH_TF32>::operand(element(n)));
            else
                return pack<Element>(element(2 * n), element(2 * n + 1));
        };
        packed[i] = {word(0), word(1), word(2), word(3)};
    }
}

// Its launch: of a problem, into addresses.
struct PackPointwise {
    Kernel<Strides, const void *, void *, int, int, int, int, int, int, int, int64_t> kernel;

    template <class Element>
    static PackPointwise of(uint64_t bytes) {
        return {kernel_of(pack_pointwise_kernel<Element>, blocks(int64_t(bytes / 16), 256), 256)};
    }
    int32_t launch(const cf_problem &p, const Tiling &t, const void *w, void *packed,
                   void *stream) const {
        const int taps = p.r * p.s;
        return kernel.launch(stream, filter_strides(p), w, packed, t.order, p.s, taps, t.blocks,
                             t.filter_lines, t.group_c, t.group_k,
                             int64_t(taps * packed_bytes(p.groups, t) / 16));
    }
};

} // namespace cf::pointwise
