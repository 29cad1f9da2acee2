// What the rows of the grouped family share: the problems that they are for.
#pragma once

#include "core/plan.cuh"
#include "problem.h"

#include <algorithm>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace cf::grouped {

inline bool is_grouped(const cf_problem &p, const Refusal &no) {
    const int channels = p.c / p.groups;
    if (p.k != p.c)
        return no("gives a group as many output channels as it has input channels; this has %d "
                  "and %d in %d groups",
                  p.k, p.c, p.groups);
    if (p.groups < 2 || (channels > 32 || (channels & (channels - 1)) != 0))
        return no("takes several groups of 1, 2, 4, 8, 16 or 32 channels; this has %d of %d",
                  p.groups, channels);
    return true;
}

// Whether elements are multiplied as they are stored, or f32 as tf32.
inline bool is_exact(const cf_problem &p) {
    switch (p.storage) {
    case CF_STORE_F16:
        return p.math == CF_MATH_F16;
    case CF_STORE_BF16:
        return p.math == CF_MATH_BF16;
    default:
        return p.math == CF_MATH_TF32 || p.math == CF_MATH_FP32;
    }
}

// Products of an output that do not meet padding, on average.
inline double mean_products(const cf_problem &p) {
    const auto taps = [](int taps, int dilation, int outputs, int stride, int pad, int side) {
        int64_t sum = 0;
        for (int tap = 0; tap < taps; ++tap) {
            const int64_t before = int64_t(pad) - int64_t(tap) * dilation;
            const int64_t begin = ceil_div(std::max<int64_t>(before, 0), stride);
            const int64_t end = ceil_div(std::max<int64_t>(side + before, 0), stride);
            sum += std::max<int64_t>(std::min<int64_t>(end, outputs) - begin, 0);
        }
        return double(sum) / outputs;
    };
    return double(p.c / p.groups) * taps(p.r, p.dilation_h, p.p, p.stride_h, p.pad_top, p.h) *
           taps(p.s, p.dilation_w, p.q, p.stride_w, p.pad_left, p.w);
}

constexpr int MinProducts = 20; // of a sum in math fp32

// Whether three products of tf32 are as good as one of fp32.
inline bool is_long(const cf_problem &p, const Refusal &no) {
    if (p.math != CF_MATH_FP32)
        return true;
    if (p.c / p.groups < 4)
        return no("takes groups of 4 to 32 channels in math fp32; these have %d", p.c / p.groups);
    const double products = mean_products(p);
    if (products < MinProducts)
        return no("rounds each product a little more than fp32 does, which shows in sums of fewer "
                  "than %d products; this has %.1f on average, padding not counted (math tf32 has "
                  "no such limit)",
                  MinProducts, products);
    return true;
}

// What the rows that multiply by mma.sync take, whatever the layout.
inline bool is_for_mma(const cf_problem &p, const Refusal &no) {
    if (!is_grouped(p, no))
        return false;
    if (!is_exact(p))
        return no("multiplies what is stored into f32 sums on tensor cores (math f16, bf16, or "
                  "tf32 or fp32 of f32)");
    if (!is_long(p, no))
        return false;
    if (p.epilogue.pool_h)
        return no("fuses no pooling");
    if (p.r > 7 || p.s > 7)
        return no("takes filters up to 7x7; this one is %dx%d", p.r, p.s);
    return true;
}

// Calls body with an element as it is stored.
template <class Body>
void for_element(const cf_problem &p, Body body) {
    if (p.storage == CF_STORE_F16)
        body(__half());
    else if (p.storage == CF_STORE_BF16)
        body(__nv_bfloat16());
    else
        body(float());
}

} // namespace cf::grouped
