// Host-side pieces of a launch.
#pragma once

#include "convforge.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace cf {

inline cudaStream_t stream(const cf_call *call) { return static_cast<cudaStream_t>(call->stream); }

// Answers `supports` with a reason.
__attribute__((format(printf, 3, 4))) inline int32_t no(char *why, uint64_t bytes,
                                                        const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, bytes, format, arguments);
    va_end(arguments);
    return 0;
}

constexpr int MaxGrid = 65535; // blocks in y and in z; x takes INT32_MAX

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Starts a kernel with so much shared memory. Where `early`, it may begin before the kernel ahead
// of it has ended, and waits by itself for what that one writes (pipeline.cuh).
template <class... Parameters, class... Arguments>
int32_t start(const cf_call *call, void (*kernel)(Parameters...), dim3 grid, int threads,
              size_t shared, bool early, Arguments... arguments) {
    if (const cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)))
        return error;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = early;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = threads;
    config.dynamicSmemBytes = shared;
    config.stream = stream(call);
    config.attrs = &attribute;
    config.numAttrs = early;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// Blocks of `threads` for kernels that walk `items` with a grid stride.
inline unsigned blocks(int64_t items, int threads) {
    return unsigned(std::min<int64_t>(std::max<int64_t>(ceil_div(items, threads), 1), 1 << 22));
}

// Tells a measurement that the kernels of a stage were enqueued.
inline void stage(const cf_call *call, const char *name) {
    if (call->stage)
        call->stage(call->stage_user, name);
}

// Walks the images in chunks that fit the workspace: body(first, count) answers 0 or an error.
template <class Body>
int32_t for_chunks(const cf_call *call, uint64_t bytes_per_image, Body body) {
    const int64_t n = call->problem.n;
    const int64_t fit = int64_t(call->workspace_bytes / std::max<uint64_t>(bytes_per_image, 1));
    const int64_t chunk = std::clamp<int64_t>(fit, 1, n);
    for (int64_t first = 0; first < n; first += chunk)
        if (const int32_t error = body(first, std::min(chunk, n - first)))
            return error;
    return 0;
}

// Workspace of variants that work image by image: at least one image's, at best all, up to 1 GiB.
inline cf_bytes chunked_workspace(const cf_problem &p, uint64_t bytes_per_image) {
    const uint64_t images = std::max<uint64_t>((uint64_t(1) << 30) / bytes_per_image, 1);
    return {bytes_per_image, bytes_per_image * std::min<uint64_t>(images, p.n)};
}

} // namespace cf
