// The reduction of a convolution as one index: which channel and tap product number i reads.
#pragma once

#include "core/strides.cuh"

namespace cf {

struct Tap {
    int c, r, s;
};

// In the filter's own order, so that filters are read contiguously: c r s in NCHW, r s c in NHWC.
__host__ __device__ __forceinline__ Tap tap(const cf_problem &p, int channels, int i) {
    if (p.layout == CF_NCHW)
        return {i / p.s / p.r, i / p.s % p.r, i % p.s};
    return {i % channels, i / channels / p.s, i / channels % p.s};
}

struct Pixel {
    int64_t n;
    int p, q;
};

// Output pixel number i, before pooling.
__host__ __device__ __forceinline__ Pixel pixel(const cf_problem &p, int64_t i) {
    return {i / p.q / p.p, int(i / p.q % p.p), int(i % p.q)};
}

// The input element that output pixel `at` reads at `t`, or 0 over the edge. `first` is the first
// channel of the group.
template <class T>
__device__ __forceinline__ T gather(const cf_problem &p, const T *__restrict__ x, Pixel at, Tap t,
                                    int first) {
    const int h = at.p * p.stride_h - p.pad_top + t.r * p.dilation_h;
    const int w = at.q * p.stride_w - p.pad_left + t.s * p.dilation_w;
    if (h < 0 || h >= p.h || w < 0 || w >= p.w)
        return T(0.0f);
    return x[input_strides(p).at(at.n, first + t.c, h, w)];
}

} // namespace cf
