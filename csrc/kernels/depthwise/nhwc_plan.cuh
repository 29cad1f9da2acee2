// The planner of depthwise_nhwc: how a problem becomes strips, and what a strip takes.
#pragma once

#include "core/ranking.cuh"
#include "kernels/depthwise/tiling.cuh"

#include <numeric>

namespace cf::depthwise {

// Which channels and columns of y a thread has sums of: two channels, with as many lanes to a
// channel block as the plan says (Pairs); or one channel of f32 and more columns, with 32 lanes
// (Singles). Of large filters that takes fewer registers, and 7 columns are whole tiles of rows of
// 7, 14, 28 and 56.
enum class PerLane { Pairs, Singles };

constexpr int channels_of(PerLane lane) { return lane == PerLane::Singles ? 1 : 2; }
constexpr int columns_of(int r, PerLane lane) { return r == 3 || lane == PerLane::Singles ? 7 : 4; }
constexpr int SingleLanes = 32;
constexpr bool has_singles(int r, int element_bytes) { return r > 3 && element_bytes == 4; }

// Warps of the largest block, and blocks of so many that registers leave room for on a
// multiprocessor.
constexpr int most_warps(int r, PerLane lane) {
    return r == 7 && lane == PerLane::Singles ? 12 : 8;
}
constexpr int blocks_of(int r) { return r == 7 ? 1 : 2; }

// Strips of any number of channels.
struct NhwcTiling : Tiling {
    int channels;   // of a strip
    uint32_t pixel; // bytes from one to the next in a stage
    Divisor by_lanes;
};

// A tiling, what it copies, and what its launch takes.
struct Option {
    NhwcTiling tiling;
    Box box;
    PerLane per_lane;
    int warps, blocks;
    int of_sm; // blocks that a multiprocessor has room for
    size_t shared;
    double us;
};

// Instructions of a warp for a step, about; of large filters those for rows of y that a strip has.
inline double instructions(const cf_problem &p, const Tiling &t, PerLane lane) {
    const int columns = columns_of(p.r, lane), width = (columns - 1) * p.stride_w + p.r;
    const int elements = columns * channels_of(lane);
    const double steps = t.rows + rows_of(p.r, p.stride_h) - 1;
    const double products = double(p.r) * p.s * elements * (p.r > 3 ? t.rows / steps : 1);
    const int widening = p.storage == CF_STORE_F32 ? 1 : 2;
    return products + p.stride_h * width * 1.5 * widening + elements * 6 + 70;
}
// Fitted to 4360 times of plans of 104 sweeps: h200-depthwise-residency.csv and older ones
// (h200-depthwise-plans.csv, h200-plans-by-blocks.csv, h200-depthwise-nhwc-lanes.csv and the sweeps
// of h200-depthwise-large-filters.csv, of which not all times are kept), as far as a multiprocessor
// had room for the planned blocks alone, or for twice as many; those of fast plans most. 8 % off
// (root of the mean square), the plan that it picks 3 % slower than the fastest in the mean and
// 13 % at most, the fastest of seven 0.9 %. Clocks of a warp's step by itself, which waits for its
// loads and products; of an instruction of each of many warps; of an item of the ring beside them;
// of a block and of a byte of its first item, before anything is computed; until a stage is read,
// where many are on their way.
constexpr double StepAlone = 647, ClocksOfMany = 1.017, OfItem = 353, OfBlock = 81,
                 OfByte = 0.00144, InFlight = 3127;
// Bytes on their way to a multiprocessor with which half of the bandwidth is reached, and how much
// of the time that blocks of the last round have no strip the others do not make up for.
constexpr double HalfInFlight = 7950, Unbalanced = 0.334;
// Shares of the memory's bandwidth, and where a pixel's bytes are copied by fewer than 128.
constexpr double StreamShare = 0.835, NarrowShare = 0.842;
// What a launch takes less where the next one's blocks fit beside its own.
constexpr double OverlapUs = 0.574;
// What strips beside each other share is read again; hardly any of it comes from memory.
constexpr double AgainShare = 0.042;

// Memory moves pieces of 64 bytes: one for each channel block that ends within one is moved twice.
constexpr int MemoryPiece = 64;
constexpr double SplitShare = 0.488;

// The bytes of those, of a pixel.
inline double split_bytes(const cf_problem &p, const NhwcTiling &t) {
    const int ends = t.channel_blocks - 1; // within a pixel
    if (int64_t(p.c) * element_bytes(p) % MemoryPiece != 0)
        return double(ends) * MemoryPiece;
    const int whole = MemoryPiece / std::gcd(int(t.pixel), MemoryPiece); // one in so many
    return double(ends - ends / whole) * MemoryPiece;
}

inline double estimate(const cf_query &query, const Option &option) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const NhwcTiling &t = option.tiling;
    const double rows_again = double((t.items - 1) * t.steps - t.rows) * p.stride_h;
    const double bytes =
        moved_bytes(p, t, std::min<double>((t.row_pieces - 1) * rows_again, p.h), AgainShare) *
        (1 + SplitShare * split_bytes(p, t) / (double(p.c) * element_bytes(p)));
    const double rounds = double(ceil_div(t.strips, option.blocks)), items = rounds * t.items;
    const double of_sm = double(ceil_div(option.blocks, d.sm_count));
    const double in_mean = std::min(of_sm, double(option.blocks) / d.sm_count);
    // Strips of the last round leave some blocks without one, or some multiprocessors.
    const double balance =
        rounds > 1 ? rounds * option.blocks / t.strips : of_sm * d.sm_count / option.blocks;
    const double in_flight = in_mean * std::min(t.stages - 1.0, items) * t.box_bytes;
    const bool narrow = t.pixel < 128 && t.channels < p.c;
    const double bandwidth = (narrow ? NarrowShare : StreamShare) * d.bytes_per_us * in_flight /
                             (in_flight + HalfInFlight);
    const double memory = bytes / bandwidth * (1 + (balance - 1) * Unbalanced);
    // While a stage is being read, the others are on their way.
    const double read_us =
        items > t.stages ? clocks_us(d, items / (t.stages - 1.0) * InFlight, FmaClock) : 0;
    const double step = together_us(StepAlone, instructions(p, t, option.per_lane) * option.warps *
                                                   of_sm / 4 * ClocksOfMany);
    const double steps = double(t.items - 1) * t.steps;
    const double first = of_sm * OfBlock + in_mean * t.box_bytes * OfByte;
    const double computing =
        clocks_us(d, rounds * (steps * step + t.items * OfItem) + first, FmaClock);
    const bool overlaps = option.of_sm > of_sm; // blocks of the next launch fit beside these
    return ShortLaunchUs - (overlaps ? OverlapUs : 0) +
           together_us(computing, clocks_us(d, first, FmaClock) + std::max(memory, read_us));
}

