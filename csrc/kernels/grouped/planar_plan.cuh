// The planner of grouped_planar: how a problem becomes strips, and what a strip takes.
#pragma once

#include "kernels/grouped/nhwc_plan.cuh"
#include "kernels/grouped/planar_fragment.cuh"

namespace cf::grouped_planar {

constexpr int Warps = 4; // of a block
constexpr int Loader = Warps - 1;
constexpr int MaxStages = 3; // strips of x that a block has at a time
constexpr int Slots = 2;     // of strips of y that leave
constexpr int MaxChannels = 64;
constexpr int Bulk = 16; // bytes that bulk copies take multiples of

// Blocks that registers leave room for on a multiprocessor, found by compiling: by type, channels
// of a group (4, 8, 16) and tiles of a unit (2, 4, 8).
constexpr int blocks_of(int size, int products, int channels, int tiles) {
    constexpr int Of16Bits[][3] = {{8, 6, 4}, {6, 5, 4}, {5, 3, 0}};
    constexpr int OfTf32[][3] = {{7, 7, 5}, {5, 4, 3}, {3, 2, 0}};
    constexpr int OfFp32[][3] = {{5, 5, 4}, {3, 2, 2}, {0, 0, 0}};
    return (size == 2 ? Of16Bits : products == 1 ? OfTf32 : OfFp32)[channels / 8][tiles / 4];
}

inline int group_channels(const cf_problem &p) { return p.c / p.groups; }

constexpr int most_tiles(int channels) { return channels == 16 ? 4 : 8; }

// Tiles of a unit: a lane's pixels of a row are all there or none, and lie at a multiple of theirs.
inline int tiles_of(const cf_problem &p) {
    int tiles = 2;
    while (tiles < most_tiles(group_channels(p)) && tiles * Columns < p.w && p.w % (2 * tiles) == 0)
        tiles *= 2;
    return tiles;
}

// What a problem's kernel is compiled for: a set has a group's channels, and a unit so many tiles
// of pixels of a row.
inline grouped::Instance instance_of(const cf_problem &p) {
    const int channels = group_channels(p), size = element_bytes(p);
    grouped::Instance instance = {};
    instance.products = p.math == CF_MATH_FP32 ? 3 : 1;
    instance.set_bytes = channels * size;
    instance.tiles = tiles_of(p);
    instance.blocks = blocks_of(size, instance.products, channels, instance.tiles);
    return instance;
}

// A strip is some rows of y, or all, in some groups of an image: x comes to a stage of the ring as
// it lies in the tensor, and y leaves from one of two slots. A unit of a warp is a pair of rows in
// a group and, where rows are long, in a window of them. Offsets in shared memory are bytes.
struct Tiling {
    int c, h, w;
    int channels;              // of a strip
    int rows, in_rows;         // of y in a strip; of x
    int pairs, windows;        // of a group's rows; of a row
    int all_pairs, warp_pairs; // of a strip; of one warp
    int whole;                 // whether a strip has all rows
    int strips, channel_blocks, row_strips, stages;
    int finishes;                    // whether there is an epilogue
    int activation;                  // beyond what cf::Finish does
    uint32_t row_bytes, plane_bytes; // in the tensors
    uint32_t plane, y_pitch;         // from channel to channel of x in a stage; of y
    uint32_t stage_bytes, y_bytes;
    Divisor by_channel_blocks, by_row_strips, by_pairs;
};

// Whether a strip's channels lie behind each other in shared memory as in x.
__host__ __device__ __forceinline__ bool is_one_copy(const Tiling &t) {
    return t.whole && t.plane == t.plane_bytes;
}

struct Option {
    Tiling tiling;
    int blocks; // of the launch
    double us;
};

// How often lanes that read at the same time meet in a bank, of a step's first half.
inline int conflicts(const cf_problem &p, const grouped::Instance &instance, uint32_t row_bytes,
                     uint32_t plane) {
    const int size = element_bytes(p), channels = group_channels(p);
    const int bytes = std::min(instance.tiles * size, 16), lanes = 128 / bytes;
    int met[32] = {}, most = 0;
    for (int lane = 0; lane < lanes; ++lane) {
        const int of_sum = lane % 4 * (4 / size);
        const uint32_t at = of_sum % channels * plane + of_sum / channels * row_bytes +
                            uint32_t(lane / 4 * instance.tiles * size);
        for (int word = 0; word < bytes / 4; ++word)
            most = std::max(most, ++met[(at / 4 + word) % 32]);
    }
    return most;
}

// Room between channels, so that few of them meet; none where a plane is not a multiple of what is
// copied, and a strip's planes come in one copy. False where neither is possible.
inline bool set_plane(const cf_problem &p, const grouped::Instance &instance, Tiling &t) {
    t.row_bytes = uint32_t(p.w * element_bytes(p));
    t.plane_bytes = uint32_t(int64_t(p.h) * p.w * element_bytes(p));
    t.plane = t.plane_bytes;
    if (t.plane_bytes % Bulk)
        return t.whole;
    const uint32_t rows = uint32_t(std::min(t.in_rows, p.h)) * t.row_bytes;
    const uint32_t least = uint32_t(round_up(int64_t(rows) + (t.whole ? 0 : Bulk), Bulk));
    int fewest = INT32_MAX;
    for (uint32_t plane = least; plane <= least + 7 * Bulk; plane += Bulk)
        if (const int met = conflicts(p, instance, t.row_bytes, plane); met < fewest)
            fewest = met, t.plane = plane;
    return true;
}

// Fitted to 151 times of plans on an H200, fast ones most, those of a form before this one by a
// quarter or half (benches/results/evidence/h200-grouped-planar-plans.csv): 11 % off (root of the
// mean square), 8 % where a plan is within 1.35 of the fastest, and the plan that it picks 0.1 %
// slower than the fastest in the mean of eight problems. Clocks of a warp's unit beside its
// tiles, where many warps share a quarter of a multiprocessor and by itself; of a strip beside its
// units, the same; of a copy; of a segment that leaves, where a strip has several; until the first
// strip is there.
constexpr double UnitEach = 29, UnitAlone = 160, StripEach = 82, StripAlone = 1700, CopyAlone = 58,
                 SegmentAlone = 90, FirstStrip = 5000;

// Clocks of a tile: a product takes four or five of a multiprocessor's quarter; what is read,
// rounded, shifted and stored some for each channel.
inline double tile_clocks(const cf_problem &p, const grouped::Instance &instance) {
    const int channels = group_channels(p);
    const int products = channels == 4 ? 2 : channels == 8 ? 6 : 18;
    const bool is_f32 = element_bytes(p) == 4;
    const double of_channel = !is_f32 ? 1.75 : instance.products == 1 ? 2 : 11;
    return 4.4 * products * instance.products * (is_f32 ? 2 : 1) + of_channel * channels;
}

inline double estimate(const cf_query &query, const grouped::Instance &instance,
                       const Option &option) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const Tiling &t = option.tiling;
    // What strips below each other share is read again; a third of it comes from memory.
    const double rows = double(t.row_strips - 1) * (t.in_rows - t.rows) / 3 + p.h;
    const double bytes = double(p.n) * p.c * (rows + p.h) * p.w * element_bytes(p);
    const double tiles = instance.tiles * tile_clocks(p, instance);
    const double units = double(t.warp_pairs) * t.windows;
    const double each = units * (UnitEach + tiles) + StripEach;
    const double alone = units * (UnitAlone + tiles) + StripAlone +
                         (is_one_copy(t) ? 1 : t.channels) * CopyAlone +
                         (t.whole ? 0 : t.channels * SegmentAlone);
    // One block's strips, and those of a multiprocessor.
    const double of_block = double(ceil_div(t.strips, option.blocks));
    const double of_sm = std::max(double(t.strips) / d.sm_count, 1.0);
    const double first = clocks_us(d, FirstStrip, TensorClock);
    const double computing =
        clocks_us(d, together_us(of_block * alone, of_sm * each), TensorClock) + first;
    return ShortLaunchUs + together_us(computing, first + bytes / (0.93 * d.bytes_per_us));
}

