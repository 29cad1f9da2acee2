// fused_wmma: implicit GEMM on tensor cores, the index arithmetic left as it is.
//
// fused_shared with its 16 multiplications per gathered element handed to the tensor cores: a block
// stages 16 products of its channels and pixels, rounded to f16 (or bf16, or TF32) on the way into
// shared memory, and each of its four warps multiplies a 16x16 tile with one 16x16x16 wmma (two of
// 16x16x8 in TF32). The multiplication is then nearly free. What stays is the gathering: channel,
// tap, image, row and column of every single element by division, about a hundred instructions
// each. So the report found it only a little better than fused_shared: index arithmetic bounds it,
// and fused_wmma_index_reuse removes it.
//
// tile=16x64 (channels x pixels) loses least where output channels are few, as in the reports'
// layers; tile=32x32 has as many sums but gathers half as many elements for them where there are
// channels enough.
#include "kernels/fused/wmma.cuh"

namespace {

constexpr int Tile = 16, Step = 16, Warps = 4, Threads = Warps * 32;
// Rows of warps, one above the other along the channels, per configuration.
constexpr const char *configs[] = {"tile=16x64", "tile=32x32", nullptr};
constexpr int Rows[] = {1, 2};

__host__ __device__ constexpr int channel_tile(int rows) { return Tile * rows; }
__host__ __device__ constexpr int pixel_tile(int rows) { return Tile * (Warps / rows); }

static_assert(Step * pixel_tile(2) % Threads == 0, "every thread gathers equally often");

// Makes the compiler take a value for a new one, so that it cannot see what the elements of a
// thread have in common and keep it: here every element pays for its own indices.
__device__ __forceinline__ int afresh(int v) {
    asm volatile("" : "+r"(v));
    return v;
}

template <class T, int Math, bool Nchw, int WarpRows>
__global__ void __launch_bounds__(Threads)
    fused_wmma_kernel(const cf_problem p, const T *__restrict__ x, const T *__restrict__ filter,
                      const cf::Out<T> out, int64_t pixels) {
    constexpr int Channels = channel_tile(WarpRows), Pixels = pixel_tile(WarpRows);
    __shared__ cf::WmmaInput<Math, Nchw, Step, Pixels> xs;
    __shared__ cf::WmmaFilter<Math, Channels, Step> fs;
    __shared__ cf::WmmaOutput<Math, Nchw, Channels, Pixels> ys;
    const int warp = threadIdx.x / 32, group = blockIdx.z;
    const int warp_channel = warp % WarpRows * Tile, warp_pixel = warp / WarpRows * Tile;
    const int channels = p.k / p.groups, inputs = p.c / p.groups;
    const unsigned reduction = unsigned(inputs) * p.r * p.s;
    const int channel0 = blockIdx.y * Channels;
    const cf::PixelRun run =
        cf::pixel_run(p, out.first, int64_t(blockIdx.x) * Pixels, pixels, Pixels);
    filter += int64_t(group) * channels * reduction;

    cf::WmmaSums<Math, Nchw, Tile, Tile> sums;
    for (unsigned i0 = 0; i0 < reduction; i0 += Step) {
#pragma unroll 2
        for (int e = threadIdx.x; e < Step * Pixels; e += Threads) {
            const int element = afresh(e);
            const int pixel = Nchw ? element % Pixels : element / Step;
            const int column = Nchw ? element / Pixels : element % Step;
            const unsigned i = i0 + column;
            T v = T(0.0f);
            if (pixel < run.count && i < reduction)
                v = cf::gather(p, x, run.at(p, pixel), cf::tap(p, inputs, int(i)), group * inputs);
            xs.at(column, pixel) = cf::wmma_operand<Math>(v);
        }
        cf::wmma_stage<Math, Threads>(fs, filter, channels, channel0, reduction, i0);
        __syncthreads();
        sums.template add<Step>(fs, warp_channel, 0, xs, warp_pixel);
        __syncthreads();
    }
    sums.store(ys, warp_channel, warp_pixel);
    __syncthreads();
    cf::wmma_finish<Threads>(p, out, ys, run, group, channel0, threadIdx.x);
}

int32_t supports(const cf_call *call, char *why, uint64_t bytes) {
    const int rows = Rows[call->config];
    return cf::wmma_supports(call, pixel_tile(rows), channel_tile(rows), why, bytes);
}

int32_t multiply(const cf_call *call, int64_t first, int64_t count, float *sums) {
    const cf_problem &p = call->problem;
    const int64_t pixels = count * p.p * p.q;
    return cf::for_value<Rows[0], Rows[1]>(call->config, [&](auto rows) -> int32_t {
        constexpr int R = decltype(rows)::value;
        const dim3 grid = cf::fused_grid(p, pixels, pixel_tile(R), channel_tile(R));
        return cf::for_wmma<true>(p, [&](auto storage, auto math) -> int32_t {
            using T = typename cf::StorageType<decltype(storage)::value>::type;
            constexpr int M = decltype(math)::value;
            const auto run = [&](auto kernel) {
                kernel<<<grid, Threads, 0, cf::stream(call)>>>(
                    p, static_cast<const T *>(call->x), static_cast<const T *>(call->w),
                    cf::out<T>(call, sums, first), pixels);
            };
            if (p.layout == CF_NCHW)
                run(fused_wmma_kernel<T, M, true, R>);
            else
                run(fused_wmma_kernel<T, M, false, R>);
            return cudaGetLastError();
        });
    });
}

// Counted in gathered elements, whole tiles, at about 130 instructions each and half of the issue
// rate of an H200. Not measured.
double rank(const cf_call *call) {
    const cf_problem &p = call->problem;
    const int rows = Rows[call->config];
    const double gathered = cf::wmma_gathered(p, pixel_tile(rows), channel_tile(rows), Step);
    return cf::alone_us(p) + gathered * 8e-6 + (p.epilogue.pool_h ? cf::finish_us(p) : 0);
}

int32_t launch(const cf_call *call) {
    return cf::with_sums(call, "fused", [&](int64_t first, int64_t count, float *sums) {
        return multiply(call, first, count, sums);
    });
}

} // namespace

extern "C" const cf_row fused_wmma = {
    "fused_wmma",
    "fused",
    "implicit GEMM by wmma 16x16x16, operands rounded while staging, indices by division",
    "report B",
    80,
    INT32_MAX,
    configs,
    supports,
    cf::sums_workspace,
    nullptr, // packed_bytes
    nullptr, // pack
    nullptr, // bind
    rank,
    launch,
};
