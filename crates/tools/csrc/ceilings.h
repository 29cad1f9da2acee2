/* What a device can do at best, for the floors of measurements. Plain C; every function enqueues
 * and answers 0 or a cudaError_t.
 *
 * Streams of `words` 4-byte words, a multiple of 4, at addresses aligned to 16 bytes; word i of a
 * pattern is seed + 2654435761 i, so that a sum over all of it is known. `blocks` of a few per
 * multiprocessor walk them together. */
#ifndef CONVFORGE_CEILINGS_H
#define CONVFORGE_CEILINGS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif
#endif
