// Unrolling into a matrix with one column for each output pixel: the kernel and its launch. They
// stand in a header since im2col_gemm_unroll compiles the same with the loops over taps unrolled.
#pragma once

#include "core/divisor.cuh"
#include "core/launch.cuh"
#include "core/strides.cuh"
#include "core/taps.cuh"
#include "core/vector.cuh"

namespace cf {

constexpr int UnrollThreads = 256;
constexpr int64_t UnrollBlocks = 1 << 12; // some times what the largest chips hold

// Blocks that share so many lines where there are so many blocks beside each other: not one to a
// line, since a thread prepares itself once for all its lines.
inline unsigned blocks_for_lines(int64_t count, int64_t across) {
    const int64_t shared = std::max<int64_t>(UnrollBlocks / across, 1);
    return unsigned(std::clamp<int64_t>(count, 1, std::min<int64_t>(shared, MaxGrid)));
}

// What places and pixels are divided by on their way to an input element.
struct UnrollDivisors {
    LongDivisor q, p, groups;
    Divisor channels, s;

    explicit UnrollDivisors(const cf_problem &problem)
        : q(problem.q), p(problem.p), groups(problem.groups), channels(problem.c / problem.groups),
          s(problem.s) {}
    __device__ __forceinline__ Pixel pixel(int64_t i, const cf_problem &problem) const {
        const int64_t line = q.quotient(i), n = p.quotient(line);
        return {n, int(line - n * problem.p), int(i - line * problem.q)};
    }
};

// A thread has some neighbouring output pixels and walks over channels, in NHWC some at a time; of
// each it writes the r x s places of the matrix that belong to the pixels. Where their windows lie
// is worked out once; neighbours have neighbouring pixels, so each tap's stores are contiguous.
// Slide: the pixels lie in one line of the output, and each reads at the next tap what its right
// neighbour reads at this one. Side: of the filter, or 0 where it is not compiled in. `height` and
// `pitch` are the rows of a group and their length, with padding.
template <class From, class To, bool Nchw, bool Slide, int Pixels, int Channels, int Side>
__global__ void unroll_columns(const cf_problem p, const UnrollDivisors by,
                               const From *__restrict__ x, To *__restrict__ out, int64_t first,
                               int64_t pixels, int height, int64_t pitch) {
    using Word = Pack<To, Pixels>;
    constexpr int Outside = -(1 << 30); // no tap reaches the image from there
    const Strides xs = input_strides(p);
    const int column = Nchw ? 1 : p.c, channels = p.c / p.groups, taps = p.r * p.s;
    const int64_t step = int64_t(gridDim.x) * blockDim.x * Pixels;
    for (int64_t pixel = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * Pixels; pixel < pitch;
         pixel += step) {
        const From *image[Pixels];
        int top[Pixels], left[Pixels];
#pragma unroll
        for (int j = 0; j < Pixels; ++j) {
            const bool live = pixel + j < pixels; // or it fills up the row
            const Pixel at = by.pixel(live ? pixel + j : 0, p);
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
#pragma unroll(Side ? Side : 1)
            for (int r = 0; r < (Side ? Side : p.r); ++r) {
                const From *row[Pixels];
                int w[Pixels];
#pragma unroll
                for (int j = 0; j < Pixels; ++j) {
                    const int h = top[j] + r * p.dilation_h;
                    const bool there = h >= 0 && h < p.h;
                    row[j] = image[j] + (there ? h * xs.row : 0) + c * xs.channel;
                    w[j] = there ? left[j] : Outside;
                }
                Pack<From, Channels> v[Pixels];
#pragma unroll
                for (int s = 0; s < (Side ? Side : p.s); ++s) {
#pragma unroll
                    for (int j = 0; j < Pixels; ++j) {
                        if (Slide && j + 1 < Pixels && s > 0) {
                            v[j] = v[j + 1];
                        } else {
                            v[j] = {};
                            if (unsigned(w[j]) < unsigned(p.w))
                                v[j] = load<Channels>(row[j] + int64_t(w[j]) * column);
                        }
                        w[j] += p.dilation_w;
                    }
#pragma unroll
                    for (int i = 0; i < Channels; ++i) {
                        Word word;
#pragma unroll
                        for (int j = 0; j < Pixels; ++j)
                            word.v[j] = narrow<To>(widen(v[j].v[i]));
                        store(to[i], word);
                        to[i] += Nchw ? pitch : channels * pitch;
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < Channels; ++i) {
                // The rows that fill up a group, shared among its channels or left to the last.
                for (int row = after[i]; row >= channels * taps && row < height;
                     row += Nchw ? 1 : channels) {
                    store(to[i], Word{});
                    to[i] += Nchw ? pitch : channels * pitch;
                }
            }
        }
    }
}

// A choice of that kernel, with what a thread of it has.
struct Columns {
    Kernel<cf_problem, UnrollDivisors, const void *, void *, int64_t, int64_t, int, int64_t> kernel;
    int pixels, channels;

    // As cf_unroll_columns.
    int32_t launch(const cf_problem &p, const cf_args &args, int64_t first, int64_t count,
                   int64_t height, int64_t pitch, void *out) const {
        auto sized = kernel;
        const unsigned across = blocks(pitch / pixels, UnrollThreads);
        sized.grid = dim3(across, blocks_for_lines(p.c / channels, across));
        return sized.launch(args.stream, p, UnrollDivisors(p), args.x, out, first,
                            count * p.p * p.q, int(height), pitch);
    }
};

// A thread has this many pixels in NCHW, this many channels in NHWC.
template <class From, class To, bool Nchw, int Count, int Side = 0>
Columns columns_of(const cf_problem &p) {
    constexpr int Pixels = Nchw ? Count : 1, Channels = Nchw ? 1 : Count;
    auto *kernel = unroll_columns<From, To, Nchw, false, Pixels, Channels, Side>;
    if constexpr (Pixels > 1)
        if (p.stride_w == p.dilation_w && p.q % Pixels == 0)
            kernel = unroll_columns<From, To, Nchw, true, Pixels, Channels, Side>;
    return {kernel_of(kernel, dim3(), UnrollThreads), Pixels, Channels};
}

// Whether a thread may have so many pixels: it writes them as one word.
inline bool fits_word(int pixels, int element_bytes, int64_t pitch, const void *out) {
    return pitch % pixels == 0 && reinterpret_cast<uintptr_t>(out) % (pixels * element_bytes) == 0;
}

} // namespace cf
