// What happens to a sum before it is stored: activation(scale * sum + bias + residual).
// Pooling is a maximum over these values and belongs to the kernel, which knows where they are.
#pragma once

#include "problem.h"

namespace cf {

__device__ __forceinline__ float activate(int32_t activation, float v) {
    switch (activation) {
    case CF_ACT_RELU:
        return fmaxf(v, 0.0f);
    case CF_ACT_RELU6:
        return fminf(fmaxf(v, 0.0f), 6.0f);
    case CF_ACT_TANH:
        return tanhf(v);
    case CF_ACT_SIGMOID:
        return 1.0f / (1.0f + expf(-v));
    case CF_ACT_SILU:
        return v / (1.0f + expf(-v));
    default:
        return v;
    }
}

// fmaxf drops a NaN: the activations above must not hide one from the check.
__device__ __forceinline__ float activate_keeping_nan(int32_t activation, float v) {
    return isnan(v) ? v : activate(activation, v);
}

// bias points at this output channel's value, or is null; residual is 0 without one.
__device__ __forceinline__ float epilogue(const cf_epilogue &e, float sum, const float *bias,
                                          float residual) {
    float v = e.scale * sum;
    if (bias)
        v += *bias;
    return activate_keeping_nan(e.activation, v + residual);
}

// The larger of two, or NaN if either is: a > b is false for both.
__device__ __forceinline__ float max_keeping_nan(float a, float b) {
    return (a > b || a != a) ? a : b;
}

} // namespace cf
