// The planner of implicit_gemm_nhwc: how a problem becomes tiles, and what a tile takes.
#pragma once

#include "core/divisor.cuh"
#include "core/estimate.cuh"
#include "core/line_map.cuh"

#include <algorithm>
#include <cmath>

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

// Pixels of a product that kernels are compiled for.
constexpr int Widths[] = {16,  32,  48,  64,  80,  96,  112, 128, 144, 160,
                          176, 192, 200, 208, 216, 224, 232, 240, 248, 256};

constexpr int Narrow = 160; // those up to here are compiled apart from wider ones

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
    int parts_replace; // whether parts of sums come to the place of stages
    int turns;         // 0 where the block keeps its weights
    int once;          // whether it has one tile, and all that this reads is there at once
    int lead;          // taps that the first warpgroup is ahead of the second one
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
    double us;
};

// Pixels of x and y as boxes see them: of 1x1 filters only what they read, one row where nothing is
// between rows.
struct View {
    bool boxes; // whether there are any
    int64_t n;
    int p, q;
    uint64_t tensor[4], pitch[3]; // channels, columns, images, rows
    int r, s, dilation_h, dilation_w;
    int pad_top, pad_left;
    int over; // columns behind x that taps reach; negative where they do not reach all of x
};

inline int element_size(const cf_problem &p) { return p.storage == CF_STORE_F32 ? 4 : 2; }

inline View view_of(const cf_problem &p) {
    View v = {};
    const uint64_t pixel = uint64_t(p.c) * element_size(p), row = pixel * p.w, image = row * p.h;
    const int64_t n = std::max<int64_t>(p.n, 1); // a batch may be empty, a tensor not
    v.n = p.n, v.p = p.p, v.q = p.q;
    v.r = p.r, v.s = p.s, v.dilation_h = p.dilation_h, v.dilation_w = p.dilation_w;
    v.pad_top = p.pad_top, v.pad_left = p.pad_left;
    v.tensor[0] = p.c;
    const bool inside = p.r == 1 && p.s == 1 && p.pad_top == 0 && p.pad_left == 0 &&
                        int64_t(p.p - 1) * p.stride_h < p.h && int64_t(p.q - 1) * p.stride_w < p.w;
    const bool dense = p.stride_h == 1 && p.stride_w == 1;
    if (inside && dense && p.p == p.h && p.q == p.w && n * p.h * p.w <= INT32_MAX / 2) {
        const int64_t all = n * p.h * p.w;
        v.n = p.n > 0, v.p = 1, v.q = int(all);
        v.tensor[1] = all, v.tensor[2] = v.tensor[3] = 1;
        v.pitch[0] = pixel, v.pitch[1] = v.pitch[2] = pixel * all;
        v.boxes = true;
    } else if (inside || dense) {
        v.tensor[1] = inside ? p.q : p.w, v.tensor[2] = n, v.tensor[3] = inside ? p.p : p.h;
        v.pitch[0] = pixel * (inside ? p.stride_w : 1), v.pitch[1] = image;
        v.pitch[2] = row * (inside ? p.stride_h : 1);
        v.boxes = true;
    }
    v.over = v.q + (v.s - 1) * v.dilation_w - v.pad_left - int(v.tensor[1]);
    return v;
}

inline int64_t group_channels(const cf_problem &p) { return p.c / p.groups; }
inline int64_t blocks_of(const cf_problem &p) {
    return ceil_div(group_channels(p) * element_size(p), LineBytes);
}
// Lines of a tap in the packed filter: output channels of a group, and others of zeros.
inline int64_t filter_lines(const cf_problem &p) { return round_up(p.k / p.groups, RowChannels); }
inline uint64_t packed_bytes(const cf_problem &p) {
    return uint64_t(p.groups) * blocks_of(p) * p.r * p.s * filter_lines(p) * LineBytes;
}

// What two and more that go on beside each other take, each by itself so long.
inline double together_us(double a, double b) {
    return std::pow(std::pow(a, 5) + std::pow(b, 5), 0.2);
}

