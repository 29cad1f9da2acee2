// What the rows of the small family share: the problems that they are for, and the end of their
// epilogue.
#pragma once

#include "core/plan.cuh"
#include "ptx/minmax.cuh"

#include <cmath>

namespace cf {

// Whether a problem is one for the family; why not otherwise.
inline bool has_few_channels(const cf_problem &p, const Refusal &no) {
    if (p.groups != 1)
        return no("takes one group; this has %d", p.groups);
    if (p.dilation_h != 1 || p.dilation_w != 1)
        return no("takes no dilation");
    if (p.c > 32 || p.k > 64)
        return no("is for up to 32 input and 64 output channels; this has %d and %d", p.c, p.k);
    return true;
}

// Pooling, and activations that are not a comparison or two, are left to the shared pass.
inline bool sums_follow(const cf_problem &p) {
    return p.epilogue.pool_h || p.epilogue.activation > CF_ACT_RELU6;
}

// The rest of the epilogue, an instruction or two: the largest of least and
// scale * sum + bias + residual, and the smaller of that and most.
struct Finish {
    float scale = 1;
    const float *bias = nullptr;
    const void *residual = nullptr; // stored as y is
    float least = -INFINITY, most = INFINITY;
    bool affine = false, limited = false;
};

inline Finish finish_of(const cf_problem &p, const cf_args &args) {
    const cf_epilogue &e = p.epilogue;
    Finish finish;
    finish.scale = e.scale;
    finish.bias = e.bias ? args.bias : nullptr;
    finish.residual = e.residual ? args.residual : nullptr;
    finish.affine = e.bias || e.scale != 1;
    finish.limited = e.activation != CF_ACT_NONE;
    if (finish.limited)
        finish.least = 0;
    if (e.activation == CF_ACT_RELU6)
        finish.most = 6;
    return finish;
}

// Calls body(row_tiles) for strips of so many row tiles: each number of strips that an image of
// `all` row tiles can have once, with as few row tiles in each as it needs.
template <class Body>
void for_strip_heights(int64_t all, Body body) {
    for (int64_t row_tiles = 1;; row_tiles = ceil_div(all, ceil_div(all, row_tiles) - 1)) {
        body(int(row_tiles));
        if (row_tiles >= all)
            return;
    }
}

} // namespace cf
