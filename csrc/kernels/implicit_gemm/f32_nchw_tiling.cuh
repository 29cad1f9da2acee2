// What a tile of implicit_gemm_f32_nchw is beside those of implicit_gemm_f32_nhwc and of
// implicit_gemm_nchw: who loads x, and how much of it at a time.
#pragma once

#include "kernels/implicit_gemm/f32_tiling.cuh"
#include "kernels/implicit_gemm/nchw_tiling.cuh"

namespace cf::implicit_f32 {

using implicit_nchw::Planes;

// Pixels of a warp's batch, in all channels of a line, and the slots that it has for them in shared
// memory: it asks for batches before it splits those that have come.
constexpr int BatchPixels = 8, Slots = 4;
constexpr uint32_t SlotRowBytes = BatchPixels * 4, SlotBytes = BlockChannels * SlotRowBytes;
constexpr uint32_t VectorPlaceBytes = 8;
// Two warpgroups beside those that multiply: the last warp asks for weights, some of the others
// load, as many as shared memory has slots for.
constexpr int MostLoaders = 7, LoaderCounts[] = {2, 4, MostLoaders};
__host__ __device__ constexpr uint32_t slots_bytes(int loaders) {
    return uint32_t(loaders * Slots) * SlotBytes;
}
constexpr int PlanarThreads = 2 * Warpgroups * Warpgroup;

// Pixels of a product that kernels are compiled for: rows of boxes end with a zero that is no
// pixel, so a few more than whole rows have do best.
using PlanarNarrowWidths = std::integer_sequence<int, 32, 64, 96>;
using PlanarWideWidths = std::integer_sequence<int, 104, 112, 120, 128>;

} // namespace cf::implicit_f32