inline void set_divisors(Tiling &t) {
    t.by_channel_blocks = Divisor(t.channel_blocks);
    t.by_row_strips = Divisor(t.row_strips);
    t.by_pairs = Divisor(t.pairs);
}

// Where rows are longer than a window, windows share two columns.
inline int windows_of(const cf_problem &p, const grouped::Instance &instance) {
    const int pixels = Columns * instance.tiles, step = (Columns - 2) * instance.tiles;
    return p.w <= pixels ? 1 : int(1 + ceil_div(p.w - pixels, step));
}

// Meets the tiling into strips of so many channels and rows of y with each number of blocks.
inline void tile(const cf_query &query, const grouped::Instance &instance, int channels, int rows,
                 Ranking<Option> &ranking) {
    const cf_problem &p = query.problem;
    // Planes are counted in 32 bits.
    if (int64_t(p.h) * p.w * element_bytes(p) > INT32_MAX)
        return;
    Option option = {};
    Tiling &t = option.tiling;
    t.c = p.c, t.h = p.h, t.w = p.w;
    t.channels = channels, t.rows = rows;
    t.pairs = int(ceil_div(rows, PairRows));
    t.in_rows = t.pairs * PairRows + FilterSide - 1;
    // Too much for shared memory, whatever lies in between.
    const double least = std::min(t.in_rows, p.h) + double(Slots) * rows;
    if (least * channels * p.w * element_bytes(p) > query.device.shared_per_block)
        return;
    t.windows = windows_of(p, instance);
    t.all_pairs = channels / group_channels(p) * t.pairs;
    t.warp_pairs = int(ceil_div(t.all_pairs, Warps));
    t.row_strips = int(ceil_div(p.h, rows));
    t.channel_blocks = int(ceil_div(p.c, channels));
    t.whole = t.row_strips == 1;
    t.finishes = has_epilogue(p), t.activation = late_activation(p);
    if (!set_plane(p, instance, t))
        return;
    const double strips = double(p.n) * t.row_strips * t.channel_blocks;
    const double stage = double(t.plane) * channels;
    const int64_t y_rows = int64_t(rows) * t.row_bytes;
    // As far behind a multiple of 16 bytes as in the tensor.
    const int64_t apart = t.whole ? 0 : ((t.plane_bytes - y_rows) % Bulk + Bulk) % Bulk;
    t.y_pitch = uint32_t(std::min<int64_t>(y_rows + apart, UINT32_MAX));
    const double y_bytes = double(t.y_pitch) * channels + 2 * Bulk;
    if (strips > INT32_MAX / 2 || stage + Slots * y_bytes > query.device.shared_per_block)
        return;
    t.strips = int(strips);
    t.stage_bytes = uint32_t(round_up(int64_t(stage), Bulk));
    t.y_bytes = uint32_t(round_up(int64_t(y_bytes), Bulk));
    set_divisors(t);
    grouped::share_multiprocessors(
        query, instance, instance.blocks, grouped::StaticShared + int64_t(t.y_bytes) * Slots,
        option,
        [&](int blocks) {
            return int(std::clamp<int64_t>(ceil_div(t.strips, blocks), 1, MaxStages));
        },
        [&](const Option &met) { ranking.meet(met, met.us); });
}

inline void rank_options(const cf_query &query, const grouped::Instance &instance,
                         Ranking<Option> &ranking) {
    const cf_problem &p = query.problem;
    const int most = std::max(std::min(p.c, MaxChannels), group_channels(p));
    for (int channels = group_channels(p); channels <= most; channels *= 2)
        for (int pairs = int(ceil_div(p.h, PairRows)), all = pairs; pairs > 0;) {
            tile(query, instance, channels, std::min(pairs * PairRows, p.h), ranking);
            // One more strip than now, or as many as make strips lower.
            pairs = pairs > 1 ? int(ceil_div(all, ceil_div(all, pairs - 1))) : 0;
        }
}

} // namespace cf::grouped_planar
