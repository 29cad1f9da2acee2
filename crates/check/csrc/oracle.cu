// The judge for problems too large for the CPU: convolution with f64 sums, one thread per output.
//
// It repeats src/reference.rs, operation by operation and in the same order (channels, filter rows,
// filter columns), and shares no code with the kernels that it judges. Products of two floats are
// exact in f64, so contracting them into multiply-adds changes nothing; where contraction would
// round differently (the epilogue) the operations are spelled out.
//
// It is not meant to be fast, only fast enough: 10000 images of a first layer in some tens of
// milliseconds.
#include "oracle.h"

#include "core/launch.cuh"
#include "recipe.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace {

constexpr int Threads = 256;

// Enough for any chip; threads walk the outputs with a grid stride.
unsigned grid(int64_t items) { return std::min(cf::blocks(items, Threads), 8192u); }

// A kernel's parameter: the problem and the addresses that it reads.
struct Call {
    cf_problem problem;
    const void *x, *w, *y;
    const float *bias;
    const void *residual;

    Call(const cf_problem &problem, const cf_args &args)
        : problem(problem), x(args.x), w(args.w), y(args.y), bias(args.bias),
          residual(args.residual) {}
};

__device__ float widen(float v) { return v; }
__device__ float widen(__half v) { return __half2float(v); }
__device__ float widen(__nv_bfloat16 v) { return __bfloat162float(v); }

// To the nearest value of the type and back.
template <class T>
__device__ float round_to(float v);
template <>
__device__ float round_to<float>(float v) {
    return v;
}
template <>
__device__ float round_to<__half>(float v) {
    return __half2float(__float2half_rn(v));
}
template <>
__device__ float round_to<__nv_bfloat16>(float v) {
    return __bfloat162float(__float2bfloat16_rn(v));
}

// Distances, in elements, between neighbours of a tensor n c h w.
struct Strides {
    int64_t n, c, h, w;

    __device__ Strides(int layout, int64_t channels, int64_t height, int64_t width)
        : n(channels * height * width), c(layout == CF_NCHW ? height * width : 1),
          h(layout == CF_NCHW ? width : width * channels), w(layout == CF_NCHW ? 1 : channels) {}
};

struct Expected {
    double value, mag;
    float sequential;
};

__device__ double activate(int activation, double v) {
    switch (activation) {
    case CF_ACT_RELU:
        return fmax(v, 0.0);
    case CF_ACT_RELU6:
        return fmin(fmax(v, 0.0), 6.0);
    case CF_ACT_TANH:
        return tanh(v);
    case CF_ACT_SIGMOID:
        return 1.0 / (1.0 + exp(-v));
    case CF_ACT_SILU:
        return v / (1.0 + exp(-v));
    default:
        return v;
    }
}

// One pixel of the convolution's output, before pooling. T is the storage; Operand is what the math
// rounds operands to.
template <class T, class Operand>
__device__ Expected pixel(const Call &call, int64_t n, int k, int p, int q) {
    const cf_problem &o = call.problem;
    const int channels = o.c / o.groups;
    const int first_channel = k / (o.k / o.groups) * channels;
    const Strides xs(o.layout, o.c, o.h, o.w), ws(o.layout, channels, o.r, o.s);
    const T *x = static_cast<const T *>(call.x) + n * xs.n + first_channel * xs.c;
    const T *w = static_cast<const T *>(call.w) + k * ws.n;
    const int64_t top = int64_t(p) * o.stride_h - o.pad_top;
    const int64_t left = int64_t(q) * o.stride_w - o.pad_left;

    double sum = 0, mag = 0;
    float sequential = 0;
    for (int c = 0; c < channels; ++c) {
        for (int r = 0; r < o.r; ++r) {
            const int64_t row = top + int64_t(r) * o.dilation_h;
            if (row < 0 || row >= o.h)
                continue;
            for (int s = 0; s < o.s; ++s) {
                const int64_t column = left + int64_t(s) * o.dilation_w;
                if (column < 0 || column >= o.w)
                    continue;
                const float a = round_to<Operand>(widen(x[c * xs.c + row * xs.h + column * xs.w]));
                const float b = round_to<Operand>(widen(w[c * ws.c + r * ws.h + s * ws.w]));
                const double product = double(a) * double(b);
                sum += product;
                mag += fabs(product);
                sequential = fmaf(a, b, sequential);
            }
        }
    }

    const cf_epilogue &e = o.epilogue;
    const float bias = e.bias ? call.bias[k] : 0.0f;
    float residual = 0;
    if (e.residual) {
        const Strides rs(o.layout, o.k, o.p, o.q);
        residual =
            widen(static_cast<const T *>(call.residual)[n * rs.n + k * rs.c + p * rs.h + q * rs.w]);
    }
    const double scale = e.scale;
    const double added = __dadd_rn(__dadd_rn(__dmul_rn(scale, sum), bias), residual);
    const double value = activate(e.activation, added);
    mag = __dadd_rn(__dadd_rn(__dmul_rn(fabs(scale), mag), fabsf(bias)), fabsf(residual));
    sequential = __fadd_rn(__fadd_rn(__fmul_rn(e.scale, sequential), bias), residual);
    sequential = float(activate(e.activation, double(sequential)));
    return {value, fmax(mag, fabs(value)), round_to<T>(sequential)};
}

