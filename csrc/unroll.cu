// Unrolling (im2col): the input re-written so that a convolution is one matrix product, every input
// element copied once per tap that reads it (Chellapilla, Puri, Simard 2006).
#include "device/element.cuh"
#include "device/launch.cuh"
#include "device/tap.cuh"

namespace {

constexpr int Threads = 256;

// One thread per element of the unrolled matrix, in its order: writes are contiguous, reads are
// gathered and mostly so too. `pitch` is the length of a row with its padding.
template <class From, class To>
__global__ void unroll(const cf_problem p, const From *__restrict__ x, To *__restrict__ out,
                       int64_t first, int64_t pixels, int64_t pitch, int64_t elements) {
    const int channels = p.c / p.groups, reduction = channels * p.r * p.s;
    const bool nchw = p.layout == CF_NCHW;
    const int64_t step = int64_t(gridDim.x) * Threads;
    for (int64_t e = int64_t(blockIdx.x) * Threads + threadIdx.x; e < elements; e += step) {
        const int64_t row = e / pitch, column = e % pitch;
        // A row is a product of the sum in NCHW, and a group of a pixel in NHWC.
        const int64_t pixel = nchw ? column : row / p.groups;
        const int group = int(nchw ? row / reduction : row % p.groups);
        const int64_t i = nchw ? row % reduction : column;
        From v = From(0.0f);
        if (pixel < pixels && i < reduction) {
            cf::Pixel at = cf::pixel(p, pixel);
            at.n += first;
            v = cf::gather(p, x, at, cf::tap(p, channels, int(i)), group * channels);
        }
        out[e] = cf::narrow<To>(cf::widen(v));
    }
}

// One thread per input element, in x's order: reads are contiguous, writes are scattered. Taps
// whose output pixel would fall between strides or outside do not read this element.
template <class Bits>
__global__ void scatter(const cf_problem p, const Bits *__restrict__ x, Bits *__restrict__ out,
                        int64_t first, int64_t pixels, int64_t elements) {
    const int channels = p.c / p.groups, reduction = channels * p.r * p.s;
    const bool nchw = p.layout == CF_NCHW;
    const int64_t begin = first * p.c * p.h * p.w;
    const int64_t step = int64_t(gridDim.x) * Threads;
    for (int64_t e = int64_t(blockIdx.x) * Threads + threadIdx.x; e < elements; e += step) {
        int64_t image = e;
        const auto next = [&](int size) {
            const int digit = int(image % size);
            image /= size;
            return digit;
        };
        int c, h, w;
        if (nchw) {
            w = next(p.w), h = next(p.h), c = next(p.c);
        } else {
            c = next(p.c), w = next(p.w), h = next(p.h);
        }
        const Bits v = x[begin + e];
        const int group = c / channels, inner = c % channels;
        for (int r = 0; r < p.r; ++r) {
            const int top = h + p.pad_top - r * p.dilation_h, row = top / p.stride_h;
            if (top < 0)
                break;
            if (top % p.stride_h != 0 || row >= p.p)
                continue;
            for (int s = 0; s < p.s; ++s) {
                const int left = w + p.pad_left - s * p.dilation_w, column = left / p.stride_w;
                if (left < 0)
                    break;
                if (left % p.stride_w != 0 || column >= p.q)
                    continue;
                const int64_t pixel = (image * p.p + row) * p.q + column;
                const int i = nchw ? (inner * p.r + r) * p.s + s : (r * p.s + s) * channels + inner;
                out[nchw ? (int64_t(group) * reduction + i) * pixels + pixel
                         : (pixel * p.groups + group) * reduction + i] = v;
            }
        }
    }
}

// Whether any tap of any output pixel lies outside the image.
bool overhangs(const cf_problem &p) {
    const auto past = [](int64_t outputs, int64_t stride, int64_t pad, int64_t taps,
                         int64_t dilation, int64_t size) {
        return (outputs - 1) * stride - pad + (taps - 1) * dilation >= size;
    };
    return p.pad_top > 0 || p.pad_left > 0 ||
           past(p.p, p.stride_h, p.pad_top, p.r, p.dilation_h, p.h) ||
           past(p.q, p.stride_w, p.pad_left, p.s, p.dilation_w, p.w);
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

int32_t cf_unroll_padded(const cf_call *call, int64_t first, int64_t count, int32_t storage,
                         int32_t pad, void *out) {
    const cf_problem &p = call->problem;
    const int64_t pixels = count * p.p * p.q;
    const int64_t reduction = int64_t(p.c / p.groups) * p.r * p.s;
    const bool nchw = p.layout == CF_NCHW;
    const int64_t pitch = cf::ceil_div(nchw ? pixels : reduction, pad) * pad;
    const int64_t elements = (nchw ? reduction : pixels) * p.groups * pitch;
    return for_storage(p.storage, [&](auto from) {
        return for_storage(storage, [&](auto to) -> int32_t {
            using From = decltype(from);
            using To = decltype(to);
            unroll<<<cf::blocks(elements, Threads), Threads, 0, cf::stream(call)>>>(
                p, static_cast<const From *>(call->x), static_cast<To *>(out), first, pixels, pitch,
                elements);
            return cudaGetLastError();
        });
    });
}

int32_t cf_unroll(const cf_call *call, int64_t first, int64_t count, int32_t storage, void *out) {
    return cf_unroll_padded(call, first, count, storage, 1, out);
}

int32_t cf_unroll_scatter(const cf_call *call, int64_t first, int64_t count, void *out) {
    const cf_problem &p = call->problem;
    const int64_t pixels = count * p.p * p.q;
    const int64_t elements = count * p.c * p.h * p.w;
    const auto run = [&](auto bits) -> int32_t {
        using Bits = decltype(bits);
        if (overhangs(p)) {
            const int64_t size = pixels * p.c * p.r * p.s * int64_t(sizeof(Bits));
            if (const cudaError_t error = cudaMemsetAsync(out, 0, size, cf::stream(call)))
                return error;
        }
        scatter<<<cf::blocks(elements, Threads), Threads, 0, cf::stream(call)>>>(
            p, static_cast<const Bits *>(call->x), static_cast<Bits *>(out), first, pixels,
            elements);
        return cudaGetLastError();
    };
    return p.storage == CF_STORE_F32 ? run(uint32_t()) : run(uint16_t());
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
