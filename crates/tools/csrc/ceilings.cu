// What a device can do at best: bandwidth of its memory, and FMAs in registers. Measured in the run
// whose floors they give. Every kernel leaves something behind that tells whether all of it was
// done.
#include "ceilings.h"

#include "core/launch.cuh"

namespace {

constexpr int Threads = 256;
// 16-byte words that a thread has in flight: 96 KB per multiprocessor, twice what the latency of
// the memory takes.
constexpr int InFlight = 4;

__device__ uint32_t pattern(uint64_t i, uint32_t seed) { return seed + 2654435761u * uint32_t(i); }

// Runs body(i) for every i below `count`, InFlight of them at a time.
template <class Body>
__device__ void walk(uint64_t count, Body body) {
    const uint64_t step = uint64_t(gridDim.x) * Threads;
    uint64_t i = uint64_t(blockIdx.x) * Threads + threadIdx.x;
    for (; i + (InFlight - 1) * step < count; i += InFlight * step)
        body(i, step, true);
    for (; i < count; i += step)
        body(i, step, false);
}

__global__ void __launch_bounds__(Threads) write(uint4 *to, uint64_t count, uint32_t seed) {
    const uint64_t step = uint64_t(gridDim.x) * Threads;
    for (uint64_t i = uint64_t(blockIdx.x) * Threads + threadIdx.x; i < count; i += step) {
        const uint4 v = make_uint4(pattern(4 * i, seed), pattern(4 * i + 1, seed),
                                   pattern(4 * i + 2, seed), pattern(4 * i + 3, seed));
        __stcs(to + i, v);
    }
}

__global__ void __launch_bounds__(Threads)
    read(const uint4 *__restrict__ from, uint64_t count, uint32_t *sum) {
    uint32_t s = 0;
    walk(count, [&](uint64_t i, uint64_t step, bool full) {
        uint4 v[InFlight];
#pragma unroll
        for (int j = 0; j < InFlight; ++j)
            v[j] = j == 0 || full ? __ldcs(from + i + j * step) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int j = 0; j < InFlight; ++j)
            s += v[j].x + v[j].y + v[j].z + v[j].w;
    });
    for (int offset = 16; offset > 0; offset /= 2)
        s += __shfl_down_sync(~0u, s, offset);
    if (threadIdx.x % 32 == 0)
        atomicAdd(sum, s);
}

__global__ void __launch_bounds__(Threads)
    copy(const uint4 *__restrict__ from, uint4 *__restrict__ to, uint64_t count) {
    walk(count, [&](uint64_t i, uint64_t step, bool full) {
        uint4 v[InFlight];
#pragma unroll
        for (int j = 0; j < InFlight; ++j)
            if (j == 0 || full)
                v[j] = __ldcs(from + i + j * step);
#pragma unroll
        for (int j = 0; j < InFlight; ++j)
            if (j == 0 || full)
                __stcs(to + i + j * step, v[j]);
    });
}

__global__ void __launch_bounds__(CF_FMA_THREADS)
    fma_chains(float *out, float factor, float summand, int rounds) {
    const int thread = blockIdx.x * CF_FMA_THREADS + threadIdx.x;
    float v[CF_FMA_CHAINS];
#pragma unroll
    for (int i = 0; i < CF_FMA_CHAINS; ++i)
        v[i] = float(thread + i);
    for (int round = 0; round < rounds; ++round)
#pragma unroll
        for (int step = 0; step < CF_FMA_STEPS; ++step)
#pragma unroll
            for (int i = 0; i < CF_FMA_CHAINS; ++i)
                v[i] = fmaf(v[i], factor, summand);
    float most = v[0];
#pragma unroll
    for (int i = 1; i < CF_FMA_CHAINS; ++i)
        most = fmaxf(most, v[i]);
    out[thread] = most;
}

} // namespace

int32_t cf_ceiling_write(uint32_t *to, uint64_t words, uint32_t seed, int32_t blocks,
                         void *stream) {
    return cf::launch(write, blocks, Threads, stream, to, words / 4, seed);
}

int32_t cf_ceiling_read(const uint32_t *from, uint64_t words, uint32_t *sum, int32_t blocks,
                        void *stream) {
    return cf::launch(read, blocks, Threads, stream, from, words / 4, sum);
}

int32_t cf_ceiling_copy(const uint32_t *from, uint32_t *to, uint64_t words, int32_t blocks,
                        void *stream) {
    return cf::launch(copy, blocks, Threads, stream, from, to, words / 4);
}

int32_t cf_ceiling_fma(float *out, float factor, float summand, int32_t rounds, int32_t blocks,
                       void *stream) {
    return cf::launch(fma_chains, blocks, CF_FMA_THREADS, stream, out, factor, summand, rounds);
}
