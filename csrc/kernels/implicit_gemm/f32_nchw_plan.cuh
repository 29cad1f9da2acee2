// The planner of implicit_gemm_f32_nchw: tiles and loads as implicit_gemm_nchw cuts them in 16
// bits, of lines that are two operands in shared memory.
#pragma once

#include "kernels/implicit_gemm/f32_nchw_tiling.cuh"
#include "kernels/implicit_gemm/f32_plan.cuh"
#include "kernels/implicit_gemm/nchw_plan.cuh"

namespace cf::implicit_f32 {

using implicit_nchw::Reading;
using implicit_nchw::View;

struct PlanarChoice : Choice {
    Reading reading;
    Planes planes;
};

// The problem whose lines have as many channels as those that are split.
inline cf_query in_halves(const cf_query &query) {
    cf_query halves = query;
    halves.problem.storage = CF_STORE_F16;
    return halves;
}

// By 660 times of the layers of VGG-16, ResNet-50 and of one image, in plans of each width, reading
// and number of loaders (benches/results/evidence/h200-implicit-gemm-f32-nchw.csv), as are the part
// of storing that is left where nothing is staged, and clocks of a loader's warp for a batch and
// for each box that it goes through. Until the first pixels are split it takes less since loaders
// begin early: of 72 plans half were told over 1.3 us too much
// (benches/results/evidence/h200-implicit-gemm-f32-nchw-parts.csv).
constexpr Costs PlanarCosts = {300, 0.35, 5.6, 850, 1200, 0.85, 900, 1.06};
constexpr double DirectShare = 0.77, BatchRound = 1030, BoxRound = 940;

inline double split_clocks(const PlanarChoice &choice) {
    const Tiling &t = choice.plan.tiling;
    const double loads = double(ceil_div(t.blocks, t.parts)) * t.load_rows * t.load_columns;
    return loads * choice.plan.pixel_rings() *
           (choice.planes.batches * BatchRound / choice.planes.loaders + BoxRound);
}

// Lines of a stage that columns of products read, those behind the last one's included.
inline int64_t lines_read(const Tiling &t, const Planes &planes, int width) {
    uint32_t last = 0;
    for (int s = std::max(t.tap_columns - 2, 0); s < t.tap_columns; ++s)
        last = std::max(last, implicit_nchw::tap_line(planes, s * t.column_offset));
    return width + (int64_t(t.tap_rows - 1) * t.tap_row_bytes + last) / LineBytes;
}

inline bool adapt(const cf_query &query, const View &v, const implicit_nchw::Choice &tiles,
                  int loaders, int sweep, bool own_place, PlanarChoice &choice) {
    const cf_problem &p = query.problem;
    const int width = tiles.option.width;
    choice = {};
    choice.reading = tiles.reading;
    Planes &planes = choice.planes;
    planes = tiles.planes;
    planes.loaders = loaders;
    const Tiling &tiling = tiles.option.tiling;
    const int height =
        tiling.rows + (tiles.reading == implicit_nchw::Halo ? (v.r - 1) * v.dilation_h : 0);
    const auto batches_of = [](int vectors, int vector) {
        return int(ceil_div(int64_t(vectors) * vector, BatchPixels));
    };
    implicit_nchw::choose_vectors(p, v, tiling, height, tiles.reading, 16, batches_of, planes);
    const int64_t slot_bytes =
        int64_t(slots_bytes(loaders)) +
        round_up(int64_t(planes.batches) * (BatchPixels / planes.vector) * VectorPlaceBytes, 16);
    const PartsPlace parts = {implicit_nchw::slices_bytes(tiling, width), own_place};
    const uint32_t staged_bytes = uint32_t(implicit_nchw::staging_bytes(width)) + parts.added();
    // Rows of x behind a box's first are counted in 16 bits.
    if (int64_t(height) * v.stride_h > UINT16_MAX || slot_bytes > query.device.shared_per_block ||
        !adapt(query, tiles.option, sweep, lines_read(tiling, planes, width), staged_bytes,
               uint32_t(slot_bytes), parts, choice))
        return false;
    const Tiling &t = choice.plan.tiling;
    implicit_nchw::choose_units(p, v, t, choice.planes);
    Costs costs = PlanarCosts;
    costs.of_piece *= planes.direct ? DirectShare : 1;
    choice.us = estimate(query, choice, costs, split_clocks(choice));
    return true;
}

// Calls body(choice) for each way to do a problem.
template <class Body>
void for_choices(const cf_query &query, Body body) {
    const View v = implicit_nchw::planes_of(query.problem);
    constexpr auto widths = implicit_gemm::all_widths(PlanarNarrowWidths(), PlanarWideWidths());
    PlanarChoice choice;
    implicit_nchw::for_choices(in_halves(query), widths, [&](const implicit_nchw::Choice &tiles) {
        if (tiles.reading == implicit_nchw::Straight)
            return;
        for (const int loaders : LoaderCounts)
            for (const int sweep : Sweeps)
                for (const bool own_place : {true, false})
                    if ((own_place || tiles.option.tiling.parts > 1) &&
                        adapt(query, v, tiles, loaders, sweep, own_place, choice))
                        body(choice);
    });
}

} // namespace cf::implicit_f32
