// What the family's rows on wgmma refuse alike.
#pragma once

#include "core/plan.cuh"

namespace cf::implicit_gemm {

inline bool multiplies_as_stored(const cf_problem &p, const Refusal &no) {
    const int32_t own = p.storage == CF_STORE_F32   ? CF_MATH_TF32
                        : p.storage == CF_STORE_F16 ? CF_MATH_F16
                                                    : CF_MATH_BF16;
    return p.math == own ||
           no("multiplies f16 or bf16 as they are stored, or f32 in tf32, into f32 sums");
}

inline bool copies_lines(const cf_problem &p, int multiple, const Refusal &no) {
    return (p.align >= 16 && p.c / p.groups % multiple == 0) ||
           no("copies lines of x, whose groups of channels are multiples of %d at addresses of "
              "16 bytes; these have %d, at multiples of %d",
              multiple, p.c / p.groups, p.align);
}

inline bool counts_images(const cf_problem &p, const Refusal &no) {
    return p.n <= INT32_MAX / 2 || no("counts images in 30 bits; these are %lld", (long long)p.n);
}

// Where tensor copies can bring no tile of NHWC: neither boxes nor im2col.
inline bool no_copies(const cf_problem &p, const Refusal &no) {
    return no("keeps lines under a filter's taps in shared memory, or copies them by pixels: "
              "steps of at most 8, taps that reach at most 255 pixels, padding up to 128, 2^30 "
              "pixels; this has steps of %d and %d, a filter of %dx%d whose taps are %d and %d "
              "apart, padding of %d and %d",
              p.stride_h, p.stride_w, p.r, p.s, p.dilation_h, p.dilation_w, p.pad_top, p.pad_left);
}

} // namespace cf::implicit_gemm
