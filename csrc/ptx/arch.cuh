// What a kernel's body may be written for. A row's files are compiled for the chips that its
// cf_row::needs allows (the build looks for the word in the code of the row's .cu file), and for
// others where nothing else is compiled: the body is empty there but for a trap, and the table
// refuses the row, so that nobody gets that far. CF_SM90A is 1 only in files of rows that say
// CF_NEEDS_SM90A.
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
