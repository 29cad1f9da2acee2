// The planner of depthwise_nhwc: how a problem becomes strips, and what a strip takes.
#pragma once

#include "core/ranking_of_kinds.cuh"
#include "kernels/depthwise/tiling.cuh"

#include <cmath>
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

// Warps that the plan has on a multiprocessor, as registers leave room for them; all may be of one
// block. 18 of 3x3 are 8 column tiles of 72 lanes: rows of 56 columns and 144 channels.
constexpr int most_warps(int r, PerLane lane) {
    return r == 3 ? 18 : r == 5 ? 16 : lane == PerLane::Singles ? 12 : 8;
}

// Strips of any number of channels.
struct NhwcTiling : Tiling {
    int channels;    // of a strip
    int log_group;   // of pixels that are copied as one
    uint32_t pixel;  // bytes from one to the next in a stage
    uint32_t before; // bytes of a stage's rows in front of the first window
    Divisor by_lanes;
};

// A tiling, what it copies, and what its launch takes.
struct Option {
    NhwcTiling tiling;
    Box box;
    PerLane per_lane;
    int warps, blocks;
    int of_sm;       // blocks that a multiprocessor has room for
    bool persistent; // or each strip has a block of its own
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
// Fitted by scripts/fit_strips.py to 2417 plans of 44 problems (h200-depthwise-forms.csv, of
// h200-depthwise-residency.csv those of calls in which a multiprocessor had room for the planned
// blocks alone, or for twice as many, h200-ordered-blocks.csv and h200-depthwise-nhwc-groups.csv);
// fast plans most. Of these 9 % off (root of the mean square), the plan that it picks 2.9 % slower
// than the fastest in the mean and 14.7 % at most. Clocks of a warp's step by itself, which waits
// for its loads and products; of an instruction of each of many warps; of an item of the ring
// beside them; of a block, before anything is computed; until a stage is read, where many are on
// their way.
constexpr double StepAlone = 502.3, ClocksOfMany = 0.8277, OfItem = 509.7, OfBlock = 59.77,
                 InFlight = 3916;
// Bytes on their way to a multiprocessor with which half of the bandwidth is reached, and how much
// of the time that blocks of the last round have no strip the others do not make up for.
constexpr double HalfInFlight = 1.011e+04 + 04, Unbalanced = 0.3688;
// The share of the memory's bandwidth.
constexpr double StreamShare = 0.8047;
// What a launch takes less where the next one's blocks fit beside its own.
constexpr double OverlapUs = 0.8351;
// What strips beside each other share is read again; hardly any of it comes from memory.
constexpr double AgainShare = 0.09108;
// The same shares where each strip has a block of its own, and that of lines; how much bandwidth is
// lost where strips in work cover as much memory as the second-level cache has; how much of a round
// the last strips take longer, at most; and what the launch takes beside all that. Stages count for
// nothing: with several blocks enough is on its way.
constexpr double OrderedShare = 1.033, OrderedAgain = 0.3254, OrderedLines = 0.09382,
                 FrontShare = 0.3098, LastRound = 0.3899, OrderedUs = 1.673;

// Memory moves pieces of 64 bytes: one for each channel block that ends within one is moved twice.
// Lines of 128 bytes that a block does not have as a whole cost something, too.
constexpr int MemoryPiece = 64, Line = 128;
constexpr int GroupWord = 8; // bytes of an element of a box of groups
constexpr double LineShare = 0.1254;

// The bytes of those, of a pixel.
inline double split_bytes(const cf_problem &p, const NhwcTiling &t) {
    const int ends = t.channel_blocks - 1; // within a pixel
    if (int64_t(p.c) * element_bytes(p) % MemoryPiece != 0)
        return double(ends) * MemoryPiece;
    const int whole = MemoryPiece / std::gcd(int(t.pixel), MemoryPiece); // one in so many
    return double(ends - ends / whole) * MemoryPiece;
}

// The lines that a pixel's channels of a block touch, over those that their bytes would fill.
inline double lines_touched(const cf_problem &p, const NhwcTiling &t) {
    if (t.channels >= p.c)
        return 1;
    const int begins = std::gcd(std::gcd(int(t.pixel), p.c * element_bytes(p)), Line);
    return double(t.pixel - begins + Line) / t.pixel;
}

// Rows of x that strips below each other read again, of an image.
inline double rows_again(const cf_problem &p, const NhwcTiling &t) {
    const double of_strip = double((t.items - 1) * t.steps - t.rows) * p.stride_h;
    return std::min<double>((t.row_pieces - 1) * of_strip, p.h);
}

// What the memory moves, or moves as slowly as if it did.
inline double bytes_of(const cf_problem &p, const NhwcTiling &t, double again_share,
                       double line_share) {
    return moved_bytes(p, t, rows_again(p, t), again_share) *
           (1 + split_bytes(p, t) / (double(p.c) * element_bytes(p)) +
            line_share * (lines_touched(p, t) - 1));
}

inline double step_clocks(const cf_problem &p, const Option &option, double of_sm) {
    return together_us(StepAlone, instructions(p, option.tiling, option.per_lane) * option.warps *
                                      of_sm / 4 * ClocksOfMany);
}

// With so many bytes on their way to a multiprocessor.
inline double bandwidth(const cf_device &d, double share, double in_flight) {
    return share * d.bytes_per_us * in_flight / (in_flight + HalfInFlight);
}

// Of blocks that all run at a time, and take one strip after the other.
inline double persistent_us(const cf_query &query, const Option &option) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const NhwcTiling &t = option.tiling;
    const double rounds = double(ceil_div(t.strips, option.blocks)), items = rounds * t.items;
    const double of_sm = double(ceil_div(option.blocks, d.sm_count));
    const double in_mean = std::min(of_sm, double(option.blocks) / d.sm_count);
    // Strips of the last round leave some blocks without one, or some multiprocessors, and those at
    // the end have fewer images, or rows.
    const double whole = double(t.row_pieces) * t.rows / p.p * padded(double(p.n), t.images) /
                         std::max<double>(double(p.n), 1);
    const double balance = whole * (rounds > 1 ? rounds * option.blocks / t.strips
                                               : of_sm * d.sm_count / option.blocks);
    const double in_flight = in_mean * std::min(t.stages - 1.0, items) * t.box_bytes;
    const double memory = bytes_of(p, t, AgainShare, LineShare) /
                          bandwidth(d, StreamShare, in_flight) * (1 + (balance - 1) * Unbalanced);
    // While a stage is being read, the others are on their way.
    const double read_us =
        items > t.stages ? clocks_us(d, items / (t.stages - 1.0) * InFlight, FmaClock) : 0;
    const double steps = double(t.items - 1) * t.steps;
    const double first = of_sm * OfBlock;
    const double computing = clocks_us(
        d, rounds * (steps * step_clocks(p, option, of_sm) + t.items * OfItem) + first, FmaClock);
    // Blocks of the next launch fit beside these, or where there are none.
    const bool overlaps = 2 * int64_t(option.blocks) <= int64_t(option.of_sm) * d.sm_count;
    return ShortLaunchUs - (overlaps ? OverlapUs : 0) +
           together_us(computing, clocks_us(d, first, FmaClock) + std::max(memory, read_us));
}

