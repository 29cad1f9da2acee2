// Whether what a kernel reads of x had better leave the second-level cache before anything else.
#pragma once

#include "core/element.cuh"
#include "core/plan.cuh"

namespace cf {

// Where x and y fit there together with some room, what is written takes the places of x, and
// nothing that others wrote has to leave for it. Most larger ones take 1.00 to 1.18 of the time:
// lines seem to go before all of them was read. Measured up to 40 MB, of an H200's 60, and from 51
// on (docs/notes/depthwise.md).
inline bool evicts_first(const cf_query &query) {
    const cf_problem &p = query.problem;
    const double x = double(p.n) * p.c * p.h * p.w, y = double(p.n) * p.k * p.p * p.q;
    return (x + y) * element_bytes(p) <= 0.75 * double(query.device.l2_bytes);
}

} // namespace cf
