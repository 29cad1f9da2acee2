// The pass after a matrix product: epilogue, pooling, narrowing, and the change from the product's
// order to y's. For variants that cannot fuse these; inside their time.
#include "device/divisor.cuh"
#include "device/element.cuh"
#include "device/epilogue.cuh"
#include "device/index.cuh"
#include "device/launch.cuh"

namespace {

constexpr int Threads = 256;

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
