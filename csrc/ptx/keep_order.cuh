// The order of instructions, where the compiler's own costs time (PTX ISA, "pmevent").
#pragma once

namespace cf {

// ptxas moves no instruction across it, products among them, which it does move across barriers,
// fences and reads of the clock. It is one instruction, and triggers an event that nobody counts.
__device__ __forceinline__ void keep_order() { asm volatile("pmevent 1;" ::: "memory"); }

} // namespace cf
