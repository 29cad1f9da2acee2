// Expands kernels.def into the array of rows that everything else walks.
#include "convforge.h"

#include <cuda_runtime.h>

#define ROW(family, file) extern "C" const cf_row family##_##file;
#include "kernels.def"
#undef ROW

static const cf_row *const rows[] = {
#define ROW(family, file) &family##_##file,
#include "kernels.def"
#undef ROW
    nullptr,
};

const cf_row *const *cf_rows(void) { return rows; }

const char *cf_error_name(int32_t code) { return cudaGetErrorName(static_cast<cudaError_t>(code)); }

const char *cf_error_text(int32_t code) {
    return cudaGetErrorString(static_cast<cudaError_t>(code));
}
