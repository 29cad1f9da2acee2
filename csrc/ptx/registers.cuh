// A thread's registers, moved between the warpgroups of a block (PTX ISA, "setmaxnreg"): all four
// warps of a warpgroup say so. The kernel's __launch_bounds__ has to name both numbers, or the
// compiler drops it (C7508).
#pragma once

#include "ptx/arch.cuh"

namespace cf {

#if CF_SM90A
template <int Registers>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
#endif

} // namespace cf
