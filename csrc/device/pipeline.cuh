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
                     "r"(arrivals));
    }
    __device__ __forceinline__ void arrive() {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&word))
                     : "memory");
    }
#if __CUDA_ARCH__ >= 900
    __device__ __forceinline__ void arrive_and_expect(uint32_t bytes) {
        asm volatile(
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&word)),
            "r"(bytes)
            : "memory");
    }
    __device__ __forceinline__ void wait(uint32_t parity) {
        asm volatile("{\n.reg .pred done;\n"
                     "again:\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                     "@!done bra again;\n}" ::"r"(shared_address(&word)),
                     "r"(parity)
                     : "memory");
    }
#endif
    // Arrives when this thread's copies so far are in shared memory.
    __device__ __forceinline__ void arrive_after_copies() {
        asm volatile(
            "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&word))
            : "memory");
    }
};

// Four bytes; with live == false zeros, and `from` is not read.
__device__ __forceinline__ void copy4_async(uint32_t to, const void *from, bool live) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                 "r"(live ? 4 : 0)
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
#endif

} // namespace cf
