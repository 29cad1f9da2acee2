/* What variants around a matrix product share: passes over memory before and after it. Plain C;
 * every function answers 0 or a cudaError_t. Which kernel a pass enqueues depends on how its
 * addresses are aligned, and its grid on the chunk of images; cf_prepare_... readies all that it
 * may come to in the device's context, so that passes only enqueue. */
#ifndef CONVFORGE_PASSES_H
#define CONVFORGE_PASSES_H

#include "row.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Write the unrolled matrix (im2col) of images first .. first+count of args->x as elements of
 * `storage`; zeros where the filter hangs over the edge, and where rows or groups are padded.
 * Operands are rounded to `storage`. The reduction is in the filter's own order: c r s in NCHW,
 * r s c in NHWC. Columns: [group][reduction, padded to `height`][image p q, padded to `pitch`]. */
int32_t cf_unroll_columns(const cf_problem *problem, const cf_args *args, int64_t first,
                          int64_t count, int32_t storage, int64_t height, int64_t pitch, void *out);
/* Rows, NHWC only: [image p q][group][reduction, padded to `pitch`]. */
int32_t cf_unroll_rows(const cf_problem *problem, const cf_args *args, int64_t first, int64_t count,
                       int32_t storage, int64_t pitch, void *out);
int32_t cf_prepare_unroll_columns(const cf_problem *problem, int32_t storage);
int32_t cf_prepare_unroll_rows(const cf_problem *problem, int32_t storage);
/* In x's own storage and without padding, columns in NCHW, rows in NHWC; written from the other
 * side: each input element goes to every place that reads it. */
int32_t cf_unroll_scatter(const cf_problem *problem, const cf_args *args, int64_t first,
                          int64_t count, void *out);
int32_t cf_prepare_unroll_scatter(const cf_problem *problem);

/* Epilogue, pooling and narrowing: reads f32 sums of images first .. first+count, whose strides are
 * given, and writes them to args->y. */
int32_t cf_finish(const cf_problem *problem, const cf_args *args, int64_t first, int64_t count,
                  const float *sums, cf_strides strides);
int32_t cf_prepare_finish(const cf_problem *problem, cf_strides strides);

/* dst[i] = src[i], rounded to another storage. */
int32_t cf_convert(const void *src, int32_t src_storage, void *dst, int32_t dst_storage,
                   int64_t count, void *stream);
/* The same of `count` rows, which dst pads with zeros from `length` to `pitch`. */
int32_t cf_convert_rows(const void *src, int32_t src_storage, void *dst, int32_t dst_storage,
                        int64_t count, int64_t length, int64_t pitch, void *stream);
/* Both. */
int32_t cf_prepare_convert(int32_t src_storage, int32_t dst_storage);

#ifdef __cplusplus
}
#endif
#endif