// The output with this index in y's own order.
template <class T, class Operand>
__device__ Expected output(const Call &call, int64_t index) {
    const cf_problem &o = call.problem;
    const cf_epilogue &e = o.epilogue;
    int64_t n;
    int k, row, column;
    if (o.layout == CF_NCHW) {
        column = int(index % e.out_w), index /= e.out_w;
        row = int(index % e.out_h), index /= e.out_h;
        k = int(index % o.k), n = index / o.k;
    } else {
        k = int(index % o.k), index /= o.k;
        column = int(index % e.out_w), index /= e.out_w;
        row = int(index % e.out_h), n = index / e.out_h;
    }
    if (e.pool_h == 0)
        return pixel<T, Operand>(call, n, k, row, column);

    const int64_t top = int64_t(row) * e.pool_stride_h, left = int64_t(column) * e.pool_stride_w;
    const int64_t bottom = min(top + e.pool_h, int64_t(o.p));
    const int64_t right = min(left + e.pool_w, int64_t(o.q));
    Expected best = {-INFINITY, 0, -INFINITY};
    for (int64_t p = top; p < bottom; ++p) {
        for (int64_t q = left; q < right; ++q) {
            const Expected one = pixel<T, Operand>(call, n, k, int(p), int(q));
            best.value = fmax(best.value, one.value);
            best.mag = fmax(best.mag, one.mag);
            best.sequential = fmaxf(best.sequential, one.sequential);
        }
    }
    return best;
}

template <class T, class Operand>
__global__ void oracle_kernel(Call call, int64_t first, int64_t count, double *value, double *mag,
                              float *sequential) {
    const int64_t step = int64_t(gridDim.x) * blockDim.x;
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
        const Expected expected = output<T, Operand>(call, first + i);
        value[i] = expected.value;
        mag[i] = expected.mag;
        sequential[i] = expected.sequential;
    }
}

using u64 = unsigned long long;
static_assert(sizeof(u64) == sizeof(int64_t), "counters are added to as unsigned");

// What a block adds to the verdict. Only `bad` elements are rare enough for atomics of their own.
struct Found {
    u64 bad = 0, nan = 0, nonzero = 0, counted = 0;
    double sum_sq = 0, sum_sq_sequential = 0, worst = 0;
};

template <class V>
__device__ V across_warp(V v) {
    for (int offset = 16; offset > 0; offset /= 2)
        v += __shfl_down_sync(~0u, v, offset);
    return v;
}

__device__ double largest_of_warp(double v) {
    for (int offset = 16; offset > 0; offset /= 2)
        v = fmax(v, __shfl_down_sync(~0u, v, offset));
    return v;
}

__global__ void begin_verdict(cf_verdict *verdict) {
    *verdict = cf_verdict{};
    verdict->first_bad = INT64_MAX;
}

// Where what an output should be comes from: it is worked out,
template <class T, class Operand>
struct WorkedOut {
    Call call;
    __device__ Expected operator()(int64_t i) const { return output<T, Operand>(call, i); }
};
// or cf_oracle has written it.
struct Written {
    const double *value, *mag;
    const float *sequential;
    __device__ Expected operator()(int64_t i) const { return {value[i], mag[i], sequential[i]}; }
};

