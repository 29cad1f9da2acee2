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
#include "device/rank.cuh"
#include "device/sums.cuh"
#include "device/tap.cuh"

namespace {

constexpr int Tile = 16;

// Threads run along the dimension that is contiguous in the output: pixels in NCHW, channels in
// NHWC. `sums` replaces y where pooling follows. Images first .. first + pixels/(p*q).
template <class T, int Math, bool Nchw>
__global__ void __launch_bounds__(Tile *Tile)
    fused(const cf_problem p, const T *__restrict__ x, const T *__restrict__ filter,
          const cf::Out<T> out, int64_t pixels) {
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
    at.n += out.first;
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
    if (mine < pixels && channel < channels)
        out.store(p, at.n, group * channels + channel, at.p, at.q, sum.get());
}

int32_t supports(const cf_call *call, char *why, uint64_t bytes) {
    const cf_problem &p = call->problem;
    const int64_t pixel_tiles = cf::ceil_div(p.n * p.p * p.q, Tile);
    const int64_t channel_tiles = cf::ceil_div(p.k / p.groups, Tile);
    if (p.groups > cf::MaxGrid || channel_tiles > cf::MaxGrid || pixel_tiles > INT32_MAX)
        return cf::no(why, bytes,
                      "needs a grid of %lld x %lld x %d blocks; the limit is %d x %d x %d",
                      (long long)pixel_tiles, (long long)channel_tiles, p.groups, INT32_MAX,
                      cf::MaxGrid, cf::MaxGrid);
    return 1;
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
                p, static_cast<const T *>(call->x), static_cast<const T *>(call->w),
                cf::out<T>(call, sums, first), pixels);
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
    return cf::with_sums(call, "fused", [&](int64_t first, int64_t count, float *sums) {
        return multiply(call, first, count, sums);
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
    cf::sums_workspace,
    nullptr, // packed_bytes
    nullptr, // pack
    nullptr, // bind
    rank,
    launch,
};
