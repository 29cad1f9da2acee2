// The order of launches (PTX ISA, "griddepcontrol"): a launch that may begin early (programmatic
// dependent launch) touches nothing in global memory before it has waited.
#pragma once

#include "ptx/arch.cuh"

namespace cf {

#if CF_SM90
// The launch behind this one may begin from here on.
__device__ __forceinline__ void let_next_kernel_begin() {
    asm volatile("griddepcontrol.launch_dependents;");
}
__device__ __forceinline__ void wait_for_kernels_before() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
#endif

} // namespace cf
