// How an f32 of a filter becomes words of tf32.
#pragma once

#include "core/element.cuh"

namespace cf::grouped {

// Part 0 of an f32 is the tf32 that is nearest, part 1 that of what is left.
__device__ __forceinline__ uint32_t word_of(float v, int part) {
    const float hi = Sum<CF_MATH_TF32>::operand(v);
    return __float_as_uint(part ? Sum<CF_MATH_TF32>::operand(v - hi) : hi);
}

} // namespace cf::grouped
