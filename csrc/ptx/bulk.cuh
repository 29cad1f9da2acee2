// Contiguous bytes between global and shared memory in one instruction of one thread (PTX ISA,
// "cp.async.bulk"). Addresses and sizes are multiples of 16.
#pragma once

#include "ptx/mbarrier.cuh"

namespace cf {

#if CF_SM90
// `full` expects the bytes.
__device__ __forceinline__ void copy_bulk(uint32_t to, const void *from, uint32_t bytes,
                                          Barrier &full) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(shared_address(&full.word))
                 : "memory");
}

// To a global address. What threads wrote into shared memory has to be published before.
__device__ __forceinline__ void store_bulk(uint64_t to, uint32_t from, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}

// Makes what this thread wrote into shared memory visible to bulk copies and wgmma.
__device__ __forceinline__ void publish_to_bulk_copies() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Ends a group of this thread's bulk stores, and waits until all groups but the `Last` ones have
// read what they store.
template <int Last = 0>
__device__ __forceinline__ void wait_for_stores_to_read() {
    asm volatile("cp.async.bulk.commit_group;\n"
                 "cp.async.bulk.wait_group.read %0;" ::"n"(Last)
                 : "memory");
}
#endif

} // namespace cf
