// The filter of the family's rows on wgmma, packed as lines.
#pragma once

#include "core/element.cuh"
#include "core/launch.cuh"
#include "core/strides.cuh"
#include "kernels/implicit_gemm/tiling.cuh"

namespace cf::implicit_gemm {

// [group][block of channels][tap][output channel][channel], in 16 bytes that are swizzled as in
// shared memory, zeros where nothing is; of f32 the nearest tf32. A thread writes 16 bytes.
template <class Element>
__global__ void __launch_bounds__(256)
    pack_lines_kernel(Strides strides, const Element *__restrict__ w, uint4 *__restrict__ packed,
                      int s_count, int taps, int blocks, int lines, int group_c, int group_k,
                      int64_t all) {
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
        const int c = block * LineChannels<Element> + (int(i % 8) ^ k % 8) * PieceChannels<Element>;
        const auto element = [&](int e) {
            return k < group_k && c + e < group_c
                       ? widen(
                             w[strides.at(rest * group_k + k, c + e, tap / s_count, tap % s_count)])
                       : 0.0f;
        };
        const auto word = [&](int i) {
            if constexpr (sizeof(Element) == 4)
                return __float_as_uint(Sum<CF_MATH_TF32>::operand(element(i)));
            else
                return pack<Element>(element(2 * i), element(2 * i + 1));
        };
        packed[i] = {word(0), word(1), word(2), word(3)};
    }
}

// Its launch: of a problem, into addresses.
struct PackLines {
    Kernel<Strides, const void *, void *, int, int, int, int, int, int, int64_t> kernel;

    template <class Element>
    static PackLines of(const cf_problem &p) {
        return {
            kernel_of(pack_lines_kernel<Element>, blocks(int64_t(packed_bytes(p) / 16), 256), 256)};
    }
    int32_t launch(const cf_problem &p, const void *w, void *packed, void *stream) const {
        return kernel.launch(stream, filter_strides(p), w, packed, p.s, p.r * p.s,
                             int(blocks_of(p)), int(filter_lines(p)), int(group_channels(p)),
                             p.k / p.groups, int64_t(packed_bytes(p) / 16));
    }
};

} // namespace cf::implicit_gemm
