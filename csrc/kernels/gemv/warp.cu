// gemv_warp: a matrix times a vector, one warp per output.
//
// Where the filter covers the whole image, as in a fully connected layer, each output is one dot
// product of a row of the filter with an image, both contiguous and in the same order: no index
// arithmetic is left. For one image every weight is used once, so the time is that of reading the
// filter from memory, and all that a kernel can do is to keep enough reads under way. The lanes of
// a warp walk a row together, 16 bytes each where the alignment allows, 8 such loads at a time;
// then the lanes' sums are added by shuffles, always in the same order. The image is read through
// the first-level cache, where the warps of a multiprocessor find it, and the filter past it.
//
// For more images a warp computes 4 outputs of the same filter row, and the warps of the next
// images are its neighbours, so that the weights are still read from memory once. But each weight
// then meets every image's input, which comes from a cache, whose bandwidth takes over as the
// bound.
//
// Report D saw 729 and 400 GFLOP/s, with classifiers of 25088 -> 4096 and 4096 -> 1024. The floor
// is the filter's bytes over the memory's bandwidth.
#include "core/estimate.cuh"
#include "core/output.cuh"
#include "core/plan.cuh"

#include <cstring>

namespace {

constexpr int Warps[] = {4, 1, 2, 8, 16}; // of a block
const char *const configs[] = {"warps=4", "warps=1", "warps=2", "warps=8", "warps=16", nullptr};

constexpr int MaxWarps = 16;
constexpr int WarpImages = 4; // of a warp at most; each has a sum and inputs in registers

// Loads of weights under way per lane. With several images their inputs need the registers.
__host__ __device__ constexpr int flight(int images) { return images == 1 ? 8 : 4; }
constexpr int Group = 2; // inputs that are loaded together

template <class T, int Width>
struct Vector {
    T v[Width];
};

// `Streamed`: read once, so it shall not push out what stays in the first-level cache.
template <bool Streamed, class T, int Width>
__device__ __forceinline__ Vector<T, Width> load(const T *from) {
    Vector<T, Width> v;
    if constexpr (Width == 1) {
        v.v[0] = Streamed ? __ldcs(from) : __ldg(from);
    } else {
        static_assert(sizeof(v) == sizeof(uint4), "one 16-byte load");
        const auto *at = reinterpret_cast<const uint4 *>(from);
        const uint4 words = Streamed ? __ldcs(at) : __ldg(at);
        memcpy(&v, &words, sizeof(v));
    }
    return v;
}

__device__ __forceinline__ float plus(float a, float b) { return a + b; }
__device__ __forceinline__ __half plus(__half a, __half b) { return __hadd(a, b); }

// `length` is the products of a sum, a multiple of Width. Images == 1 is for a single image.
template <class T, int Math, int Width, int Images>
__global__ void __launch_bounds__(MaxWarps * 32, Images == 1 ? 2 : 1)
    gemv(const cf_problem p, const T *__restrict__ x, const T *__restrict__ w, const cf::Output out,
         uint32_t length) {
    using Sum = cf::Sum<Math>;
    constexpr int Flight = flight(Images);
    static_assert(Flight / 2 % Group == 0, "flights and half flights are whole groups");
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    // Warps that share a row of the filter are neighbours: one of them reads it from memory and the
    // others from a cache.
    const int64_t batches = Images == 1 ? 1 : (p.n + Images - 1) / Images;
    const int64_t task = int64_t(blockIdx.x) * warps + warp;
    if (task >= batches * p.k)
        return;
    const int k = int(task / batches);
    const int64_t n = task % batches * Images;
    const int images = int(min(int64_t(Images), p.n - n));
    const int64_t image = int64_t(p.groups) * length;
    const T *row = w + int64_t(k) * length + lane * Width;
    const T *inputs = x + n * image + int64_t(k / (p.k / p.groups)) * length + lane * Width;

    Sum sums[Images];
    // Adds the next `Count` vectors of this lane; all loads of weights are under way at once.
    const auto add = [&](auto count) {
        constexpr int Count = decltype(count)::value;
        Vector<T, Width> ws[Count];
#pragma unroll
        for (int u = 0; u < Count; ++u)
            ws[u] = load<true, T, Width>(row + 32 * Width * u);
        constexpr int Together = Count < Group ? Count : Group;
#pragma unroll
        for (int u0 = 0; u0 < Count; u0 += Together) {
#pragma unroll
            for (int j = 0; j < Images; ++j) {
                if (j > 0 && j >= images) // the first is always there
                    continue;
                Vector<T, Width> xs[Together];
#pragma unroll
                for (int u = 0; u < Together; ++u)
                    xs[u] = load<false, T, Width>(inputs + j * image + 32 * Width * (u0 + u));
#pragma unroll
                for (int u = 0; u < Together; ++u)
#pragma unroll
                    for (int e = 0; e < Width; ++e)
                        sums[j].add(Sum::operand(cf::widen(xs[u].v[e])),
                                    Sum::operand(cf::widen(ws[u0 + u].v[e])));
            }
        }
        row += 32 * Width * Count, inputs += 32 * Width * Count;
    };
    uint32_t left = (length / Width + 31 - lane) / 32; // vectors of this lane
    for (; left >= Flight; left -= Flight)
        add(cf::Constant<Flight>{});
    if (left >= Flight / 2) {
        add(cf::Constant<Flight / 2>{});
        left -= Flight / 2;
    }
    for (; left > 0; --left)
        add(cf::Constant<1>{});
#pragma unroll
    for (int j = 0; j < Images; ++j) {
        if (j > 0 && j >= images)
            continue;
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2)
            sums[j].value = plus(sums[j].value, __shfl_down_sync(~0u, sums[j].value, offset));
        if (lane == 0)
            out.store<T>(p, n + j, k, 0, 0, sums[j].get());
    }
}

