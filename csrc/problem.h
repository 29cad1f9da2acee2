/* A convolution and a device, as kernels see them: plain C.
 *
 * Shapes follow cuDNN and CUTLASS: input n c h w, filter k c/groups r s, output n k p q. */
#ifndef CONVFORGE_PROBLEM_H
#define CONVFORGE_PROBLEM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cf_layout { CF_NCHW = 0, CF_NHWC = 1 } cf_layout;

/* How elements of x, w, y and the residual are stored; a bias is always f32. */
typedef enum cf_storage { CF_STORE_F32 = 0, CF_STORE_F16 = 1, CF_STORE_BF16 = 2 } cf_storage;

/* How products are made and summed, apart from storage. */
typedef enum cf_math {
    CF_MATH_FP32 = 0,   /* fp32 products, fp32 sum */
    CF_MATH_TF32 = 1,   /* operands truncated or rounded to 10 bits of mantissa, fp32 sum */
    CF_MATH_F16 = 2,    /* operands rounded to f16, fp32 sum */
    CF_MATH_BF16 = 3,   /* operands rounded to bf16, fp32 sum */
    CF_MATH_F16_ACC = 4 /* operands rounded to f16, f16 sum */
} cf_math;

typedef enum cf_activation {
    CF_ACT_NONE = 0,
    CF_ACT_RELU = 1,
    CF_ACT_RELU6 = 2,
    CF_ACT_TANH = 3,
    CF_ACT_SIGMOID = 4,
    CF_ACT_SILU = 5
} cf_activation;

/* y = pool(activation(scale * conv(x, w) + bias[k] + residual)).
 * The residual has the shape of the convolution before pooling. pool_h == 0 means no pooling;
 * otherwise a maximum over pool_h x pool_w windows every pool_stride_h, pool_stride_w pixels,
 * clipped at the edge. out_h x out_w is what is stored: p x q without pooling. */
typedef struct cf_epilogue {
    float scale;
    int32_t bias, residual, activation;
    int32_t pool_h, pool_w, pool_stride_h, pool_stride_w;
    int32_t out_h, out_w;
} cf_epilogue;

typedef struct cf_problem {
    int64_t n;
    int32_t c, h, w;
    int32_t k, r, s; /* c / groups * r * s is below 2^31 - 2^16, so that steps end below 2^31 */
    int32_t p, q;
    int32_t stride_h, stride_w, dilation_h, dilation_w;
    int32_t pad_top, pad_left, pad_bottom, pad_right;
    int32_t groups;
    int32_t layout, storage, math;
    int32_t align; /* bytes that every base address is a multiple of */
    cf_epilogue epilogue;
} cf_problem;

/* What a kernel may use of a device, and what it can do at best: plans and their estimates know no
 * other numbers of a chip. */
typedef struct cf_device {
    int32_t arch; /* 90 for compute capability 9.0 */
    int32_t sm_count;
    int32_t shared_per_block; /* bytes, with opt-in */
    int32_t shared_per_sm;
    int32_t registers_per_sm;
    int64_t l2_bytes;
    uint64_t memory_bytes;
    double clocks_per_us; /* of a multiprocessor, at its highest clock */
    double bytes_per_us;  /* of the memory's pins: clock times width */
} cf_device;

/* Where the elements of a tensor lie, in elements. */
typedef struct cf_strides {
    int64_t image, channel, row, column;
} cf_strides;

#ifdef __cplusplus
}
#endif
#endif
