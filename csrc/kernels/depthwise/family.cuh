// What the rows of the depthwise family share: the problems that they are for.
#pragma once

#include "core/element.cuh"
#include "core/plan.cuh"

namespace cf::depthwise {

// Whether each input channel has a filter of its own and gives one output channel.
inline bool is_depthwise(const cf_problem &p, const Refusal &no) {
    if (p.groups != p.c || p.groups != p.k || p.groups < 2)
        return no("takes as many groups as input and output channels; this has %d groups, %d and "
                  "%d channels",
                  p.groups, p.c, p.k);
    return true;
}

// 3x3, 5x5 and 7x7 with strides of 1 and 2, without dilation.
inline bool is_common(const cf_problem &p, const Refusal &no) {
    if (p.r != p.s || (p.r != 3 && p.r != 5 && p.r != 7))
        return no("takes filters of 3x3, 5x5 and 7x7; this one is %dx%d", p.r, p.s);
    if (p.stride_h != p.stride_w || p.stride_h > 2)
        return no("takes strides of 1 and 2, the same both ways; these are %d and %d", p.stride_h,
                  p.stride_w);
    if (p.dilation_h != 1 || p.dilation_w != 1)
        return no("takes no dilation");
    if (p.storage == CF_STORE_F32 && (p.math == CF_MATH_F16 || p.math == CF_MATH_BF16))
        return no("multiplies f32 as it is (math fp32 or tf32)");
    if (p.math == CF_MATH_F16_ACC)
        return no("sums in fp32");
    return true;
}

// Rows of y that a row of x meets, at most.
constexpr int rows_of(int r, int stride) { return (r + stride - 1) / stride; }

// Calls body with an element as it is stored.
template <class Body>
void for_element(const cf_problem &p, Body body) {
    if (p.storage == CF_STORE_F32)
        body(float());
    else if (p.storage == CF_STORE_F16)
        body(__half());
    else
        body(__nv_bfloat16());
}
// Calls body with the side of the filter and the stride, as compile-time constants.
template <class Body>
void for_filter(const cf_problem &p, Body body) {
    for_value<3, 5, 7>(p.r / 2 - 1, [&](auto r) {
        for_value<1, 2>(p.stride_h - 1, [&](auto stride) { body(r, stride); });
    });
}

} // namespace cf::depthwise
