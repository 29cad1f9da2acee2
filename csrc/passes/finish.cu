// The pass after a matrix product: epilogue, pooling, narrowing, and the change from the product's
// order to y's. For variants that cannot fuse these; inside their time.
#include "core/divisor.cuh"
#include "core/element.cuh"
#include "core/epilogue.cuh"
#include "core/strides.cuh"
#include "core/launch.cuh"
#include "core/vector.cuh"

namespace {

constexpr int Threads = 256;
constexpr int64_t EnoughBlocks = 1 << 13; // some times what the chip holds

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
__global__ void finish_turned(const cf_epilogue e, const Lines lines,
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

} // namespace

int32_t cf_finish(const cf_call *call, int64_t first, int64_t count, const float *sums,
                  cf_strides strides) {
    const cf_problem &p = call->problem;
    const int64_t outputs = count * p.k * p.epilogue.out_h * p.epilogue.out_w;
    const auto run = [&](auto element) -> int32_t {
        using T = decltype(element);
        if (Lines lines; in_lines(p, strides, count, &lines)) {
            const int64_t begin = first * p.k * p.p * p.q;
            const auto *residual = static_cast<const T *>(call->residual);
            residual = residual ? residual + begin : nullptr;
            T *const y = static_cast<T *>(call->y) + begin;
            const bool nchw = p.layout == CF_NCHW;
            if (!nchw && lines.pixel == 1 && lines.count % 4 == 0 && lines.channel % 4 == 0 &&
                cf::aligned(sums, 4)) {
                const Shape s(lines.length, lines.count / 4);
                finish_turned<T, 4><<<s.grid, s.block, 0, cf::stream(call)>>>(
                    p.epilogue, lines, sums, call->bias, residual, y);
                return cudaGetLastError();
            }
            const bool together = (nchw ? lines.pixel : lines.channel) == 1;
            const int64_t starts = nchw ? lines.image | lines.channel : lines.pixel;
            const auto fits = [&](int n) {
                return together && (lines.length | starts) % n == 0 && cf::aligned(sums, n) &&
                       cf::aligned(y, n) && cf::aligned(residual, n);
            };
            const auto launch = [&](auto words, auto count) -> int32_t {
                constexpr bool Words = decltype(words)::value;
                constexpr int Count = decltype(count)::value;
                const Shape s(cf::ceil_div(lines.length, Count), lines.count);
                const auto kernel = nchw ? finish_lines<T, true, Words, Count>
                                         : finish_lines<T, false, Words, Count>;
                kernel<<<s.grid, s.block, 0, cf::stream(call)>>>(
                    p.epilogue, lines, cf::LongDivisor(p.k), sums, call->bias, residual, y);
                return cudaGetLastError();
            };
            return fits(8)   ? launch(std::true_type(), cf::Constant<8>())
                   : fits(4) ? launch(std::true_type(), cf::Constant<4>())
                             : launch(std::false_type(), cf::Constant<4>());
        }
        finish<T><<<cf::blocks(outputs, Threads), Threads, 0, cf::stream(call)>>>(
            p, cf::LongDivisor(p.k), cf::LongDivisor(p.epilogue.out_h),
            cf::LongDivisor(p.epilogue.out_w), sums, cf::Strides{strides}, call->bias,
            static_cast<const T *>(call->residual), static_cast<T *>(call->y), first, outputs);
        return cudaGetLastError();
    };
    switch (p.storage) {
    case CF_STORE_F32:
        return run(float());
    case CF_STORE_F16:
        return run(__half());
    default:
        return run(__nv_bfloat16());
    }
}
