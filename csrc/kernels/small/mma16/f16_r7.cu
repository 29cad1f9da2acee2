// Kernels of small_mma16 for f16 and filters of 7 rows.
#include "kernels/small/mma16_unrolled.cuh"

template cf::small16::Kernel cf::small16::unrolled_kernel<__half, 7>(const Tiling &, bool, dim3,
                                                                     size_t);