struct State {
    cf::Kernel<cf_problem, const void *, const void *, cf::Output, uint32_t> kernel;
    cf_problem problem;
    uint32_t length;
};

// Fitted to h200-*.jsonl: in so many clocks memory answers the loads that a warp has under way
// together, and so many bytes are on their way to a warp on average, as it issues its next loads
// only when it has added what the last ones brought. Of a launch, in microseconds, and of memory's
// pins.
constexpr double AnswerClocks = 1584, BytesOnTheWay = 3432;
constexpr double GemvLaunchUs = 3.1, ReadShare = 0.915;

// Within 4 % of what it takes in h200-*.jsonl, where all has one image. Either memory bounds it, or
// what so many warps ask of it, or the first-level caches, which serve each input once per output,
// or the time that one warp takes for its row, an answer of memory for each time that it loads.
double estimate(const cf_query &q, int images) {
    const cf_problem &p = q.problem;
    const double length = cf::reduction(p), element = p.storage == CF_STORE_F32 ? 4 : 2;
    const double warps = double(p.k) * double(cf::ceil_div(p.n, WarpImages));
    const double answer = cf::clocks_us(q.device, AnswerClocks, 1);
    const double asked = BytesOnTheWay / answer * std::max(1.0, warps);
    const double bytes = (length * p.k + length * p.groups * double(p.n)) * element;
    const double memory = bytes / std::min(ReadShare * q.device.bytes_per_us, asked);
    const double cache = cf::busy_us(q.device, length * p.k * double(p.n) * element, 76.5);
    const double steps = length * element / (32 * 16 * flight(images));
    return GemvLaunchUs + std::max({memory, cache, answer * std::max(steps, 1.0)});
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    if (p.r != p.h || p.s != p.w || p.pad_top || p.pad_left || p.pad_bottom || p.pad_right)
        return no("takes a filter that covers the whole image without padding; here it is %d x %d, "
                  "the image %d x %d and the padding %d, %d, %d, %d",
                  p.r, p.s, p.h, p.w, p.pad_top, p.pad_left, p.pad_bottom, p.pad_right);
    if (p.groups > 1 && p.layout == CF_NHWC && p.r * p.s > 1)
        return no("reads the inputs of an output in one piece; in NHWC those of one of %d groups "
                  "lie in %d pieces",
                  p.groups, p.r * p.s);
    const int images = p.n == 1 ? 1 : WarpImages, warps = Warps[query.config];
    const int64_t blocks = cf::ceil_div(cf::ceil_div(p.n, images) * p.k, warps);
    if (blocks > INT32_MAX)
        return no("needs %lld blocks; the limit is %d", (long long)blocks, INT32_MAX);
    state.length = uint32_t(p.c / p.groups * p.r * p.s);
    plan.us = estimate(query, images);
    cf::for_storage_and_math(p, [&](auto storage, auto math) {
        using T = typename cf::StorageType<decltype(storage)::value>::type;
        constexpr int Math = decltype(math)::value, Width = 16 / int(sizeof(T));
        const auto choose = [&](auto kernel) {
            state.kernel = cf::kernel_of(kernel, unsigned(blocks), unsigned(warps) * 32);
        };
        const bool vectors = p.align >= 16 && state.length % Width == 0;
        if (images == 1)
            choose(vectors ? gemv<T, Math, Width, 1> : gemv<T, Math, 1, 1>);
        else
            choose(vectors ? gemv<T, Math, Width, WarpImages> : gemv<T, Math, 1, WarpImages>);
    });
    return true;
}

// Pooling a single pixel changes nothing, so there are no sums for the shared pass.
int32_t launch(const State &state, const cf_args &args) {
    return state.kernel.launch(args.stream, state.problem, args.x, args.w,
                               cf::Output(args, nullptr, 0), state.length);
}

} // namespace

extern "C" const cf_row CF_ROW(gemv, warp) = {
    "gemv_warp",
    "gemv",
    "matrix times vector, one warp per output, 16-byte loads, shuffle reduction",
    "report D",
    nullptr, // caveat
    CF_NEEDS_SM80,
    configs,
    cf::Row<State, plan, cf::prepare_kernel<State>, launch>::functions(),
};
