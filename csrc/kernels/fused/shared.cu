// fused_shared: the unrolling happens inside the matrix product (implicit GEMM), no workspace.
//
// A block computes a 16x16 tile of (output channel, output pixel). For each step of 16 products it
// gathers the 16x16 piece of the unrolled matrix that it needs straight from the input into shared
// memory, so the matrix never exists: reading r*s copies of the input from the caches replaces
// writing and reading them through memory. The price is index arithmetic, one division chain per
// gathered element, which soon costs more than the 16 products that reuse it.
//
// The side of the tile is a configuration, 4 to 32 in steps of 2. A wider tile reuses each gathered
// element more often, but its rows beyond the last output channel are computed for nothing: report
// E found 16 best for 12 output channels and 24 for 24. Blocks whose threads are no multiple of 32
// leave the rest of their last warp idle.
//
// Pixels of all images form one dimension, so tiles waste nothing at the edge of an image. The
// epilogue is applied in registers; only pooling, which needs neighbours of other threads, goes
// through f32 sums in the workspace and the shared pass.
#include "core/taps.cuh"
#include "kernels/fused/grid.cuh"

namespace {

const char *const configs[] = {"tile=16", "tile=4",  "tile=6",  "tile=8",  "tile=10", "tile=12",
                               "tile=14", "tile=18", "tile=20", "tile=22", "tile=24", "tile=26",
                               "tile=28", "tile=30", "tile=32", nullptr};

// Threads run along the dimension that is contiguous in the output: pixels in NCHW, channels in
// NHWC. Images out.first .. out.first + pixels/(p*q).
template <class T, int SumMath, int Tile>
__global__ void __launch_bounds__(Tile *Tile)
    fused_shared_kernel(const cf_problem p, const T *__restrict__ x, const T *__restrict__ filter,
                        const cf::Output out, int64_t pixels) {
    using Sum = cf::Sum<SumMath>;
    __shared__ typename Sum::Operand xs[Tile][Tile + 1]; // [reduction][pixel]
    __shared__ typename Sum::Operand fs[Tile][Tile + 1]; // [channel][reduction]
    const int tx = threadIdx.x, ty = threadIdx.y, group = blockIdx.z;
    const int channels = p.k / p.groups, inputs = p.c / p.groups, reduction = inputs * p.r * p.s;
    const int64_t pixel0 = int64_t(blockIdx.x) * Tile;
    const int channel0 = blockIdx.y * Tile;

    // This thread's place in the output tile. It gathers for the same pixel, and which product of
    // the step is its other index: in NHWC neighbours then read along the input channels.
    const bool nchw = p.layout == CF_NCHW;
    const int mine = nchw ? tx : ty, other = nchw ? ty : tx;
    const int64_t pixel = pixel0 + mine;
    cf::Pixel at = cf::pixel(p, pixel);
    at.n += out.first;

    Sum sum;
    for (int i0 = 0; i0 < reduction; i0 += Tile) {
        const int i = i0 + other;
        const T v = pixel < pixels && i < reduction
                        ? cf::gather(p, x, at, cf::tap(p, inputs, i), group * inputs)
                        : T(0.0f);
        const T f = channel0 + ty < channels && i0 + tx < reduction
                        ? filter[(int64_t(group) * channels + channel0 + ty) * reduction + i0 + tx]
                        : T(0.0f);
        xs[other][mine] = cf::operand<Sum>(v, p.math);
        fs[ty][tx] = cf::operand<Sum>(f, p.math);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < Tile; ++j)
            sum.add(xs[j][mine], fs[other][j]);
        __syncthreads();
    }

    const int channel = channel0 + other;
    if (pixel < pixels && channel < channels)
        out.store<T>(p, at.n, group * channels + channel, at.p, at.q, sum.get());
}

using State = cf::FusedState<>;

// Operations in a clock of a multiprocessor, counted in whole tiles, so that 4 output channels take
// as long as 16; what an output takes beside its sum is as long as 21 products more. Half of the
// time is gathering, which is shared by `tile` products, and idle threads of a last warp cost as
// much as busy ones; a thread by itself takes 80 clocks for a product. Fitted to 348 times of an
// H200, of all tiles: 8 % off.
double estimate(const cf_query &q, int tile) {
    constexpr double Beside = 21;
    const cf_problem &p = q.problem;
    const int threads = tile * tile;
    const double per_clock = 19.7 * 2 / (1 + 16.0 / tile) * threads / cf::padded(threads, 32);
    const double outputs =
        cf::padded(cf::pixels(p), tile) * cf::padded(p.k / p.groups, tile) * p.groups;
    const double operations = cf::tiled_flops(p, tile) + 2 * Beside * outputs;
    return cf::fused_us(q, cf::alone_us(q, cf::LaunchUs, 80),
                        cf::busy_us(q.device, operations, per_clock));
}

template <int Tile>
bool plan_tile(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    if (!state.tile(query.problem, Tile, Tile, plan, no))
        return false;
    plan.us = estimate(query, Tile);
    cf::for_storage_and_sum(query.problem, [&](auto storage, auto sum) {
        using T = typename cf::StorageType<decltype(storage)::value>::type;
        state.choose(fused_shared_kernel<T, decltype(sum)::value, Tile>, dim3(Tile, Tile));
    });
    return true;
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    bool planned = false;
    cf::for_value<16, 4, 6, 8, 10, 12, 14, 18, 20, 22, 24, 26, 28, 30, 32>(
        query.config,
        [&](auto tile) { planned = plan_tile<decltype(tile)::value>(query, state, plan, no); });
    return planned;
}

int32_t launch(const State &state, const cf_args &args) { return state.launch(args); }

} // namespace

extern "C" const cf_row CF_ROW(fused, shared) = {
    "fused_shared",
    "fused",
    "unrolling fused into the shared-memory matrix product (implicit GEMM), no workspace",
    "reports A, B, C, E",
    cf::PaddingCaveat,
    CF_NEEDS_SM80,
    configs,
    cf::Row<State, plan, cf::prepare_with_sums<State>, launch>::functions(),
};
