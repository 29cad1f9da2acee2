// Unrolling (im2col): the input re-written so that a convolution is one matrix product, every input
// element copied once per tap that reads it (Chellapilla, Puri, Simard 2006).
#include "device/element.cuh"
#include "device/launch.cuh"
#include "device/tap.cuh"

namespace {

constexpr int Threads = 256;

// One thread per element of the unrolled matrix, in its order: writes are contiguous, reads are
// gathered and mostly so too.
template <class From, class To>
__global__ void unroll(const cf_problem p, const From *__restrict__ x, To *__restrict__ out,
                       int64_t first, int64_t pixels, int64_t elements) {
    const int channels = p.c / p.groups, reduction = channels * p.r * p.s;
    const int64_t step = int64_t(gridDim.x) * Threads;
    for (int64_t e = int64_t(blockIdx.x) * Threads + threadIdx.x; e < elements; e += step) {
        const bool nchw = p.layout == CF_NCHW;
        const int64_t column = nchw ? e % pixels : e / reduction / p.groups;
        const int64_t row = nchw ? e / pixels : e % (int64_t(reduction) * p.groups);
        const int group = int(row / reduction);
        cf::Pixel at = cf::pixel(p, column);
        at.n += first;
        const From v =
            cf::gather(p, x, at, cf::tap(p, channels, int(row % reduction)), group * channels);
        out[e] = cf::narrow<To>(cf::widen(v));
    }
}

template <class From, class To>
__global__ void convert(const From *__restrict__ src, To *__restrict__ dst, int64_t count) {
    const int64_t step = int64_t(gridDim.x) * Threads;
    for (int64_t i = int64_t(blockIdx.x) * Threads + threadIdx.x; i < count; i += step)
        dst[i] = cf::narrow<To>(cf::widen(src[i]));
}

template <class Body>
int32_t for_storage(int32_t storage, Body body) {
    switch (storage) {
    case CF_STORE_F32:
        return body(float());
    case CF_STORE_F16:
        return body(__half());
    case CF_STORE_BF16:
        return body(__nv_bfloat16());
    }
    return cudaErrorInvalidValue;
}

} // namespace

int32_t cf_unroll(const cf_call *call, int64_t first, int64_t count, int32_t storage, void *out) {
    const cf_problem &p = call->problem;
    const int64_t pixels = count * p.p * p.q;
    const int64_t elements = pixels * p.c * p.r * p.s;
    return for_storage(p.storage, [&](auto from) {
        return for_storage(storage, [&](auto to) -> int32_t {
            using From = decltype(from);
            using To = decltype(to);
            unroll<<<cf::blocks(elements, Threads), Threads, 0, cf::stream(call)>>>(
                p, static_cast<const From *>(call->x), static_cast<To *>(out), first, pixels,
                elements);
            return cudaGetLastError();
        });
    });
}

int32_t cf_convert(const void *src, int32_t src_storage, void *dst, int32_t dst_storage,
                   int64_t count, void *stream) {
    return for_storage(src_storage, [&](auto from) {
        return for_storage(dst_storage, [&](auto to) -> int32_t {
            using From = decltype(from);
            using To = decltype(to);
            convert<<<cf::blocks(count, Threads), Threads, 0, static_cast<cudaStream_t>(stream)>>>(
                static_cast<const From *>(src), static_cast<To *>(dst), count);
            return cudaGetLastError();
        });
    });
}
