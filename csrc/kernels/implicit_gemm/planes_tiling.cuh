// What a tile of implicit_gemm_planes is, and what it takes of shared memory: the planner fills it
// in, the kernel reads it.
#pragma once

#include "kernels/implicit_gemm/pointwise_tiling.cuh"

namespace cf::planes {

using pointwise::ConsumerRegisters, pointwise::ConsumerWarps, pointwise::ProducerRegisters,
    pointwise::ProductRows, pointwise::StaticShared, pointwise::StepBytes, pointwise::Steps,
    pointwise::Threads, pointwise::tile_pixels, pointwise::Warpgroups;

constexpr int Columns = 3; // of a filter
constexpr int MaxStages = 3, MaxWeightStages = 8;
// Around whole planes, whose first and last pixels have neighbours that are loaded, and not used.
constexpr int Margin = 128; // bytes

// Steps of a line of weights for which registers are loaded together, as many as there are
// registers for. With fewer than all, the weights of a row of taps stay until the last ones.
__host__ __device__ constexpr int steps_at_once(int products, int columns) {
    return products > 1 && columns > 64 ? Steps / 2 : Steps;
}
constexpr int least_weight_stages(int products, int columns) {
    return steps_at_once(products, columns) < Steps ? Columns : 2;
}

// A tile is some neighbouring pixels of an image, as they lie in y, in some output channels; each
// warpgroup has a half of them. What it reads of x are planes of a block of channels: whole ones,
// or the run of pixels that some taps fall on, as boxes of a tensor. Boxes overlap, so that what a
// tap reads of two neighbouring pixels lies in one.
struct Tiling : pointwise::Tiling {
    int width, height;
    int rows, row_step, pad_top; // of the filter: how many, how far apart in x, above x
    int boxes;                   // 0 where whole planes are copied
    int run;                     // where a tile's first box begins, behind the tile's first pixel
    int box_step, box_bytes;     // from box to box, of pixels and in a stage
    Divisor by_box_step;
    int weight_stages, weight_stage_bytes;
};

inline uint64_t packed_bytes(int groups, const Tiling &t) {
    return uint64_t(t.rows) * Columns * pointwise::packed_bytes(groups, t);
}

} // namespace cf::planes
