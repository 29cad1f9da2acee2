// Limits that keep a NaN (PTX ISA, "min", "max").
#pragma once

namespace cf {

// The largest of least and v, and the smaller of that and most. A NaN in v stays.
__device__ __forceinline__ float between(float v, float least, float most) {
    asm("max.NaN.f32 %0, %0, %1;\n"
        "min.NaN.f32 %0, %0, %2;"
        : "+f"(v)
        : "f"(least), "f"(most));
    return v;
}

} // namespace cf
