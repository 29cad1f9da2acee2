// What a tile of implicit_gemm_pointwise is, and what it takes of shared memory: the planner fills
// it in, the kernel reads it.
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
constexpr int ProductRows = 64; // pixels of a warpgroup's product
constexpr int StepBytes = 32;   // of a line of weights, by a product: 16 channels, 8 in tf32
constexpr int Steps = LineBytes / StepBytes;
constexpr int MaxStages = 8;
// Dynamic shared memory, of aligned lines, begins behind it.
constexpr int StaticShared = LineAlign;
// Pixels of a tile whose warpgroups have so many products beside each other.
__host__ __device__ constexpr int tile_pixels(int products) {
    return Warpgroups * products * ProductRows;
}
template <class Element>
constexpr int BlockChannels = LineChannels<Element>;
// Channels of a block that a lane has.
template <class Element>
constexpr int LaneChannels = BlockChannels<Element> / 4;

// A warp's fragment has a lane's channels in every fourth lane, number t = lane % 4: number i of
// its own is that of the block whose bits are those of i, with the two of t put in at bit `order`.
// So lanes beside each other read channels 2^order apart, which is for the plan to choose: rows of
// channels lie where memory has them, and are to meet in no bank.
__host__ __device__ __forceinline__ int channel_of_lane(int t, int i, int order) {
    return (i & ((1 << order) - 1)) | t << order | i >> order << (order + 2);
}
// The channel at a place of a line of weights: as wgmma takes fragments, 16 channels to a step have
// lanes' first two, then their others; 8 of tf32 their first one, then the other.
template <class Element>
__host__ __device__ __forceinline__ int channel_of(int place, int order) {
    constexpr int Own = sizeof(Element) == 4 ? 1 : 2; // neighbours of a lane's
    const int step = place / (8 * Own), in_step = place % (8 * Own);
    const int half = in_step / (4 * Own), t = in_step % (4 * Own) / Own;
    return channel_of_lane(t, (step * 2 + half) * Own + in_step % Own, order);
}

// How a lane loads and stores its two pixels of a channel, neighbours in y.
enum class Pairs {
    None,   // by themselves
    Staged, // loaded by themselves, stored by way of shared memory
    Both,   // as one word (in f32 two): where planes have an even number of pixels
    Steps   // loaded as the first halves of two (in f32 of two pairs): where the filter moves by 2
};
// Whether one load brings both.
__host__ __device__ constexpr bool loads_both(Pairs pairs) {
    return pairs == Pairs::Both || pairs == Pairs::Steps;
}

// A tile is some pixels of y (rows of products) in some output channels (columns). Its pixels are
// all of some images, or a piece of an image for each warpgroup; what it reads of x comes as it
// lies in memory: planes of a block of channels of an image, or boxes of a tensor.
struct Tiling {
    int blocks, last_channels; // of the sum: blocks of a line's channels; those of the last one
    // Tiles: output channels innermost, then pixels.
    int tiles, channel_tiles, group_tiles;
    Divisor by_channel_tiles, by_group_tiles;
    int images; // whose planes a tile has; 0 where it has boxes of one
    int pieces; // of an image
    // From piece to piece, in y and in the tensor of boxes; of a tile of images all pixels of one.
    int piece_pixels, piece_column, piece_row;
    Divisor by_pieces, by_pixels;
    int n, pixels, k, group_k, group_c;
    int64_t x_plane, x_image, y_image; // elements
    // A stage of the ring: x, then lines of weights.
    int stages, pitch; // bytes from channel to channel
    int set_bytes;     // of x from image to image, or from box to box
    // Where a pixel's x lies in a channel: pixels of y to a row, and bytes.
    int row_pixels, row_bytes, pixel_bytes;
    Divisor by_row_pixels;
    int pixel_stage_bytes, stage_bytes;
    int staged_bytes;      // of y behind the ring, from image to image; 0 where none is
    int order;             // of channels in lanes
    int channel_bytes[16]; // from a lane's first channel to its others
    int filter_lines;
    int finishes, activation;
};

inline uint64_t packed_bytes(int groups, const Tiling &t) {
    return uint64_t(groups) * t.blocks * t.filter_lines * LineBytes;
}

} // namespace cf::pointwise
