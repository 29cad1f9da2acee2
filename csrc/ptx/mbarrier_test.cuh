// Whether a phase is over, without waiting for it (PTX ISA, "mbarrier.test_wait").
#pragma once

#include "ptx/mbarrier.cuh"

namespace cf {

#if CF_SM90
// As all lanes of a warp see it.
__device__ __forceinline__ bool is_over(Barrier &barrier, uint32_t parity) {
    int done;
    asm volatile("{\n.reg .pred done;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                 "selp.s32 %0, 1, 0, done;\n}"
                 : "=r"(done)
                 : "r"(shared_address(&barrier.word)), "r"(parity)
                 : "memory");
    return __all_sync(~0u, done);
}
#endif

} // namespace cf
