// Unrolling (im2col): the input re-written so that a convolution is one matrix product, every input
// element copied once per tap that reads it (Chellapilla, Puri, Simard 2006).
#include "passes.h"
#include "passes/columns.cuh"
#include "passes/storage.cuh"

#include <initializer_list>
#include <numeric>

namespace {

constexpr int Threads = cf::UnrollThreads;
constexpr int64_t EnoughTiles = 1 << 11; // as many blocks as the largest chips hold
constexpr int WordBytes = 16;            // most that a thread writes at once
constexpr int TileBytes = cf::FreeShared;

// NHWC: a thread has one place of the filter, so many neighbouring channels of one tap, and walks
// down the rows of the matrix, one for each pixel and group. Neighbours have neighbouring places:
// writes are contiguous, reads mostly so. For one tap, and for windows that no tile below holds.
template <class From, class To, int Count>
__global__ void unroll_rows(const cf_problem p, const cf::UnrollDivisors by,
                            const From *__restrict__ x, To *__restrict__ out, int64_t first,
                            int64_t rows, int64_t pitch) {
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

// What a block of unroll_tiles works on: output pixels, and the input that they read. A vector is
// as many channels as alignment allows to copy at once.
struct Tile {
    int p = 1, q;        // output pixels
    int rows, columns;   // input pixels
    int vectors, period; // vectors of a pixel's rows of the matrix; pixels after which words repeat
    int64_t bytes;       // of the input; more than TileBytes where not even one word's pixels fit
    cf::Divisor by_row, by_vectors, by_pitch, by_channels, by_s;
    cf::LongDivisor across, down; // tiles of an image

    Tile() = default;
    // As many output pixels as fit, whole lines where they do; for words of `count` vectors, and
    // rows of `pitch` vectors.
    Tile(const cf_problem &problem, int64_t images, int pitch, int vector, int count,
         int64_t pixel_bytes) {
        const auto fits = [&](int64_t lines, int64_t width) {
            const int64_t down =
                (lines - 1) * problem.stride_h + int64_t(problem.r - 1) * problem.dilation_h + 1;
            const int64_t along =
                (width - 1) * problem.stride_w + int64_t(problem.s - 1) * problem.dilation_w + 1;
            // What they are together may be more than 63 bits hold.
            const bool fit =
                down <= TileBytes && along <= TileBytes && down * along <= TileBytes / pixel_bytes;
            rows = int(down), columns = int(along);
            bytes = fit ? down * along * pixel_bytes : TileBytes + 1;
            return fit;
        };
        vectors = pitch * problem.groups;
        period = count / std::gcd(count, vectors);
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
        by_row = cf::Divisor(columns * (problem.c / vector));
        by_vectors = cf::Divisor(vectors);
        by_pitch = cf::Divisor(pitch);
        by_channels = cf::Divisor(problem.c / problem.groups / vector);
        by_s = cf::Divisor(problem.s);
    }
};

// NHWC: a block copies the input that a tile of output pixels reads into shared memory, with zeros
// around the image, and writes their rows of the matrix from there. A thread has one word of a row:
// where its elements lie is the same for every pixel, seen from the window's first element, and
// worked out once. So it writes words of what lies apart in x: few channels, or few to a group.
template <class From, class To, int Vector, int Count>
__global__ void unroll_tiles(const cf_problem p, const Tile t, const From *__restrict__ x,
                             To *__restrict__ out, int64_t first, int64_t tiles, int pitch) {
    using Stored = cf::Pack<To, Vector>;
    extern __shared__ __align__(16) unsigned char memory[];
    auto *const stage = reinterpret_cast<Stored *>(memory);
    const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
    const int channels = p.c / Vector, inner = channels / p.groups, reduction = inner * p.r * p.s;
    const int line = p.w * channels, length = t.columns * channels;
    const int words = t.vectors * t.period / Count;
    const int step = t.period * p.stride_w * channels;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int64_t n = tile;
        const int q0 = t.across.digit(n) * t.q, p0 = t.down.digit(n) * t.p;
        const int top = p0 * p.stride_h - p.pad_top, left = q0 * p.stride_w - p.pad_left;
        const auto *image = reinterpret_cast<const cf::Pack<From, Vector> *>(x) +
                            (first + n) * p.h * p.w * channels;
        __syncthreads(); // the tile before is written
#pragma unroll 4
        for (int e = thread; e < t.rows * length; e += threads) {
            const int row = t.by_row.quotient(e), h = top + row;
            const int i = left * channels + e - row * length;
            const bool inside = unsigned(h) < unsigned(p.h) && unsigned(i) < unsigned(line);
            cf::Pack<From, Vector> v = image[inside ? int64_t(h) * line + i : 0];
            if (!inside)
                v = {};
            Stored to;
#pragma unroll
            for (int j = 0; j < Vector; ++j)
                to.v[j] = cf::narrow<To>(cf::widen(v.v[j]));
            stage[e] = to;
        }
        __syncthreads();
        const int lines = min(t.p, p.p - p0), width = min(t.q, p.q - q0);
        for (int word = threadIdx.x; word < words; word += blockDim.x) {
            int at[Count]; // from the first element of a pixel's window; or it fills up the row
#pragma unroll
            for (int j = 0; j < Count; ++j) {
                const int e = word * Count + j, pixel = t.by_vectors.quotient(e);
                const int rest = e - pixel * t.vectors, group = t.by_pitch.quotient(rest);
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
                    reinterpret_cast<Stored *>(out) +
                    ((n * p.p + p0 + down) * p.q + q0) * t.vectors);
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

template <class From, class To>
int32_t columns(const cf_problem &p, const cf_args &args, int64_t first, int64_t count,
                int64_t height, int64_t pitch, void *out) {
    cf::Columns pass;
    if (p.layout == CF_NCHW) {
        const auto fits = [&](int n) { return cf::fits_word(n, sizeof(To), pitch, out); };
        cf::largest<4, 2, 1>(
            fits, [&](auto n) { pass = cf::columns_of<From, To, true, decltype(n)::value>(p); });
    } else {
        const auto *x = static_cast<const From *>(args.x);
        const auto fits = [&](int n) { return p.c % n == 0 && cf::aligned(x, n); };
        cf::largest<8, 1>(
            fits, [&](auto n) { pass = cf::columns_of<From, To, false, decltype(n)::value>(p); });
    }
    return pass.launch(p, args, first, count, height, pitch, out);
}

// What that may launch, whatever the addresses.
template <class From, class To>
int32_t prepare_columns(const cf_problem &p) {
    const auto prepare = [](std::initializer_list<cf::Columns> passes) {
        int32_t error = 0;
        for (const cf::Columns &pass : passes)
            error = error ? error : pass.kernel.prepare();
        return error;
    };
    if (p.layout == CF_NCHW)
        return prepare({cf::columns_of<From, To, true, 4>(p), cf::columns_of<From, To, true, 2>(p),
                        cf::columns_of<From, To, true, 1>(p)});
    return prepare({cf::columns_of<From, To, false, 8>(p), cf::columns_of<From, To, false, 1>(p)});
}

// As many threads beside each other as share so many places evenly, the others below.
dim3 block(int64_t places) {
    const auto width = unsigned(cf::ceil_div(places, cf::ceil_div(places, Threads)));
    return dim3(width, Threads / width);
}

// The two kernels for rows, with Vector elements read together.
template <int Vector, class From, class To>
int32_t rows_of(const cf_problem &p, const cf_args &args, int64_t first, int64_t count,
                int64_t pitch, void *out) {
    constexpr int Most = std::max<int>(WordBytes / int(Vector * sizeof(To)), 1);
    const int64_t vectors = pitch / Vector * p.groups;
    const int64_t padded_line = (int64_t(p.w) + p.pad_left + p.pad_right) * p.c;
    // One tap reads everything once, so nothing is gained by keeping it.
    if (p.r * p.s > 1 && std::max(vectors * Most, padded_line) <= INT32_MAX) {
        Tile t;
        cf::Kernel<cf_problem, Tile, const void *, void *, int64_t, int64_t, int> kernel;
        // Each line of pixels begins with a word.
        const auto whole = [&](int n) { return vectors * p.q % n == 0; };
        cf::largest<Most, std::max(Most / 2, 1), 1>(whole, [&](auto together) {
            constexpr int Count = decltype(together)::value;
            t = Tile(p, count, int(pitch / Vector), Vector, Count, p.c * int64_t(sizeof(To)));
            kernel = cf::kernel_of(unroll_tiles<From, To, Vector, Count>, dim3(),
                                   block(vectors * t.period / Count), t.bytes);
        });
        const int64_t tiles = count * t.across.by * t.down.by;
        kernel.grid = cf::blocks(tiles, 1);
        if (t.bytes <= TileBytes)
            return kernel.launch(args.stream, p, t, args.x, out, first, tiles, int(pitch / Vector));
    }
    const int64_t rows = count * p.p * p.q * p.groups;
    const dim3 threads = block(pitch / Vector);
    const unsigned across = cf::blocks(pitch / Vector, threads.x);
    const dim3 grid(across, cf::blocks_for_lines(cf::ceil_div(rows, threads.y), across));
    return cf::launch(unroll_rows<From, To, Vector>, grid, threads, args.stream, p,
                      cf::UnrollDivisors(p), args.x, out, first, rows, pitch);
}

template <class From, class To>
int32_t rows(const cf_problem &p, const cf_args &args, int64_t first, int64_t count, int64_t pitch,
             void *out) {
    const auto fits = [&](int n) {
        return p.c / p.groups % n == 0 && pitch % n == 0 &&
               cf::aligned(static_cast<const From *>(args.x), n) &&
               cf::aligned(static_cast<To *>(out), n);
    };
    int32_t error = 0;
    cf::largest<16 / sizeof(To), 4, 2, 1>(fits, [&](auto vector) {
        error = rows_of<decltype(vector)::value, From, To>(p, args, first, count, pitch, out);
    });
    return error;
}

// What that may launch, whatever the addresses: with vectors of so many elements, and all shorter.
template <class From, class To, int Vector = 16 / sizeof(To)>
int32_t prepare_rows(const cf_problem &p) {
    constexpr int Most = std::max<int>(WordBytes / int(Vector * sizeof(To)), 1);
    int32_t error = 0;
    if (p.c / p.groups % Vector == 0) {
        error = cf::prepare_all(unroll_rows<From, To, Vector>);
        if (!error && p.r * p.s > 1)
            error = cf::prepare_all(unroll_tiles<From, To, Vector, Most>,
                                    unroll_tiles<From, To, Vector, std::max(Most / 2, 1)>,
                                    unroll_tiles<From, To, Vector, 1>);
    }
    if constexpr (Vector > 1)
        return error ? error : prepare_rows<From, To, Vector / 2>(p);
    return error;
}

// Calls body(from, to) with elements of the two storages.
template <class Body>
void for_storages(int32_t from, int32_t to, Body body) {
    cf::for_storage(from, [&](auto f) { cf::for_storage(to, [&](auto t) { body(f, t); }); });
}

} // namespace

int32_t cf_prepare_unroll_columns(const cf_problem *problem, int32_t storage) {
    int32_t error = 0;
    for_storages(problem->storage, storage, [&](auto from, auto to) {
        error = prepare_columns<decltype(from), decltype(to)>(*problem);
    });
    return error;
}

int32_t cf_prepare_unroll_rows(const cf_problem *problem, int32_t storage) {
    int32_t error = 0;
    for_storages(problem->storage, storage, [&](auto from, auto to) {
        error = prepare_rows<decltype(from), decltype(to)>(*problem);
    });
    return error;
}

int32_t cf_prepare_unroll_scatter(const cf_problem *problem) {
    return problem->storage == CF_STORE_F32 ? cf::prepare_all(scatter<uint32_t>)
                                            : cf::prepare_all(scatter<uint16_t>);
}

int32_t cf_prepare_convert(int32_t src_storage, int32_t dst_storage) {
    int32_t error = 0;
    for_storages(src_storage, dst_storage, [&](auto from, auto to) {
        using From = decltype(from);
        using To = decltype(to);
        error = cf::prepare_all(convert<From, To>, convert_rows<From, To>);
    });
    return error;
}

int32_t cf_unroll_columns(const cf_problem *problem, const cf_args *args, int64_t first,
                          int64_t count, int32_t storage, int64_t height, int64_t pitch,
                          void *out) {
    int32_t error = 0;
    for_storages(problem->storage, storage, [&](auto from, auto to) {
        error = columns<decltype(from), decltype(to)>(*problem, *args, first, count, height, pitch,
                                                      out);
    });
    return error;
}

int32_t cf_unroll_rows(const cf_problem *problem, const cf_args *args, int64_t first, int64_t count,
                       int32_t storage, int64_t pitch, void *out) {
    int32_t error = 0;
    for_storages(problem->storage, storage, [&](auto from, auto to) {
        error = rows<decltype(from), decltype(to)>(*problem, *args, first, count, pitch, out);
    });
    return error;
}

int32_t cf_unroll_scatter(const cf_problem *problem, const cf_args *args, int64_t first,
                          int64_t count, void *out) {
    const cf_problem &p = *problem;
    const bool wide = p.storage == CF_STORE_F32;
    const int64_t pixels = count * p.p * p.q, elements = count * p.c * p.h * p.w;
    if (overhangs(p)) {
        const int64_t bytes = pixels * p.c * p.r * p.s * (wide ? 4 : 2);
        if (const int32_t error = cf::checked(
                cudaMemsetAsync(out, 0, bytes, static_cast<cudaStream_t>(args->stream))))
            return error;
    }
    const dim3 grid = cf::blocks(elements, Threads);
    const auto kernel = wide ? cf::kernel_of(scatter<uint32_t>, grid, Threads)
                             : cf::kernel_of(scatter<uint16_t>, grid, Threads);
    return kernel.launch(args->stream, p, cf::LongDivisor(p.c), cf::LongDivisor(p.h),
                         cf::LongDivisor(p.w), args->x, out, first, pixels, elements);
}

int32_t cf_convert(const void *src, int32_t src_storage, void *dst, int32_t dst_storage,
                   int64_t count, void *stream) {
    cf::Kernel<const void *, void *, int64_t> kernel;
    for_storages(src_storage, dst_storage, [&](auto from, auto to) {
        kernel = cf::kernel_of(convert<decltype(from), decltype(to)>, cf::blocks(count, Threads),
                               Threads);
    });
    return kernel.launch(stream, src, dst, count);
}

int32_t cf_convert_rows(const void *src, int32_t src_storage, void *dst, int32_t dst_storage,
                        int64_t count, int64_t length, int64_t pitch, void *stream) {
    cf::Kernel<const void *, void *, int64_t, int64_t, int64_t> kernel;
    for_storages(src_storage, dst_storage, [&](auto from, auto to) {
        kernel = cf::kernel_of(convert_rows<decltype(from), decltype(to)>,
                               cf::blocks(count * pitch, Threads), Threads);
    });
    return kernel.launch(stream, src, dst, count, length, pitch);
}