// Of a block for each strip, of which more come as others end: in the order of memory, and fewer to
// multiprocessors that are slower. Where what is in work lies close together, memory is faster.
inline double ordered_us(const cf_query &query, const Option &option) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const NhwcTiling &t = option.tiling;
    const double of_sm = option.of_sm, at_once = of_sm * d.sm_count;
    const double rounds = std::min(std::ceil(t.strips / at_once), t.strips / at_once + LastRound);
    const double strip_bytes = double(t.items - 1) * t.box_bytes;
    const double share = OrderedShare / (1 + FrontShare * at_once * strip_bytes / d.l2_bytes);
    const double memory = bytes_of(p, t, OrderedAgain, OrderedLines) / (share * d.bytes_per_us);
    const double steps = double(t.items - 1) * t.steps;
    const double strip = steps * step_clocks(p, option, of_sm) + t.items * OfItem;
    return ShortLaunchUs + OrderedUs + together_us(clocks_us(d, rounds * strip, FmaClock), memory);
}

inline double estimate(const cf_query &query, const Option &option) {
    return option.persistent ? persistent_us(query, option) : ordered_us(query, option);
}

// Bytes of so many pixels side by side, as a power of two.
inline int64_t group_bytes(const cf_problem &p, int log_group) {
    return int64_t(p.c) * element_bytes(p) << log_group;
}
// How many of them are copied as one where a block has all channels: until they are whole lines, as
// far as rows of x are multiples of so many, and a side of a box has room for their words. Pixels
// that are no whole lines are copied slower one by one (h200-depthwise-nhwc-groups.csv).
inline int most_log_group(const cf_problem &p) {
    constexpr int Most = 3;
    int log_group = 0;
    while (log_group < Most && group_bytes(p, log_group) % Line != 0 &&
           p.w % (2 << log_group) == 0 && group_bytes(p, log_group + 1) <= MaxBox * GroupWord)
        ++log_group;
    return log_group;
}
// The same of strips of so many columns of y: all have as many columns of x in front of the first
// window.
inline int log_group_of(const cf_problem &p, int64_t columns) {
    int log_group = most_log_group(p);
    if (columns < p.q)
        while (columns * p.stride_w % (1 << log_group) != 0)
            --log_group;
    return log_group;
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
    const int columns = columns_of(p.r, lane);
    t.log_group = t.channels == p.c ? log_group_of(p, int64_t(size.tiles) * columns) : 0;
    const int group = 1 << t.log_group, before = (group - p.pad_left % group) % group;
    t.before = before * t.pixel;
    const StripShape shape = {columns, t.channels, group, 128, before};
    if (option.warps > most_warps(p.r, lane) || group * t.pixel % 16 != 0 ||
        !tile_strips(p, shape, size, t, option.box))
        return false;
    if (group > 1) {
        Box &box = option.box;
        box.element = GroupWord;
        box.tensor[0] = box.box[0] = group * t.pixel / GroupWord;
        box.tensor[1] /= group, box.box[1] /= group;
    }
    return true;
}

