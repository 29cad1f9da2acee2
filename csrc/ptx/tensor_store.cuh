// Boxes that one instruction copies from shared memory into a tensor (PTX ISA,
// "cp.async.bulk.tensor"): what lies outside of the tensor is not stored.
#pragma once

#include "ptx/arch.cuh"

#include <cuda.h>

#include <cstdint>

namespace cf {

#if CF_SM90
// To the box that begins at these places. What threads wrote into shared memory has to be published
// before, and the store belongs to this thread's group of bulk stores (ptx/bulk.cuh).
__device__ __forceinline__ void store_box(uint32_t from, const CUtensorMap &map, int a, int b,
                                          int c, int d) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group "
                 "[%0, {%1, %2, %3, %4}], [%5];" ::"l"(&map),
                 "r"(a), "r"(b), "r"(c), "r"(d), "r"(from)
                 : "memory");
}
#endif

} // namespace cf
