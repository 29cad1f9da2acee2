// How small_wgmma fills shared memory: images by bulk copies as they are in x, or with channels
// beside each other.
#pragma once

#include "kernels/small/wgmma_block.cuh"
#include "pipeline/segment.cuh"
#include "ptx/bar.cuh"
#include "ptx/cp_async.cuh"

namespace cf::small_wgmma {

#if CF_SM90A
// Zeros below and behind images, where weights of zero meet them, by all threads.
__device__ __forceinline__ void zero_stages(const Block &block, char *dynamic) {
    char *const stages = dynamic + (block.stages - block.weights);
    for (uint32_t i = threadIdx.x * 16; i < block.tiling.stages * block.tiling.stage_bytes;
         i += Warps * 32 * 16)
        *reinterpret_cast<uint4 *>(stages + i) = make_uint4(0, 0, 0, 0);
}

// The filter, by all threads.
__device__ __forceinline__ void load_weights(const Block &block, const uint4 *filter) {
    for (uint32_t i = threadIdx.x * 16; i < block.tiling.weight_bytes; i += Warps * 32 * 16)
        copy16_async(block.weights + i, reinterpret_cast<const char *>(filter) + i, true);
    end_of_group();
    wait_for_groups<0>();
}

// Image m by a warp, to where it lies as far behind a multiple of 16 bytes as in x.
__device__ __forceinline__ void load_image(const Block &block, const uint16_t *x, int m,
                                           uint32_t to, Barrier &full, int lane) {
    load_segment(x + block.input(m), uint32_t(block.input_elements() * 2), block.tiling.zero_bytes,
                 to, full, lane);
}

// How far that is.
__device__ __forceinline__ uint32_t skew(const Block &block, const uint16_t *x, int m) {
    return uint32_t(reinterpret_cast<uint64_t>(x + block.input(m)) & 15);
}

// The channels of an image from planes, which lie one behind the other, to beside each other, two
// pixels in one step. The first plane begins between two words where Between; of an Odd area every
// other one does not begin as it does.
template <int Quads, bool Between, bool Odd>
__device__ __forceinline__ void interleave_quads(const Tiling &tiling, uint32_t planes,
                                                 uint32_t stage, int thread, int threads) {
    constexpr int Channels = pixel_of(Quads); // zeros included
    const int area = tiling.h * tiling.w;
    uint32_t from = planes + thread * 4, to = stage + thread * Channels * 4;
#pragma unroll 1
    for (int i = thread; i < area / 2; i += threads) {
        uint32_t two[Channels];
#pragma unroll
        for (int c = 0; c < Channels; ++c) {
            // Some of the last quad may not exist; those before begin as they would.
            const bool exists = c <= Quads * 4 - 4 || c < tiling.c;
            const uint32_t at = from + (exists ? c : c - 4) * area * 2;
            if (c >= Quads * 4)
                two[c] = 0;
            else if (Between != (Odd && c % 2))
                two[c] = __byte_perm(load_shared(at - 2), load_shared(at + 2), 0x5432);
            else
                two[c] = load_shared(at);
            if (!exists)
                two[c] = 0;
        }
        uint32_t word[Channels]; // of the first pixel, then of the second
#pragma unroll
        for (int c = 0; c < Channels; c += 2) {
            word[c / 2] = __byte_perm(two[c], two[c + 1], 0x5410);
            word[(c + Channels) / 2] = __byte_perm(two[c], two[c + 1], 0x7632);
        }
#pragma unroll
        for (int c = 0; c < Channels; c += 4)
            store_shared4(to + c * 4, word[c], word[c + 1], word[c + 2], word[c + 3]);
        from += threads * 4, to += threads * Channels * 4;
    }
    if (Odd && thread < tiling.c) // the last pixel
        store_shared_u16(stage + ((area - 1) * Channels + thread) * 2,
                         load_shared_u16(planes + ((thread + 1) * area - 1) * 2));
}

template <int Quads>
__device__ __forceinline__ void interleave_quads(const Tiling &tiling, uint32_t planes,
                                                 uint32_t stage, int thread, int threads) {
    const bool between = planes % 4, odd = tiling.h * tiling.w % 2;
    if (between && odd)
        interleave_quads<Quads, true, true>(tiling, planes, stage, thread, threads);
    else if (between)
        interleave_quads<Quads, true, false>(tiling, planes, stage, thread, threads);
    else if (odd)
        interleave_quads<Quads, false, true>(tiling, planes, stage, thread, threads);
    else
        interleave_quads<Quads, false, false>(tiling, planes, stage, thread, threads);
}

// The images as they are in x, by one warp.
__device__ __forceinline__ void produce(const Block &block, const uint16_t *x, int lane) {
    RingPosition at;
    for (int m = 0; m < block.images; ++m, at.next(block.tiling.stages)) {
        block.shared.inputs.wait_empty(at);
        load_image(block, x, m, block.stage(at), block.shared.inputs.full[at.stage], lane);
    }
}

// The images with channels beside each other: one warp loads them into buffers, from where all
// producer warps put them into their stages.
template <int Quads>
__device__ __forceinline__ void produce_interleaved(const Block &block, const uint16_t *x,
                                                    int producer, int lane) {
    const Tiling &tiling = block.tiling;
    const int thread = producer * 32 + lane, threads = tiling.producers * 32;
    const auto buffer = [&](int m) {
        return block.planar_buffers + m % PlanarBuffers * tiling.planar_bytes;
    };
    const auto load = [&](int m) {
        load_image(block, x, m, buffer(m), block.shared.planar_full[m % PlanarBuffers], lane);
    };
    if (producer == 0)
        for (int m = 0; m < min(block.images, PlanarBuffers); ++m)
            load(m);
    RingPosition at;
    for (int m = 0; m < block.images; ++m, at.next(tiling.stages)) {
        block.shared.inputs.wait_empty(at);
        block.shared.planar_full[m % PlanarBuffers].wait(m / PlanarBuffers & 1);
        interleave_quads<Quads>(tiling, buffer(m) + skew(block, x, m), block.stage(at), thread,
                                threads);
        block.shared.inputs.full[at.stage].arrive();
        wait_at_bar<1>(threads); // all have read
        if (m + PlanarBuffers < block.images && producer == 0)
            load(m + PlanarBuffers);
    }
}
#endif

} // namespace cf::small_wgmma