template <class T, class Source>
__global__ void judge_kernel(Source source, const T *outputs, cf_bounds bounds, int64_t count,
                             cf_verdict *verdict) {
    Found found;
    const int64_t step = int64_t(gridDim.x) * blockDim.x;
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
        const Expected expected = source(i);
        const double value = expected.value, mag = expected.mag;
        const double y = widen(outputs[i]), error = fabs(y - value);
        // Written so that a NaN is bad. Zeros are equal whatever their sign.
        const bool good =
            bounds.exact ? y == double(round_to<T>(float(value)))
                         : error <= __dadd_rn(__dadd_rn(__dmul_rn(bounds.per_mag, mag),
                                                        __dmul_rn(bounds.per_ref, fabs(value))),
                                              bounds.floor);
        if (!good) {
            ++found.bad;
            atomicMin(reinterpret_cast<u64 *>(&verdict->first_bad), u64(i));
        }
        const bool nan = y != y;
        found.nan += nan;
        found.nonzero += value != 0;
        if (mag > 0) {
            ++found.counted;
            if (!nan) {
                const double unfair = fmax(bounds.rounding * fabs(value), bounds.floor);
                const double mine = fmax(error - unfair, 0.0) / mag;
                const double of_loop =
                    fmax(fabs(double(expected.sequential) - value) - unfair, 0.0) / mag;
                found.sum_sq += mine * mine;
                found.sum_sq_sequential += of_loop * of_loop;
                found.worst = fmax(found.worst, error / mag);
            }
        }
    }

    found.bad = across_warp(found.bad);
    found.nan = across_warp(found.nan);
    found.nonzero = across_warp(found.nonzero);
    found.counted = across_warp(found.counted);
    found.sum_sq = across_warp(found.sum_sq);
    found.sum_sq_sequential = across_warp(found.sum_sq_sequential);
    found.worst = largest_of_warp(found.worst);
    if (threadIdx.x % 32 == 0) {
        atomicAdd(reinterpret_cast<u64 *>(&verdict->bad), found.bad);
        atomicAdd(reinterpret_cast<u64 *>(&verdict->nan), found.nan);
        atomicAdd(reinterpret_cast<u64 *>(&verdict->nonzero), found.nonzero);
        atomicAdd(reinterpret_cast<u64 *>(&verdict->counted), found.counted);
        atomicAdd(&verdict->sum_sq, found.sum_sq);
        atomicAdd(&verdict->sum_sq_sequential, found.sum_sq_sequential);
        // The bits of doubles that are not negative are ordered as the doubles are.
        atomicMax(reinterpret_cast<u64 *>(&verdict->worst), u64(__double_as_longlong(found.worst)));
    }
}

// Counts words and, at the end, what is left of one.
__global__ void count_differences(const uint8_t *a, const uint8_t *b, int64_t bytes, u64 *count) {
    const bool aligned = (reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b)) % 4 == 0;
    const int64_t words = (bytes + 3) / 4, step = int64_t(gridDim.x) * blockDim.x;
    u64 found = 0;
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += step) {
        bool differs = false;
        if (aligned && 4 * i + 4 <= bytes) {
            differs = reinterpret_cast<const uint32_t *>(a)[i] !=
                      reinterpret_cast<const uint32_t *>(b)[i];
        } else {
            for (int64_t j = 4 * i; j < min(4 * i + 4, bytes); ++j)
                differs |= a[j] != b[j];
        }
        found += differs;
    }
    found = across_warp(found);
    if (threadIdx.x % 32 == 0 && found > 0)
        atomicAdd(count, found);
}

template <class T>
__global__ void find_poison_kernel(const T *outputs, int64_t len, int64_t stride, int64_t all,
                                   u64 *first) {
    const int64_t step = int64_t(gridDim.x) * blockDim.x;
    u64 found = UINT64_MAX;
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < all; i += step) {
        const T value = outputs[i];
        bool strange = false;
        if (i % stride < len) {
            const float v = widen(value);
            strange = v != v;
        } else {
            const auto *bytes = reinterpret_cast<const uint8_t *>(&value);
            for (int b = 0; b < int(sizeof value); ++b)
                strange |= bytes[b] != 0xff;
        }
        if (strange && found == UINT64_MAX)
            found = u64(i);
    }
    if (found != UINT64_MAX)
        atomicMin(first, found);
}

__device__ void store(float *at, float v) { *at = v; }
__device__ void store(__half *at, float v) { *at = __float2half_rn(v); }
__device__ void store(__nv_bfloat16 *at, float v) { *at = __float2bfloat16_rn(v); }

template <class T>
__global__ void make_tensor_kernel(cf_recipe recipe, T *tensor) {
    const uint64_t step = uint64_t(gridDim.x) * blockDim.x;
    for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < recipe.len; i += step)
        store(tensor + i, cf::recipe::element(recipe, i));
}

template <class T>
struct Type {
    using type = T;
};

