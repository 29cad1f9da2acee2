// What a plan of implicit_gemm_nchw takes.
#pragma once

#include "core/estimate.cuh"
#include "kernels/implicit_gemm/nchw_plan.cuh"
#include "kernels/implicit_gemm/norm.cuh"

namespace cf::implicit_nchw {

// Clocks: until the first pixels are there; of a load of x by a loader's warp, for each batch and
// for each box it goes through; of a copy's round, and the part of it where stages are filled the
// first time, and until a stage is there again that was handed back; around a tap; of storing 64
// channels, in all and for each column of a product, and how many times that a tile takes which
// others follow. Bytes that come from L2 in a clock. What products take of what the tensor cores
// need. Where parts of a sum meet, of each column, and where they wait for the place of stages. Of
// a launch, in microseconds. Fitted, all together and none by itself, to 260 times of plans, 231
// of them of one image or few, and to 47 of large products
// (benches/results/evidence/h200-implicit-gemm-nchw-plans.csv, by scripts/fit_plans.py).
constexpr double Fill = 325, OfBatch = 1380, OfBox = 1790, PixelRound = 377, WeightRound = 565,
                 FirstShare = 0.454, Latency = 620, TapRound = 69, OfTile = 241, StoreColumn = 9.56,
                 StoreShare = 1.93;
constexpr double FillBytes = 70, ProductShare = 1.13;
constexpr double Meet = 788, MeetColumn = 51, Ready = 3720;
constexpr double AloneUs = 0.28;

inline double estimate(const cf_query &query, const Choice &choice) {
    const cf_problem &p = query.problem;
    const Tiling &t = choice.option.tiling;
    const Planes &planes = choice.planes;
    const double width = choice.option.width;
    const double blocks = double(ceil_div(t.blocks, t.parts)), taps = t.taps;
    const double loads = blocks * t.load_rows * t.load_columns;
    const double of_last = t.parts == 1 ? t.last_steps : Steps;
    const double steps = Warpgroups * taps * ((blocks - 1) * Steps + of_last);
    const double rounds = double(ceil_div(t.tiles, choice.option.grid / t.parts));
    const double weights = blocks * taps / (t.reload_weights ? 1 : std::max(rounds, 1.0));
    const int sets = t.apart ? Warpgroups : 1;
    const double pixel_bytes = loads * t.pixel_bytes * sets;
    const double weight_bytes = weights * t.weight_stage_bytes;
    const double port = steps * (16 + width / 4) + (pixel_bytes + weight_bytes) / PortBytes;
    const double products =
        ProductShare * std::max(steps * width / 2, port) + blocks * taps * TapRound;
    const double filled = (pixel_bytes + weight_bytes) / FillBytes;
    const auto copied = [&](double count, double clocks, int stages) {
        const double first = std::min(count, stages / std::max(rounds, 1.0));
        return first * FirstShare * clocks +
               (count - first) * std::max(clocks, Latency / std::max(stages - 1, 1));
    };
    const double turned = planes.straight
                              ? copied(loads * sets, PixelRound, t.pixel_stages)
                              : loads * sets * (planes.batches * OfBatch / planes.loaders + OfBox);
    const double issue = std::max(turned, copied(weights, WeightRound, t.weight_stages));
    // A single stage is filled when its products are done.
    const double main = t.pixel_stages == 1 ? products + std::max(filled, issue)
                                            : norm<5>(products, norm<5>(filled, issue));
    const double meet = t.parts > 1 ? Meet + MeetColumn * width + (t.parts_replace ? Ready : 0) : 0;
    const double store = OfTile + StoreColumn * width;
    const double tile = rounds <= 1 ? main : main + StoreShare * store;
    const double last = rounds <= 1 ? store / t.parts : store;
    const double read =
        p.r * p.s == 1 ? std::min(double(p.h) * p.w, double(p.p) * p.q) : double(p.h) * p.w;
    const double memory = element_bytes(p) * (double(p.n) * p.c * read +
                                              pixels(p) * p.k * (p.epilogue.residual ? 2 : 1)) +
                          double(packed_bytes(p));
    return ShortLaunchUs + AloneUs +
           norm<5>(clocks_us(query.device, rounds * tile + Fill + meet + last, TensorClock),
                   memory / (0.85 * query.device.bytes_per_us));
}

} // namespace cf::implicit_nchw
