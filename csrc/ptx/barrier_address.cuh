// A barrier by its address in shared memory, where the compiler would work out that of a variable
// anew for each use (PTX ISA, "mbarrier").
#pragma once

#include "ptx/arch.cuh"

#include <cstdint>

namespace cf {

#if CF_SM90
// As Barrier::wait (ptx/mbarrier.cuh), for several at once, so that their answers are waited for
// together.
template <int Count>
__device__ __forceinline__ void wait_at_addresses(const uint32_t (&barriers)[Count],
                                                  const uint32_t (&parities)[Count]) {
    int all;
    do {
        all = 1;
#pragma unroll
        for (int i = 0; i < Count; ++i) {
            int done;
            asm volatile("{\n.reg .pred done;\n"
                         "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                         "selp.s32 %0, 1, 0, done;\n}"
                         : "=r"(done)
                         : "r"(barriers[i]), "r"(parities[i])
                         : "memory");
            all &= done;
        }
    } while (!__all_sync(~0u, all));
}

// As Barrier::arrive, of the threads whose `arrives` is not 0: without a branch.
__device__ __forceinline__ void arrive_at_address(uint32_t barrier, int arrives) {
    asm volatile("{\n.reg .pred arrives;\nsetp.ne.b32 arrives, %1, 0;\n"
                 "@arrives mbarrier.arrive.shared::cta.b64 _, [%0];\n}" ::"r"(barrier),
                 "r"(arrives)
                 : "memory");
}
// The same where the address is another block's of the cluster (address_of).
__device__ __forceinline__ void arrive_at_cluster_address(uint32_t barrier, int arrives) {
    asm volatile("{\n.reg .pred arrives;\nsetp.ne.b32 arrives, %1, 0;\n"
                 "@arrives mbarrier.arrive.shared::cluster.b64 _, [%0];\n}" ::"r"(barrier),
                 "r"(arrives)
                 : "memory");
}
#endif

} // namespace cf
