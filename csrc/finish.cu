// The pass after a matrix product: epilogue, pooling, narrowing, and the change from the product's
// order to y's. For variants that cannot fuse these; inside their time.
#include "device/divisor.cuh"
#include "device/element.cuh"
#include "device/epilogue.cuh"
#include "device/index.cuh"
#include "device/launch.cuh"

namespace {

constexpr int Threads = 256;
constexpr int64_t EnoughBlocks = 1 << 12; // of a line

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

template <class T, bool Nchw>
__global__ void finish_lines(const cf_epilogue e, const Lines lines, const cf::LongDivisor by_k,
                             const float *__restrict__ sums, const float *__restrict__ bias,
                             const T *__restrict__ residual, T *__restrict__ y) {
    const int64_t down = int64_t(gridDim.y) * blockDim.y, across = int64_t(gridDim.x) * blockDim.x;
    for (int64_t line = int64_t(blockIdx.y) * blockDim.y + threadIdx.y; line < lines.count;
         line += down) {
        int64_t image = line;
        const int k = Nchw ? by_k.digit(image) : 0;
        const float *from =
            sums + (Nchw ? image * lines.image + k * lines.channel : line * lines.pixel);
        for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < lines.length;
             i += across) {
            const int64_t o = line * lines.length + i;
            const float added = e.residual ? cf::widen(residual[o]) : 0.0f;
            const float sum = from[i * (Nchw ? lines.pixel : lines.channel)];
            const float *const own = e.bias ? bias + (Nchw ? k : i) : nullptr;
            y[o] = cf::narrow<T>(cf::epilogue(e, sum, own, added));
        }
    }
}

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
            // A power of two of threads beside each other, the others on lines below.
            unsigned width = 1;
            while (width < Threads && width < lines.length)
                width *= 2;
            const dim3 block(width, Threads / width);
            const int64_t across = cf::ceil_div(lines.length, width);
            const int64_t down = cf::ceil_div(lines.count, block.y);
            const dim3 grid(unsigned(std::clamp<int64_t>(across, 1, EnoughBlocks)),
                            unsigned(std::clamp<int64_t>(down, 1, cf::MaxGrid)));
            const int64_t begin = first * p.k * p.p * p.q;
            const auto *residual = static_cast<const T *>(call->residual);
            const auto kernel =
                p.layout == CF_NCHW ? finish_lines<T, true> : finish_lines<T, false>;
            kernel<<<grid, block, 0, cf::stream(call)>>>(
                p.epilogue, lines, cf::LongDivisor(p.k), sums, call->bias,
                residual ? residual + begin : nullptr, static_cast<T *>(call->y) + begin);
            return cudaGetLastError();
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
