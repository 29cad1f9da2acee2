// Where elements lie: strides of the tensors of a problem, in elements.
#pragma once

#include "problem.h"

namespace cf {

struct Strides : cf_strides {
    __host__ __device__ __forceinline__ int64_t at(int64_t n, int64_t c, int64_t h,
                                                   int64_t w) const {
        return n * image + c * channel + h * row + w * column;
    }
};

__host__ __device__ __forceinline__ Strides strides(int32_t layout, int64_t c, int64_t h,
                                                    int64_t w) {
    if (layout == CF_NCHW)
        return {{c * h * w, h * w, w, 1}};
    return {{c * h * w, 1, w * c, c}};
}

__host__ __device__ __forceinline__ Strides input_strides(const cf_problem &p) {
    return strides(p.layout, p.c, p.h, p.w);
}

// The filter as a tensor of k images: k c r s, or k r s c.
__host__ __device__ __forceinline__ Strides filter_strides(const cf_problem &p) {
    return strides(p.layout, p.c / p.groups, p.r, p.s);
}

// What is stored, after pooling.
__host__ __device__ __forceinline__ Strides output_strides(const cf_problem &p) {
    return strides(p.layout, p.k, p.epilogue.out_h, p.epilogue.out_w);
}

// The residual has the convolution's own output shape.
__host__ __device__ __forceinline__ Strides residual_strides(const cf_problem &p) {
    return strides(p.layout, p.k, p.p, p.q);
}

} // namespace cf
