/* The whole C interface between the kernels and Rust: plain C, and the only header that bindgen
 * reads.
 *
 * Shapes follow cuDNN and CUTLASS: input n c h w, filter k c/groups r s, output n k p q.
 * Every function that enqueues work returns 0 or a cudaError_t. */
#ifndef CONVFORGE_H
#define CONVFORGE_H

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
    CF_MATH_TF32 = 1,   /* operands cut or rounded to 10 bits of mantissa, fp32 sum */
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
    int32_t k, r, s;
    int32_t p, q;
    int32_t stride_h, stride_w, dilation_h, dilation_w;
    int32_t pad_top, pad_left, pad_bottom, pad_right;
    int32_t groups;
    int32_t layout, storage, math;
    int32_t align; /* bytes that every base address is a multiple of */
    cf_epilogue epilogue;
} cf_problem;

typedef struct cf_device {
    int32_t arch; /* 90 for compute capability 9.0 */
    int32_t sm_count;
    int32_t shared_per_block; /* bytes, with opt-in */
    int32_t shared_per_sm;
    int32_t registers_per_sm;
    int32_t l2_bytes;
    uint64_t memory_bytes;
} cf_device;

/* Called by a variant of several kernels after each of them was enqueued, to time it. */
typedef void (*cf_stage_fn)(void *user, const char *name);

/* What bind() prepared for fixed addresses: encoded tensor maps. */
typedef struct cf_bound {
    uint64_t words[128]; /* 64-byte aligned by the row that uses it */
} cf_bound;

/* One convolution. The functions of a row that only ask (supports, workspace, packed_bytes, rank)
 * read problem, config and device; addresses are then null. */
typedef struct cf_call {
    cf_problem problem;
    cf_device device;
    int32_t config; /* index into the row's configs; 0 where it has none */
    const void *x, *w, *packed;
    void *y;
    const float *bias;
    const void *residual;
    void *workspace;
    uint64_t workspace_bytes;
    const cf_bound *bound; /* null: run() was not bound */
    void *stream;          /* cudaStream_t */
    cf_stage_fn stage;     /* null outside of measurements */
    void *stage_user;
} cf_call;

typedef struct cf_bytes {
    uint64_t least, preferred;
} cf_bytes;

/* A handwritten kernel. Functions that a row has no use for are null. */
typedef struct cf_row {
    const char *name;   /* family_file */
    const char *family; /* folder under csrc/kernels */
    const char *idea;   /* one line */
    const char *source; /* paper or report */
    int32_t min_arch, max_arch;
    const char *const *configs; /* null-terminated, "tile=16"; the first is the default */
    /* 1, or 0 with the reason in `why`. */
    int32_t (*supports)(const cf_call *call, char *why, uint64_t why_bytes);
    cf_bytes (*workspace)(const cf_call *call);
    /* The filter re-arranged once: how many bytes, and doing it from w to `packed` on the stream.
     */
    uint64_t (*packed_bytes)(const cf_call *call);
    int32_t (*pack)(const cf_call *call, void *packed);
    int32_t (*bind)(const cf_call *call, cf_bound *bound);
    /* Estimated microseconds, for the selection; negative for no opinion. */
    double (*rank)(const cf_call *call);
    int32_t (*launch)(const cf_call *call);
} cf_row;

/* The rows of kernels.def, in its order; null-terminated. */
const cf_row *const *cf_rows(void);

const char *cf_error_name(int32_t code);
const char *cf_error_text(int32_t code);

/* ---- oracle.cu: the judge for problems too large for the CPU ---- */

/* An element passes when |y - ref| <= per_mag * mag + per_ref * |ref| + floor, where mag is
 * |scale| sum|x w| + |bias| + |residual|; with `exact` it must equal ref rounded to the storage.
 * src/check/bounds.rs has the numbers and why they are what they are. */
typedef struct cf_bounds {
    int32_t exact;
    double per_mag, per_ref, floor;
    double rounding; /* of a 16-bit output, in units of ref; it (or floor) is left out of sums */
} cf_bounds;

typedef struct cf_verdict {
    int64_t bad, nan;
    int64_t first_bad;        /* index of the first wrong element, INT64_MAX where there is none */
    int64_t nonzero;          /* outputs whose reference is not zero */
    int64_t counted;          /* outputs whose mag is not zero: the sums run over these */
    double sum_sq;            /* of (|y - ref| / mag)^2 */
    double sum_sq_sequential; /* the same for a sequential fp32 loop */
    double worst;             /* largest |y - ref| / mag */
} cf_verdict;

/* Writes, for outputs first .. first+count in y's order: the f64 reference, mag and the sequential
 * fp32 result (rounded to the storage, widened to f32). Device addresses. */
int32_t cf_oracle(const cf_call *call, int64_t first, int64_t count, double *reference, double *mag,
                  float *sequential);
/* Judges call->y against the same values. `verdict` is a device address, overwritten. */
int32_t cf_judge(const cf_call *call, const cf_bounds *bounds, cf_verdict *verdict);
/* Counts the 4-byte words (then bytes, for a tail) in which a and b differ. */
int32_t cf_count_differences(const void *a, const void *b, uint64_t bytes, uint64_t *count,
                             void *stream);

