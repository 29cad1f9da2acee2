// The filter in constant memory: 64 KB per .cu file and device, read through a cache of its own
// that serves a warp in one step when all its lanes want the same word.
//
// A __constant__ symbol is one per device, whoever uses the row. So a filter is packed into a part
// of it that nobody else has (Rust hands the parts out, and takes them back with the packed
// filter), and a kernel is told how far from the symbol's beginning its filter lies. Launches only
// read: they need no turns, on any number of streams and in any graph. What a kernel writes there
// through the symbol's address, kernels behind it read.
#pragma once

#include "core/element.cuh"
#include "core/plan.cuh"

namespace cf {

constexpr int ConstantBytes = CF_CONSTANT_BYTES;

inline uint64_t filter_bytes(const cf_problem &p) {
    return uint64_t(p.k) * (p.c / p.groups) * p.r * p.s * element_bytes(p);
}

// For cf_functions::constant_memory.
template <class Symbol>
int32_t constant_address(const Symbol &symbol, void **address) {
    return checked(cudaGetSymbolAddress(address, symbol));
}

// Bytes from the symbol's beginning, which `prepare` asked for, to the packed filter.
inline int constant_offset(const void *begin, const cf_args &args) {
    return int(static_cast<const char *>(args.packed) - static_cast<const char *>(begin));
}

// For rows that keep the filter as it is: plans it, or says why not.
inline bool plan_constant(const cf_problem &p, cf_plan &plan, const Refusal &no) {
    plan.packed_bytes = filter_bytes(p);
    plan.filter_layout = 1;
    plan.filter_in_constant = 1;
    if (plan.packed_bytes > ConstantBytes)
        return no("keeps the filter in constant memory, %d bytes; this one has %llu", ConstantBytes,
                  (unsigned long long)plan.packed_bytes);
    return true;
}
inline int32_t pack_constant(const cf_problem &p, const void *w, void *packed, void *stream) {
    return checked(cudaMemcpyAsync(packed, w, filter_bytes(p), cudaMemcpyDeviceToDevice,
                                   static_cast<cudaStream_t>(stream)));
}

} // namespace cf