// Pieces that rows of y may be divided into: where they are few warps, as many as give two to each
// scheduler of a multiprocessor.
inline int most_row_pieces(const cf_query &query, PerLane lane) {
    constexpr int Least = 16, Most = 256;
    const cf_problem &p = query.problem;
    const double lanes = std::max(1.0, double(p.n) * double(ceil_div(p.q, columns_of(p.r, lane))) *
                                           p.c / channels_of(lane));
    return int(std::clamp<double>(8.0 * query.device.sm_count * 32 / lanes, Least, Most));
}

// Whether a strip may have a block of its own: not where that was equal or slower.
inline bool orders(const cf_problem &p) {
    return p.stride_h == 1 && p.r < 7 && int64_t(p.p) * p.q > 14 * 14;
}

// Calls body with the lanes of a channel block that pairs may have. Channels are whole pieces of 16
// bytes, 32 at least where it has so many (64 bytes of a pixel in f32 were slow): numbers of them
// that make blocks come out even, and others where those are far apart; all of them, if a pixel is
// no such pieces.
template <class Body>
void for_pair_lanes(const cf_problem &p, Body body) {
    constexpr int Least = 32;
    const int piece = 16 / element_bytes(p);
    if (p.c % piece != 0)
        return body(p.c / 2);
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

inline void rank_options(const cf_query &query, RankingOfKinds<Option> &ranking) {
    const cf_problem &p = query.problem;
    // Fewer blocks have more stages each. Where there are as many strips as blocks, room for twice
    // as many lets the next launch's come beside them.
    const auto take = [&](Option option) {
        const int most = most_warps(p.r, option.per_lane) / option.warps;
        const int sms = query.device.sm_count, needed = int(ceil_div(option.tiling.strips, sms));
        const bool even = option.tiling.strips % sms == 0;
        for (int blocks = 1; blocks <= most; ++blocks) {
            if (blocks > needed && !(even && blocks == 2 * needed))
                continue;
            option.of_sm = blocks;
            option.persistent = true;
            if (!place(query, blocks, option))
                break;
            ranking.meet(option.persistent, option, option.us);
            if (blocks >= needed || !orders(p))
                continue;
            option.persistent = false;
            option.blocks = option.tiling.strips;
            option.us = estimate(query, option);
            ranking.meet(option.persistent, option, option.us);
        }
    };
    const auto consider = [&](PerLane lane, int lanes) {
        const auto tiled = [&](const StripSize &size, Option &option) {
            return tile(query, lane, lanes, size, option);
        };
        for_strips<Option>(
            p, columns_of(p.r, lane),
            {most_warps(p.r, lane) * 32 / lanes, p.n, 32768, most_row_pieces(query, lane)}, tiled,
            take);
    };
    for_pair_lanes(p, [&](int lanes) { consider(PerLane::Pairs, lanes); });
    if (has_singles(p.r, element_bytes(p)) && group_bytes(p, 0) % 16 == 0)
        consider(PerLane::Singles, SingleLanes);
}

} // namespace cf::depthwise
