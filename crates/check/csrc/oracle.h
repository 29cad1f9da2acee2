/* The judge for problems too large for the CPU. Plain C; every function enqueues and answers 0 or a
 * cudaError_t. */
#ifndef CONVFORGE_ORACLE_H
#define CONVFORGE_ORACLE_H

#include "row.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An element passes when |y - ref| <= per_mag * mag + per_ref * |ref| + floor, where mag is
 * |scale| sum|x w| + |bias| + |residual|; with `exact` it must equal ref rounded to the storage.
 * src/bounds.rs has the numbers and why they are what they are. */
typedef struct cf_bounds {
    int32_t exact;
    double per_mag, per_ref, floor;
    double rounding; /* of a 16-bit output, in units of ref; it or floor is left out of sums */
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
int32_t cf_oracle(const cf_problem *problem, const cf_args *args, int64_t first, int64_t count,
                  double *reference, double *mag, float *sequential);
/* Judges args->y against the same values. `verdict` is a device address, overwritten. */
int32_t cf_judge(const cf_problem *problem, const cf_args *args, const cf_bounds *bounds,
                 cf_verdict *verdict);
/* The same of an output y, by values that cf_oracle has written for all outputs. */
int32_t cf_judge_by(const cf_problem *problem, const double *reference, const double *mag,
                    const float *sequential, const void *y, const cf_bounds *bounds,
                    cf_verdict *verdict, void *stream);
/* Counts the 4-byte words (then bytes, for a tail) in which a and b differ. */
int32_t cf_count_differences(const void *a, const void *b, uint64_t bytes, uint64_t *count,
                             void *stream);
typedef enum cf_data {
    CF_DATA_WHOLE = 0,
    CF_DATA_NORMAL = 1,
    CF_DATA_POSITIVE = 2,
    CF_DATA_WIDE = 3,
    CF_DATA_EXTREME = 4
} cf_data;

/* What makes the elements of a tensor: the fields of src/recipe.rs, whole.rs and extreme.rs. */
typedef struct cf_recipe {
    int32_t data;
    int32_t tensor; /* x, w, bias, residual */
    int32_t storage, clips;
    float factor;
    uint64_t stream, len;
    uint64_t between[2], all, channels, filters, row; /* where elements lie */
    uint64_t largest[2], added, block;                /* whole numbers */
    uint64_t period, swap, half, partner;             /* fine ones */
    int32_t wide;                                     /* exponents of wide data */
    uint64_t extreme, exponents;
    int32_t first, product, others;
} cf_recipe;

/* Makes a tensor at a device address. */
int32_t cf_make_tensor(const cf_recipe *recipe, void *tensor, void *stream);
/* Of `count` outputs of `len` elements, each followed by a gap up to `stride`: the first element
 * that is NaN in an output, or anything but bytes 0xff in a gap; UINT64_MAX where there is none.
 * `outputs` and `first` are device addresses. */
int32_t cf_find_poison(const cf_problem *problem, const void *outputs, int64_t len, int64_t stride,
                       int64_t count, uint64_t *first, void *stream);

#ifdef __cplusplus
}
#endif
#endif
