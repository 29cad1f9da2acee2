/* A CUDA driver with two GPUs of 1 GiB that live in host memory: enough of one to see, on a machine
 * without a GPU, what the library does with two devices, with memory that runs out and with copies
 * that fail. It launches nothing, and does everything at once. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, FAULT = 700,
       CAPTURE_UNSUPPORTED = 900 };
enum { MULTIPROCESSORS = 16, MAJOR = 75 };
static const size_t memory = (size_t)1 << 30;
static _Atomic size_t used[2];
static __thread int stack[16], depth;
/* Up to here are CUDA's special handles, among them that of each thread's own default stream. */
enum { SPECIAL = 2 };
static _Atomic uint64_t streams = SPECIAL;
static int stream_contexts[1 << 16];

/* What the calling thread has done, and which of its calls are to fail: the copy that brings the count
 * to this number; every wait. Its streams are being recorded for so many waits from now on, which fail. */
static __thread struct {
    int allocations, copies, waits, destroyed_streams, failing_copy, failing_waits, recorded_waits;
} thread;
int *fake_allocations(void) { return &thread.allocations; }
int *fake_copies(void) { return &thread.copies; }
int *fake_waits(void) { return &thread.waits; }
int *fake_destroyed_streams(void) { return &thread.destroyed_streams; }
int *fake_failing_copy(void) { return &thread.failing_copy; }
int *fake_failing_waits(void) { return &thread.failing_waits; }
int *fake_recorded_waits(void) { return &thread.recorded_waits; }

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
    return depth ? *context = (uintptr_t)stack[--depth], OK : INVALID_CONTEXT;
}
int cuCtxGetCurrent(uintptr_t *context) {
    return *context = depth ? (uintptr_t)stack[depth - 1] : 0, OK;
}
int cuCtxSynchronize(void) { return OK; }

static _Atomic size_t *current(void) { return &used[depth ? stack[depth - 1] - 1 : 0]; }

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    return *free_bytes = memory - *current(), *total = memory, OK;
}

/* What is allocated, the last one first. */
struct block { size_t bytes; int device; struct block *next; };
static struct block *blocks;
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    if (bytes > memory - *current())
        return OUT_OF_MEMORY;
    struct block *block = aligned_alloc(256, (bytes + 511) / 256 * 256 + 256);
    if (!block)
        return OUT_OF_MEMORY;
    *current() += bytes;
    pthread_mutex_lock(&blocks_lock);
    *block = (struct block){bytes, stack[depth - 1] - 1, blocks};
    blocks = block;
    pthread_mutex_unlock(&blocks_lock);
    thread.allocations++;
    return *address = (uint64_t)(uintptr_t)block + 256, OK;
}

int cuMemFree_v2(uint64_t address) {
    struct block *block = (struct block *)(uintptr_t)(address - 256), **at;
    used[block->device] -= block->bytes;
    pthread_mutex_lock(&blocks_lock);
    for (at = &blocks; *at != block; at = &(*at)->next) {}
    *at = block->next;
    pthread_mutex_unlock(&blocks_lock);
    free(block);
    return OK;
}

/* Knows one attribute, the ordinal of the device. */
int cuPointerGetAttribute(void *data, int attribute, uint64_t address) {
    int found = INVALID_VALUE;
    (void)attribute;
    pthread_mutex_lock(&blocks_lock);
    for (struct block *block = blocks; block; block = block->next) {
        uint64_t start = (uint64_t)(uintptr_t)block + 256;
        if (start <= address && address < start + block->bytes)
            found = OK, *(int *)data = block->device;
    }
    pthread_mutex_unlock(&blocks_lock);
    return found;
}

int cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
    thread.allocations++;
    return (void)flags, (*address = aligned_alloc(256, (bytes + 255) / 256 * 256)) ? OK : OUT_OF_MEMORY;
}
int cuMemFreeHost(void *address) { return free(address), OK; }

/* Microseconds; it stands still unless a library moves it. An event is the time at which it was recorded. */
static double clock_us;
double *fake_clock(void) { return &clock_us; }

int cuEventCreate(uintptr_t *event, unsigned flags) {
    return (void)flags, thread.allocations++, *event = (uintptr_t)calloc(1, sizeof(double)), OK;
}
int cuEventDestroy_v2(uintptr_t event) { return free((void *)event), OK; }
int cuEventRecord(uintptr_t event, uintptr_t stream) {
    return (void)stream, *(double *)event = clock_us, OK;
}
int cuEventSynchronize(uintptr_t event) { return (void)event, OK; }
int cuEventElapsedTime_v2(float *milliseconds, uintptr_t from, uintptr_t to) {
    return *milliseconds = (float)((*(double *)to - *(double *)from) / 1e3), OK;
}

int cuStreamCreate(uintptr_t *stream, unsigned flags) {
    (void)flags, thread.allocations++, *stream = ++streams;
    return stream_contexts[*stream % (1 << 16)] = stack[depth - 1], OK;
}
int cuStreamGetCtx(uintptr_t stream, uintptr_t *context) {
    if (stream <= SPECIAL)
        return cuCtxGetCurrent(context);
    return *context = (uintptr_t)stream_contexts[stream % (1 << 16)], OK;
}
int cuStreamDestroy_v2(uintptr_t stream) { return (void)stream, thread.destroyed_streams++, OK; }
/* Does not tell the default streams of two threads apart. */
int cuStreamGetId(uintptr_t stream, uint64_t *id) { return *id = stream, OK; }
int cuStreamSynchronize(uintptr_t stream) {
    (void)stream, thread.waits++;
    if (thread.recorded_waits)
        return thread.recorded_waits--, CAPTURE_UNSUPPORTED;
    return thread.failing_waits ? FAULT : OK;
}
int cuStreamIsCapturing(uintptr_t stream, int *status) {
    return (void)stream, *status = thread.recorded_waits > 0, OK;
}
int cuThreadExchangeStreamCaptureMode(int *mode) { return (void)mode, OK; }

int cuMemsetD8Async(uint64_t address, unsigned char byte, size_t bytes, uintptr_t stream) {
    return (void)stream, memset((void *)(uintptr_t)address, byte, bytes), OK;
}

static int copy(void *to, const void *from, size_t bytes) {
    if (++thread.copies == thread.failing_copy)
        return FAULT;
    return memcpy(to, from, bytes), OK;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, uintptr_t stream) {
    return (void)stream, copy((void *)(uintptr_t)to, from, bytes);
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, uintptr_t stream) {
    return (void)stream, copy(to, (const void *)(uintptr_t)from, bytes);
}
