// The pass after a matrix product: epilogue, pooling, narrowing, and the change from the product's
// order to y's. For variants that cannot fuse these; inside their time.
#include "core/divisor.cuh"
#include "core/epilogue.cuh"
#include "core/launch.cuh"
#include "core/strides.cuh"
#include "core/vector.cuh"
#include "passes.h"
#include "passes/storage.cuh"

namespace {

constexpr int Threads = 256;
constexpr int64_t EnoughBlocks = 1 << 13; // some times what the largest chips hold

// Without pooling y is lines that the sums hold as well, with other distances between: planes in
// NCHW, the channels of a pixel in NHWC.
struct Lines {
    int64_t count, length;
    int64_t image, channel, pixel; // distances between sums
};

// Whether the sums of a line lie at one distance from each other, line by line.
bool in_lines(const cf_problem &p, const cf_strides &ss, int64_t images, Lines *lines) {
    const int64_t area = int64_t(p.p) * p.q;
    const bool nchw = p.layout == CF_NCHW;
    *lines = {nchw ? images * p.k : images * area, nchw ? area : p.k, ss.image, ss.channel,
              ss.column};
    return p.epilogue.pool_h == 0 && ss.row == p.q * ss.column &&
           (nchw || ss.image == area * ss.column);
}

// A thread does Count outputs of a line at once: neighbours, read and written as words, or as far
// apart as there are threads beside each other.
template <class T, bool Nchw, bool Words, int Count>
__global__ void finish_lines(const cf_epilogue e, const Lines lines, const cf::LongDivisor by_k,
                             const float *__restrict__ sums, const float *__restrict__ bias,
                             const T *__restrict__ residual, T *__restrict__ y) {
    const int64_t down = int64_t(gridDim.y) * blockDim.y;
    const int64_t across = int64_t(gridDim.x) * blockDim.x, apart = Words ? 1 : across;
    const int64_t distance = Nchw ? lines.pixel : lines.channel;
    for (int64_t line = int64_t(blockIdx.y) * blockDim.y + threadIdx.y; line < lines.count;
         line += down) {
        int64_t image = line;
        const int k = Nchw ? by_k.digit(image) : 0;
        const float *const from =
            sums + (Nchw ? image * lines.image + k * lines.channel : line * lines.pixel);
        const int64_t begin = line * lines.length;
        for (int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * (Words ? Count : 1);
             i < lines.length; i += across * Count) {
            cf::Pack<float, Count> sum;
            cf::Pack<T, Count> added, out;
            if constexpr (Words) {
                sum = cf::load<Count>(from + i);
                if (e.residual)
                    added = cf::load<Count>(residual + begin + i);
            } else {
#pragma unroll
                for (int j = 0; j < Count; ++j) {
                    const int64_t at = min(i + j * apart, lines.length - 1);
                    sum.v[j] = from[at * distance];
                    if (e.residual)
                        added.v[j] = residual[begin + at];
                }
            }
#pragma unroll
            for (int j = 0; j < Count; ++j) {
                const int64_t at = i + j * apart;
                if (!Words && at >= lines.length)
                    break;
                const float *const own = e.bias ? bias + (Nchw ? k : at) : nullptr;
                const float more = e.residual ? cf::widen(added.v[j]) : 0.0f;
                out.v[j] = cf::narrow<T>(cf::epilogue(e, sum.v[j], own, more));
                if (!Words)
                    y[begin + at] = out.v[j];
            }
            if constexpr (Words)
                cf::store(y + begin + i, out);
        }
    }
}

// NHWC after a product whose sums are contiguous along pixels: a thread reads Count of a channel at
// once; neighbours have neighbouring channels, so that writes are contiguous as well.
template <class T, int Count>
__global__ void finish_transposed(const cf_epilogue e, const Lines lines,
                                  const float *__restrict__ sums, const float *__restrict__ bias,
                                  const T *__restrict__ residual, T *__restrict__ y) {
    const int64_t down = int64_t(gridDim.y) * blockDim.y * Count;
    const int64_t across = int64_t(gridDim.x) * blockDim.x;
    for (int64_t line = (int64_t(blockIdx.y) * blockDim.y + threadIdx.y) * Count;
         line < lines.count; line += down) {
        for (int64_t k = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; k < lines.length;
             k += across) {
            const auto sum = cf::load<Count>(sums + k * lines.channel + line);
#pragma unroll
            for (int j = 0; j < Count; ++j) {
                const int64_t o = (line + j) * lines.length + k;
                const float added = e.residual ? cf::widen(residual[o]) : 0.0f;
                y[o] = cf::narrow<T>(cf::epilogue(e, sum.v[j], e.bias ? bias + k : nullptr, added));
            }
        }
    }
}

// As many threads beside each other as go round a line's words evenly, the others on lines below;
// and no more blocks than keep the chip busy, since a thread prepares itself once for all its
// lines.
struct Shape {
    dim3 block, grid;

