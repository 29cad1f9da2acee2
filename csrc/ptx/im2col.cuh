// Pixels of a tensor under a filter's tap, which one instruction copies into shared memory (PTX
// ISA, "im2col mode"): what lies outside of the tensor arrives as zeros.
#pragma once

#include "ptx/mbarrier.cuh"

#include <cuda.h>

namespace cf {

#if CF_SM90
// From channel c on, of as many pixels as the map says: the first one is at column w and row h of
// image n, and the others follow as a filter goes over the images, in steps and up to corners that
// the map knows. What is copied lies so many columns and rows behind, at most 255 each.
__device__ __forceinline__ void copy_pixels(uint32_t to, const CUtensorMap &map, int c, int w,
                                            int h, int n, int columns, int rows, Barrier &full) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(to),
        "l"(&map), "r"(c), "r"(w), "r"(h), "r"(n), "r"(shared_address(&full.word)),
        "h"(uint16_t(columns)), "h"(uint16_t(rows))
        : "memory");
}
#endif

} // namespace cf
