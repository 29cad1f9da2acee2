// What a plan of implicit_gemm_nhwc takes.
#pragma once

#include "kernels/implicit_gemm/nhwc_plan.cuh"
#include "kernels/implicit_gemm/norm.cuh"

namespace cf::implicit_gemm {

// Clocks: until the first pixels are there, and the last ones of y stored; of a copy, and of a
// block's only round of a ring where some items are left for another; of a copy's round by one
// warp, and by a lane beside others; around the products of a tap, and of a tap at least where all
// are there at once; of staging and storing a piece. Bytes that come from L2 in a clock. What
// products take of their count at the clock that is assumed, what WideColumns more of them add to
// it, and what is added where blocks of a cluster read the same: a share, and once.
constexpr double Fill = 605, Latency = 2040, Refill = 1670, PixelRound = 490, WeightRound = 210,
                 FirstIssue = 259, OfTile = 152, OfPiece = 525, TapRound = 125, TapOfFirst = 335;
constexpr int WideColumns = 128;
constexpr double FillBytes = 80;
constexpr double ProductShare = 0.763, WideShare = 0.255, ClusterShare = 0.01, Clustered = 138;
// Where parts of a sum meet, and of each column; where they wait for the place of stages.
constexpr double Meet = 276, MeetColumn = 34, Ready = 1280;
// What memory gives of its pins.
constexpr double ReadShare = 0.786;
// Of a launch, in microseconds: of blocks that have a multiprocessor to themselves, so that none is
// there before the last one of the launch ahead has gone, and of others; of these, where they are
// clusters for parts of a sum.
// With what is above fitted, all together and none by itself, to 1024 times
// (benches/results/evidence/h200-implicit-gemm-nhwc-plans.csv, by scripts/fit_plans.py).
constexpr double AloneUs = 0.44, BesideUs = 0.48, BesidePartsUs = 0.93;

// Clocks of an im2col copy for each pixel, beside its bytes: of pixels that are no whole pieces of
// 64 bytes, and of others whose channels, or those of a group, are no whole lines. Fitted to 12
// times (benches/results/evidence/h200-im2col-pixels.csv), which had been told 1.0 to 1.9 times too
// low; boxes show nothing of it.
constexpr double OddPixel = 5.5, SplitPixel = 3.2;
inline double clocks_of_pixel(const cf_problem &p, const Tiling &t) {
    const int64_t pixel = int64_t(p.c) * element_bytes(p);
    if (!t.im2col)
        return 0;
    if (pixel % 64 != 0)
        return OddPixel;
    return pixel / p.groups % LineBytes != 0 ? SplitPixel : 0;
}

inline double estimate(const cf_query &query, const Option &option) {
    const cf_problem &p = query.problem;
    const Tiling &t = option.tiling;
    const double blocks = double(ceil_div(t.blocks, t.parts)), taps = t.taps;
    const double loads = blocks * t.load_rows * t.load_columns;
    const double of_last = t.parts == 1 ? t.last_steps : Steps;
    const double steps = Warpgroups * taps * ((blocks - 1) * Steps + of_last);
    const int peers = cluster_size(t);
    const double rounds = double(ceil_div(t.tiles, option.grid / peers));
    const double weights = blocks * taps / (t.reload_weights ? 1 : std::max(rounds, 1.0));
    const double pixel_bytes = loads * t.pixel_bytes * (t.apart ? Warpgroups : 1);
    const double weight_bytes = weights * t.weight_stage_bytes;
    const double own_pixels = pixel_bytes / t.pixel_peers;
    const double filled = std::max((own_pixels + weight_bytes / t.weight_peers) / FillBytes,
                                   own_pixels / LineBytes * clocks_of_pixel(p, t));
    const double port =
        steps * (16 + option.width / 4.0) + (pixel_bytes + weight_bytes) / PortBytes;
    const double tap_round = t.once && blocks_beside(option.width) > 1 ? TapOfFirst : 0;
    const double share =
        ProductShare * (1 + WideShare * std::max(option.width / double(WideColumns) - 1, 0.0));
    const double products =
        std::max(share * std::max(steps * option.width / 2.0, port) + blocks * taps * TapRound,
                 blocks * taps * tap_round);
    // The first ones are asked for at once; a stage that was handed back comes some time later.
    const auto issue_clocks = [&](double count, double clocks, int stages, int warps) {
        const double first = std::min(count, stages / std::max(rounds, 1.0));
        const double others = std::max(clocks / warps, Latency / std::max(stages - 1, 1));
        return first * FirstIssue / warps + (count - first) * others +
               (count > first && rounds <= 1 ? Refill : 0);
    };
    const double issue = std::max(issue_clocks(loads, PixelRound, t.pixel_stages, t.apart ? 1 : 2),
                                  issue_clocks(weights, WeightRound, t.weight_stages, 2));
    const double main = norm<4>(products, norm<4>(filled, issue)) *
                        (1 + ClusterShare * (t.pixel_peers * t.weight_peers - 1));
    const double meet =
        t.parts > 1 ? Meet + MeetColumn * option.width + (t.parts_replace ? Ready : 0) : 0;
    const double store =
        OfTile + OfPiece * option.width * RowChannels * element_bytes(p) / StagedBytes;
    // A warpgroup's lead is what the other one has to multiply while it stores. Where a block keeps
    // its weights, warpgroups come to store together.
    const double bare = std::max(store - t.lead * main / (blocks * taps), 0.0);
    const double kept = rounds <= 1 ? norm<4>(main, main / 2 + store) : main + store;
    const double tile = t.reload_weights ? main + store + 2 * bare : kept;
    // Between the pixels that 1x1 filters read, memory is left alone.
    const double read =
        p.r * p.s == 1 ? std::min(double(p.h) * p.w, double(p.p) * p.q) : double(p.h) * p.w;
    const double memory = element_bytes(p) * (double(p.n) * p.c * read +
                                              pixels(p) * p.k * (p.epilogue.residual ? 2 : 1)) +
                          double(packed_bytes(p));
    const double shared = t.pixel_peers * t.weight_peers > 1 ? Clustered : 0;
    const double clocks = rounds * tile + Fill + shared + meet + store / t.parts;
    const double launch = !option.beside ? AloneUs : t.parts > 1 ? BesidePartsUs : BesideUs;
    return ShortLaunchUs + launch +
           norm<4>(clocks_us(query.device, clocks, TensorClock),
                   memory / (ReadShare * query.device.bytes_per_us));
}

} // namespace cf::implicit_gemm
