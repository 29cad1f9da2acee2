/* The clock that multiprocessors run at, while they do. Plain C; it enqueues and answers 0 or a
 * cudaError_t. */
#ifndef CONVFORGE_CLOCK_H
#define CONVFORGE_CLOCK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For about 50 us one multiprocessor counts its clocks: counted[0] is how many there were in
 * counted[1] ns. */
int32_t cf_count_clocks(uint64_t *counted, void *stream);

#ifdef __cplusplus
}
#endif
#endif
