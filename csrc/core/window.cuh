// The input as a sum reads it: a window per output pixel and a reach per product, so that a staged
// element costs two comparisons and one addition instead of the divisions of taps.cuh.
#pragma once

#include "core/plan.cuh"
#include "core/taps.cuh"

#include <climits>

namespace cf {

// Where the window of one output pixel begins. `source` may lie before the tensor, where padding
// does; it is read only at products that are inside. `left` is INT_MIN for a pixel that does not
// exist: no reach gets it above zero.
template <class T>
struct alignas(16) Window {
    const T *source;
    int top, left;
};

// How far from there one product reads. `width` is the image's, or 0 for a product that does not
// exist, so that it is outside of every image.
struct alignas(16) Reach {
    int offset, down, across, width;
};

// The window of pixel `at`, or of none. `first` is the first channel of the group.
template <bool Nchw, class T>
__device__ __forceinline__ Window<T> window(const cf_problem &p, const T *__restrict__ x, Pixel at,
                                            int first, bool exists) {
    const Strides xs = strides(Nchw ? CF_NCHW : CF_NHWC, p.c, p.h, p.w);
    const int top = at.p * p.stride_h - p.pad_top, left = at.q * p.stride_w - p.pad_left;
    const T *source = x + xs.at(at.n, first, top, left);
    // Keeps it one address: the compiler would carry the offset and add x again at every read,
    // which costs fused_wmma_index_reuse up to 20 registers.
    asm("" : "+l"(source));
    return {source, top, exists ? left : INT_MIN};
}

template <bool Nchw>
__device__ __forceinline__ Reach reach(const cf_problem &p, Tap t, bool exists) {
    const Strides xs = strides(Nchw ? CF_NCHW : CF_NHWC, p.c, p.h, p.w);
    const int down = t.r * p.dilation_h, across = t.s * p.dilation_w;
    return {t.c * int(xs.channel) + down * int(xs.row) + across * int(xs.column), down, across,
            exists ? p.w : 0};
}

// The element at `reach` from the window's beginning, or 0 over the edge. A window may come from
// shared memory, so the load says that it is one of read-only global memory.
template <class T>
__device__ __forceinline__ T read(const cf_problem &p, const Window<T> &window,
                                  const Reach &reach) {
    const unsigned h = window.top + reach.down, w = window.left + reach.across;
    return h < unsigned(p.h) && w < unsigned(reach.width) ? __ldg(window.source + reach.offset)
                                                          : T(0.0f);
}

// For plans: the farthest reach must fit 32 bits.
inline bool has_reach(const cf_problem &p, const Refusal &no) {
    const Strides xs = input_strides(p);
    const int64_t r = int64_t(p.r - 1) * p.dilation_h, s = int64_t(p.s - 1) * p.dilation_w;
    const double farthest = double(p.c / p.groups - 1) * double(xs.channel) +
                            double(r) * double(xs.row) + double(s) * double(xs.column);
    if (farthest > INT_MAX)
        return no("counts the elements from a window's first to its last in 32 bits; %.0f are more "
                  "than %d",
                  farthest, INT_MAX);
    return true;
}

} // namespace cf
