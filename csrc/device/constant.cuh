// The filter in constant memory: 64 KB per .cu file, read through a cache of its own that serves a
// warp in one step when all its lanes want the same word.
//
// A __constant__ symbol is one per device, so launches on different streams have to take turns:
// each waits for the event that the one before recorded, copies its filter, runs, and records. In a
// stream capture the same becomes nodes of the graph. The copy is on the caller's stream and inside
// every measured time.
#pragma once

#include "device/launch.cuh"

#include <mutex>

namespace cf {

constexpr int ConstantBytes = 64 << 10;

class Turns {
    static constexpr int MaxDevices = 64;
    std::mutex mutex;
    cudaEvent_t done[MaxDevices] = {};

  public:
    // Copies `bytes` at device address `from` into `symbol`, then calls body(), which enqueues the
    // kernels that read the symbol and answers 0 or an error.
    template <class Body>
    int32_t take(const cf_call *call, const void *symbol, const void *from, size_t bytes,
                 Body body) {
        const cudaStream_t stream = cf::stream(call);
        int device = 0;
        cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
        void *to = nullptr;
        if (const cudaError_t error = cudaGetDevice(&device))
            return error;
        if (device >= MaxDevices)
            return cudaErrorInvalidDevice;
        if (const cudaError_t error = cudaGetSymbolAddress(&to, symbol))
            return error;
        if (const cudaError_t error = cudaStreamIsCapturing(stream, &capture))
            return error;
        const bool captured = capture == cudaStreamCaptureStatusActive;

        const std::lock_guard<std::mutex> lock(mutex);
        cudaEvent_t &event = done[device];
        if (!event)
            if (const cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming))
                return error;
        if (const cudaError_t error = cudaStreamWaitEvent(
                stream, event, captured ? cudaEventWaitExternal : cudaEventWaitDefault))
            return error;
        if (const cudaError_t error =
                cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream))
            return error;
        stage(call, "filter");
        const int32_t answer = body();
        // Recorded after an error as well: the copy is on its way.
        const cudaError_t error = cudaEventRecordWithFlags(
            event, stream, captured ? cudaEventRecordExternal : cudaEventRecordDefault);
        return answer ? answer : error;
    }
};

inline uint64_t element_bytes(const cf_problem &p) { return p.storage == CF_STORE_F32 ? 4 : 2; }

inline uint64_t filter_bytes(const cf_problem &p) {
    return uint64_t(p.k) * (p.c / p.groups) * p.r * p.s * element_bytes(p);
}

// For `supports` of rows that keep the whole filter in constant memory.
inline int32_t fits_constant(const cf_call *call, char *why, uint64_t bytes) {
    const uint64_t filter = filter_bytes(call->problem);
    if (filter > ConstantBytes)
        return no(why, bytes, "keeps the filter in constant memory, %d bytes; this one has %llu",
                  ConstantBytes, (unsigned long long)filter);
    return 1;
}

} // namespace cf
