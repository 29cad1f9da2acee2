// The planner of small_mma: what a task and a tiling take, and the ones that take the fewest
// clocks.
#pragma once

#include "core/estimate.cuh"
#include "kernels/small/mma_tiling.cuh"

namespace cf::small_mma {

// The estimate's numbers are fitted to the tilings of
// benches/results/evidence/h200-small-mma-tilings.txt, BulkClocks to h200-few-channels.csv.
constexpr double StreamShare = 0.7988; // of the memory's pins, where blocks stream strips
// Sectors that two warps write cost the memory as much as so many.
constexpr double PartialSectors = 2.5;
// Bytes that the L2 cache gives one multiprocessor in a clock, on whatever chip: of the first
// strip, and of weights, which come late.
constexpr double FirstBytes = 32, WeightBytes = 24;
// From one bulk copy of some hundred bytes to the next.
constexpr double BulkClocks = 105;

// Clocks that one task takes of a multiprocessor that is busy with as many as it takes. A product
// of mma.sync takes 6 on one of its four schedulers and hardly overlaps with other instructions,
// which take 1; some 20 % are waits. wgmma takes half its columns, or 13, on all four. What goes
// with it did not overlap as hoped: the factors are fitted to 20 measured times and within 27 %.
inline double task_clocks(const Choice &choice, int tile_rows) {
    const TaskShape &shape = choice.shape();
    const Order &o = choice.order;
    const int tiles = shape.channel_tiles;
    const double steps = double(o.steps) * tile_rows * (choice.three ? 3 : 1);
    // Loaded values, which are split; additions to sums; per task and column of the filter.
    double values, promotions;
    if (shape.row_reuse == 1) {
        values = double(o.steps) * shape.rows * 2;
        promotions = o.steps / Ahead + o.steps % Ahead;
    } else {
        values = double(shape.window()) * (2 * o.full + o.odd);
        promotions = o.full * ceil_div(shape.row_reuse, Ahead) + o.odd;
    }
    const double sums = tile_rows * tiles, split = choice.three ? 5 : 2;
    if (shape.weight_stationary) {
        const double loads = 2.0 * (tile_rows + shape.row_reuse - 1) * shape.pixels() * split;
        return (steps * tiles * 6 + loads + sums * 16 + 600) * 1.3 / 4;
    }
    const double passes =
        values * shape.pixels() * split + (choice.three ? promotions * sums * 4 : 0);
    if (shape.wgmma)
        return (1.14 * steps * std::max(tiles * 4, 13) + 1.1 * passes + 128 * sums) *
               (shape.warpgroups == 2 ? 1.07 : 1); // they hide less
    const double others = passes + 2 * choice.parts() * tiles * o.steps + sums * 16 + 500;
    return (steps * tiles * 6 + others) * 1.2 / 4;
}

// Clocks of the busiest of so many multiprocessors.
inline double estimated_clocks(const cf_problem &p, const cf_device &device, const Choice &choice,
                               const Tiling &t, int blocks) {
    const TaskShape &shape = choice.shape();
    const double strips = double(ceil_div(t.strips, blocks));
    const double tasks = std::ceil(strips * t.strip_columns / shape.columns()) * choice.groups;
    const double weights =
        t.weight_bytes ? 0 : tasks * choice.floats / choice.groups * 4 / WeightBytes;
    const double rounds = std::ceil(tasks / shape.tasks());
    double products = rounds * shape.tasks() * task_clocks(choice, t.tile_rows) + weights;
    double storing = 0;
    if (t.output_stages) {
        products *= 1.05; // warps wait for each other
        const double planes = 4.0 * (4 - t.producers);
        storing = strips * t.row_tiles * t.groups * (450 + 750 * std::ceil(t.channels / planes));
    }
    const double bytes = 4.0 * t.rows * t.row_floats * t.planes;
    const double outputs = 4.0 * p.k * std::min(t.row_tiles * t.tile_rows, p.p) * p.q;
    const bool partial = partial_sectors(p) && !t.output_stages;
    const double moved =
        bytes + outputs * (partial ? PartialSectors : 1) + (p.epilogue.residual ? outputs : 0);
    const double memory = strips * moved / (StreamShare * bytes_per_clock(device, TensorClock));
    // A producer takes some 200 clocks for as many small copies as it has lanes. Bulk copies of
    // some rows of a plane come one after the other.
    const double pieces = t.planes * t.rows * double(ceil_div(t.row_pieces, 32));
    const double loading = t.bulk_copies ? t.bulk_copies * BulkClocks : pieces * 200 / t.producers;
    const double first = 1500 + bytes / FirstBytes + loading;
    // A strip is waited for and handed back.
    return first + strips * 40 + std::max({products, memory, storing, strips * loading}) +
           0.15 * std::min(products, memory);
}

// Whether a task shape is compiled for the problem and suits it.
inline bool suits(const cf_problem &p, const Choice &choice) {
    const TaskShape &shape = choice.shape();
    const Order &order = choice.order;
    if (shape.row_reuse > 1 && (p.r != shape.row_reuse || p.stride_h != shape.stride))
        return false;
    if (order.pixels_per_column > 1 &&
        (!shape.pixel_rows || p.q % order.pixels_per_column || p.stride_w != 1))
        return false;
    if ((shape.rows_per_step > 0 || shape.weight_stationary) && (order.full != 1 || order.odd))
        return false;
    // Others are faster where they gather rows, and in math tf32, where memory decides.
    return !shape.weight_stationary ||
           (!(partial_sectors(p) && p.layout == CF_NCHW) && choice.groups == 1 && choice.three);
}

// The choice with the fewest clocks for a multiprocessor's row of images, whatever the batch; false
// where none fits.
inline bool choose(const cf_problem &p, const cf_device &device, Choice &best) {
    cf_problem one = p, row = p;
    one.n = 1, row.n = 8;
    bool found = false;
    double least = 0;
    for (int number = 0; number < TaskShapeCount; ++number) {
        for (int pixels_per_column = 1; pixels_per_column <= 8; pixels_per_column *= 2) {
            const Choice choice = choice_of(p, number, pixels_per_column);
            const bool wgmma = choice.shape().wgmma;
            Tiling t;
            if (!suits(p, choice) ||
                !tile(one, device, choice, {1, false, wgmma}, device.sm_count, t))
                continue;
            // In whole images or single row tiles.
            double fewest = INFINITY;
            for (const int64_t row_tiles : {ceil_div(p.p, choice.shape().rows), int64_t(1)})
                for (const bool output_ring : {false, true})
                    if ((!output_ring || partial_sectors(p)) &&
                        tile(row, device, choice, {int(row_tiles), output_ring, wgmma}, 1, t))
                        fewest = std::min(fewest, estimated_clocks(row, device, choice, t, 1));
            if (!found || fewest < least)
                found = true, best = choice, least = fewest;
        }
    }
    return found;
}

// Of all options for a choice the tiling with the fewest clocks.
struct Best {
    bool found = false;
    Tiling tiling;
    double clocks = 0;
};

inline Best search(const cf_problem &p, const cf_device &device, const Choice &choice) {
    Best best;
    for_strip_heights(ceil_div(p.p, choice.shape().rows), [&](int row_tiles) {
        for (const bool weights_in_shared : {true, false}) {
            if (!weights_in_shared && choice.shape().wgmma)
                continue; // it reads weights there
            for (const bool output_ring : {true, false}) {
                if (output_ring && !partial_sectors(p))
                    continue;
                Tiling t;
                const Option option = {row_tiles, output_ring, weights_in_shared};
                if (!tile(p, device, choice, option, device.sm_count, t))
                    continue;
                const double clocks = estimated_clocks(p, device, choice, t, device.sm_count);
                if (!best.found || clocks < best.clocks)
                    best = {true, t, clocks};
            }
        }
    });
    if (best.found)
        set_divisors(best.tiling);
    return best;
}

} // namespace cf::small_mma
