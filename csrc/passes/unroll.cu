// Unrolling (im2col): the input re-written so that a convolution is one matrix product, every input
// element copied once per tap that reads it (Chellapilla, Puri, Simard 2006).
#include "core/divisor.cuh"
#include "core/element.cuh"
#include "core/strides.cuh"
#include "core/launch.cuh"
#include "core/vector.cuh"
#include "core/taps.cuh"

#include <numeric>

namespace {

constexpr int Threads = 256;
constexpr int64_t EnoughBlocks = 1 << 12, EnoughTiles = 1 << 11; // some times what the chip holds
constexpr int WordBytes = 16;           // most that a thread writes at once
constexpr int64_t TileBytes = 48 << 10; // what a block has without asking for more

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

// A thread has some neighbouring output pixels and walks over channels, in NHWC some at a time; of
// each it writes the r x s places of the matrix that belong to the pixels. Where their windows lie
// is worked out once; neighbours have neighbouring pixels, so each tap's stores are contiguous.
// Slide: the pixels lie in one line of the output, and each reads at the next tap what its right
// neighbour reads at this one. `height` and `pitch` are the rows of a group and their length, with
// padding.
template <class From, class To, bool Nchw, bool Slide, int Pixels, int Channels>
__global__ void unroll_columns(const cf_problem p, const Divisors by, const From *__restrict__ x,
                               To *__restrict__ out, int64_t first, int64_t pixels, int height,
                               int64_t pitch) {
    using Word = cf::Pack<To, Pixels>;
    constexpr int Outside = -(1 << 30); // no tap reaches the image from there
    const cf::Strides xs = cf::input_strides(p);
    const int column = Nchw ? 1 : p.c, channels = p.c / p.groups, taps = p.r * p.s;
    const int64_t step = int64_t(gridDim.x) * blockDim.x * Pixels;
    for (int64_t pixel = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * Pixels; pixel < pitch;
         pixel += step) {
        const From *image[Pixels];
        int top[Pixels], left[Pixels];
#pragma unroll
        for (int j = 0; j < Pixels; ++j) {
            const bool live = pixel + j < pixels; // or it fills up the row
            const cf::Pixel at = by.pixel(live ? pixel + j : 0, p);
            image[j] = x + (first + at.n) * xs.image;
            top[j] = live ? at.p * p.stride_h - p.pad_top : Outside;
            left[j] = at.q * p.stride_w - p.pad_left;
        }
        for (int c = blockIdx.y * Channels; c < p.c; c += gridDim.y * Channels) {
            To *to[Channels]; // next row of each channel
            int after[Channels];
#pragma unroll
            for (int i = 0; i < Channels; ++i) {
                const int group = by.channels.quotient(c + i), inner = c + i - group * channels;
                const int64_t row = int64_t(group) * height + (Nchw ? inner * taps : inner);
                to[i] = out + row * pitch + pixel;
                after[i] = Nchw ? (inner + 1) * taps : channels * taps + inner;
            }
            for (int r = 0; r < p.r; ++r) {
                const From *row[Pixels];
                int w[Pixels];
#pragma unroll
                for (int j = 0; j < Pixels; ++j) {
                    const int h = top[j] + r * p.dilation_h;
                    const bool there = h >= 0 && h < p.h;
                    row[j] = image[j] + (there ? h * xs.row : 0) + c * xs.channel;
                    w[j] = there ? left[j] : Outside;
                }
                cf::Pack<From, Channels> v[Pixels];
                for (int s = 0; s < p.s; ++s) {
#pragma unroll
                    for (int j = 0; j < Pixels; ++j) {
                        if (Slide && j + 1 < Pixels && s > 0) {
                            v[j] = v[j + 1];
                        } else {
                            v[j] = {};
                            if (unsigned(w[j]) < unsigned(p.w))
                                v[j] = cf::load<Channels>(row[j] + int64_t(w[j]) * column);
                        }
                        w[j] += p.dilation_w;
                    }
#pragma unroll
                    for (int i = 0; i < Channels; ++i) {
                        Word word;
#pragma unroll
                        for (int j = 0; j < Pixels; ++j)
                            word.v[j] = cf::narrow<To>(cf::widen(v[j].v[i]));
                        cf::store(to[i], word);
                        to[i] += Nchw ? pitch : channels * pitch;
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < Channels; ++i) {
                // The rows that fill up a group, shared among its channels or left to the last.
                for (int row = after[i]; row >= channels * taps && row < height;
                     row += Nchw ? 1 : channels) {
                    cf::store(to[i], Word{});
                    to[i] += Nchw ? pitch : channels * pitch;
                }
            }
        }
    }
}

// NHWC: a thread has one place of the filter, so many neighbouring channels of one tap, and walks
// down the rows of the matrix, one for each pixel and group. Neighbours have neighbouring places:
// writes are contiguous, reads mostly so. For one tap, and for windows that no tile below holds.
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
        cf::Pack<To, Count> to;
        if (live && h >= 0 && h < p.h && w >= 0 && w < p.w) {
            const int group = int(row - pixel * p.groups);
            const auto from = cf::load<Count>(x + (((first + at.n) * p.h + h) * p.w + w) * p.c +
                                              group * channels + c);
#pragma unroll
            for (int j = 0; j < Count; ++j)
                to.v[j] = cf::narrow<To>(cf::widen(from.v[j]));
        } else {
#pragma unroll
            for (int j = 0; j < Count; ++j)
                to.v[j] = To(0.0f);
        }
        cf::store(out + row * pitch + place, to);
    }
}

// What a block of unroll_tiles works on: output pixels, and the input that they read. A unit is as
// many channels as alignment allows to copy at once.
struct Tile {
    int p = 1, q;      // output pixels
    int rows, columns; // input pixels
    int units, period; // units of a pixel's rows of the matrix; pixels after which words repeat
    int64_t bytes;     // of the input
    cf::Divisor by_row, by_units, by_pitch, by_channels, by_s;
    cf::LongDivisor across, down; // tiles of an image

