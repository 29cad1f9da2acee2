// Counts a multiprocessor's clocks against the device's time of day.
#include "clock.h"

#include "core/launch.cuh"
#include "ptx/global_timer.cuh"

namespace {

constexpr uint64_t Nanoseconds = 50000;

// The timer goes on in steps, which are longer than a clock: both are read as one begins.
__device__ uint64_t next_step(uint64_t from) {
    uint64_t ns;
    do
        ns = cf::global_ns();
    while (ns <= from);
    return ns;
}

__global__ void count_clocks(uint64_t *counted) {
    const uint64_t from_ns = next_step(cf::global_ns());
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