// All but what depends on the number of blocks.
inline bool tile(const cf_query &query, PerLane lane, int lanes, const StripSize &size,
                 Option &option) {
    const cf_problem &p = query.problem;
    option = {};
    option.per_lane = lane;
    option.warps = int(ceil_div(size.images * size.tiles * lanes, 32));
    NhwcTiling &t = option.tiling;
    t.channels = lanes * channels_of(lane);
    t.pixel = uint32_t(t.channels * element_bytes(p));
    t.by_lanes = Divisor(lanes);
    const StripShape shape = {columns_of(p.r, lane), t.channels, 1, 128};
    return option.warps <= most_warps(p.r, lane) && tile_strips(p, shape, size, t, option.box);
}

// Calls body with the lanes of a channel block that pairs may have. Channels are whole pieces of 16
// bytes, 32 at least where it has so many (64 bytes of a pixel in f32 were slow): numbers of them
// that make blocks come out even, and others where those are far apart.
template <class Body>
void for_pair_lanes(const cf_problem &p, Body body) {
    constexpr int Least = 32;
    const int piece = 16 / element_bytes(p);
    int before = 0;
    for (int blocks = int(ceil_div(p.c, MaxBox));; ++blocks) {
        const int channels = int(round_up(ceil_div(p.c, blocks), piece));
        if (before && channels < Least)
            return;
        const bool even = channels != before && int64_t(blocks) * channels == p.c;
        if (!before || even || channels * 4 <= before * 3)
            body((before = channels) / 2);
    }
}

inline void rank_options(const cf_query &query, Ranking<Option> &ranking) {
    const cf_problem &p = query.problem;
    // Fewer blocks have more stages each. Where there are as many strips as blocks, room for twice
    // as many lets the next launch's come beside them.
    const auto take = [&](Option option) {
        const int most = blocks_of(p.r) * most_warps(p.r, option.per_lane) / option.warps;
        const int sms = query.device.sm_count, needed = int(ceil_div(option.tiling.strips, sms));
        const bool even = option.tiling.strips % sms == 0;
        for (int blocks = 1; blocks <= most; ++blocks) {
            if (blocks > needed && !(even && blocks == 2 * needed))
                continue;
            option.of_sm = blocks;
            if (!place(query, blocks, option))
                break;
            ranking.meet(option, option.us);
        }
    };
    const auto consider = [&](PerLane lane, int lanes) {
        const auto tiled = [&](const StripSize &size, Option &option) {
            return tile(query, lane, lanes, size, option);
        };
        for_strips<Option>(p, columns_of(p.r, lane), most_warps(p.r, lane) * 32 / lanes, p.n, 32768,
                           tiled, take);
    };
    for_pair_lanes(p, [&](int lanes) { consider(PerLane::Pairs, lanes); });
    if (has_singles(p.r, element_bytes(p)))
        consider(PerLane::Singles, SingleLanes);
}

} // namespace cf::depthwise
