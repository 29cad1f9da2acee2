// fused_shared: the unrolling happens inside the matrix product (implicit GEMM), no workspace.
//
// A block computes a 16x16 tile of (output channel, output pixel). For each step of 16 products it
// gathers the 16x16 piece of the unrolled matrix that it needs straight from the input into shared
// memory, so the matrix never exists: reading r*s copies of the input from the caches replaces
// writing and reading them through memory. The price is index arithmetic, one division chain per
// gathered element, which soon costs more than the 16 products that reuse it.
//
// Pixels of all images form one dimension, so tiles waste nothing at the edge of an image. The
// epilogue is applied in registers; only pooling, which needs neighbours of other threads, goes
// through f32 sums in the workspace and the shared pass.
#include "device/element.cuh"
#include "device/epilogue.cuh"
#include "device/launch.cuh"
#include "device/rank.cuh"
#include "device/tap.cuh"

namespace {

constexpr int Tile = 16;
constexpr int MaxGrid = 65535;

// Threads run along the dimension that is contiguous in the output: pixels in NCHW, channels in
// NHWC. `sums` replaces y where pooling follows. Images first .. first + pixels/(p*q).
template <class T, int Math, bool Nchw>
__global__ void __launch_bounds__(Tile *Tile)
    fused(const cf_problem p, const T *__restrict__ x, const T *__restrict__ filter,
          const float *__restrict__ bias, const T *__restrict__ residual, T *__restrict__ y,
          float *__restrict__ sums, int64_t first, int64_t pixels) {
    using Sum = cf::Sum<Math>;
    __shared__ typename Sum::Operand xs[Tile][Tile + 1]; // [reduction][pixel]
    __shared__ typename Sum::Operand fs[Tile][Tile + 1]; // [channel][reduction]
    const int tx = threadIdx.x, ty = threadIdx.y, group = blockIdx.z;
    const int channels = p.k / p.groups, inputs = p.c / p.groups, reduction = inputs * p.r * p.s;
    const int64_t pixel0 = int64_t(blockIdx.x) * Tile;
    const int channel0 = blockIdx.y * Tile;

    // The pixel that this thread gathers for: its column in NCHW, its row in NHWC, where neighbours
    // run along the input channels.
    const int64_t mine = pixel0 + (Nchw ? tx : ty);
    cf::Pixel at = cf::pixel(p, mine);
    at.n += first;
    const int lane = Nchw ? ty : tx; // which of the 16 products

    Sum sum;
    for (int i0 = 0; i0 < reduction; i0 += Tile) {
        const int i = i0 + lane;
        const float v = mine < pixels && i < reduction
                            ? cf::widen(cf::gather(p, x, at, cf::tap(p, inputs, i), group * inputs))
                            : 0.0f;
        xs[lane][Nchw ? tx : ty] = Sum::operand(v);
        fs[ty][tx] = Sum::operand(
            channel0 + ty < channels && i0 + tx < reduction
                ? cf::widen(
                      filter[(int64_t(group) * channels + channel0 + ty) * reduction + i0 + tx])
                : 0.0f);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < Tile; ++j)
            sum.add(xs[j][Nchw ? tx : ty], fs[Nchw ? ty : tx][j]);
        __syncthreads();
    }

    const int channel = channel0 + (Nchw ? ty : tx);
    if (mine >= pixels || channel >= channels)
        return;
    const int k = group * channels + channel;
    const cf::Strides ys = cf::residual_strides(p);
    if (sums) {
        sums[ys.at(at.n - first, k, at.p, at.q)] = sum.get();
        return;
    }
    const int64_t out = ys.at(at.n, k, at.p, at.q);
    const cf_epilogue &e = p.epilogue;
    const float added = e.residual ? cf::widen(residual[out]) : 0.0f;
    y[out] = cf::narrow<T>(cf::epilogue(e, sum.get(), e.bias ? bias + k : nullptr, added));
}

int32_t supports(const cf_call *call, char *why, uint64_t bytes) {
    const cf_problem &p = call->problem;
    const int64_t pixel_tiles = cf::ceil_div(p.n * p.p * p.q, Tile);
    const int64_t channel_tiles = cf::ceil_div(p.k / p.groups, Tile);
    if (p.groups > MaxGrid || channel_tiles > MaxGrid || pixel_tiles > INT32_MAX)
        return cf::no(why, bytes,
                      "needs a grid of %lld x %lld x %d blocks; the limit is %d x %d x %d",
                      (long long)pixel_tiles, (long long)channel_tiles, p.groups, INT32_MAX,
                      MaxGrid, MaxGrid);
    return 1;
}

uint64_t sums_per_image(const cf_problem &p) {
    return p.epilogue.pool_h ? uint64_t(p.p) * p.q * p.k * sizeof(float) : 0;
}

cf_bytes workspace(const cf_call *call) {
    const uint64_t bytes = sums_per_image(call->problem);
    return bytes ? cf::chunked_workspace(call->problem, bytes) : cf_bytes{0, 0};
}

int32_t multiply(const cf_call *call, int64_t first, int64_t count, float *sums) {
    const cf_problem &p = call->problem;
    const int64_t pixels = count * p.p * p.q;
    const dim3 grid(unsigned(cf::ceil_div(pixels, Tile)),
                    unsigned(cf::ceil_div(p.k / p.groups, Tile)), unsigned(p.groups));
    return cf::for_storage_and_math(p, [&](auto storage, auto math) -> int32_t {
        using T = typename cf::StorageType<decltype(storage)::value>::type;
        const auto run = [&](auto kernel) {
            kernel<<<grid, dim3(Tile, Tile), 0, cf::stream(call)>>>(
                p, static_cast<const T *>(call->x), static_cast<const T *>(call->w), call->bias,
                static_cast<const T *>(call->residual), static_cast<T *>(call->y), sums, first,
                pixels);
        };
        if (p.layout == CF_NCHW)
            run(fused<T, decltype(math)::value, true>);
        else
            run(fused<T, decltype(math)::value, false>);
        return cudaGetLastError();
    });
}

// 4.3 to 5.1 TFLOP/s measured over four layers, counted in whole tiles: 4 output channels take as
// long as 16.
double rank(const cf_call *call) {
    const cf_problem &p = call->problem;
    return cf::LaunchUs + cf::tiled_flops(p, Tile) / 4.6e6 +
           (p.epilogue.pool_h ? cf::finish_us(p) : 0);
}

int32_t launch(const cf_call *call) {
    const cf_problem &p = call->problem;
    if (p.epilogue.pool_h == 0)
        return multiply(call, 0, p.n, nullptr);
    return cf::for_chunks(call, sums_per_image(p), [&](int64_t first, int64_t count) -> int32_t {
        auto *sums = static_cast<float *>(call->workspace);
        if (const int32_t error = multiply(call, first, count, sums))
            return error;
        cf::stage(call, "fused");
        const int32_t error = cf_finish(call, first, count, sums, cf::residual_strides(p));
        cf::stage(call, "finish");
        return error;
    });
}

} // namespace

extern "C" const cf_row fused_shared = {
    "fused_shared",
    "fused",
    "unrolling fused into the 16x16 shared-memory matrix product (implicit GEMM), no workspace",
    "reports A, B, C, E",
    80,
    INT32_MAX,
    nullptr, // configs
    supports,
    workspace,
    nullptr, // packed_bytes
    nullptr, // pack
    nullptr, // bind
    rank,
    launch,
};
