// What a tile of implicit_gemm_pointwise is, and what it takes of shared memory: the planner fills it
// in, the kernel reads it.
#pragma once

#include "core/divisor.cuh"
#include "core/element.cuh"
#include "core/line_map.cuh"

#include <cstdint>

namespace cf::pointwise {

constexpr int Warpgroups = 2, ConsumerWarps = Warpgroups * 4;
// And a third one, of which a warp asks for copies: registers move by warpgroups.
constexpr int Threads = (ConsumerWarps + 4) * 32;
constexpr int ConsumerRegisters = 232, ProducerRegisters = 40;
constexpr int ProductRows = 64;   // pixels of a warpgroup's product
constexpr int StepBytes = 32;     // of a line of weights, by a product: 16 channels, 8 in tf32
constexpr int Steps = LineBytes / StepBytes;
constexpr int MaxStages = 8;
constexpr int StaticShared = 256;
// Pixels of a box of x that no product reads: with them rows of channels are 8 banks apart, for
// every second one in 16 bits, so that a warp's fragment lies in all banks.
constexpr int BoxGap = 8;

// Pixels of a tile whose warpgroups have so many products beside each other.
__host__ __device__ constexpr int tile_pixels(int products) {
    return Warpgroups * products * ProductRows;
}
__host__ __device__ constexpr int box_pixels(int products) {
    return products * ProductRows + BoxGap;
}
template <class Element>
constexpr int BlockChannels = LineChannels<Element>;

// A tile is some pixels (rows of products) in some output channels (columns). Its pixels are all of
// some images, or so many neighbours of one; what it reads of x comes as it lies in memory: planes
// of a block of channels of an image, or boxes of a tensor.
struct Tiling {
    int blocks, last_channels; // of the sum: blocks of a line's channels; those of the last one
    // Tiles: output channels innermost, then pixels.
    int tiles, channel_tiles, group_tiles;
    Divisor by_channel_tiles, by_group_tiles;
    int images; // whose planes a tile has; 0 where it has boxes of one
    int pieces; // of an image
    Divisor by_pieces, by_pixels;
    int n, pixels, k, group_k, group_c;
    int64_t x_image, y_image; // elements
    // A stage of the ring: x, then lines of weights.
    int stages, pitch;      // bytes from channel to channel
    int set_bytes;          // of x from image to image, or from box to box
    int pixel_stage_bytes, stage_bytes;
    int filter_lines;
    int finishes, activation;
};

} // namespace cf::pointwise
