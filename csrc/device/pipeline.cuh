// Barriers in shared memory and copies into it that report to them: the pieces of a kernel whose
// loading and computing warps run apart (PTX ISA, "mbarrier" and "cp.async").
#pragma once

#include <cstdint>

namespace cf {

__device__ __forceinline__ uint32_t shared_address(const void *p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

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
#if __CUDA_ARCH__ >= 900
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
    // Arrives when this thread's copies so far are in shared memory.
    __device__ __forceinline__ void arrive_after_copies() {
        asm volatile(
            "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&word))
            : "memory");
    }
};

#if __CUDA_ARCH__ >= 900
// Makes barriers that this thread initialised known to copies in flight and to other threads; the
// latter meet at a __syncthreads as well.
__device__ __forceinline__ void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;\n"
                 "fence.proxy.async.shared::cta;" ::
                     : "memory");
}
#endif

// Four bytes; with live == false zeros, and `from` is not read.
__device__ __forceinline__ void copy4_async(uint32_t to, const void *from, bool live) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                 "r"(live ? 4 : 0)
                 : "memory");
}

// Sixteen bytes of aligned addresses, or sixteen of zeros.
__device__ __forceinline__ void copy16_async(uint32_t to, const void *from, bool live) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(live ? 16 : 0)
                 : "memory");
}

// Contiguous bytes in one instruction; addresses and size are multiples of 16.
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void copy_bulk(uint32_t to, const void *from, uint32_t bytes,
                                          Barrier &full) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(shared_address(&full.word))
                 : "memory");
}

// Contiguous bytes from shared memory to a global address, both multiples of 16, as is their
// number. What threads wrote there has to be published before.
__device__ __forceinline__ void store_bulk(uint64_t to, uint32_t from, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}

// Makes what this thread wrote into shared memory visible to bulk copies from there.
__device__ __forceinline__ void publish_to_bulk_copies() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A launch that may begin early (programmatic dependent launch) touches nothing in global memory
// before the second of these, and its successor may begin from the first on.
__device__ __forceinline__ void let_next_kernel_begin() {
    asm volatile("griddepcontrol.launch_dependents;");
}
__device__ __forceinline__ void wait_for_kernels_before() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Waits until this thread's bulk stores have read what they store.
__device__ __forceinline__ void wait_for_stores_to_read() {
    asm volatile("cp.async.bulk.commit_group;\n"
                 "cp.async.bulk.wait_group.read 0;" ::
                     : "memory");
}
#endif

} // namespace cf