/* ---- unroll.cu, finish.cu: what variants around a matrix product share ---- */

/* Where the sums of a convolution lie, in elements: y's own order, or channels first. */
typedef struct cf_strides {
    int64_t image, channel, row, column;
} cf_strides;

/* Write the unrolled matrix (im2col) of images first .. first+count as elements of `storage`; zeros
 * where the filter hangs over the edge, and where rows or groups are padded. Operands are rounded
 * to `storage`. The reduction is in the filter's own order: c r s in NCHW, r s c in NHWC. Columns:
 * [group][reduction, padded to `height`][image p q, padded to `pitch`]. */
int32_t cf_unroll_columns(const cf_call *call, int64_t first, int64_t count, int32_t storage,
                          int64_t height, int64_t pitch, void *out);
/* Rows, NHWC only: [image p q][group][reduction, padded to `pitch`]. */
int32_t cf_unroll_rows(const cf_call *call, int64_t first, int64_t count, int32_t storage,
                       int64_t pitch, void *out);
#ifdef __cplusplus /* Rust has no use for it */
/* In x's own storage and without padding, columns in NCHW, rows in NHWC; written from the other
 * side: each input element goes to every place that reads it. */
int32_t cf_unroll_scatter(const cf_call *call, int64_t first, int64_t count, void *out);
#endif
/* Epilogue, pooling and narrowing: reads f32 sums of images first .. first+count, whose strides are
 * given, and writes them to call->y. */
int32_t cf_finish(const cf_call *call, int64_t first, int64_t count, const float *sums,
                  cf_strides strides);
/* dst[i] = src[i], rounded to another storage. */
int32_t cf_convert(const void *src, int32_t src_storage, void *dst, int32_t dst_storage,
                   int64_t count, void *stream);
/* The same of `count` rows, which dst pads with zeros from `length` to `pitch`. */
int32_t cf_convert_rows(const void *src, int32_t src_storage, void *dst, int32_t dst_storage,
                        int64_t count, int64_t length, int64_t pitch, void *stream);

/* ---- ceilings.cu: what a device can do at best, for the floors of measurements ----
 * Streams of `words` 4-byte words, a multiple of 4, at addresses aligned to 16 bytes; word i of a
 * pattern is seed + 2654435761 i, so that a sum over all of it is known. `blocks` of a few per
 * multiprocessor walk them together. */

int32_t cf_ceiling_write(uint32_t *to, uint64_t words, uint32_t seed, int32_t blocks, void *stream);
/* Adds every word of `from` to *sum. */
int32_t cf_ceiling_read(const uint32_t *from, uint64_t words, uint32_t *sum, int32_t blocks,
                        void *stream);
int32_t cf_ceiling_copy(const uint32_t *from, uint32_t *to, uint64_t words, int32_t blocks,
                        void *stream);
/* Every one of blocks x CF_FMA_THREADS threads begins CF_FMA_CHAINS numbers with its index plus
 * 0, 1, 2, ..., does v = fma(v, factor, summand) `rounds` times CF_FMA_STEPS to each, and writes
 * the largest of them. */
#define CF_FMA_THREADS 256
#define CF_FMA_CHAINS 16
#define CF_FMA_STEPS 16
int32_t cf_ceiling_fma(float *out, float factor, float summand, int32_t rounds, int32_t blocks,
                       void *stream);

/* ---- net.cu: the layers around the convolutions of the accuracy study, f32 NCHW ---- */

int32_t cf_net_from_bytes(const uint8_t *pixels, float *x, int64_t count, void *stream);
/* ReLU, then a maximum over window x window every `window` pixels; the last windows are clipped. */
int32_t cf_net_relu_maxpool(const float *x, float *y, int64_t planes, int32_t h, int32_t w,
                            int32_t window, void *stream);
/* y[n][out] = sum x[n][in] w[out][in] + bias[out], with a ReLU if asked. */
int32_t cf_net_linear(const float *x, const float *w, const float *bias, float *y, int64_t n,
                      int32_t in, int32_t out, int32_t relu, void *stream);

/* ---- net_fused.cu: the same network with its layers fused; for arch 90 and newer ---- */

#define CF_FUSED_PIXELS 7396   /* bytes of an image, 86x86 */
#define CF_FUSED_FEATURES 1296 /* numbers of 4 bytes that the convolutions leave of it */

/* The network's weights and biases, f32, as src/net/weights.rs describes them. Device addresses. */
typedef struct cf_fused_weights {
    const float *conv1, *conv2, *fc1_weight, *fc1_bias, *fc2_weight, *fc2_bias;
} cf_fused_weights;

/* Bytes of the weights as the kernels read them. */
uint64_t cf_net_fused_packed_bytes(void);
int32_t cf_net_fused_pack(const cf_fused_weights *weights, void *packed, void *stream);
/* Ten logits for each of n images. `features` is scratch memory for n * CF_FUSED_FEATURES numbers.
 * Up to 12 bytes on both sides of the pixels are read, not used. */
int32_t cf_net_fused(const uint8_t *pixels, int64_t n, const void *packed, void *features,
                     float *logits, int32_t sm_count, void *stream);

#ifdef __cplusplus
}
#endif
#endif
