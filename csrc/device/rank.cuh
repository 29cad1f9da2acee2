// Estimates of a variant's time, for the selection. Only the order of variants matters, so the
// constants are one chip's (H200), fitted to measurements there.
#pragma once

#include "convforge.h"

namespace cf {

constexpr double LaunchUs = 5;
// Of kernels whose first block starts with little to prepare, as they were measured on one image.
constexpr double ShortLaunchUs = 1.5;
constexpr double BytesPerUs = 3.5e6; // what passes over memory reach

inline double pixels(const cf_problem &p) { return double(p.n) * p.p * p.q; }
inline double reduction(const cf_problem &p) { return double(p.c / p.groups) * p.r * p.s; }
// What a kernel takes however few its blocks are, where a thread walks a whole sum.
inline double alone_us(const cf_problem &p) { return LaunchUs + 0.06 * reduction(p); }
inline double padded(double v, int tile) { return double((int64_t(v) + tile - 1) / tile) * tile; }

// Operations of a tiled matrix product, the idle rows and columns of its tiles included.
inline double tiled_flops(const cf_problem &p, int tile) {
    return 2 * padded(pixels(p), tile) * padded(p.k / p.groups, tile) * padded(reduction(p), tile) *
           p.groups;
}

// A pass that reads f32 sums which a kernel wrote before it, and writes y.
inline double finish_us(const cf_problem &p) { return pixels(p) * p.k * (4 + 4 + 4) / BytesPerUs; }

} // namespace cf
