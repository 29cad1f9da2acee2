// How a line of f32 is split: 64 channels of a pixel, as scaled, become a line of high parts in
// f16, one of low parts, and a power of two that products with them are multiplied by.
#pragma once

#include "kernels/implicit_gemm/f32_tiling.cuh"

#include <cuda_fp16.h>

namespace cf::implicit_f32 {

// The exponent of a line whose largest number this is, biased, within what a power of two and its
// reciprocal need.
__device__ __forceinline__ int exponent_of_line(float largest) {
    return max(__float_as_int(largest) >> 23, 127 + LeastLine);
}
// What the line is multiplied by, and products with it.
__device__ __forceinline__ float line_scale(int exponent) {
    return __int_as_float((2 * 127 + Largest - exponent) << 23);
}
__device__ __forceinline__ float line_factor(int exponent) {
    return __int_as_float((exponent - 2 * Largest) << 23);
}

// high + low / LowScale is v * scale, but for 2^-23 of it, or 2^-50 of the largest one of a line.
__device__ __forceinline__ void split_two(float a, float b, float scale, uint32_t &high,
                                          uint32_t &low) {
    a *= scale, b *= scale;
    const __half2 h = __floats2half2_rn(a, b);
    const float2 taken = __half22float2(h);
    const __half2 l = __floats2half2_rn((a - taken.x) * LowScale, (b - taken.y) * LowScale);
    high = reinterpret_cast<const uint32_t &>(h);
    low = reinterpret_cast<const uint32_t &>(l);
}

} // namespace cf::implicit_f32