// Clocks: until the first pixels are there, and the last ones of y stored; of a copy, and of a
// block's only round of a ring where some items are left for another; of a copy's round by one
// warp, and by a lane beside others; of a tap at least, and of one of those that are there at once;
// of staging and storing a piece. Bytes that come from L2 in a clock, and that shared memory's port
// moves. What products take more than their count, and what of storing others do not hide.
constexpr double Fill = 550, Latency = 1100, Refill = 3300, PixelRound = 390, WeightRound = 240,
                 AtOnce = 450, OfTile = 300, OfPiece = 300, TapRound = 490, TapOfOnce = 400;
constexpr double FillBytes = 30, PortBytes = 128;
constexpr double ProductShare = 1.08, StoreShare = 0.4, ClusterShare = 0.4;
// The same where a block keeps its weights, so that warpgroups come to store together (the tiles
// that 1x1 layers of ResNet-50 and 64 channels of VGG-16 have).
constexpr double KeptShare = 1.6;
// Where parts of a sum meet, and of each column; where they wait for the place of stages.
constexpr double Meet = 1400, MeetColumn = 19, Ready = 1000;
// Of a launch, in microseconds: of blocks that have a multiprocessor to themselves, so that none is
// there before the last one of the launch ahead has gone, and of others. With what is of clocks
// above fitted to the layers of one image, all configurations, and of ResNet-50 (f16 and TF32).
constexpr double AloneUs = 1.15, BesideUs = 0.2;

// By `as_compared` tilings are compared, in which a block that keeps its weights hides what it
// stores: so the ones are chosen that were measured. What they take of that is told of the one that
// was chosen.
inline double estimate(const cf_query &query, const Option &option, bool as_compared = true) {
    const cf_problem &p = query.problem;
    const Tiling &t = option.tiling;
    const double blocks = double(ceil_div(t.blocks, t.parts)), taps = t.taps;
    const double loads = blocks * t.load_rows * t.load_columns;
    const double of_last = t.parts == 1 ? t.last_steps : Steps;
    const double steps = Warpgroups * taps * ((blocks - 1) * Steps + of_last);
    const int peers = cluster_size(t);
    const double rounds = double(ceil_div(t.tiles, option.grid / peers));
    const double weights = blocks * taps / (t.turns ? 1 : std::max(rounds, 1.0));
    const double pixel_bytes = loads * t.pixel_bytes * (t.apart ? Warpgroups : 1);
    const double weight_bytes = weights * t.weight_stage_bytes;
    const double filled = (pixel_bytes / t.pixel_peers + weight_bytes / t.weight_peers) / FillBytes;
    const double port =
        steps * (16 + option.width / 4.0) + (pixel_bytes + weight_bytes) / PortBytes;
    const double tap_round = t.once && blocks_beside(option.width) > 1 ? TapOfOnce : TapRound;
    const double products = std::max(ProductShare * std::max(steps * option.width / 2.0, port),
                                     blocks * taps * tap_round);
    // The first ones are asked for at once; a stage that was handed back comes some time later.
    const auto ask = [&](double count, double clocks, int stages, int warps) {
        const double first = std::min(count, stages / std::max(rounds, 1.0));
        const double others = std::max(clocks / warps, Latency / std::max(stages - 1, 1));
        return first * AtOnce / warps + (count - first) * others +
               (count > first && rounds <= 1 ? Refill : 0);
    };
    const double issue = std::max(ask(loads, PixelRound, t.pixel_stages, t.apart ? 1 : 2),
                                  ask(weights, WeightRound, t.weight_stages, 2));
    const double main = together_us(products, together_us(filled, issue)) *
                        (1 + ClusterShare * (t.pixel_peers * t.weight_peers - 1));
    const double meet =
        t.parts > 1 ? Meet + MeetColumn * option.width + (t.parts_replace ? Ready : 0) : 0;
    const double store =
        OfTile + OfPiece * option.width * RowChannels * element_size(p) / StagedBytes;
    // A warpgroup's lead is what the other one has to multiply while it stores.
    const double bare = std::max(store - t.lead * main / (blocks * taps), 0.0);
    const double kept =
        as_compared || rounds <= 1 ? together_us(main, main / 2 + store) : main + KeptShare * store;
    const double tile = t.turns ? main + StoreShare * store + 2 * bare : kept;
    // Between the pixels that 1x1 filters read, memory is left alone.
    const double read =
        p.r * p.s == 1 ? std::min(double(p.h) * p.w, double(p.p) * p.q) : double(p.h) * p.w;
    const double memory = element_size(p) * (double(p.n) * p.c * read +
                                             pixels(p) * p.k * (p.epilogue.residual ? 2 : 1)) +
                          double(packed_bytes(p));
    const double clocks = rounds * tile + Fill + meet + store / t.parts;
    return ShortLaunchUs + (option.beside ? BesideUs : AloneUs) +
           together_us(clocks_us(query.device, clocks, TensorClock),
                       memory / (0.85 * query.device.bytes_per_us));
}

