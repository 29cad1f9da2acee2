// What the rows of the small family share: the problems that they are for, and the end of their
// epilogue.
#pragma once

#include "device/launch.cuh"

namespace cf {

// Whether a problem is one for the family; why not otherwise.
inline int32_t has_few_channels(const cf_problem &p, char *why, uint64_t bytes) {
    if (p.groups != 1)
        return no(why, bytes, "takes one group; this has %d", p.groups);
    if (p.dilation_h != 1 || p.dilation_w != 1)
        return no(why, bytes, "takes no dilation");
    if (p.c > 32 || p.k > 64)
        return no(why, bytes, "is for up to 32 input and 64 output channels; this has %d and %d",
                  p.c, p.k);
    return 1;
}

// The largest of least and v, and the smaller of that and most. A NaN in v stays.
__device__ __forceinline__ float between(float v, float least, float most) {
    asm("max.NaN.f32 %0, %0, %1;\n"
        "min.NaN.f32 %0, %0, %2;"
        : "+f"(v)
        : "f"(least), "f"(most));
    return v;
}

} // namespace cf
