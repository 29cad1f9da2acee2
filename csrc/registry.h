/* What kernels.def says of a row beside its name. Plain C. */
#ifndef CONVFORGE_REGISTRY_H
#define CONVFORGE_REGISTRY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 1 if a rule may choose the row at this index of cf_rows(), 0 if its line says UNRANKED. */
int32_t cf_is_ranked(uint64_t row);

#ifdef __cplusplus
}
#endif
#endif
