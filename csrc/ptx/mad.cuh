// A product of 32 bits each and a sum in 64, in one instruction (PTX ISA, "mad").
#pragma once

namespace cf {

// So many times `Factor` bytes behind an address.
template <int Factor>
__device__ __forceinline__ const char *multiply_add(int times, const char *from) {
    const char *at;
    asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(at) : "r"(times), "n"(Factor), "l"(from));
    return at;
}

} // namespace cf
