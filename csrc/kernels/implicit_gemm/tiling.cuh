// What a tile of the family's rows on wgmma is, and what it takes of shared memory: planners fill
// it in, kernels read it.
#pragma once

#include "core/divisor.cuh"
#include "core/element.cuh"
#include "core/launch.cuh"
#include "core/line_map.cuh"
#include "core/plan.cuh"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace cf::implicit_gemm {

constexpr int Warpgroup = 128;         // threads
constexpr int Warpgroups = 2;          // of consumers
constexpr int Threads = 3 * Warpgroup; // and one of producers
constexpr int RowChannels = 64;        // output channels of a warpgroup: rows of a product
constexpr int StepBytes = 32;          // of each line, by a product: 16 channels, 8 in tf32
constexpr int Steps = LineBytes / StepBytes;
constexpr int MaxPixelStages = 16, MaxWeightStages = 28;
constexpr int StaticShared = 1024;
constexpr int ReservedShared = 1024; // by the system, of each block
constexpr int StagedBytes = 8192;    // what a warpgroup stages of y at a time
constexpr int MaxBox = 256;          // pixels along a side of a box
template <class Element>
constexpr int PieceChannels = 16 / int(sizeof(Element)); // of 16 bytes

// Pixels of a product that kernels are compiled for, in files of narrow ones and of wide ones.
using NarrowWidths = std::integer_sequence<int, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160>;
using WideWidths = std::integer_sequence<int, 176, 192, 200, 208, 216, 224, 232, 240, 248, 256>;

template <int... Narrow, int... Wide>
constexpr std::array<int, sizeof...(Narrow) + sizeof...(Wide)>
all_widths(std::integer_sequence<int, Narrow...>, std::integer_sequence<int, Wide...>) {
    return {Narrow..., Wide...};
}
template <int... N>
constexpr bool is_among(std::integer_sequence<int, N...>, int width) {
    return ((width == N) || ...);
}
// The kernel for products of so many pixels, of those of a list: of(Constant<width>()).
template <class Launched, int... N, class KernelOf>
Launched kernel_among(std::integer_sequence<int, N...>, int width, KernelOf of) {
    Launched launched;
    ((width == N ? void(launched.kernel = of(Constant<N>())) : void()), ...);
    return launched;
}

// Blocks that registers of a multiprocessor have room for. Of narrow products two: with one image
// that of the next launch then begins beside this one's.
__host__ __device__ constexpr int blocks_beside(int width) { return width <= 64 ? 2 : 1; }

// A tile is 64 or 128 output channels (rows of products) of some pixels (columns). The pixels are
// some columns and rows of some images of y, or (im2col) neighbours in all of y. What a tile reads
// of x is lines of 64 channels of a pixel, 32 in f32; those of a column of the sum's taps lie in
// boxes of [row][image][column], where the next tap is so many lines behind. Where images are one
// row, that row may be all pixels there are.
struct Tiling {
    // The sum: blocks of a line's channels, of each as many loads of lines, each for some taps.
    int blocks, last_steps;        // products of the last block
    int load_rows, load_columns;   // loads of a block
    int tap_rows, tap_columns;     // taps of a load
    int tap_row_bytes, tap_bytes;  // from tap to tap
    int row_offset, column_offset; // from load to load, in pixels of x
    int group_bytes;               // from 8 pixels of a product to the next ones
    // Sets of tiles, one for each block of a cluster: output channels innermost, then columns,
    // rows, images.
    int tiles, channel_sets, group_tiles, column_pieces, row_pieces;
    Divisor by_channel_sets, by_group_tiles, by_column_pieces, by_row_pieces;
    Divisor by_clusters;           // of the grid
    int pixel_peers, weight_peers; // blocks of a cluster that read the same: 1 or 2
    int parts; // of a sum, each by a block of a cluster: whole blocks of channels; 1, 2, 4 or 8
    int pixel_shift, peer_shift, part_shift; // log2 of pixel_peers, of all peers, of parts
    int apart; // each warpgroup has pixels of its own, and a ring of its own
    int pixel_tiles;
    // y, and a tile of it.
    int n, p, q, k, group_k, group_c;
    int images, rows, columns;
    int pitch; // products' columns from a row of the tile to the next
    Divisor by_pitch, by_images;
    // x.
    int im2col, stride_h, stride_w, pad_top, pad_left;
    int p_real, q_real; // of im2col: rows and columns of an image of y
    Divisor by_p_real, by_q_real;
    // The packed filter: lines of a tap.
    int filter_lines, taps;
    // Shared memory.
    int pixel_stages, weight_stages;
    uint32_t pixel_stage_bytes, pixel_bytes; // bytes that are copied
    uint32_t zero_bytes;                     // behind them
    uint32_t weight_stage_bytes;
    int parts_replace;  // whether parts of sums come to the place of stages
    int reload_weights; // for each tile; 0 where the block keeps them
    int once;           // whether it has one tile, and all that this reads is there at once
    int lead;           // taps that the first warpgroup is ahead of the second one
    // Whether pixels of y are whole pieces of 16 bytes; the epilogue.
    int whole, finishes, activation;
    int near; // pixels of a tile are so near in y that elements between them are counted in 31 bits
};

