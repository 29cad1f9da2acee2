// The one way to launch: a kernel with its grid as a value that a plan keeps, prepared once for a
// device, and launched with addresses.
#pragma once

#include "row.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>

namespace cf {

constexpr int MaxGrid = 65535;            // blocks in y and in z; x takes INT32_MAX
constexpr unsigned FreeShared = 48 << 10; // bytes of a block's shared memory that need no opt-in

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t v, int64_t multiple) { return ceil_div(v, multiple) * multiple; }

// Blocks of `threads` for kernels that walk `items` with a grid stride.
inline unsigned blocks(int64_t items, int threads) {
    return unsigned(std::min<int64_t>(std::max<int64_t>(ceil_div(items, threads), 1), 1 << 22));
}

// What a call of the runtime answered. The runtime keeps a failure until somebody asks for it, and
// would hand it to the next who does: here it is asked for at once.
inline int32_t checked(cudaError_t error) {
    if (error != cudaSuccess)
        cudaGetLastError();
    return error;
}

// A parameter's type, but for what an address points at: kernels of all element types fit one plan.
template <class P>
struct Erased {
    using type = P;
};
template <class T>
struct Erased<T *> {
    using type = std::conditional_t<std::is_const_v<T>, const void *, void *>;
};

// A kernel that a plan chose. The parameters are its own, with addresses of anything.
template <class... Parameters>
struct Kernel {
    const void *function = nullptr;
    dim3 grid, block;
    unsigned shared = 0; // bytes, beside what the kernel declares
    // It may begin before the kernel ahead of it has ended, and waits by itself for what that one
    // writes (ptx/grid.cuh).
    bool early = false;

    int32_t launch(void *stream, const Parameters &...parameters) const {
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = grid;
        config.blockDim = block;
        config.dynamicSmemBytes = shared;
        config.stream = static_cast<cudaStream_t>(stream);
        config.attrs = &attribute;
        config.numAttrs = early;
        void *arguments[] = {const_cast<void *>(static_cast<const void *>(&parameters))...};
        return checked(cudaLaunchKernelExC(&config, function, arguments));
    }

    // Loads it into the current context, and lets it have as much shared memory as a block of the
    // device can. Always the same value: other threads may launch it meanwhile, with any size.
    int32_t prepare() const {
        cudaFuncAttributes attributes;
        if (const int32_t error = checked(cudaFuncGetAttributes(&attributes, function)))
            return error;
        if (shared + attributes.sharedSizeBytes <= FreeShared)
            return 0;
        int device = 0, most = 0;
        if (const int32_t error = checked(cudaGetDevice(&device)))
            return error;
        if (const int32_t error = checked(
                cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device)))
            return error;
        return checked(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            most - int(attributes.sharedSizeBytes)));
    }
};

template <class... Parameters>
Kernel<typename Erased<Parameters>::type...> kernel_of(void (*function)(Parameters...), dim3 grid,
                                                       dim3 block, size_t shared = 0,
                                                       bool early = false) {
    Kernel<typename Erased<Parameters>::type...> kernel;
    kernel.function = reinterpret_cast<const void *>(function);
    kernel.grid = grid, kernel.block = block;
    kernel.shared = unsigned(shared);
    kernel.early = early;
    return kernel;
}

// Prepares kernels of which a launch takes one or the other.
template <class... Functions>
int32_t prepare_all(Functions... functions) {
    int32_t error = 0;
    ((error = error ? error : kernel_of(functions, dim3(), dim3()).prepare()), ...);
    return error;
}

// For what is launched at once, as passes are whose grid depends on the chunk.
template <class... Parameters, class... Arguments>
int32_t launch(void (*function)(Parameters...), dim3 grid, dim3 block, void *stream,
               const Arguments &...arguments) {
    return kernel_of(function, grid, block).launch(stream, arguments...);
}

// Tells a measurement that the kernels of a stage were enqueued.
inline void stage(const cf_args &args, const char *name) {
    if (args.stage)
        args.stage(args.stage_user, name);
}

} // namespace cf
