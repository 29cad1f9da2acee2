/* What kernels.def says of a row beside its name, and what a build's device code is. Plain C. */
#ifndef CONVFORGE_REGISTRY_H
#define CONVFORGE_REGISTRY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 1 if a rule may choose the row at this index of cf_rows(), 0 if its line says UNRANKED. */
int32_t cf_is_ranked(uint64_t row);

/* 1 if a driver has to translate this build's kernels for a device of this arch, as there is PTX
 * for it and no machine code, or 0. */
int32_t cf_translated_for(int32_t arch);

#ifdef __cplusplus
}
#endif
#endif
