// Counts a multiprocessor's clocks against the device's time of day (PTX ISA, "Special Registers":
// %clock64, %globaltimer).
#include "clock.h"

#include "core/launch.cuh"

namespace {

constexpr uint64_t Nanoseconds = 50000;

__device__ uint64_t global_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

// The timer goes on in steps, which are longer than a clock: both are read as one begins.
__device__ uint64_t next_step(uint64_t from) {
    uint64_t ns;
    do
        ns = global_ns();
    while (ns <= from);
    return ns;
}

__global__ void count_clocks(uint64_t *counted) {
    const uint64_t from_ns = next_step(global_ns());
    const int64_t from = clock64();
    const uint64_t to_ns = next_step(from_ns + Nanoseconds);
    const int64_t to = clock64();
    counted[0] = uint64_t(to - from);
    counted[1] = to_ns - from_ns;
}

} // namespace

int32_t cf_count_clocks(uint64_t *counted, void *stream) {
    return cf::launch(count_clocks, 1, 1, stream, counted);
}
