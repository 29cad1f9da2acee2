// Estimates of a variant's time, for the selection. What is known of a chip comes from cf_device;
// the shares of it that kernels reach were fitted to measurements and hold for any.
//
// A plan that enumerates tilings takes the one with the least estimate, and tells that estimate.
// Some rows tell more than they compare by: what all tilings of a problem have in common, and three
// of the small family a correction for some kinds of them. docs/design.md has which ("Choosing").
#pragma once

#include "row.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace cf {

// A launch of the direct and fused rows, and each of the three of im2col_gemm, as they were
// measured on random problems (benches/results/evidence/h200-random-fp32.csv).
constexpr double LaunchUs = 2.5;
// Of kernels whose first block starts with little to prepare, as they were measured on one image.
constexpr double ShortLaunchUs = 1.5;
// What passes over memory reach of its pins.
constexpr double MemoryShare = 0.712;
// What the clock keeps of its highest under fp32 work, and beside busy tensor cores.
constexpr double FmaClock = 0.96, TensorClock = 0.884;

inline double memory_us(const cf_device &d, double bytes) {
    return bytes / (MemoryShare * d.bytes_per_us);
}
// What takes so many clocks of one multiprocessor at a share of its highest clock.
inline double clocks_us(const cf_device &d, double clocks, double share) {
    return clocks / (share * d.clocks_per_us);
}
// Bytes that the memory's pins move for one multiprocessor in a clock, at a share of its highest.
inline double bytes_per_clock(const cf_device &d, double share) {
    return d.bytes_per_us / (d.sm_count * share * d.clocks_per_us);
}
// What two that go on beside each other take, each by itself so long.
inline double together_us(double a, double b) { return std::cbrt(a * a * a + b * b * b); }

// Operations of which every multiprocessor does so many in a clock, on all of them.
inline double busy_us(const cf_device &d, double operations, double per_clock) {
    return operations / (per_clock * d.sm_count * d.clocks_per_us);
}

// The same where blocks may be too few for that: one by itself takes so many clocks.
inline double busy_us(const cf_device &d, double operations, double per_clock, double clocks) {
    return std::max(busy_us(d, operations, per_clock), clocks / d.clocks_per_us);
}

inline double pixels(const cf_problem &p) { return double(p.n) * p.p * p.q; }
inline double reduction(const cf_problem &p) { return double(p.c / p.groups) * p.r * p.s; }
// What a kernel takes however few its blocks are, where a thread walks a whole sum: clocks for each
// product.
inline double alone_us(const cf_query &q, double launch_us, double product) {
    return launch_us + product * reduction(q.problem) / q.device.clocks_per_us;
}
inline double padded(double v, int tile) { return double((int64_t(v) + tile - 1) / tile) * tile; }

// Operations of a tiled matrix product, the idle rows and columns of its tiles included.
inline double tiled_flops(const cf_problem &p, int tile) {
    return 2 * padded(pixels(p), tile) * padded(p.k / p.groups, tile) * padded(reduction(p), tile) *
           p.groups;
}

// A pass that reads f32 sums which a kernel wrote before it, and writes y.
inline double finish_us(const cf_query &q) {
    return memory_us(q.device, pixels(q.problem) * q.problem.k * (4 + 4 + 4));
}

} // namespace cf
