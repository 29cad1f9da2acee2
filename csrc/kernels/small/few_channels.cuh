// What the rows of the small family share: the problems that they are for.
#pragma once

#include "core/fragment_epilogue.cuh"
#include "core/plan.cuh"

namespace cf {

// Most channels that a row of the family is for, unless it takes output channels group by group:
// then as many as first layers of networks have.
constexpr int MostInputs = 32, MostOutputs = 64, MostGroupedOutputs = 512;

// Whether a problem is one for the family; why not otherwise.
inline bool has_few_channels(const cf_problem &p, const Refusal &no,
                             int most_outputs = MostOutputs) {
    if (p.groups != 1)
        return no("takes one group; this has %d", p.groups);
    if (p.dilation_h != 1 || p.dilation_w != 1)
        return no("takes no dilation");
    if (p.c > MostInputs || p.k > most_outputs)
        return no("is for up to %d input and %d output channels; this has %d and %d", MostInputs,
                  most_outputs, p.c, p.k);
    return true;
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
