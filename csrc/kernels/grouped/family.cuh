// What the rows of the grouped family share: the problems that they are for.
#pragma once

#include "core/plan.cuh"
#include "problem.h"

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
