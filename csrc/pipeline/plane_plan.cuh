// How planners choose among strips of planes (plane_strips.cuh): which there are, how many blocks
// share them, and what they take.
#pragma once

#include "core/estimate.cuh"
#include "pipeline/plane_strips.cuh"

namespace cf::plane_strips {

// Meets the option with each number of blocks to a multiprocessor, `most` as registers leave room
// for, each with so many bytes of shared memory beside the strips'. `keeps_channels` says whether
// a block gains by strips of the same channels.
template <class Option, class Meet>
void share_multiprocessors(const cf_query &query, int most, int beside, bool keeps_channels,
                           Option option, Meet meet) {
    const cf_device &d = query.device;
    Tiling &t = option.tiling.strips;
    int met = 0; // blocks that were met last
    for (int of_sm = most; of_sm > 0; --of_sm) {
        option.blocks = int(std::min<int64_t>(std::max(t.strips, 1), int64_t(d.sm_count) * of_sm));
        if (keeps_channels && t.strips > option.blocks && option.blocks > t.channel_blocks)
            option.blocks -= option.blocks % t.channel_blocks;
        const int useful =
            int(std::clamp<int64_t>(ceil_div(t.strips, option.blocks), 1, MaxStages));
        t.slots = std::min(useful, Slots);
        const int64_t room = std::min<int64_t>(d.shared_per_sm / of_sm - 1024, d.shared_per_block) -
                             beside - int64_t(t.y_bytes) * t.slots;
        const int before = t.stages;
        t.stages = int(std::min<int64_t>(room / t.stage_bytes, useful));
        // Where there are few strips fewer blocks are no others.
        if (t.stages < std::min(useful, 2) || (t.stages == before && option.blocks == met))
            continue;
        met = option.blocks;
        meet(option);
    }
}

// Calls body(rows) for heights of strips, in rows of y: all, and multiples of so many, each that
// makes one strip more than the one before or, where that is not enough, the next lower one.
template <class Body>
void for_heights(int all_rows, int multiple, Body body) {
    const int all = int(ceil_div(all_rows, multiple));
    for (int count = all; count > 0;) {
        body(std::min(count * multiple, all_rows));
        count = count > 1 ? int(ceil_div(all, ceil_div(all, count - 1))) : 0;
    }
}

// Bytes from and to memory. What strips below each other share is read again; a third of it comes
// from memory.
inline double traffic(const cf_problem &p, const Tiling &t) {
    const double again = double(t.row_strips - 1) * std::max(t.in_rows - t.rows * t.stride, 0) / 3;
    return double(p.n) * t.c * ((again + t.h) * t.row_bytes + double(t.p) * t.y_row_bytes);
}

// Clocks of a multiprocessor for strips: for each, where others go on beside it, and alone; until
// the first is there.
struct StripClocks {
    double each, alone, first;
};

// What strips take, with a share of the memory's bandwidth.
inline double strips_us(const cf_query &query, const Tiling &t, int blocks,
                        const StripClocks &clocks, double share) {
    const cf_device &d = query.device;
    const double of_block = double(ceil_div(t.strips, blocks));
    const double of_sm = std::max(double(t.strips) / d.sm_count, 1.0);
    const double first = clocks_us(d, clocks.first, TensorClock);
    const double all = together_us(of_block * clocks.alone, of_sm * clocks.each);
    return ShortLaunchUs +
           together_us(first + clocks_us(d, all, TensorClock),
                       first + traffic(query.problem, t) / (share * d.bytes_per_us));
}

} // namespace cf::plane_strips
