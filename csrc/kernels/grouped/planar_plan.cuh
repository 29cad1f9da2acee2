// The planner of grouped_planar: how a problem becomes strips, and what a strip takes.
#pragma once

#include "kernels/grouped/nhwc_plan.cuh"
#include "kernels/grouped/planar_fragment.cuh"

namespace cf::grouped_planar {

constexpr int Warps = 4;          // of a block
constexpr int Storer = Warps - 1; // which has no more pairs than any
constexpr int MaxStages = 2;      // strips of x that a block has at a time
constexpr int MaxChannels = 64;
constexpr int Bank = 16, Banks = 8; // bytes that ldmatrix reads of a row; so many at once
constexpr int Slack = 512;          // bytes that tiles of pixels may reach behind the last row

// Blocks that registers leave room for on a multiprocessor: a lane has a group's filter, and what
// it finishes of some tiles.
template <int Channels>
constexpr int blocks_of(int tiles) {
    const int words = Products<Channels>::Fragments * 4 + tiles * Channels;
    return words <= 24 ? 6 : words <= 40 ? 5 : words <= 68 ? 4 : words <= 80 ? 3 : 2;
}

inline int group_channels(const cf_problem &p) { return p.c / p.groups; }

// What a problem's kernel is compiled for: a set has a group's channels, and a unit so many tiles
// of pixels beside each other.
inline grouped::Instance instance_of(const cf_problem &p) {
    const int channels = group_channels(p);
    const int64_t tiles = ceil_div(p.w, TilePixels);
    grouped::Instance instance = {};
    instance.set_bytes = channels * Size;
    instance.tiles = tiles <= 2 ? 2 : tiles <= 4 ? 4 : 7;
    instance.blocks = channels == 4   ? blocks_of<4>(instance.tiles)
                      : channels == 8 ? blocks_of<8>(instance.tiles)
                                      : blocks_of<16>(instance.tiles);
    return instance;
}

// A strip is some rows of y, or all, in some groups of an image: x comes to a stage of the ring as
// rows of channels, each at a multiple of 16 bytes, with zeros above and below the image, and y
// leaves from one place that all strips share. A unit of a warp is a pair of rows in a group and,
// where rows are long, in a window of them. Windows overlap by a tile: what a shift would take
// from outside a window is in the next one. Offsets in shared memory are bytes.
struct Tiling {
    int c, h, w;
    int channels;              // of a strip
    int rows, in_rows;         // of y in a strip; of x
    int pairs, windows;        // of a group's rows; of a row
    int all_pairs, warp_pairs; // of a strip; of one warp
    int whole;                 // whether a strip has all rows
    int vector;                // bytes that a lane copies at once
    int row_lanes;             // lanes that copy a row of x together,
    int at_once;               // and rows that a warp does
    int strips, channel_blocks, row_strips, stages;
    int finishes;                    // whether there is an epilogue
    int activation;                  // beyond what cf::Finish does
    uint32_t row_bytes, plane_bytes; // in the tensors
    uint32_t pitch, plane;           // of x in a stage: from row to row, from channel to channel
    uint32_t y_pitch;                // from channel to channel
    uint32_t stage_bytes, y_bytes;
    Divisor by_channel_blocks, by_row_strips, by_lanes, by_pairs;
};

struct Option {
    Tiling tiling;
    int blocks; // of the launch
    double us;
};

// Bytes that are copied at once: rows begin and end at multiples of them.
inline int vector_of(const cf_problem &p) {
    int vector = 16;
    while ((int64_t(p.w) * Size) % vector || p.align % vector)
        vector /= 2;
    return vector;
}

// How often the eight rows that ldmatrix reads meet in a bank.
inline int conflicts(const cf_problem &p, uint32_t pitch, uint32_t plane) {
    int met[Banks] = {}, most = 0;
    const int channels = group_channels(p);
    for (int i = 0; i < Banks; ++i) {
        const uint32_t at = i % channels * plane + uint32_t(i / channels) * pitch;
        most = std::max(most, ++met[at / Bank % Banks]);
    }
    return most;
}

// Room between rows and between channels, so that few of them meet.
inline void set_pitches(const cf_problem &p, int tiles, Tiling &t) {
    t.row_bytes = uint32_t(p.w * Size);
    t.plane_bytes = uint32_t(int64_t(p.h) * p.w * Size);
    // Behind a row is a zero, where a tile reads it.
    const int zero = p.w == tiles * TilePixels ? 0 : Size;
    const uint32_t least = uint32_t(round_up(t.row_bytes + zero, Bank));
    int fewest = INT32_MAX;
    for (uint32_t pitch = least; pitch <= least + Bank; pitch += Bank)
        for (uint32_t room = 0; room < Banks; ++room) {
            const uint32_t plane = t.in_rows * pitch + room * Bank;
            if (const int met = conflicts(p, pitch, plane); met < fewest)
                fewest = met, t.pitch = pitch, t.plane = plane;
        }
}

// Fitted to 24 times of plans on an H200, fast ones most: 10 % off (root of the mean square), 5 %
// of plans within a tenth of the fastest (benches/results/evidence/h200-grouped-planar-plans.csv).
// Clocks of a warp's unit beside its tiles, where many warps share a quarter of a multiprocessor
// and by itself; of a strip beside its units, the same; of what 32 lanes copy; of a segment that
// leaves, where a strip has several; until the first strip is there.
constexpr double UnitEach = 2, UnitAlone = 440, StripEach = 52, StripAlone = 1530, CopyEach = 16,
                 CopyAlone = 47, SegmentAlone = 156, FirstStrip = 4050;

// Clocks of a tile: a product takes six of a multiprocessor's quarter; what is read, shifted and
// stored some for each channel.
inline double tile_clocks(const cf_problem &p) {
    const int channels = group_channels(p);
    const int products = channels == 4 ? 2 : channels == 8 ? 6 : 18;
    return 6 * products + 1.6 * channels + 4;
}

inline double estimate(const cf_query &query, const grouped::Instance &instance,
                       const Option &option) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const Tiling &t = option.tiling;
    // What strips below each other share is read again; a third of it comes from memory.
    const double rows = double(t.row_strips - 1) * (t.in_rows - t.rows) / 3 + p.h;
    const double bytes = double(p.n) * p.c * (rows + p.h) * p.w * Size;
    const double tiles = instance.tiles * tile_clocks(p);
    const double units = double(t.warp_pairs) * t.windows;
    const double of_row = double(ceil_div(p.w * Size / t.vector, t.row_lanes));
    const double copies =
        double(ceil_div(t.channels, Warps) * ceil_div(t.in_rows, t.at_once)) * of_row;
    const double each = units * (UnitEach + tiles) + copies * CopyEach + StripEach;
    const double alone = units * (UnitAlone + tiles) + copies * CopyAlone + StripAlone +
                         (t.whole ? 0 : t.channels * SegmentAlone);
    // One block's strips, and those of a multiprocessor.
    const double of_block = double(ceil_div(t.strips, option.blocks));
    const double of_sm = std::max(double(t.strips) / d.sm_count, 1.0);
    const double first = clocks_us(d, FirstStrip, TensorClock);
    const double computing =
        clocks_us(d, together_us(of_block * alone, of_sm * each), TensorClock) + first;
    return ShortLaunchUs + together_us(computing, first + bytes / (0.87 * d.bytes_per_us));
}