__host__ __device__ __forceinline__ int cluster_size(const Tiling &t) {
    return t.pixel_peers * t.weight_peers * t.parts;
}
inline uint32_t pixel_ring_bytes(const Tiling &t) {
    return (t.apart ? Warpgroups : 1) * t.pixel_stages * t.pixel_stage_bytes;
}
inline uint32_t weight_ring_bytes(const Tiling &t) {
    return t.weight_stages * t.weight_stage_bytes;
}
// Of sums, that a block adds up: those of so many columns of products of its tile, 8 by 8.
__host__ __device__ constexpr int part_eights(int width, int parts) {
    return (width / 8 + parts - 1) / parts;
}
constexpr uint32_t EightBytes = Warpgroups * RowChannels * 8 * 4;
inline uint32_t parts_bytes(const Tiling &t, int width) {
    return t.parts > 1 ? t.parts * part_eights(width, t.parts) * EightBytes : 0;
}
inline uint32_t shared_bytes(const Tiling &t, int width) {
    return LineAlign + pixel_ring_bytes(t) + weight_ring_bytes(t) + Warpgroups * StagedBytes +
           (t.parts_replace ? 0 : parts_bytes(t, width));
}

inline int log2_of(int power) { return power > 1 ? 1 + log2_of(power / 2) : 0; }

// How the warpgroups of a block share a tile, and the blocks of a cluster what they read.
struct Sharing {
    bool apart;
    int pixel_peers, weight_peers, parts;
};
constexpr Sharing Sharings[] = {
    {false, 1, 1, 1}, {false, 2, 1, 1}, {false, 1, 2, 1}, {false, 2, 2, 1}, {false, 1, 1, 2},
    {false, 1, 1, 4}, {false, 1, 1, 8}, {false, 2, 1, 2}, {false, 2, 1, 4}, {true, 1, 1, 1},
    {true, 2, 1, 1},  {true, 1, 2, 1},  {true, 2, 2, 1},  {true, 1, 1, 2},  {true, 1, 1, 4},
    {true, 1, 1, 8},  {true, 2, 1, 2},  {true, 2, 1, 4}};

// A way to do it.
struct Option {
    int width; // pixels of a product
    int grid;
    bool beside; // whether another block has room beside one
    Tiling tiling;
    Lines lines;
};

