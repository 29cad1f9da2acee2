/* A CUDA driver with two GPUs of 1 GiB that live in host memory: enough of one to see, on a machine
 * without a GPU, what the library does with two devices and with memory that runs out. It launches
 * nothing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, MULTIPROCESSORS = 16, MAJOR = 75 };
static const size_t memory = (size_t)1 << 30;
static _Atomic size_t used[2];
static __thread int stack[16], depth;
static _Atomic uint64_t streams;

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : OK; }
int cuDriverGetVersion(int *version) { return *version = 13000, OK; }
int cuDeviceGetCount(int *count) { return *count = 2, OK; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, OK; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return (void)device, *bytes = memory, OK; }

int cuGetErrorName(int error, const char **name) {
    return *name = error == OUT_OF_MEMORY ? "FAKE_OUT_OF_MEMORY" : "FAKE_ERROR", OK;
}

int cuGetErrorString(int error, const char **text) {
    return (void)error, *text = "the fake driver says no", OK;
}

int cuDeviceGetName(char *name, int len, int device) {
    strncpy(name, device ? "Fake B" : "Fake A", (size_t)len);
    return OK;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == MAJOR ? 9 : attribute == MULTIPROCESSORS ? 4 : 0;
    return OK;
}

/* A context is its device's number, plus one so as not to be null. */
int cuDevicePrimaryCtxRetain(uintptr_t *context, int device) {
    return *context = (uintptr_t)device + 1, OK;
}
int cuDevicePrimaryCtxRelease_v2(int device) { return (void)device, OK; }
int cuCtxPushCurrent_v2(uintptr_t context) { return stack[depth++] = (int)context, OK; }
int cuCtxPopCurrent_v2(uintptr_t *context) {
    return *context = (uintptr_t)stack[--depth], OK;
}
int cuCtxGetCurrent(uintptr_t *context) {
    return *context = depth ? (uintptr_t)stack[depth - 1] : 0, OK;
}
int cuCtxSynchronize(void) { return OK; }

static _Atomic size_t *current(void) { return &used[depth ? stack[depth - 1] - 1 : 0]; }

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    return *free_bytes = memory - *current(), *total = memory, OK;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    if (bytes > memory - *current())
        return OUT_OF_MEMORY;
    size_t *block = aligned_alloc(256, (bytes + 511) / 256 * 256 + 256);
    if (!block)
        return OUT_OF_MEMORY;
    block[0] = bytes;
    *current() += bytes;
    return *address = (uint64_t)(uintptr_t)block + 256, OK;
}

int cuMemFree_v2(uint64_t address) {
    size_t *block = (size_t *)(uintptr_t)(address - 256);
    *current() -= block[0];
    free(block);
    return OK;
}

int cuStreamCreate(uintptr_t *stream, unsigned flags) {
    return (void)flags, *stream = ++streams, OK;
}
int cuStreamDestroy_v2(uintptr_t stream) { return (void)stream, OK; }
int cuStreamGetId(uintptr_t stream, uint64_t *id) { return *id = stream, OK; }
int cuStreamSynchronize(uintptr_t stream) { return (void)stream, OK; }
int cuThreadExchangeStreamCaptureMode(int *mode) { return (void)mode, OK; }

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, uintptr_t stream) {
    return (void)stream, memcpy((void *)(uintptr_t)to, from, bytes), OK;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, uintptr_t stream) {
    return (void)stream, memcpy(to, (const void *)(uintptr_t)from, bytes), OK;
}
