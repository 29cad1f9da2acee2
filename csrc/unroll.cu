// Unrolling (im2col): the input re-written so that a convolution is one matrix product, every input
// element copied once per tap that reads it (Chellapilla, Puri, Simard 2006).
#include "device/divisor.cuh"
#include "device/element.cuh"
#include "device/launch.cuh"
#include "device/tap.cuh"

namespace {

constexpr int Threads = 256;
constexpr int64_t EnoughBlocks = 1 << 12; // a few times what the chip holds

// Blocks that share so many lines where there are so many blocks beside each other: not one to a
// line, since a thread prepares itself once for all its lines.
unsigned lines(int64_t count, int64_t across) {
    const int64_t shared = std::max<int64_t>(EnoughBlocks / across, 1);
    return unsigned(std::clamp<int64_t>(count, 1, std::min<int64_t>(shared, cf::MaxGrid)));
}

// What places and pixels are divided by on their way to an input element.
struct Divisors {
    cf::LongDivisor q, p, groups;
    cf::Divisor channels, s;

    explicit Divisors(const cf_problem &problem)
        : q(problem.q), p(problem.p), groups(problem.groups), channels(problem.c / problem.groups),
          s(problem.s) {}
    __device__ __forceinline__ cf::Pixel pixel(int64_t i, const cf_problem &problem) const {
        const int64_t line = q.quotient(i), n = p.quotient(line);
        return {n, int(line - n * problem.p), int(i - line * problem.q)};
    }
};

// NCHW: a thread has one output pixel and walks over channels; of each it writes the r x s places
// of the matrix that belong to the pixel. Where its window lies is worked out once; neighbours have
// neighbouring pixels, so each tap's store is contiguous. `pitch` is the length of a row with its
// padding.
template <class From, class To>
__global__ void unroll_columns(const cf_problem p, const Divisors by, const From *__restrict__ x,
                               To *__restrict__ out, int64_t first, int64_t pixels, int64_t pitch) {
    const int64_t step = int64_t(gridDim.x) * blockDim.x, area = int64_t(p.h) * p.w;
    for (int64_t pixel = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; pixel < pitch;
         pixel += step) {
        const cf::Pixel at = by.pixel(pixel, p);
        const int top = at.p * p.stride_h - p.pad_top, left = at.q * p.stride_w - p.pad_left;
        for (int c = blockIdx.y; c < p.c; c += gridDim.y) {
            const From *plane = x + ((first + at.n) * p.c + c) * area;
            To *to = out + int64_t(c) * p.r * p.s * pitch + pixel;
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
}

template <class T, int Count>
struct alignas(Count * sizeof(T)) Pack {
    T v[Count];
};

// NHWC: a thread has one place of the filter, so many neighbouring channels of one tap, and walks
// down the rows of the matrix, one for each pixel and group. Neighbours have neighbouring places:
// writes are contiguous, reads mostly so.
template <class From, class To, int Count>
__global__ void unroll_rows(const cf_problem p, const Divisors by, const From *__restrict__ x,
                            To *__restrict__ out, int64_t first, int64_t rows, int64_t pitch) {
    const int64_t place = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * Count;
    if (place >= pitch)
        return;
    const int channels = p.c / p.groups, i = int(place);
    const bool live = i < channels * p.r * p.s; // or it fills up the row
    const int tap = by.channels.quotient(i), r = by.s.quotient(tap), c = i - tap * channels;
    const int top = r * p.dilation_h - p.pad_top;
    const int left = (tap - r * p.s) * p.dilation_w - p.pad_left;
    const int64_t step = int64_t(gridDim.y) * blockDim.y;
    for (int64_t row = int64_t(blockIdx.y) * blockDim.y + threadIdx.y; row < rows; row += step) {
        const int64_t pixel = by.groups.quotient(row);
        const cf::Pixel at = by.pixel(pixel, p);
        const int h = at.p * p.stride_h + top, w = at.q * p.stride_w + left;
        Pack<To, Count> to;
        if (live && h >= 0 && h < p.h && w >= 0 && w < p.w) {
            const int group = int(row - pixel * p.groups);
            const auto from = *reinterpret_cast<const Pack<From, Count> *>(
                x + (((first + at.n) * p.h + h) * p.w + w) * p.c + group * channels + c);
#pragma unroll
            for (int j = 0; j < Count; ++j)
                to.v[j] = cf::narrow<To>(cf::widen(from.v[j]));
        } else {
#pragma unroll
            for (int j = 0; j < Count; ++j)
                to.v[j] = To(0.0f);
        }
        *reinterpret_cast<Pack<To, Count> *>(out + row * pitch + place) = to;
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
    const Divisors by(p);
    return for_storage(p.storage, [&](auto from) {
        return for_storage(storage, [&](auto to) -> int32_t {
            using From = decltype(from);
            using To = decltype(to);
            const auto *x = static_cast<const From *>(call->x);
            auto *into = static_cast<To *>(out);
            if (nchw) {
                const unsigned across = cf::blocks(pitch, Threads);
                const dim3 grid(across, lines(p.c, across));
                unroll_columns<<<grid, Threads, 0, cf::stream(call)>>>(p, by, x, into, first,
                                                                       pixels, pitch);
                return cudaGetLastError();
            }
            const int64_t rows = pixels * p.groups;
            const auto run = [&](auto count) -> int32_t {
                constexpr int Count = decltype(count)::value;
                const int64_t places = cf::ceil_div(pitch, Count);
                const int64_t across = cf::ceil_div(places, Threads);
                const auto width = unsigned(cf::ceil_div(places, across));
                const dim3 block(width, Threads / width);
                const dim3 grid(unsigned(across), lines(cf::ceil_div(rows, block.y), across));
                unroll_rows<From, To, Count>
                    <<<grid, block, 0, cf::stream(call)>>>(p, by, x, into, first, rows, pitch);
                return cudaGetLastError();
            };
            // As many channels at once as both addresses and the channels of a group allow.
            const auto fits = [&](int count) {
                return p.c / p.groups % count == 0 && pitch % count == 0 &&
                       reinterpret_cast<uintptr_t>(x) % (count * sizeof(From)) == 0 &&
                       reinterpret_cast<uintptr_t>(into) % (count * sizeof(To)) == 0;
            };
            if constexpr (sizeof(From) + sizeof(To) == 4)
                if (fits(8))
                    return run(std::integral_constant<int, 8>());
            return fits(4)   ? run(std::integral_constant<int, 4>())
                   : fits(2) ? run(std::integral_constant<int, 2>())
                             : run(std::integral_constant<int, 1>());
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
