// How the storing warps of small_mma write output tiles, which gather in a ring of stages, to y.
#pragma once

#include "kernels/small/mma_plan.cuh"

#include "ptx/bulk.cuh"

namespace cf::small_mma {

#if CF_SM90A
// All output tiles of a block, by one storing warp; the stages begin at byte `ring`. They are
// stored in order, each by all storing warps, so that stages are handed back in order. Eight lanes
// store a plane: its whole sectors as one bulk copy, the elements before and behind them one by
// one.
__device__ __forceinline__ void store_output_tiles(const Tiling &tiling, int rows,
                                                   unsigned char *shared, uint32_t ring,
                                                   Barrier *out_full, Barrier *out_empty, float *y,
                                                   int storer, int lane) {
    const int storers = 4 - tiling.producers;
    const int area = tiling.p * tiling.q;
    int stage = 0, round = 0;
    for (int strip = int(blockIdx.x); strip < tiling.strips; strip += int(gridDim.x)) {
        const int image = tiling.by_image_strips.quotient(strip);
        for (int tile = 0; tile < tiling.row_tiles; ++tile) {
            const int top =
                ((strip - image * tiling.image_strips) * tiling.row_tiles + tile) * rows;
            const int bytes = max(min(tiling.p - top, rows), 0) * tiling.q * 4;
            for (int group = 0; group < tiling.groups; ++group) {
                const int channels = min(tiling.channels, tiling.k - group * tiling.channels);
                float *const planes = y + int64_t(image) * (tiling.k * area) +
                                      (group * tiling.channels * area + top * tiling.q);
                out_full[stage].wait(round & 1);
                for (int begin = storer * 4; begin < channels; begin += storers * 4) {
                    const int k = begin + lane / 8;
                    const bool live = k < channels;
                    float *const plane = planes + k * area;
                    const int low = int(uint64_t(plane)) & 31;
                    // Bytes before whole sectors, of these, and to the lane's elements.
                    const int head = min(-low & 31, bytes), body = (bytes - head) & ~31;
                    const int before = lane % 8 * 4, behind = head + body + before;
                    unsigned char *const staged =
                        shared +
                        (ring + stage * tiling.output_stage_bytes + k * tiling.output_plane + low);
                    const auto copy = [&](int at) {
                        plane[at / 4] = *reinterpret_cast<const float *>(staged + at);
                    };
                    if (live && lane % 8 == 0 && body > 0)
                        store_bulk(__cvta_generic_to_global(plane) + head,
                                   shared_address(staged + head), body);
                    if (live && before < head)
                        copy(before);
                    if (live && behind < bytes)
                        copy(behind);
                }
                // An output tile's stage is handed back when the next one's copies have begun.
                wait_for_stores_to_read<1>();
                if (stage + round > 0)
                    out_empty[stage > 0 ? stage - 1 : tiling.output_stages - 1].arrive();
                if (++stage == tiling.output_stages)
                    stage = 0, ++round;
            }
        }
    }
    wait_for_stores_to_read<0>();
}
#endif

} // namespace cf::small_mma