inline void set_divisors(Tiling &t) {
    t.by_channel_blocks = Divisor(t.channel_blocks);
    t.by_row_strips = Divisor(t.row_strips);
    t.by_lanes = Divisor(t.row_lanes);
    t.by_pairs = Divisor(t.pairs);
}

// Where rows are longer than a window, each has a tile that is the next one's too.
inline int windows_of(const cf_problem &p, const grouped::Instance &instance) {
    const int64_t tiles = ceil_div(p.w, TilePixels);
    return tiles <= instance.tiles ? 1
                                   : int(1 + ceil_div(tiles - instance.tiles, instance.tiles - 1));
}

// Meets the tiling into strips of so many channels and rows of y with each number of blocks.
inline void tile(const cf_query &query, const grouped::Instance &instance, int channels, int rows,
                 Ranking<Option> &ranking) {
    const cf_problem &p = query.problem;
    // Planes are counted in 32 bits.
    if (int64_t(p.h) * p.w * Size > INT32_MAX)
        return;
    Option option = {};
    Tiling &t = option.tiling;
    t.c = p.c, t.h = p.h, t.w = p.w;
    t.channels = channels, t.rows = rows;
    t.pairs = int(ceil_div(rows, PairRows));
    t.in_rows = t.pairs * PairRows + FilterSide - 1;
    t.windows = windows_of(p, instance);
    t.all_pairs = channels / group_channels(p) * t.pairs;
    t.warp_pairs = int(ceil_div(t.all_pairs, Warps));
    t.row_strips = int(ceil_div(p.h, rows));
    t.channel_blocks = int(ceil_div(p.c, channels));
    t.whole = t.row_strips == 1;
    t.vector = vector_of(p);
    t.row_lanes = std::min(p.w * Size / t.vector, 32);
    t.at_once = 32 / t.row_lanes;
    t.finishes = has_epilogue(p), t.activation = late_activation(p);
    set_pitches(p, instance.tiles, t);
    const double strips = double(p.n) * t.row_strips * t.channel_blocks;
    const double stage = double(t.plane) * channels + Slack;
    const int64_t y_rows = int64_t(rows) * t.row_bytes;
    // As far behind a multiple of 16 bytes as in the tensor.
    const int64_t apart = t.whole ? 0 : ((t.plane_bytes - y_rows) % Bank + Bank) % Bank;
    const double y_bytes = double(y_rows + apart) * channels + 2 * Bank;
    if (strips > INT32_MAX / 2 || stage + y_bytes > query.device.shared_per_block)
        return;
    t.strips = int(strips);
    t.y_pitch = uint32_t(y_rows + apart);
    t.stage_bytes = uint32_t(round_up(int64_t(stage), Bank));
    t.y_bytes = uint32_t(round_up(int64_t(y_bytes), Bank));
    set_divisors(t);
    grouped::share_multiprocessors(
        query, instance, instance.blocks, grouped::StaticShared + int64_t(t.y_bytes), option,
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