    // As many output pixels as fit, whole lines where they do; for words of `count` units, and rows
    // of `pitch` units.
    Tile(const cf_problem &problem, int64_t images, int pitch, int unit, int count,
         int64_t pixel_bytes) {
        const auto fits = [&](int64_t lines, int64_t width) {
            rows = int((lines - 1) * problem.stride_h + (problem.r - 1) * problem.dilation_h + 1);
            columns =
                int((width - 1) * problem.stride_w + (problem.s - 1) * problem.dilation_w + 1);
            bytes = int64_t(rows) * columns * pixel_bytes;
            return bytes <= TileBytes;
        };
        units = pitch * problem.groups;
        period = count / std::gcd(count, units);
        q = problem.q;
        while (q > period && !fits(1, q))
            q = int(cf::ceil_div(cf::ceil_div(q, 2), period)) * period;
        across = cf::LongDivisor(cf::ceil_div(problem.q, q));
        const auto tiles = [&](int lines) {
            return images * across.by * cf::ceil_div(problem.p, lines);
        };
        while (p < problem.p && tiles(2 * p) >= EnoughTiles && fits(2 * p, q))
            p *= 2;
        if (!fits(p, q))
            return;
        down = cf::LongDivisor(cf::ceil_div(problem.p, p));
        by_row = cf::Divisor(columns * (problem.c / unit));
        by_units = cf::Divisor(units);
        by_pitch = cf::Divisor(pitch);
        by_channels = cf::Divisor(problem.c / problem.groups / unit);
        by_s = cf::Divisor(problem.s);
    }
};

// NHWC: a block copies the input that a tile of output pixels reads into shared memory, with zeros
// around the image, and writes their rows of the matrix from there. A thread has one word of a row:
// where its elements lie is the same for every pixel, seen from the window's first element, and
// worked out once. So it writes words of what lies apart in x: few channels, or few to a group.
template <class From, class To, int Unit, int Count>
__global__ void unroll_tiles(const cf_problem p, const Tile t, const From *__restrict__ x,
                             To *__restrict__ out, int64_t first, int64_t tiles, int pitch) {
    using Stored = cf::Pack<To, Unit>;
    extern __shared__ __align__(16) unsigned char memory[];
    auto *const stage = reinterpret_cast<Stored *>(memory);
    const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
    const int channels = p.c / Unit, inner = channels / p.groups, reduction = inner * p.r * p.s;
    const int line = p.w * channels, length = t.columns * channels;
    const int words = t.units * t.period / Count;
    const int step = t.period * p.stride_w * channels;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int64_t n = tile;
        const int q0 = t.across.digit(n) * t.q, p0 = t.down.digit(n) * t.p;
        const int top = p0 * p.stride_h - p.pad_top, left = q0 * p.stride_w - p.pad_left;
        const auto *image =
            reinterpret_cast<const cf::Pack<From, Unit> *>(x) + (first + n) * p.h * p.w * channels;
        __syncthreads(); // the tile before is written
#pragma unroll 4
        for (int e = thread; e < t.rows * length; e += threads) {
            const int row = t.by_row.quotient(e), h = top + row;
            const int i = left * channels + e - row * length;
            const bool inside = unsigned(h) < unsigned(p.h) && unsigned(i) < unsigned(line);
            cf::Pack<From, Unit> v = image[inside ? int64_t(h) * line + i : 0];
            if (!inside)
                v = {};
            Stored to;
#pragma unroll
            for (int j = 0; j < Unit; ++j)
                to.v[j] = cf::narrow<To>(cf::widen(v.v[j]));
            stage[e] = to;
        }
        __syncthreads();
        const int lines = min(t.p, p.p - p0), width = min(t.q, p.q - q0);
        for (int word = threadIdx.x; word < words; word += blockDim.x) {
            int at[Count]; // from the first element of a pixel's window; or it fills up the row
#pragma unroll
            for (int j = 0; j < Count; ++j) {
                const int e = word * Count + j, pixel = t.by_units.quotient(e);
                const int rest = e - pixel * t.units, group = t.by_pitch.quotient(rest);
                const int i = rest - group * pitch, tap = t.by_channels.quotient(i);
                const int r = t.by_s.quotient(tap), s = tap - r * p.s;
                at[j] = (r * p.dilation_h * t.columns + s * p.dilation_w + pixel * p.stride_w) *
                            channels +
                        group * inner + i - tap * inner;
                if (i >= reduction)
                    at[j] = -1;
            }
            for (int down = 0; down < lines; ++down) {
                auto *to = reinterpret_cast<cf::Pack<Stored, Count> *>(
                    reinterpret_cast<Stored *>(out) + ((n * p.p + p0 + down) * p.q + q0) * t.units);
                const Stored *const from = stage + down * p.stride_h * length;
                for (int i = threadIdx.y; i * t.period < width; i += blockDim.y) {
                    cf::Pack<Stored, Count> v;
#pragma unroll
                    for (int j = 0; j < Count; ++j) {
                        v.v[j] = {};
                        if (at[j] >= 0)
                            v.v[j] = from[i * step + at[j]];
                    }
                    to[int64_t(i) * words + word] = v;
                }
            }
        }
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

template <class From, class To>
__global__ void convert_rows(const From *__restrict__ src, To *__restrict__ dst, int64_t count,
                             int64_t length, int64_t pitch) {
    const int64_t step = int64_t(gridDim.x) * Threads;
    for (int64_t i = int64_t(blockIdx.x) * Threads + threadIdx.x; i < count * pitch; i += step) {
        const int64_t row = i / pitch, at = i - row * pitch;
        dst[i] = cf::narrow<To>(at < length ? cf::widen(src[row * length + at]) : 0.0f);
    }
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

template <bool Nchw, class From, class To>
int32_t columns(const cf_call *call, int64_t first, int64_t count, int64_t height, int64_t pitch,
                const From *x, To *out) {
    const cf_problem &p = call->problem;
    const auto run = [&](auto slide, auto together, auto channels) -> int32_t {
        constexpr int Pixels = decltype(together)::value, Channels = decltype(channels)::value;
        const unsigned across = cf::blocks(pitch / Pixels, Threads);
        const dim3 grid(across, lines(p.c / Channels, across));
        unroll_columns<From, To, Nchw, decltype(slide)::value, Pixels, Channels>
            <<<grid, Threads, 0, cf::stream(call)>>>(p, Divisors(p), x, out, first,
                                                     count * p.p * p.q, int(height), pitch);
        return cudaGetLastError();
    };
    constexpr std::true_type yes;
    constexpr std::false_type no;
    constexpr cf::Constant<1> one;
    if constexpr (Nchw) {
        const auto fits = [&](int n) { return pitch % n == 0 && cf::aligned(out, n); };
        return cf::largest<4, 2, 1>(fits, [&](auto n) {
            return p.stride_w == p.dilation_w && p.q % n == 0 ? run(yes, n, one) : run(no, n, one);
        });
    } else {
        const auto fits = [&](int n) { return p.c % n == 0 && cf::aligned(x, n); };
        return cf::largest<8, 1>(fits, [&](auto n) { return run(no, one, n); });
    }
}

// As many threads beside each other as share so many places evenly, the others below.
dim3 block(int64_t places) {
    const auto width = unsigned(cf::ceil_div(places, cf::ceil_div(places, Threads)));
    return dim3(width, Threads / width);
}

template <int Unit, class From, class To>
int32_t rows_by_place(const cf_call *call, int64_t first, int64_t rows, int64_t pitch,
                      const From *x, To *out) {
    const dim3 threads = block(pitch / Unit);
    const unsigned across = cf::blocks(pitch / Unit, threads.x);
    const dim3 grid(across, lines(cf::ceil_div(rows, threads.y), across));
    unroll_rows<From, To, Unit><<<grid, threads, 0, cf::stream(call)>>>(
        call->problem, Divisors(call->problem), x, out, first, rows, pitch);
    return cudaGetLastError();
}

template <class From, class To>
int32_t rows(const cf_call *call, int64_t first, int64_t count, int64_t pitch, const From *x,
             To *out) {
    const cf_problem &p = call->problem;
    const auto fits = [&](int n) {
        return p.c / p.groups % n == 0 && pitch % n == 0 && cf::aligned(x, n) &&
               cf::aligned(out, n);
    };
    return cf::largest<16 / sizeof(To), 4, 2, 1>(fits, [&](auto unit) -> int32_t {
        constexpr int Unit = decltype(unit)::value;
        constexpr int Most = std::max<int>(WordBytes / int(Unit * sizeof(To)), 1);
        const auto by_place = [&] {
            return rows_by_place<Unit>(call, first, count * p.p * p.q * p.groups, pitch, x, out);
        };
        // One tap reads everything once, so nothing is gained by keeping it.
        const int64_t units = pitch / Unit * p.groups;
        if (p.r * p.s == 1 || std::max(units * Most, int64_t(p.w) * p.c) > INT32_MAX)
            return by_place();
        // Each line of pixels begins with a word.
        const auto whole = [&](int n) { return units * p.q % n == 0; };
        return cf::largest<Most, std::max(Most / 2, 1), 1>(whole, [&](auto together) -> int32_t {
            constexpr int Count = decltype(together)::value;
            const Tile t(p, count, int(pitch / Unit), Unit, Count, p.c * int64_t(sizeof(To)));
            if (t.bytes > TileBytes)
                return by_place();
            const int64_t tiles = count * t.across.by * t.down.by;
            unroll_tiles<From, To, Unit, Count>
                <<<cf::blocks(tiles, 1), block(units * t.period / Count), t.bytes,
                   cf::stream(call)>>>(p, t, x, out, first, tiles, int(pitch / Unit));
            return cudaGetLastError();
        });
    });
}

// Calls body(x, out) with the types of the elements.
template <class Body>
int32_t for_elements(const cf_call *call, int32_t storage, void *out, Body body) {
    return for_storage(call->problem.storage, [&](auto from) {
        return for_storage(storage, [&](auto to) -> int32_t {
            return body(static_cast<const decltype(from) *>(call->x),
                        static_cast<decltype(to) *>(out));
        });
    });
}

} // namespace

int32_t cf_unroll_columns(const cf_call *call, int64_t first, int64_t count, int32_t storage,
                          int64_t height, int64_t pitch, void *out) {
    return for_elements(call, storage, out, [&](auto *x, auto *to) {
        return call->problem.layout == CF_NCHW
                   ? columns<true>(call, first, count, height, pitch, x, to)
                   : columns<false>(call, first, count, height, pitch, x, to);
    });
}

int32_t cf_unroll_rows(const cf_call *call, int64_t first, int64_t count, int32_t storage,
                       int64_t pitch, void *out) {
    return for_elements(call, storage, out,
                        [&](auto *x, auto *to) { return rows(call, first, count, pitch, x, to); });
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

int32_t cf_convert_rows(const void *src, int32_t src_storage, void *dst, int32_t dst_storage,
                        int64_t count, int64_t length, int64_t pitch, void *stream) {
    return for_storage(src_storage, [&](auto from) {
        return for_storage(dst_storage, [&](auto to) -> int32_t {
            using From = decltype(from);
            using To = decltype(to);
            convert_rows<<<cf::blocks(count * pitch, Threads), Threads, 0,
                           static_cast<cudaStream_t>(stream)>>>(
                static_cast<const From *>(src), static_cast<To *>(dst), count, length, pitch);
            return cudaGetLastError();
        });
    });
}
