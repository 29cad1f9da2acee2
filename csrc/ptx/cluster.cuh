// Blocks of a cluster, which run side by side: their barriers, copies that go to several of them at
// once (PTX ISA, "barrier.cluster", "mapa", ".multicast::cluster").
#pragma once

#include "ptx/mbarrier.cuh"

#include <cuda.h>

namespace cf {

#if CF_SM90
// Of this block among those of its cluster.
__device__ __forceinline__ int cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return int(rank);
}

// Until all threads of the cluster have arrived. They show each other nothing but barriers that
// they published: a release would wait for stores on their way.
__device__ __forceinline__ void arrive_at_cluster() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_for_arrivals_at_cluster() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Arrives at the barrier in the same place of another block's shared memory, or its own.
__device__ __forceinline__ void arrive_at(Barrier &barrier, int rank) {
    asm volatile(
        "{\n.reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(shared_address(&barrier.word)),
        "r"(rank)
        : "memory");
}

// The same place in another block's shared memory, or its own.
__device__ __forceinline__ uint32_t address_of(int rank, uint32_t address) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}
// Stores at such an address; the barrier at such an address, of the same block, expects the bytes.
__device__ __forceinline__ void store_async4(uint32_t to, float a, float b, float c, float d,
                                             uint32_t full) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
                 "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
                 "f"(a), "f"(b), "f"(c), "f"(d), "r"(full)
                 : "memory");
}

// As copy_box (ptx/tensor.cuh), copy_pixels (ptx/im2col.cuh) and copy_bulk (ptx/bulk.cuh), to the
// same place in the shared memory of the blocks whose bits are set, and with their barriers in the
// same place.
__device__ __forceinline__ void copy_box_to(uint32_t ranks, uint32_t to, const CUtensorMap &map,
                                            int a, int b, int c, int d, Barrier &full) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes."
                 "multicast::cluster [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
                 "l"(&map), "r"(a), "r"(b), "r"(c), "r"(d), "r"(shared_address(&full.word)),
                 "h"(uint16_t(ranks))
                 : "memory");
}
__device__ __forceinline__ void copy_pixels_to(uint32_t ranks, uint32_t to, const CUtensorMap &map,
                                               int c, int w, int h, int n, int columns, int rows,
                                               Barrier &full) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col."
                 "mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8}, %9;" ::"r"(to),
                 "l"(&map), "r"(c), "r"(w), "r"(h), "r"(n), "r"(shared_address(&full.word)),
                 "h"(uint16_t(columns)), "h"(uint16_t(rows)), "h"(uint16_t(ranks))
                 : "memory");
}
__device__ __forceinline__ void copy_bulk_to(uint32_t ranks, uint32_t to, const void *from,
                                             uint32_t bytes, Barrier &full) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes."
                 "multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(shared_address(&full.word)), "h"(uint16_t(ranks))
                 : "memory");
}
#endif

} // namespace cf