// What a plan tells of it: how pixels are read, columns of a product, images, rows and columns of a
// tile, and so on.
inline void tell_tiling(cf_plan &plan, const char *reading, int width, int grid, const Tiling &t) {
    tell(plan,
         "%s columns=%d %s tile=%dx%dx%d parts=%d peers=%dx%d grid=%d tiles=%d stages=%d+%d "
         "weights=%s%s",
         reading, width, t.apart ? "apart" : "together", t.images, t.rows, t.columns, t.parts,
         t.pixel_peers, t.weight_peers, grid, t.tiles, t.pixel_stages, t.weight_stages,
         t.reload_weights ? "reloaded" : "kept", t.parts_replace ? " parts=replace" : "");
}

inline int64_t group_channels(const cf_problem &p) { return p.c / p.groups; }
inline int64_t blocks_of(const cf_problem &p) {
    return ceil_div(group_channels(p) * element_bytes(p), LineBytes);
}
// Lines of a tap in the packed filter: output channels of a group, and others of zeros.
inline int64_t filter_lines(const cf_problem &p) { return round_up(p.k / p.groups, RowChannels); }
inline uint64_t packed_bytes(const cf_problem &p) {
    return uint64_t(p.groups) * blocks_of(p) * p.r * p.s * filter_lines(p) * LineBytes;
}

// Half of a tile, so that either warpgroup has time to store. Both hold stages meanwhile: where
// these are few, the lead is.
inline int lead_of(const Tiling &t) {
    int lead = t.blocks / t.parts * t.taps / 2;
    if (t.reload_weights)
        lead = std::min(lead, t.weight_stages - 3);
    if (!t.apart)
        lead = std::min(lead, (t.pixel_stages - 1) * t.tap_rows * t.tap_columns);
    return std::max(lead, 1);
}

// Stages of both rings in what so many bytes of shared memory leave; false where it is too little.
inline bool share_stages(const cf_query &query, int64_t bytes, Option &option) {
    Tiling &t = option.tiling;
    const int64_t room = bytes - StaticShared - LineAlign - Warpgroups * StagedBytes;
    const int64_t pixels = int64_t(t.pixel_stage_bytes) * (t.apart ? Warpgroups : 1);
    const int64_t blocks = ceil_div(t.blocks, t.parts); // of a part
    const int64_t weights = t.weight_stage_bytes, all = blocks * t.taps;
    const int64_t loads = blocks * t.load_rows * t.load_columns;
    // A block keeps its weights where all of its tiles have the same.
    const int peers = cluster_size(t);
    // Blocks of a cluster are neighbours: of more than two, clusters find room on three quarters of
    // the multiprocessors. With one too many a launch takes twice as long.
    const int side_by_side = peers == 1 ? query.device.sm_count
                                        : query.device.sm_count * (peers > 2 ? 3 : 4) / 4 / peers;
    const int clusters = int(std::min<int64_t>(t.tiles, side_by_side));
    // A block with a part of a sum has one tile: barriers of parts have one phase, and parts may
    // take the place of stages.
    if ((t.tiles > 0 && clusters == 0) || (t.parts > 1 && t.tiles > clusters))
        return false;
    const int whole = t.tiles <= clusters ? clusters : clusters - clusters % t.channel_sets;
    option.grid = std::max(clusters, 1) * peers;
    t.reload_weights = 1;
    // No more stages than a block fills once: each takes a while to make.
    const bool single = t.tiles <= clusters;
    const int64_t most_pixels = std::min<int64_t>(single ? loads : MaxPixelStages, MaxPixelStages);
    const int64_t most_weights = std::min<int64_t>(single ? all : MaxWeightStages, MaxWeightStages);
    const auto set = [&](int64_t pixel_stages, int64_t weight_stages) {
        t.pixel_stages = int(std::min(pixel_stages, most_pixels));
        t.weight_stages = int(std::min(weight_stages, most_weights));
        t.lead = lead_of(t);
    };
    const int64_t beside_weights = (room - all * weights) / pixels; // stages of pixels
    t.once = single && peers == t.parts && t.last_steps == Steps && all <= MaxWeightStages &&
             beside_weights >= loads && loads <= MaxPixelStages;
    if (whole > 0 && whole * 20 >= clusters * 19 && all <= MaxWeightStages && t.weight_peers == 1 &&
        beside_weights >= std::min<int64_t>(most_pixels, 2)) {
        option.grid = whole * peers;
        t.reload_weights = 0;
        set(beside_weights, all);
        return true;
    }
    const int64_t taps = t.tap_rows * t.tap_columns;
    const int64_t pixel_stages =
        std::min(most_pixels, taps == 1                          ? room / (pixels + weights)
                              : room - 3 * pixels >= 6 * weights ? 3
                                                                 : std::min<int64_t>(loads, 2));
    set(pixel_stages, pixel_stages > 0 ? (room - pixel_stages * pixels) / weights : 0);
    return t.pixel_stages >= std::min<int64_t>(loads, 2) &&
           t.weight_stages >= std::min<int64_t>(most_weights, 2);
}
// A tile's pixels: columns, rows and images of y, in strips of 8 columns or in rows of a pitch.
struct TilePixels {
    int width, images, rows, columns;
    bool strips;
};

