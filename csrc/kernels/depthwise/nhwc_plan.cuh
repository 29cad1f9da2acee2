// The planner of depthwise_nhwc: how a problem becomes strips, and what a strip takes.
#pragma once

#include "core/ranking.cuh"
#include "kernels/depthwise/nhwc_tiling.cuh"

namespace cf::depthwise {

constexpr int RingShared = 256; // bytes that the ring's barriers take

// Which channels and columns of y a thread has sums of: two channels (Pairs), with as many lanes to
// a channel block as make 128 bytes of a pixel of f32 and 64 of 16 bits, or more (WidePairs); or
// one channel of f32 and more columns (Singles). Of large filters that takes fewer registers, and
// 7 columns are whole tiles of rows of 7, 14, 28 and 56.
enum class PerLane { Pairs, WidePairs, Singles };

constexpr int channels_of(PerLane lane) { return lane == PerLane::Singles ? 1 : 2; }
constexpr int columns_of(int r, PerLane lane) { return r == 3 || lane == PerLane::Singles ? 7 : 4; }
constexpr int lanes_of(int element_bytes, PerLane lane) {
    return lane == PerLane::Pairs ? 16 : lane == PerLane::WidePairs && element_bytes == 4 ? 24 : 32;
}
constexpr bool has_singles(int r, int element_bytes) { return r > 3 && element_bytes == 4; }

// Warps of the largest block, and blocks of so many that registers leave room for on a
// multiprocessor.
constexpr int most_warps(int r, PerLane lane) {
    return r == 7 && lane == PerLane::Singles ? 12 : 8;
}
constexpr int blocks_of(int r) { return r == 7 ? 1 : 2; }

// A tiling, what it copies, and what its launch takes.
struct Option {
    Tiling tiling;
    Box box;
    PerLane per_lane;
    int warps, blocks;
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
// Fitted to 1032 times of plans of 18 problems (benches/results/evidence/h200-depthwise-plans.csv
// and h200-plans-by-blocks.csv), those of fast plans most, all of them of pairs of channels. Clocks
// of a warp's step by itself, which waits for its loads and products; of an instruction of each of
// many warps; of an item of the ring beside them; of a block and of a byte of its first item,
// before anything is computed; until a stage is read, where many are on their way.
constexpr double StepAlone = 717, ClocksOfMany = 1.02, OfItem = 212, OfBlock = 89, OfByte = 0.002,
                 InFlight = 2450;
// Bytes on their way to a multiprocessor with which half of the bandwidth is reached, and how much
// of the time that blocks of the last round have no strip the others do not make up for.
constexpr double HalfInFlight = 7300, Unbalanced = 0.33;
// Shares of the memory's bandwidth: of pixels in 64 bytes at a time it gives less.
constexpr double StreamShare = 0.767, NarrowShare = 0.642;
// What strips beside each other share is read again; hardly any of it comes from memory.
constexpr double AgainShare = 0.064;

inline double estimate(const cf_query &query, const Option &option) {
    const cf_problem &p = query.problem;
    const cf_device &d = query.device;
    const Tiling &t = option.tiling;
    const double halo = std::max(p.r - p.stride_h, 0);
    const double bytes =
        moved_bytes(p, t, std::min<double>((t.row_pieces - 1) * halo, p.h), AgainShare);
    const double rounds = double(ceil_div(t.strips, option.blocks)), items = rounds * t.items;
    const double of_sm = double(ceil_div(option.blocks, d.sm_count));
    const double in_mean = std::min(of_sm, double(option.blocks) / d.sm_count);
    // Strips of the last round leave some blocks without one, or some multiprocessors.
    const double balance =
        rounds > 1 ? rounds * option.blocks / t.strips : of_sm * d.sm_count / option.blocks;
    const double in_flight = in_mean * std::min(t.stages - 1.0, items) * t.box_bytes;
    const int element = element_bytes(p);
    const int channels = lanes_of(element, option.per_lane) * channels_of(option.per_lane);
    const bool narrow = channels * element < 128 && channels < p.c;
    const double bandwidth = (narrow ? NarrowShare : StreamShare) * d.bytes_per_us * in_flight /
                             (in_flight + HalfInFlight);
    const double memory = bytes / bandwidth * (1 + (balance - 1) * Unbalanced);
    // While a stage is being read, the others are on their way.
    const double read_us =
        items > t.stages ? clocks_us(d, items / (t.stages - 1.0) * InFlight, FmaClock) : 0;
    const double step = together_us(StepAlone, instructions(p, t, option.per_lane) * option.warps *
                                                   of_sm / 4 * ClocksOfMany);
    const double steps = t.rows + rows_of(p.r, p.stride_h) - 1;
    const double first = of_sm * OfBlock + in_mean * t.box_bytes * OfByte;
    const double computing =
        clocks_us(d, rounds * (steps * step + t.items * OfItem) + first, FmaClock);
    return ShortLaunchUs +
           together_us(computing, clocks_us(d, first, FmaClock) + std::max(memory, read_us));
}

// All but what depends on the number of blocks.
inline bool tile(const cf_query &query, PerLane lane, const StripSize &size, Option &option) {
    const cf_problem &p = query.problem;
    const int count = lanes_of(element_bytes(p), lane);
    option = {};
    option.per_lane = lane;
    option.warps = int(ceil_div(size.images * size.tiles * count, 32));
    const StripShape shape = {columns_of(p.r, lane), count * channels_of(lane), 1, 128};
    return option.warps <= most_warps(p.r, lane) &&
           tile_strips(p, shape, size, option.tiling, option.box);
}

// With so many blocks to a multiprocessor; false where two stages do not fit.
inline bool place(const cf_query &query, int blocks, Option &option) {
    const cf_device &d = query.device;
    Tiling &t = option.tiling;
    const int64_t room =
        std::min<int64_t>(d.shared_per_sm / blocks - SystemShared, d.shared_per_block) - RingShared;
    t.stages = int(std::min<int64_t>(room / t.stage_bytes, MaxStages));
    if (t.stages < 2)
        return false;
    option.blocks = int(std::min<int64_t>(t.strips, int64_t(d.sm_count) * blocks));
    option.us = estimate(query, option);
    return true;
}

inline void rank_options(const cf_query &query, Ranking<Option> &ranking) {
    const cf_problem &p = query.problem;
    const int element = element_bytes(p);
    // Fewer blocks have more stages each; where strips are few, more blocks are no others.
    const auto take = [&](Option option) {
        int stages = 0, all_blocks = 0;
        const int most = blocks_of(p.r) * most_warps(p.r, option.per_lane) / option.warps;
        for (int blocks = 1; blocks <= most && place(query, blocks, option); ++blocks) {
            if (option.tiling.stages != stages || option.blocks != all_blocks)
                ranking.meet(option, option.us);
            stages = option.tiling.stages, all_blocks = option.blocks;
        }
    };
    for (const PerLane lane : {PerLane::WidePairs, PerLane::Pairs, PerLane::Singles}) {
        if (lane == PerLane::Singles && !has_singles(p.r, element))
            continue;
        for_strip_sizes(p, columns_of(p.r, lane),
                        most_warps(p.r, lane) * 32 / lanes_of(element, lane), 32768,
                        [&](const StripSize &size, int steps_before) {
                            Option option;
                            if (!tile(query, lane, size, option))
                                return steps_before;
                            if (option.tiling.steps != steps_before)
                                take(option);
                            return option.tiling.steps;
                        });
    }
}

} // namespace cf::depthwise
