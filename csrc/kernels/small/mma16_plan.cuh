// The planner of small_mma16: what a strip takes, and the tiling that takes the fewest clocks.
#pragma once

#include "core/estimate.cuh"
#include "kernels/small/mma16_tiling.cuh"

namespace cf::small16 {

constexpr double PinShare = 0.869286; // of what memory's pins give, see memory_rate()
constexpr double StoreRound = 3700;   // clocks of 32 bulk copies that store segments

// Bytes in a clock of each multiprocessor: 18.5 of 132 at 1.75 GHz.
inline double memory_rate(const cf_device &device) {
    return PinShare * bytes_per_clock(device, TensorClock);
}

// Clocks that the device's memory takes of a multiprocessor for a strip.
inline double memory_clocks(const cf_query &query, const Tiling &t) {
    const cf_problem &p = query.problem;
    // Blocks that share a strip's tasks share its outputs.
    const double outputs = double(std::min(t.row_tiles * rows_of(t.column_tiles), p.p)) * p.q *
                           p.k / t.blocks_per_strip;
    const double loaded = double(t.input_rows) * p.w * p.c * (p.storage == CF_STORE_F32 ? 4 : 2);
    const double left = outputs * (t.to_floats ? 4 : 2);
    const double residual = p.epilogue.residual ? left : 0;
    // Ends of segments and half sectors cost more than their bytes, and so do strips that are
    // written for long: what all blocks write meanwhile lies far apart.
    const double written = t.whole_sectors ? 1 : t.segments > 1 ? 1.25 : t.staged ? 1.1 : 2.5;
    double apart = 1;
    if (!t.preloaded)
        apart += 0.6 * std::clamp(left / 150000 - 1, 0.0, 1.0);
    else if (t.nchw) // as do planes of many channels
        apart += 0.4 * std::clamp(p.k / double(MostOutputs) - 1, 0.0, 1.0);
    return (loaded + left * written + residual) * apart / memory_rate(query.device);
}

// Clocks of the busiest multiprocessor: the longest of what its four tensor cores, its shared
// memory, its four schedulers, its producers and the device's memory need for a strip. Fitted to
// benches/results/evidence/h200-small-mma16-experiments.txt and h200-small-mma16-tilings.txt, and
// what more than 64 output channels and weights in global memory cost to h200-few-channels.csv.
inline double clocks(const cf_query &query, const Tiling &t) {
    const cf_problem &p = query.problem;
    const int sets = std::max(t.strips / t.strips_per_out_stage, 1); // a batch may be empty
    const double rows = rows_of(t.column_tiles);
    const double strips = double(ceil_div(sets, query.device.sm_count)) * t.strips_per_out_stage;
    const double all = strips * double(ceil_div(t.tasks, t.blocks_per_strip));
    // The last round of the warps is whole; of fewer tasks than warps that of the schedulers is.
    const int64_t consumers = t.preloaded ? Warps : Consumers;
    const int64_t round = std::min(round_up(int64_t(all), Schedulers), consumers);
    const double tasks = std::max(all, double(ceil_div(int64_t(all), round) * round)) / strips;
    const double window =
        t.unrolled ? (rows - 1) * p.stride_h + p.r : rows * t.filter_rows; // rows of x read
    const double products = rows * t.column_tiles * t.filter_rows * t.steps;
    const double weights = double(t.parities) * t.filter_rows * t.column_tiles * t.steps;
    const double words = t.pixels_per_position == 2 && t.unrolled ? 2 : 4;
    const double tensor = tasks * products * 8 / 4; // 6 alone, the others for what goes beside
    const double sums = rows * t.column_tiles * 4;
    const double shared = tasks * (t.steps * window * words + weights * 2 + sums);
    // Weights in global memory are waited for.
    const double others = t.unrolled ? 150 : 600;
    const double issue =
        (tasks * (products + t.steps * window * (words + 2) + weights + sums * 2 + others) +
         t.copies / 32.0 * 40) /
        4;
    const double memory = memory_clocks(query, t);
    const double loading = t.copy == Direct || t.copy == Planes
                               ? 1000
                               : double(ceil_div(t.copies, 32 * 16 * 3)) * 1800;
    // A warp stores a segment per lane; the first round is hidden.
    const double storing = t.staged ? (t.segments - 1) / 32 * StoreRound : 0;
    const double strip = std::max({tensor, shared, issue, memory, loading, storing});
    return 4000 + loading + strips * (1.15 * strip + 200);
}

// A tiling to be tried.
struct Option {
    int row_tiles; // of a strip
    bool staged;   // outputs leave by bulk copies,
    bool joined;   // all strips of an image together
    bool bulk;     // x comes by bulk copies
};

// How x comes into shared memory; false where bulk copies are asked for and cannot be.
inline bool choose_copy(const cf_problem &p, const Option &option, Tiling &t) {
    const int64_t image = int64_t(p.h) * p.w * p.c;
    const bool whole = t.strips_per_image == 1 && t.input_rows >= p.h;
    const bool even = p.w * p.c % 2 == 0 && p.align >= 4; // each row begins with a word
    const bool unpadded =
        !p.pad_top && !p.pad_left && t.pitch == int64_t(p.w) * t.pixel_elements * 2;
    const bool dense = p.c == t.pixel_elements && (p.c == 1 || !t.nchw);
    t.channel_parts = std::max(t.pixel_elements / 2, 1);
    if (t.nchw) // zeros that fill up the channels are there already
        t.channel_parts = int(ceil_div(p.c, 2));
    if (option.bulk) {
        if (!unpadded || p.storage == CF_STORE_F32 || image * 2 >= BulkBytes)
            return false;
        t.copies_per_line = t.copies = 1;
        t.copy = dense && even && (p.p - 1) * p.stride_h + p.r <= p.h ? Direct : Planes;
        if (t.copy == Planes)
            t.channel_parts = int(ceil_div(p.c, t.pixel_elements % 4 ? 2 : 4));
        return t.copy == Direct || (t.nchw && p.c > 1 && whole);
    }
    const int element = p.storage == CF_STORE_F32 ? 4 : 2;
    const bool pairs = p.align >= 2 * element, fours = p.align >= 4 * element;
    int lines = t.input_rows;
    if (unpadded && whole && dense && image % 4 == 0 && fours) {
        t.copy = Whole;
        t.copies_per_line = int(image / 4), lines = 1;
    } else if (p.c == 1) {
        t.copy = pairs && p.w % 2 == 0 && p.pad_left % 2 == 0 ? Line : Word;
        t.copies_per_line = int(t.copy == Line ? p.w / 2 : ceil_div(p.pad_left + p.w, 2));
    } else if (t.nchw) {
        if (t.pixel_elements % 4)
            t.copy = Word;
        else
            t.copy = pairs && p.w % 2 == 0 ? Columns : Column,
            t.channel_parts = int(ceil_div(p.c, 4));
        t.copies_per_line = t.copy == Columns ? p.w / 2 : p.w;
        lines *= t.channel_parts;
    } else if (p.c == 3 && p.w % 4 == 0 && fours) {
        t.copy = Threes;
        t.copies_per_line = p.w / 4;
    } else {
        t.copy = pairs && p.c == t.pixel_elements ? Line : Word;
        t.copies_per_line = p.w * t.channel_parts;
    }
    t.copies = t.copies_per_line * lines;
    return true;
}

// Shared memory for the two rings, of which a block fills `of_block` stages; false where it is too
// small.
inline bool fit_rings(const cf_query &query, int64_t of_block, Tiling &t) {
    const cf_problem &p = query.problem;
    if (t.staged) {
        // As far behind a multiple of 16 bytes as its place in y.
        const int64_t rows =
            int64_t(t.strips_per_out_stage) * t.row_tiles * rows_of(t.column_tiles);
        const int64_t plane = std::min<int64_t>(rows, p.p) * p.q * (t.to_floats ? 4 : 2);
        t.segments = t.nchw && t.strips_per_image > t.strips_per_out_stage ? p.k : 1;
        t.segment_bytes = uint32_t(
            std::min<int64_t>(round_up(plane * (t.segments > 1 ? 1 : p.k) + 30, 16), 1 << 24));
        const int64_t out_stage_bytes = int64_t(t.segments) * t.segment_bytes;
        if (out_stage_bytes > query.device.shared_per_block)
            return false;
        t.out_stage_bytes = uint32_t(out_stage_bytes);
    }
    const int64_t budget = int64_t(query.device.shared_per_block) - StaticShared - t.weight_bytes -
                           int64_t(PlanarBuffers) * t.planar_bytes;
    const auto stages_beside = [&](int out_stages) {
        return std::max<int64_t>(budget - int64_t(out_stages) * t.out_stage_bytes, 0) /
               t.stage_bytes;
    };
    // Output stages first, as long as three of the input ring are left; two of both suffice.
    t.out_stages = t.staged ? MaxOutStages : 0;
    while (t.out_stages > 2 && stages_beside(t.out_stages) < std::min<int64_t>(of_block, 3))
        --t.out_stages;
    const int64_t fit = stages_beside(t.out_stages);
    t.stages = int(std::min({fit, of_block, int64_t(MaxStages)}));
    return fit >= std::min<int64_t>(of_block, 2);
}

// Completes a tiling of so many images; false where it does not fit.
inline bool tile(const cf_query &query, int64_t images, const Option &option, Tiling &t) {
    const cf_problem &p = query.problem;
    const int rows = rows_of(t.column_tiles), sms = query.device.sm_count;
    const int64_t shared = query.device.shared_per_block;
    const int64_t strips = ceil_div(ceil_div(p.p, rows), option.row_tiles);
    const int64_t tasks_per_group = ceil_div(int64_t(option.row_tiles) * t.positions, Positions);
    const int64_t input_rows = (int64_t(option.row_tiles) * rows - 1) * p.stride_h + p.r;
    const int64_t pitch = pitch_of(p, t);
    // Strips and tasks are counted in 31 bits, as are elements of an image of x.
    if (double(std::max<int64_t>(images, 1)) * strips * tasks_per_group * t.groups > MaxTasks ||
        double(p.c) * p.h * p.w > INT32_MAX)
        return false;
    if (pitch > shared || input_rows > shared || input_rows * pitch > shared)
        return false;
    t.row_tiles = option.row_tiles;
    t.strips_per_image = int(strips);
    t.strips = int(images * strips);
    t.tasks_per_group = int(tasks_per_group);
    t.tasks = t.tasks_per_group * t.groups;
    t.input_rows = int(input_rows);
    t.pitch = uint32_t(pitch);
    t.tile_bytes = uint32_t(rows * p.stride_h * pitch);
    t.position_bytes =
        uint32_t(t.pixels_per_position) * uint32_t(p.stride_w) * uint32_t(t.pixel_elements) * 2;
    t.staged = option.staged;
    t.strips_per_out_stage = option.joined ? t.strips_per_image : 1;
    if (!choose_copy(p, option, t))
        return false;
    const bool direct = t.copy == Direct, planes = t.copy == Planes;
    t.producers = direct ? 1 : Warps - Consumers - t.staged;
    // What a position reads beyond its window, which rows of an earlier image must not be.
    t.zero_bytes = direct ? uint32_t(32 + row_beyond(t, pitch)) : 0;
    const int64_t image_bytes = int64_t(p.c) * p.h * p.w * 2;
    t.planar_bytes = planes ? uint32_t(round_up(image_bytes + 30, 16)) : 0;
    // A bulk copy keeps its place among 16 bytes.
    const int64_t behind = std::max<int64_t>(beyond(t, pitch), direct ? t.zero_bytes + 32 : 0);
    const int64_t stage_bytes = round_up(input_rows * pitch + behind, 16);
    if (stage_bytes > shared)
        return false;
    t.stage_bytes = uint32_t(stage_bytes);
    t.weight_bytes = t.unrolled ? uint32_t(packed_bytes(t)) : 0;
    const int64_t of_block =
        ceil_div(t.strips / t.strips_per_out_stage, sms) * t.strips_per_out_stage;
    if (!fit_rings(query, of_block, t))
        return false;
    t.preloaded = !direct && !planes && !t.staged && of_block <= t.stages;
    // A batch may be empty.
    t.blocks_per_strip = t.preloaded ? std::clamp(sms / std::max(t.strips, 1), 1, t.tasks) : 1;
    t.clocks = clocks(query, t);
    return true;
}

// The tiling of so many images that takes the fewest clocks; without input_rows where none fits.
inline Tiling best_tiling(const cf_query &query, const Shapes &shapes, int64_t images) {
    Tiling best = {};
    const auto try_heights = [&](const Tiling &shape, bool staged, bool joined, bool bulk) {
        const int all = int(ceil_div(shape.p, rows_of(shape.column_tiles)));
        for_strip_heights(all, [&](int row_tiles) {
            Tiling t = shape;
            if (joined && row_tiles == all)
                return;
            if (tile(query, images, {row_tiles, staged, joined, bulk}, t) &&
                (best.input_rows == 0 || t.clocks < best.clocks))
                best = t;
        });
    };
    // Weights that fit stay in shared memory, and whatever bulk copies can load is left to them.
    for (const Tiling *shape : {&shapes.unrolled, &shapes.plain})
        for (bool bulk : {true, false}) {
            if (shape->groups == 0 || best.input_rows > 0)
                continue;
            if (!shape->whole_sectors) {
                if (shape->nchw)
                    try_heights(*shape, true, true, bulk);
                try_heights(*shape, true, false, bulk);
            }
            try_heights(*shape, false, false, bulk);
        }
    if (best.input_rows == 0)
        return best;
    best.by_groups = Divisor(best.groups);
    best.by_positions = Divisor(best.positions);
    best.by_image = Divisor(best.strips_per_image);
    best.by_line = Divisor(best.copies_per_line);
    best.by_parts = Divisor(best.channel_parts);
    best.by_blocks = Divisor(best.blocks_per_strip);
    best.by_out_stage = Divisor(best.strips_per_out_stage);
    return best;
}

} // namespace cf::small16