// What options share.
inline bool describe(const cf_problem &p, const Sharing &sharing, int width, int64_t pixel_tiles,
                     Option &option) {
    Tiling &t = option.tiling;
    option.width = width;
    t.blocks = int(blocks_of(p));
    t.last_steps = int(ceil_div(
        group_channels(p) * element_bytes(p) - int64_t(t.blocks - 1) * LineBytes, StepBytes));
    t.taps = p.r * p.s;
    t.apart = sharing.apart;
    t.pixel_peers = sharing.pixel_peers, t.weight_peers = sharing.weight_peers;
    t.parts = sharing.parts;
    t.pixel_shift = log2_of(t.pixel_peers), t.part_shift = log2_of(t.parts);
    t.peer_shift = log2_of(t.pixel_peers * t.weight_peers);
    const int rows = t.apart ? RowChannels : Warpgroups * RowChannels;
    t.group_c = int(group_channels(p)), t.group_k = p.k / p.groups, t.k = p.k;
    t.filter_lines = int(filter_lines(p));
    t.weight_stage_bytes = uint32_t(std::min(rows, t.filter_lines)) * LineBytes;
    t.group_tiles = int(ceil_div(t.group_k, rows));
    t.pixel_tiles = int(pixel_tiles);
    const int64_t channel_tiles = int64_t(t.group_tiles) * p.groups;
    const int64_t units = ceil_div(pixel_tiles, t.apart ? Warpgroups : 1);
    if (t.group_tiles % t.pixel_peers != 0 || (t.weight_peers > 1 && units < t.weight_peers) ||
        t.blocks < t.parts)
        return false;
    t.channel_sets = int(channel_tiles / t.pixel_peers);
    t.tiles = int(ceil_div(units, t.weight_peers) * t.channel_sets);
    t.by_channel_sets = Divisor(t.channel_sets);
    t.by_group_tiles = Divisor(t.group_tiles);
    t.whole = p.k / p.groups * element_bytes(p) % 16 == 0;
    const cf_epilogue &e = p.epilogue;
    t.finishes = e.scale != 1 || e.bias || e.residual || e.activation != CF_ACT_NONE;
    t.activation = e.activation > CF_ACT_RELU6 ? e.activation : CF_ACT_NONE;
    return true;
}
// Bytes from tap to tap that are so many lines apart; a single tap has none behind it, however far
// apart a problem says that they are.
inline int tap_distance(int taps, int64_t lines) { return taps > 1 ? int(lines * LineBytes) : 0; }

inline bool countable(const cf_problem &p, double pixel_tiles) {
    return pixel_tiles * double(ceil_div(p.k, RowChannels) + p.groups) < INT32_MAX / 4;
}

} // namespace cf::implicit_gemm
