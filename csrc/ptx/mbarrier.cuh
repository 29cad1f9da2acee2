// Barriers in shared memory, on which threads and copies meet (PTX ISA, "mbarrier").
#pragma once

#include "ptx/arch.cuh"
#include "ptx/shared.cuh"

namespace cf {

// Counts arrivals; a phase ends with the last of them and with the last byte that it expects.
struct Barrier {
    uint64_t word;

    __device__ __forceinline__ void init(uint32_t arrivals) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&word)),
                     "r"(arrivals)
                     : "memory");
    }
    __device__ __forceinline__ void arrive() {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&word))
                     : "memory");
    }
    // Arrives when this thread's copies (ptx/cp_async.cuh) so far are in shared memory.
    __device__ __forceinline__ void arrive_after_copies() {
        asm volatile(
            "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&word))
            : "memory");
    }
#if CF_SM90
    // Arrives so many times.
    __device__ __forceinline__ void arrive(uint32_t count) {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&word)),
                     "r"(count)
                     : "memory");
    }
    // Arrives and adds to the bytes that the phase still expects.
    __device__ __forceinline__ void arrive_and_expect(uint32_t bytes) {
        asm volatile(
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&word)),
            "r"(bytes)
            : "memory");
    }
    // Adds to the bytes that the phase still expects.
    __device__ __forceinline__ void expect(uint32_t bytes) {
        asm volatile(
            "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&word)),
            "r"(bytes)
            : "memory");
    }
    // As wait, for what blocks of the cluster wrote into this one's shared memory.
    __device__ __forceinline__ void wait_for_cluster_writes(uint32_t parity) {
        int done;
        do {
            asm volatile(
                "{\n.reg .pred done;\n"
                "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], %2;\n"
                "selp.s32 %0, 1, 0, done;\n}"
                : "=r"(done)
                : "r"(shared_address(&word)), "r"(parity)
                : "memory");
        } while (!__all_sync(~0u, done));
    }
    // All lanes of a warp wait together and leave together. The vote tells the compiler so: behind
    // a loop that each lane may leave on its own it no longer keeps anything in uniform registers.
    __device__ __forceinline__ void wait(uint32_t parity) {
        int done;
        do {
            asm volatile("{\n.reg .pred done;\n"
                         "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                         "selp.s32 %0, 1, 0, done;\n}"
                         : "=r"(done)
                         : "r"(shared_address(&word)), "r"(parity)
                         : "memory");
        } while (!__all_sync(~0u, done));
    }
#endif
};

#if CF_SM90
// Makes barriers that this thread initialised, and what else it wrote into shared memory, known to
// copies in flight, to wgmma and to other threads; the latter meet at a __syncthreads as well.
__device__ __forceinline__ void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;\n"
                 "fence.proxy.async.shared::cta;" ::
                     : "memory");
}
#endif

} // namespace cf
