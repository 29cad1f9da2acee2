/* The network of the accuracy study. Plain C; every function enqueues and answers 0 or a
 * cudaError_t. */
#ifndef CONVFORGE_NETWORK_H
#define CONVFORGE_NETWORK_H

#include "row.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- net.cu: the layers around its convolutions, f32 NCHW ---- */

int32_t cf_net_from_bytes(const uint8_t *pixels, float *x, int64_t count, void *stream);
/* ReLU, then a maximum over window x window every `window` pixels; the last windows are clipped. */
int32_t cf_net_relu_maxpool(const float *x, float *y, int64_t planes, int32_t h, int32_t w,
                            int32_t window, void *stream);
/* y[n][out] = sum x[n][in] w[out][in] + bias[out], with a ReLU if asked. */
int32_t cf_net_linear(const float *x, const float *w, const float *bias, float *y, int64_t n,
                      int32_t in, int32_t out, int32_t relu, void *stream);

/* ---- net_fused.cu: all of it with its layers fused ---- */

/* What its kernels have to be compiled for: cf_needs. */
int32_t cf_net_fused_needs(void);

#define CF_FUSED_PIXELS 7396   /* bytes of an image, 86x86 */
#define CF_FUSED_FEATURES 1296 /* numbers of 4 bytes that the convolutions leave of it */

/* The network's weights and biases, f32, as src/net/weights.rs describes them. Device addresses. */
typedef struct cf_fused_weights {
    const float *conv1, *conv2, *fc1_weight, *fc1_bias, *fc2_weight, *fc2_bias;
} cf_fused_weights;

/* Once, in a device's context, before the others: loads the kernels, sets their attributes. */
int32_t cf_net_fused_prepare(void);
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