// Half of a tile, so that either warpgroup has time to store. Both hold stages meanwhile: where
// these are few, the lead is.
inline int lead_of(const Tiling &t) {
    int lead = t.blocks / t.parts * t.taps / 2;
    if (t.turns)
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
    // Blocks of a cluster are neighbours: fewer clusters run side by side than there are
    // multiprocessors for. With one too many a launch takes twice as long.
    const int side_by_side = peers == 1 ? query.device.sm_count
                                        : query.device.sm_count * (peers > 2 ? 3 : 4) / 4 / peers;
    const int clusters = int(std::min<int64_t>(t.tiles, side_by_side));
    // Parts meet where stages were: nothing may follow.
    if ((t.tiles > 0 && clusters == 0) || (t.parts > 1 && t.tiles > clusters))
        return false;
    const int whole = t.tiles <= clusters ? clusters : clusters - clusters % t.channel_sets;
    option.grid = std::max(clusters, 1) * peers;
    t.turns = 1;
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
        t.turns = 0;
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

// Parts of sums have a place of their own, or that of the stages.
inline bool share_memory(const cf_query &query, int64_t bytes, Option &option) {
    Tiling &t = option.tiling;
    if (!share_stages(query, bytes, option))
        return false;
    t.by_clusters = Divisor(option.grid / cluster_size(t));
    t.parts_replace = 0;
    t.parts_replace = shared_bytes(t, option.width) + StaticShared > bytes;
    return !t.parts_replace ||
           parts_bytes(t, option.width) <= pixel_ring_bytes(t) + weight_ring_bytes(t);
}
// Half of it, where another launch's block may begin beside this one, which has one tile, and that
// is enough, for a place of parts of sums, too.
inline bool share_memory(const cf_query &query, Option &option) {
    Tiling &t = option.tiling;
    t.near = (double(t.images) * t.p + t.rows) * t.q * t.k < INT32_MAX / 2;
    option.beside = blocks_beside(option.width) > 1 &&
                    share_memory(query, query.device.shared_per_sm / 2 - ReservedShared, option) &&
                    t.tiles <= option.grid / cluster_size(t) && !t.parts_replace;
    return option.beside || share_memory(query, query.device.shared_per_block, option);
}

// A tile's pixels: columns, rows and images of y, in strips of 8 columns or in rows of a pitch.
struct Cut {
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
        group_channels(p) * element_size(p) - int64_t(t.blocks - 1) * LineBytes, StepBytes));
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
    t.whole = p.k / p.groups * element_size(p) % 16 == 0;
    const cf_epilogue &e = p.epilogue;
    t.finishes = e.scale != 1 || e.bias || e.residual || e.activation != CF_ACT_NONE;
    t.activation = e.activation > CF_ACT_RELU6 ? e.activation : CF_ACT_NONE;
    return true;
}
inline bool countable(const cf_problem &p, double pixel_tiles) {
    return pixel_tiles * double(ceil_div(p.k, RowChannels) + p.groups) < INT32_MAX / 4;
}

