// The filter in constant memory: 64 KB per .cu file, read through a cache of its own that serves a
// warp in one step when all its lanes want the same word.
//
// A __constant__ symbol is one per device, so launches on different streams have to take turns:
// each waits for the event that the one before recorded, copies its filter, runs, and records. The
// copy is on the caller's stream and inside every measured time.
//
// In a stream capture the same becomes nodes of the graph: the first turn waits for what runs
// before the graph, and each records, for what runs after it. Turns of one capture are ordered
// among themselves by edges of the graph, on whatever branches of it they are.
//
// A graph's launch does not come by here, so one thing is left to the caller: a graph with such a
// row may not be launched by one thread while another enqueues or launches the same row.
#pragma once

#include "device/launch.cuh"

#include <mutex>

namespace cf {

constexpr int ConstantBytes = 64 << 10;
constexpr double TurnUs = 2.7; // the copy, and waiting for one's turn: measured in a graph

class Turns {
    struct Device {
        cudaEvent_t done = nullptr;   // the turn before, wherever it ran
        cudaEvent_t inside = nullptr; // the turn before, in the capture with this id
        unsigned long long capture = 0;
    };
    static constexpr int MaxDevices = 64;
    std::mutex mutex;
    Device devices[MaxDevices];

    static cudaError_t make(cudaEvent_t &event) {
        return event ? cudaSuccess : cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    }

    static cudaError_t wait(const Device &d, cudaStream_t stream, bool captured,
                            unsigned long long capture) {
        if (captured && d.capture == capture)
            return cudaStreamWaitEvent(stream, d.inside, cudaEventWaitDefault);
        return cudaStreamWaitEvent(stream, d.done,
                                   captured ? cudaEventWaitExternal : cudaEventWaitDefault);
    }

    static cudaError_t record(Device &d, cudaStream_t stream, bool captured,
                              unsigned long long capture) {
        if (!captured)
            return cudaEventRecord(d.done, stream);
        if (const cudaError_t error =
                cudaEventRecordWithFlags(d.done, stream, cudaEventRecordExternal))
            return error;
        d.capture = capture;
        return cudaEventRecord(d.inside, stream);
    }

  public:
    // Copies `bytes` at device address `from` into `symbol`, then calls body(), which enqueues the
    // kernels that read the symbol and answers 0 or an error.
    template <class Body>
    int32_t take(const cf_call *call, const void *symbol, const void *from, size_t bytes,
                 Body body) {
        const cudaStream_t stream = cf::stream(call);
        int device = 0;
        void *to = nullptr;
        cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        unsigned long long capture = 0;
        if (const cudaError_t error = cudaGetDevice(&device))
            return error;
        if (device >= MaxDevices)
            return cudaErrorInvalidDevice;
        if (const cudaError_t error = cudaGetSymbolAddress(&to, symbol))
            return error;
        if (const cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, &capture))
            return error;
        const bool captured = status == cudaStreamCaptureStatusActive;

        const std::lock_guard<std::mutex> lock(mutex);
        Device &d = devices[device];
        if (const cudaError_t error = make(d.done))
            return error;
        if (const cudaError_t error = make(d.inside))
            return error;
        if (const cudaError_t error = wait(d, stream, captured, capture))
            return error;
        if (const cudaError_t error =
                cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream))
            return error;
        stage(call, "filter");
        const int32_t answer = body();
        // Recorded after an error as well: the copy is on its way.
        const cudaError_t error = record(d, stream, captured, capture);
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
