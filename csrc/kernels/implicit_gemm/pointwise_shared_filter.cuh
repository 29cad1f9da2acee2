// The filter of implicit_gemm_pointwise_shared: lines as the family's, whose channels lie by
// parities.
#pragma once

#include "core/element.cuh"
#include "core/launch.cuh"
#include "core/strides.cuh"
#include "kernels/implicit_gemm/pointwise_shared_tiling.cuh"

namespace cf::pointwise_shared {

// The channel at a place of a line of weights: with two parities the even ones, then the odd ones.
__host__ __device__ __forceinline__ int channel_of(int place, int parities) {
    return parities == 1 ? place : place % 32 * 2 + place / 32;
}

// [group][block of channels][output channel][channel], in 16 bytes that are swizzled as in shared
// memory, zeros where nothing is. A thread writes 16 bytes.
template <class Element>
__global__ void __launch_bounds__(256)
    pack_by_parity_kernel(Strides strides, const Element *__restrict__ w,
                          uint4 *__restrict__ packed, int parities, int blocks, int lines,
                          int group_c, int group_k, int64_t all) {
    const int64_t step = int64_t(gridDim.x) * 256;
    for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < all; i += step) {
        const int64_t line = i / 8, row = line / lines, group = row / blocks;
        const int k = int(line - row * lines), block = int(row - group * blocks);
        const auto element = [&](int e) {
            const int place = (int(i % 8) ^ k % 8) * PiecePixels + e;
            const int c = block * BlockChannels + channel_of(place, parities);
            return k < group_k && c < group_c ? widen(w[strides.at(group * group_k + k, c, 0, 0)])
                                              : 0.0f;
        };
        const auto word = [&](int n) { return pack<Element>(element(2 * n), element(2 * n + 1)); };
        packed[i] = {word(0), word(1), word(2), word(3)};
    }
}

// Its launch: of a problem, into addresses.
struct PackByParity {
    Kernel<Strides, const void *, void *, int, int, int, int, int, int64_t> kernel;

    template <class Element>
    static PackByParity of(const cf_problem &p) {
        const uint64_t pieces = implicit_gemm::packed_bytes(p) / 16;
        return {kernel_of(pack_by_parity_kernel<Element>, blocks(int64_t(pieces), 256), 256)};
    }
    int32_t launch(const cf_problem &p, int parities, const Tiling &t, const void *w, void *packed,
                   void *stream) const {
        return kernel.launch(stream, filter_strides(p), w, packed, parities, t.blocks,
                             t.filter_lines, t.group_c, t.group_k,
                             int64_t(implicit_gemm::packed_bytes(p) / 16));
    }
};

} // namespace cf::pointwise_shared