// Boxes of x, each for all taps.
inline bool tile_boxes(const cf_query &query, const View &v, const Cut &cut, const Sharing &sharing,
                       Option &option) {
    const cf_problem &p = query.problem;
    option = {};
    const int64_t reach = int64_t(v.s - 1) * v.dilation_w;
    const bool whole = cut.columns == v.q && !cut.strips;
    // Zeros in front of a row are those behind the one before, too.
    const int64_t plain = cut.columns + reach;
    const int64_t folded = int64_t(v.tensor[1]) + std::max({v.pad_left, v.over, 0});
    const int64_t pitch = whole && folded >= v.q ? std::min(folded, plain) : plain;
    const int64_t height = cut.rows + int64_t(v.r - 1) * v.dilation_h;
    const int64_t used = cut.strips ? int64_t(cut.rows) * cut.images * 8
                                    : (int64_t(cut.rows) * cut.images - 1) * pitch + cut.columns;
    if (pitch > MaxBox || height > MaxBox || cut.images > MaxBox || used > cut.width)
        return false;
    const double pieces = double(ceil_div(v.q, cut.columns)) * double(ceil_div(v.p, cut.rows)) *
                          double(ceil_div(v.n, cut.images));
    if (!countable(p, pieces))
        return false;
    if (!describe(p, sharing, cut.width, int64_t(pieces), option))
        return false;
    Tiling &t = option.tiling;
    t.load_rows = t.load_columns = 1;
    t.tap_rows = v.r, t.tap_columns = v.s;
    t.tap_row_bytes = int(v.dilation_h * cut.images * pitch) * LineBytes;
    t.tap_bytes = v.dilation_w * LineBytes;
    t.group_bytes = int(cut.strips ? pitch : 8) * LineBytes;
    t.column_pieces = int(ceil_div(v.q, cut.columns));
    t.row_pieces = int(ceil_div(v.p, cut.rows));
    t.n = int(v.n), t.p = v.p, t.q = v.q;
    t.images = cut.images, t.rows = cut.rows, t.columns = cut.columns;
    t.pitch = int(cut.strips ? 8 : pitch);
    t.pad_top = v.pad_top, t.pad_left = v.pad_left;
    t.by_column_pieces = Divisor(t.column_pieces), t.by_row_pieces = Divisor(t.row_pieces);
    t.by_pitch = Divisor(t.pitch), t.by_images = Divisor(t.images);
    t.p_real = v.p, t.q_real = v.q;
    const int64_t box = pitch * cut.images * height;
    t.pixel_bytes = uint32_t(box * LineBytes);
    t.zero_bytes = uint32_t(plain - pitch) * LineBytes;
    t.pixel_stage_bytes = uint32_t(round_up(int64_t(t.pixel_bytes) + t.zero_bytes, LineAlign));
    option.lines.element = element_size(p);
    std::copy(v.tensor, v.tensor + 4, option.lines.tensor);
    std::copy(v.pitch, v.pitch + 3, option.lines.pitch);
    option.lines.box[0] = uint32_t(pitch), option.lines.box[1] = uint32_t(cut.images);
    option.lines.box[2] = uint32_t(height);
    if (!share_memory(query, option))
        return false;
    // Columns of products that are no pixels read on behind the last stage, whatever is there.
    const int64_t groups = cut.width / 8 - 1;
    const int64_t last = groups * t.group_bytes / LineBytes + 8 +
                         int64_t(v.r - 1) * t.tap_row_bytes / LineBytes + reach;
    if (last * LineBytes >
        int64_t(t.pixel_stage_bytes) + weight_ring_bytes(t) + Warpgroups * StagedBytes)
        return false;
    option.us = estimate(query, option);
    return true;
}