// Calls f with the types of storage and of rounded operands. Rounding to the type that operands
// are stored in changes nothing, so only f32 storage has a choice.
template <class F>
int32_t for_types(const cf_problem &problem, F f) {
    switch (problem.storage) {
    case CF_STORE_F16:
        return f(Type<__half>(), Type<float>());
    case CF_STORE_BF16:
        return f(Type<__nv_bfloat16>(), Type<float>());
    }
    switch (problem.math) {
    case CF_MATH_F16:
    case CF_MATH_F16_ACC:
        return f(Type<float>(), Type<__half>());
    case CF_MATH_BF16:
        return f(Type<float>(), Type<__nv_bfloat16>());
    default:
        return f(Type<float>(), Type<float>());
    }
}

template <class T, class Source>
int32_t judge(const Source &source, const cf_problem &problem, const void *y,
              const cf_bounds &bounds, cf_verdict *verdict, void *stream) {
    if (const int32_t error = cf::launch(begin_verdict, 1, 1, stream, verdict))
        return error;
    const int64_t count = problem.n * problem.k * problem.epilogue.out_h * problem.epilogue.out_w;
    if (count == 0)
        return 0;
    return cf::launch(judge_kernel<T, Source>, grid(count), Threads, stream, source,
                      static_cast<const T *>(y), bounds, count, verdict);
}

} // namespace

int32_t cf_oracle(const cf_problem *problem, const cf_args *args, int64_t first, int64_t count,
                  double *reference, double *mag, float *sequential) {
    if (count == 0)
        return 0;
    return for_types(*problem, [&](auto storage, auto operand) {
        using T = typename decltype(storage)::type;
        using Operand = typename decltype(operand)::type;
        return cf::launch(oracle_kernel<T, Operand>, grid(count), Threads, args->stream,
                          Call(*problem, *args), first, count, reference, mag, sequential);
    });
}

int32_t cf_judge(const cf_problem *problem, const cf_args *args, const cf_bounds *bounds,
                 cf_verdict *verdict) {
    return for_types(*problem, [&](auto storage, auto operand) {
        using T = typename decltype(storage)::type;
        using Operand = typename decltype(operand)::type;
        return judge<T>(WorkedOut<T, Operand>{Call(*problem, *args)}, *problem, args->y, *bounds,
                        verdict, args->stream);
    });
}

int32_t cf_judge_by(const cf_problem *problem, const double *reference, const double *mag,
                    const float *sequential, const void *y, const cf_bounds *bounds,
                    cf_verdict *verdict, void *stream) {
    return for_types(*problem, [&](auto storage, auto) {
        using T = typename decltype(storage)::type;
        return judge<T>(Written{reference, mag, sequential}, *problem, y, *bounds, verdict, stream);
    });
}

int32_t cf_count_differences(const void *a, const void *b, uint64_t bytes, uint64_t *count,
                             void *stream) {
    const auto on = static_cast<cudaStream_t>(stream);
    if (const int32_t error = cf::checked(cudaMemsetAsync(count, 0, sizeof *count, on)))
        return error;
    if (bytes == 0)
        return 0;
    return cf::launch(count_differences, grid(int64_t(bytes / 4 + 1)), Threads, stream, a, b, bytes,
                      count);
}

int32_t cf_find_poison(const cf_problem *problem, const void *outputs, int64_t len, int64_t stride,
                       int64_t count, uint64_t *first, void *stream) {
    const auto on = static_cast<cudaStream_t>(stream);
    if (const int32_t error = cf::checked(cudaMemsetAsync(first, 0xff, sizeof *first, on)))
        return error;
    const int64_t all = count * stride;
    if (all == 0)
        return 0;
    return for_types(*problem, [&](auto storage, auto) {
        using T = typename decltype(storage)::type;
        return cf::launch(find_poison_kernel<T>, grid(all), Threads, stream,
                          static_cast<const T *>(outputs), len, stride, all,
                          reinterpret_cast<u64 *>(first));
    });
}

int32_t cf_make_tensor(const cf_recipe *recipe, void *tensor, void *stream) {
    if (recipe->len == 0)
        return 0;
    const auto make = [&](auto element) {
        using T = typename decltype(element)::type;
        return cf::launch(make_tensor_kernel<T>, grid(int64_t(recipe->len)), Threads, stream,
                          *recipe, static_cast<T *>(tensor));
    };
    switch (recipe->storage) {
    case CF_STORE_F16:
        return make(Type<__half>());
    case CF_STORE_BF16:
        return make(Type<__nv_bfloat16>());
    default:
        return make(Type<float>());
    }
}
