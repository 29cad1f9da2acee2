// The planner of implicit_gemm_resident: how a problem becomes tiles, and their estimates.
#pragma once

#include "core/estimate.cuh"
#include "core/fragment_epilogue.cuh"
#include "core/tensors.cuh"
#include "kernels/implicit_gemm/resident_kernel.cuh"

#include <algorithm>

namespace cf::implicit_resident {

struct Choice {
    int width; // columns of a product
    int grid;  // 0: there is none
    Tiling tiling;
    double us;
};

// Clocks of a row beside half a clock for each column of a product, what a launch takes beside
// them, and what x and y reach of the pins, fitted to 32 times on an H200, of 12 problems in all
// widths: off by 2.8 %.
constexpr double OfRow = 490, LaunchUs = 0.5, PinShare = 0.586;

inline double estimate(const cf_query &query, const Choice &choice) {
    const Tiling &t = choice.tiling;
    const double row = double(t.rows) * Taps * t.depth * choice.width / 2 + OfRow;
    // The last row is stored while nothing is multiplied.
    const double clocks = (t.block_rows + 1) * row;
    return ShortLaunchUs + LaunchUs +
           together_us(clocks_us(query.device, clocks, TensorClock),
                       tensor_bytes(query.problem) / (PinShare * query.device.bytes_per_us));
}

// Tiles that are as many columns wide as products of this width allow. A tile between two others
// has columns of either that only outer taps fall on.
inline bool share_columns(const cf_problem &p, int width, Tiling &t) {
    const bool whole = p.q <= StripColumns;
    const int most = width - 2 * PieceColumns;
    t.segments = whole || p.q <= width               ? 1
                 : p.q <= 2 * (width - PieceColumns) ? 2
                                                     : int(ceil_div(p.q, most));
    t.columns = int(round_up(ceil_div(p.q, t.segments), PieceColumns));
    t.tile_rows = whole ? int(ceil_div(p.p, 2)) : p.p;
    t.strip_columns = whole ? 0 : StripColumns;
    t.strip_rows = whole ? t.tile_rows : 0;
    t.by_tile_rows = Divisor(t.tile_rows), t.by_segments = Divisor(t.segments);
    return !whole || StripColumns + t.columns <= width;
}

// Stages, in what the filter leaves of shared memory: those that both warpgroups read, at least.
inline bool share_memory(const cf_query &query, Tiling &t) {
    const int64_t room = int64_t(query.device.shared_per_block) - StaticShared;
    t.strip_bytes = t.depth * StripStepBytes;
    t.stages = 0;
    const int64_t stages = (room - int64_t(shared_bytes(t))) / (2 * t.strip_bytes);
    t.stages = int(std::min<int64_t>(stages, MaxStages));
    return stages >= int64_t(t.rows - 1) * t.row_step + Warpgroups;
}

inline bool tile_of(const cf_query &query, int width, Choice &choice) {
    const cf_problem &p = query.problem;
    choice = {width, 0, {}, 0};
    Tiling &t = choice.tiling;
    t.rows = p.r, t.row_step = p.dilation_h, t.pad_top = p.pad_top;
    t.depth = p.c / p.groups > 32 ? Steps : Steps / 2;
    t.groups = p.groups, t.group_k = p.k / p.groups, t.k = p.k;
    t.filter_lines = int(implicit_gemm::filter_lines(p));
    t.group_sets = t.filter_lines / RowChannels, t.sets = t.group_sets * p.groups;
    t.by_sets = Divisor(t.sets), t.by_group_sets = Divisor(t.group_sets);
    t.p = p.p, t.q = p.q, t.y_plane = int64_t(p.p) * p.q;
    t.finishes = has_epilogue(p), t.activation = late_activation(p);
    if (t.rows > MaxRows || t.sets > query.device.sm_count || !share_columns(p, width, t) ||
        !share_memory(query, t))
        return false;
    t.all_rows = int(p.n * t.segments * t.tile_rows);
    const int members = query.device.sm_count / t.sets; // blocks of a set
    t.block_rows = int(std::max<int64_t>(ceil_div(t.all_rows, members), 1));
    choice.grid = t.sets * int(std::max<int64_t>(ceil_div(t.all_rows, t.block_rows), 1));
    choice.us = estimate(query, choice);
    return true;
}

} // namespace cf::implicit_resident
