// A barrier by its address in shared memory, where the compiler would work out that of a variable
// anew for each use (PTX ISA, "mbarrier").
#pragma once

#include "ptx/arch.cuh"

#include <cstdint>

namespace cf {

#if CF_SM90
// As Barrier::wait (ptx/mbarrier.cuh).
__device__ __forceinline__ void wait_at_address(uint32_t barrier, uint32_t parity) {
    int done;
    do {
        asm volatile("{\n.reg .pred done;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                     "selp.s32 %0, 1, 0, done;\n}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!__all_sync(~0u, done));
}

// The same for several at once, in their first phase: so their answers are waited for together.
template <int Count>
__device__ __forceinline__ void wait_at_addresses(const uint32_t (&barriers)[Count]) {
    int all;
    do {
        all = 1;
#pragma unroll
        for (int i = 0; i < Count; ++i) {
            int done;
            asm volatile("{\n.reg .pred done;\n"
                         "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], 0;\n"
                         "selp.s32 %0, 1, 0, done;\n}"
                         : "=r"(done)
                         : "r"(barriers[i])
                         : "memory");
            all &= done;
        }
    } while (!__all_sync(~0u, all));
}
#endif

} // namespace cf
