// How planners choose among strips of planes (plane_strips.cuh): which there are, how many blocks
// share them, and what they take.
#pragma once

#include "core/estimate.cuh"
#include "core/room.cuh"
#include "pipeline/plane_strips.cuh"

#include <cmath>

namespace cf::plane_strips {

// Meets the option with each number of blocks to a multiprocessor, `most` as registers leave room
// for, of a kernel that declares so many bytes of shared memory, and with units for all warps or
// for all but the loader. `keeps_channels` says whether a block gains by strips of the same
// channels.
template <class Option, class Meet>
void share_multiprocessors(const cf_query &query, int most, int declared, bool keeps_channels,
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
        const int64_t room = shared_room(d, of_sm) - declared - int64_t(t.y_bytes) * t.slots;
        const int before = t.stages;
        t.stages = int(std::min<int64_t>(room / t.stage_bytes, useful));
        // Where there are few strips fewer blocks are no others.
        if (t.stages < std::min(useful, 2) || (t.stages == before && option.blocks == met))
            continue;
        met = option.blocks;
        option.shared = launch_room(d, option.blocks, shared_bytes(t), declared);
        t.warp_units = int(ceil_div(t.strip_units, Warps));
        meet(option);
        const int without_loader = int(ceil_div(t.strip_units, Warps - 1));
        if (without_loader == t.warp_units)
            continue;
        t.warp_units = without_loader;
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

// What strips take, fitted to times: clocks, and shares.
struct Costs {
    double unit, unit_alone;   // of a warp's unit, where many share a quarter, and by itself
    double strip, strip_alone; // of a strip beside its units, where others go on, and by itself
    double loader, copy, segment, kb; // of the loader for each strip, and for each copy of it, each
                                      // segment that leaves, where it has several, and each KB
    double first;                     // until the first strip is there
    double bandwidth;                 // of the memory's
    double unbalanced;                // of the time that some blocks have no strip any more
    double edges;                     // of what the first strips take to come and the last to leave
};

inline double strips_us(const cf_query &query, const Tiling &t, int blocks, const Costs &costs) {
    const cf_device &d = query.device;
    const int channels = std::min(t.channels, t.c);
    const double bytes = double(channels) * (double(std::min(t.in_rows, t.h)) * t.row_bytes +
                                             double(t.rows) * t.y_row_bytes);
    const double units = double(t.warp_units) * t.windows;
    const int of_loader = std::max(t.strip_units - (Warps - 1) * t.warp_units, 0);
    const int copies = is_one_copy(t) ? 1 : channels, segments = t.whole ? 0 : channels;
    const double loader = of_loader * t.windows * costs.unit_alone + costs.loader +
                          copies * costs.copy + segments * costs.segment + bytes / 1024 * costs.kb;
    const double alone = std::max(units * costs.unit_alone, loader) + costs.strip_alone;
    const double in_mean = double(std::max(t.strips, 1)) / blocks;
    const double rounds = in_mean + (std::ceil(in_mean) - in_mean) * costs.unbalanced;
    const double of_sm = std::max(double(t.strips) / d.sm_count, 1.0);
    const double all = together_us(rounds * alone, of_sm * (units * costs.unit + costs.strip));
    const double first = clocks_us(d, costs.first, TensorClock);
    const double edges = costs.edges * bytes * blocks / d.bytes_per_us;
    return ShortLaunchUs + edges +
           together_us(first + clocks_us(d, all, TensorClock),
                       first + traffic(query.problem, t) / (costs.bandwidth * d.bytes_per_us));
}

} // namespace cf::plane_strips
