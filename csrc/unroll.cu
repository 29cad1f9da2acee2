// Unrolling (im2col): the input re-written so that a convolution is one matrix product, every input
// element copied once per tap that reads it (Chellapilla, Puri, Simard 2006).
#include "device/divisor.cuh"
#include "device/element.cuh"
#include "device/launch.cuh"
#include "device/tap.cuh"

namespace {

constexpr int Threads = 256;

// What elements and pixels are divided by on their way to an input element.
struct Divisors {
    cf::LongDivisor pitch, q, p, groups;
    cf::Divisor channels, s;

    Divisors(const cf_problem &problem, int64_t pitch)
        : pitch(pitch), q(problem.q), p(problem.p), groups(problem.groups),
          channels(problem.c / problem.groups), s(problem.s) {}
    __device__ __forceinline__ cf::Pixel pixel(int64_t i, const cf_problem &problem) const {
        const int64_t line = q.quotient(i), n = p.quotient(line);
        return {n, int(line - n * problem.p), int(i - line * problem.q)};
    }
};

// NCHW: one thread per input channel and output pixel, which writes the r x s places of the matrix
// that belong to them. Where its window lies is worked out once; neighbours have neighbouring
// pixels, so each tap's store is contiguous. `pitch` is the length of a row with its padding.
template <class From, class To>
__global__ void unroll_columns(const cf_problem p, const Divisors by, const From *__restrict__ x,
                               To *__restrict__ out, int64_t first, int64_t pixels, int64_t pitch) {
    const int64_t step = int64_t(gridDim.x) * Threads, columns = pitch * p.c;
    for (int64_t e = int64_t(blockIdx.x) * Threads + threadIdx.x; e < columns; e += step) {
        const int64_t channel = by.pitch.quotient(e), pixel = e - channel * pitch;
        const cf::Pixel at = by.pixel(pixel, p);
        const int top = at.p * p.stride_h - p.pad_top, left = at.q * p.stride_w - p.pad_left;
        const From *plane = x + ((first + at.n) * p.c + channel) * p.h * p.w;
        To *to = out + channel * p.r * p.s * pitch + pixel;
        for (int r = 0; r < p.r; ++r) {
            const int h = top + r * p.dilation_h;
            const bool there = pixel < pixels && h >= 0 && h < p.h;
            const From *row = plane + (there ? int64_t(h) * p.w : 0);
            for (int s = 0; s < p.s; ++s, to += pitch) {
                const int w = left + s * p.dilation_w;
                const From v = there && w >= 0 && w < p.w ? row[w] : From(0.0f);
                *to = cf::narrow<To>(cf::widen(v));
            }
        }
    }
}

// NHWC: one thread per element of the matrix, in its order, where taps and channels lie side by
// side: writes are contiguous, reads mostly so.
template <class From, class To>
__global__ void unroll_elements(const cf_problem p, const Divisors by, const From *__restrict__ x,
                                To *__restrict__ out, int64_t first, int64_t pixels,
                                int64_t pitch) {
    const int channels = p.c / p.groups, reduction = channels * p.r * p.s;
    const int64_t step = int64_t(gridDim.x) * Threads, elements = pixels * p.groups * pitch;
    for (int64_t e = int64_t(blockIdx.x) * Threads + threadIdx.x; e < elements; e += step) {
        const int64_t row = by.pitch.quotient(e), column = e - row * pitch;
        const int64_t pixel = by.groups.quotient(row);
        From v = From(0.0f);
        if (column < reduction) {
            const int i = int(column), tap = by.channels.quotient(i), r = by.s.quotient(tap);
            cf::Pixel at = by.pixel(pixel, p);
            at.n += first;
            v = cf::gather(p, x, at, {i - tap * channels, r, tap - r * p.s},
                           int(row - pixel * p.groups) * channels);
        }
        out[e] = cf::narrow<To>(cf::widen(v));
    }
}

// One thread per input element, in x's order: reads are contiguous, writes are scattered. Taps
// whose output pixel would fall between strides or outside do not read this element.
template <class Bits>
__global__ void scatter(const cf_problem p, const cf::LongDivisor by_c, const cf::LongDivisor by_h,
                        const cf::LongDivisor by_w, const Bits *__restrict__ x,
                        Bits *__restrict__ out, int64_t first, int64_t pixels, int64_t elements) {
    const int channels = p.c / p.groups, reduction = channels * p.r * p.s;
    const bool nchw = p.layout == CF_NCHW;
    const int64_t begin = first * p.c * p.h * p.w;
    const int64_t step = int64_t(gridDim.x) * Threads;
    for (int64_t e = int64_t(blockIdx.x) * Threads + threadIdx.x; e < elements; e += step) {
        int64_t image = e;
        int c, h, w;
        if (nchw) {
            w = by_w.digit(image), h = by_h.digit(image), c = by_c.digit(image);
        } else {
            c = by_c.digit(image), w = by_w.digit(image), h = by_h.digit(image);
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
    const Divisors by(p, pitch);
    return for_storage(p.storage, [&](auto from) {
        return for_storage(storage, [&](auto to) -> int32_t {
            using From = decltype(from);
            using To = decltype(to);
            const auto run = [&](auto kernel, int64_t threads) {
                kernel<<<cf::blocks(threads, Threads), Threads, 0, cf::stream(call)>>>(
                    p, by, static_cast<const From *>(call->x), static_cast<To *>(out), first,
                    pixels, pitch);
            };
            if (nchw)
                run(unroll_columns<From, To>, pitch * p.c);
            else
                run(unroll_elements<From, To>, pixels * p.groups * pitch);
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
            p, cf::LongDivisor(p.c), cf::LongDivisor(p.h), cf::LongDivisor(p.w),
            static_cast<const Bits *>(call->x), static_cast<Bits *>(out), first, pixels, elements);
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
