// How the storing warps of small_mma write what row tiles gave, gathered in stages, to y.
#pragma once

#include "ptx/pipeline.cuh"
#include "kernels/small/mma_plan.cuh"

namespace cf::small_mma {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Waits until of this thread's groups of bulk stores, one of which ends here, all but `Last` have
// read what they store.
template <int Last>
__device__ __forceinline__ void end_stores_and_wait() {
    asm volatile("cp.async.bulk.commit_group;\n"
                 "cp.async.bulk.wait_group.read %0;" ::"n"(Last)
                 : "memory");
}

// All items of a block, by one storing warp. They are stored in order, each by all storing warps,
// so that stages are handed back in order. Eight lanes store a plane: its whole sectors as one bulk
// copy, the elements before and behind them one by one.
__device__ __forceinline__ void store_items(const Cut &cut, int rows, unsigned char *shared,
                                            uint32_t stages, Barrier *gathered, Barrier *freed,
                                            float *y, int storer, int lane) {
    const int storers = 4 - cut.loaders;
    const int area = cut.p * cut.q;
    int stage = 0, turn = 0;
    for (int u = int(blockIdx.x); u < cut.units; u += int(gridDim.x)) {
        const int n = cut.by_strips.quotient(u);
        for (int tile = 0; tile < cut.tiles; ++tile) {
            const int top = ((u - n * cut.strips) * cut.tiles + tile) * rows;
            const int bytes = max(min(cut.p - top, rows), 0) * cut.q * 4;
            for (int group = 0; group < cut.groups; ++group) {
                const int channels = min(cut.channels, cut.k - group * cut.channels);
                float *const planes =
                    y + int64_t(n) * (cut.k * area) + (group * cut.channels * area + top * cut.q);
                gathered[stage].wait(turn & 1);
                for (int begin = storer * 4; begin < channels; begin += storers * 4) {
                    const int k = begin + lane / 8;
                    const bool live = k < channels;
                    float *const plane = planes + k * area;
                    const int low = int(uint64_t(plane)) & 31;
                    // Bytes before whole sectors, of these, and to the lane's elements.
                    const int head = min(-low & 31, bytes), body = (bytes - head) & ~31;
                    const int before = lane % 8 * 4, behind = head + body + before;
                    unsigned char *const staged =
                        shared + (stages + stage * cut.stage + k * cut.stage_plane + low);
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
                // An item's stage is handed back when the next one's copies have begun.
                end_stores_and_wait<1>();
                if (stage + turn > 0)
                    freed[stage > 0 ? stage - 1 : cut.stages - 1].arrive();
                if (++stage == cut.stages)
                    stage = 0, ++turn;
            }
        }
    }
    end_stores_and_wait<0>();
}
#endif

} // namespace cf::small_mma
