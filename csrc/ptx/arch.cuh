// What a kernel's body may be written for. A file is compiled for every chip of the build, also for
// those without its instructions: the body is empty there but for a trap, and the table refuses the
// row (cf_row::needs), so that nobody gets that far.
//
//     #if CF_SM90
//         ...
//     #else
//         cf::not_compiled();
//     #endif
#pragma once

#include <cstdint>

#define CF_SM90 (__CUDA_ARCH__ >= 900)
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define CF_SM90A 1
#else
#define CF_SM90A 0
#endif

namespace cf {

__device__ __forceinline__ void not_compiled() { __trap(); }

} // namespace cf
