// Kernels of small_mma16 for bf16 and filters of 5 rows.
#include "kernels/small/mma16_unrolled.cuh"

template cf::small16::Kernel cf::small16::unrolled_kernel<__nv_bfloat16, 5>(const Tiling &, bool,
                                                                            dim3, size_t);