    Shape(int64_t words, int64_t lines) {
        const int64_t rounds = cf::ceil_div(words, Threads), share = cf::ceil_div(words, rounds);
        block.x = unsigned(share > 32 ? cf::ceil_div(share, 32) * 32 : share);
        block.y = Threads / block.x;
        const int64_t down = cf::ceil_div(lines, block.y);
        grid.x = unsigned(std::clamp<int64_t>(EnoughBlocks / down, 1, rounds));
        grid.y = unsigned(std::min<int64_t>(down, cf::ceil_div(EnoughBlocks, grid.x)));
    }
};

// One thread per output, in y's order.
template <class T>
__global__ void finish(const cf_problem p, const cf::LongDivisor by_k, const cf::LongDivisor by_h,
                       const cf::LongDivisor by_w, const float *__restrict__ sums, cf::Strides ss,
                       const float *__restrict__ bias, const T *__restrict__ residual,
                       T *__restrict__ y, int64_t first, int64_t outputs) {
    const cf_epilogue &e = p.epilogue;
    const cf::Strides rs = cf::residual_strides(p);
    const int64_t begin = first * p.k * e.out_h * e.out_w;
    const int64_t step = int64_t(gridDim.x) * Threads;
    for (int64_t o = int64_t(blockIdx.x) * Threads + threadIdx.x; o < outputs; o += step) {
        int64_t rest = o; // in the end the image
        int k, row, column;
        if (p.layout == CF_NCHW) {
            column = by_w.digit(rest), row = by_h.digit(rest), k = by_k.digit(rest);
        } else {
            k = by_k.digit(rest), column = by_w.digit(rest), row = by_h.digit(rest);
        }
        // Without pooling the window is the one sum.
        const bool pooled = e.pool_h > 0;
        const int top = pooled ? row * e.pool_stride_h : row;
        const int left = pooled ? column * e.pool_stride_w : column;
        const int bottom = pooled ? int(min(int64_t(top) + e.pool_h, int64_t(p.p))) : top + 1;
        const int right = pooled ? int(min(int64_t(left) + e.pool_w, int64_t(p.q))) : left + 1;
        float v = -INFINITY;
        for (int i = top; i < bottom; ++i) {
            for (int j = left; j < right; ++j) {
                const float added =
                    e.residual ? cf::widen(residual[rs.at(first + rest, k, i, j)]) : 0.0f;
                const float sum = sums[ss.at(rest, k, i, j)];
                v = cf::max_keeping_nan(v,
                                        cf::epilogue(e, sum, e.bias ? bias + k : nullptr, added));
            }
        }
        y[begin + o] = cf::narrow<T>(v);
    }
}

// Without pooling, line by line. `residual` and `y` begin with the first image of the sums.
template <class T>
int32_t finish_by_lines(const cf_problem &p, const cf_args &args, const Lines &lines,
                        const float *sums, const T *residual, T *y) {
    const bool nchw = p.layout == CF_NCHW;
    if (!nchw && lines.pixel == 1 && lines.count % 4 == 0 && lines.channel % 4 == 0 &&
        cf::aligned(sums, 4)) {
        const Shape s(lines.length, lines.count / 4);
        return cf::launch(finish_transposed<T, 4>, s.grid, s.block, args.stream, p.epilogue, lines,
                          sums, args.bias, residual, y);
    }
    const bool together = (nchw ? lines.pixel : lines.channel) == 1;
    const int64_t starts = nchw ? lines.image | lines.channel : lines.pixel;
    const auto fits = [&](int n) {
        return together && (lines.length | starts) % n == 0 && cf::aligned(sums, n) &&
               cf::aligned(y, n) && cf::aligned(residual, n);
    };
    const auto launch = [&](auto in_nchw, auto in_nhwc, int count) {
        const Shape s(cf::ceil_div(lines.length, count), lines.count);
        return cf::launch(nchw ? in_nchw : in_nhwc, s.grid, s.block, args.stream, p.epilogue, lines,
                          cf::LongDivisor(p.k), sums, args.bias, residual, y);
    };
    if (fits(8))
        return launch(finish_lines<T, true, true, 8>, finish_lines<T, false, true, 8>, 8);
    if (fits(4))
        return launch(finish_lines<T, true, true, 4>, finish_lines<T, false, true, 4>, 4);
    return launch(finish_lines<T, true, false, 4>, finish_lines<T, false, false, 4>, 4);
}

template <class T>
int32_t finish_as(const cf_problem &p, const cf_args &args, int64_t first, int64_t count,
                  const float *sums, cf_strides strides) {
    const auto *residual = static_cast<const T *>(args.residual);
    T *const y = static_cast<T *>(args.y);
    if (Lines lines; in_lines(p, strides, count, &lines)) {
        const int64_t begin = first * p.k * p.p * p.q;
        return finish_by_lines(p, args, lines, sums, residual ? residual + begin : nullptr,
                               y + begin);
    }
    const int64_t outputs = count * p.k * p.epilogue.out_h * p.epilogue.out_w;
    return cf::launch(finish<T>, cf::blocks(outputs, Threads), Threads, args.stream, p,
                      cf::LongDivisor(p.k), cf::LongDivisor(p.epilogue.out_h),
                      cf::LongDivisor(p.epilogue.out_w), sums, cf::Strides{strides}, args.bias,
                      residual, y, first, outputs);
}

// What that may launch, whatever the addresses.
template <class T>
int32_t prepare_as(const cf_problem &p, cf_strides strides) {
    if (Lines lines; !in_lines(p, strides, 1, &lines))
        return cf::prepare_all(finish<T>);
    if (p.layout == CF_NCHW)
        return cf::prepare_all(finish_lines<T, true, true, 8>, finish_lines<T, true, true, 4>,
                               finish_lines<T, true, false, 4>);
    return cf::prepare_all(finish_transposed<T, 4>, finish_lines<T, false, true, 8>,
                           finish_lines<T, false, true, 4>, finish_lines<T, false, false, 4>);
}

} // namespace

int32_t cf_prepare_finish(const cf_problem *problem, cf_strides strides) {
    int32_t error = 0;
    cf::for_storage(problem->storage, [&](auto element) {
        error = prepare_as<decltype(element)>(*problem, strides);
    });
    return error;
}

int32_t cf_finish(const cf_problem *problem, const cf_args *args, int64_t first, int64_t count,
                  const float *sums, cf_strides strides) {
    int32_t error = 0;
    cf::for_storage(problem->storage, [&](auto element) {
        error = finish_as<decltype(element)>(*problem, *args, first, count, sums, strides);
    });
    return error;
}
