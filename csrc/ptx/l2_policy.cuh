// Copies that say what the second-level cache is to do with lines of x (PTX ISA, "createpolicy",
// "cp.async.bulk", "cp.async.bulk.tensor").
#pragma once

#include "ptx/bulk.cuh"
#include "ptx/tensor.cuh"

namespace cf {

#if CF_SM90
// Lines are given up before any others, so that what is written stays.
__device__ __forceinline__ uint64_t evict_first_policy() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
// As copy_bulk; `evict_first` says whether lines of what is copied leave before any others.
__device__ __forceinline__ void copy_bulk(uint32_t to, const void *from, uint32_t bytes,
                                          Barrier &full, bool evict_first) {
    if (!evict_first)
        return copy_bulk(to, from, bytes, full);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(shared_address(&full.word)), "l"(evict_first_policy())
                 : "memory");
}
// As copy_box.
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap &map, int a, int b, int c,
                                         int d, Barrier &full, bool evict_first) {
    if (!evict_first)
        return copy_box(to, map, a, b, c, d, full);
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes."
                 "L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
                 "l"(&map), "r"(a), "r"(b), "r"(c), "r"(d), "r"(shared_address(&full.word)),
                 "l"(evict_first_policy())
                 : "memory");
}
#endif

} // namespace cf
