// Boxes of a tensor, which one instruction copies into shared memory (PTX ISA,
// "cp.async.bulk.tensor"): what lies outside of the tensor arrives as zeros.
#pragma once

#include "ptx/mbarrier.cuh"

#include <cuda.h>

namespace cf {

#if CF_SM90
// Brings a map, so that the first copy does not wait for it.
__device__ __forceinline__ void prefetch_map(const CUtensorMap &map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// The box that begins at these places, which may be negative. The innermost is a multiple of 16
// bytes, or the instruction counts as an illegal one; `to` is a multiple of 128.
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap &map, int a, int b, int c,
                                         int d, Barrier &full) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
                 "l"(&map), "r"(a), "r"(b), "r"(c), "r"(d), "r"(shared_address(&full.word))
                 : "memory");
}
#endif

} // namespace cf