// Lines of neighbouring pixels of y, each for one tap.
inline bool tile_im2col(const cf_query &query, int width, const Sharing &sharing, Option &option) {
    const cf_problem &p = query.problem;
    option = {};
    const double all = double(p.n) * p.p * p.q;
    const int64_t lower[2] = {-p.pad_left, -p.pad_top};
    const int64_t upper[2] = {int64_t(p.q - 1) * p.stride_w + 1 - p.w - p.pad_left,
                              int64_t(p.p - 1) * p.stride_h + 1 - p.h - p.pad_top};
    const auto corner = [](const int64_t(&c)[2]) {
        return std::min(c[0], c[1]) >= -128 && std::max(c[0], c[1]) <= 127;
    };
    if (all > INT32_MAX / 2 || !countable(p, all / width + 2) || !corner(lower) || !corner(upper) ||
        p.stride_h > 8 || p.stride_w > 8 || int64_t(p.r - 1) * p.dilation_h > 255 ||
        int64_t(p.s - 1) * p.dilation_w > 255)
        return false;
    if (!describe(p, sharing, width, ceil_div(int64_t(all), width), option))
        return false;
    Tiling &t = option.tiling;
    t.im2col = 1;
    t.load_rows = p.r, t.load_columns = p.s;
    t.row_offset = p.dilation_h, t.column_offset = p.dilation_w;
    t.tap_rows = t.tap_columns = 1;
    t.group_bytes = LineAlign;
    t.column_pieces = t.pixel_tiles, t.row_pieces = 1;
    t.n = p.n > 0, t.p = 1, t.q = int(all);
    t.images = t.rows = 1, t.columns = t.pitch = width;
    t.stride_h = p.stride_h, t.stride_w = p.stride_w;
    t.pad_top = p.pad_top, t.pad_left = p.pad_left;
    t.by_column_pieces = Divisor(std::max(t.column_pieces, 1)), t.by_row_pieces = Divisor(1);
    t.by_pitch = Divisor(t.pitch), t.by_images = Divisor(1);
    t.p_real = p.p, t.q_real = p.q;
    t.by_p_real = Divisor(p.p), t.by_q_real = Divisor(p.q);
    t.pixel_bytes = uint32_t(width) * LineBytes;
    t.pixel_stage_bytes = uint32_t(round_up(t.pixel_bytes, LineAlign));
    const uint64_t pixel = uint64_t(p.c) * element_size(p);
    option.lines = {
        element_size(p),
        {uint64_t(p.c), uint64_t(p.w), uint64_t(p.h), uint64_t(std::max<int64_t>(p.n, 1))},
        {pixel, pixel * p.w, pixel * p.w * p.h},
        {},
        true,
        uint32_t(width),
        {int32_t(lower[0]), int32_t(lower[1])},
        {int32_t(upper[0]), int32_t(upper[1])},
        {uint32_t(p.stride_w), uint32_t(p.stride_h)}};
    if (!share_memory(query, option))
        return false;
    option.us = estimate(query, option);
    return true;
}

// Calls body(option) for each way to do a problem.
template <class Body>
void for_options(const cf_query &query, Body body) {
    const View v = view_of(query.problem);
    Option option;
    const auto consider = [&](const Cut &cut) {
        for (const Sharing &sharing : Sharings)
            if (tile_boxes(query, v, cut, sharing, option))
                body(option);
    };
    // As many rows, and images of all their rows, as a product has columns for.
    const auto with_columns = [&](int width, int columns, bool strips) {
        const int64_t pitch =
            strips ? 8
                   : std::min<int64_t>(
                         columns + int64_t(v.s - 1) * v.dilation_w,
                         std::max<int64_t>(int64_t(v.tensor[1]) + std::max({v.pad_left, v.over, 0}),
                                           columns));
        const int most = int(std::min<int64_t>((width + pitch - columns) / pitch, MaxBox));
        if (most < 1)
            return;
        const int pieces = int(ceil_div(v.p, std::min(most, v.p)));
        consider({width, 1, int(ceil_div(v.p, pieces)), columns, strips});
        if (most >= 2 * v.p && v.n > 1)
            consider({width, int(std::min<int64_t>(most / v.p, v.n)), v.p, columns, strips});
    };
    for (const int width : Widths) {
        if (v.boxes) {
            if (v.q > 8)
                with_columns(width, 8, true);
            if (v.p == 1 && v.n <= 1)
                with_columns(width, std::min(width, v.q), false);
            else
                for (int pieces = 1, last = 0; pieces <= v.q; ++pieces) {
                    const int columns = int(ceil_div(v.q, pieces));
                    if (columns <= width && columns != last)
                        with_columns(width, last = columns, false);
                    if (columns * 4 < width)
                        break;
                }
        }
        // The same of pixels that are one row.
        if (v.boxes && v.p == 1 && v.r * v.s == 1)
            continue;
        for (const Sharing &sharing : Sharings)
            if (tile_im2col(query, width, sharing, option))
                body(option);
    }
}

} // namespace cf::implicit_gemm
