// fused_wmma: implicit GEMM on tensor cores, the index arithmetic left as it is.
//
// fused_shared with its 16 multiplications per gathered element handed to the tensor cores: a block
// stages 16 products of its channels and pixels, rounded to f16 (or bf16, or TF32) on the way into
// shared memory, and each of its four warps multiplies a 16x16 tile with one 16x16x16 wmma (two of
// 16x16x8 in TF32). The multiplication is then nearly free. What stays is the gathering: channel,
// tap, image, row and column of every single element by division. A thread's elements have much in
// common, the pixel in NCHW and the product in NHWC, but the divisions of each stand behind the
// test whether it exists, and the compiler shares none of them: an element takes 142 to 151
// instructions in NCHW and 151 to 156 in NHWC (SASS of sm_90a). So the report found it only a
// little better than fused_shared, whose threads find their one pixel before the loop: index
// arithmetic bounds it, and fused_wmma_index_reuse removes it.
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

template <class T, int Math, bool Nchw, int WarpRows>
__global__ void __launch_bounds__(Threads)
    fused_wmma_kernel(cf_problem p, const T *__restrict__ x, const T *__restrict__ filter,
                      const cf::Output out, int64_t pixels) {
    constexpr int Channels = channel_tile(WarpRows), Pixels = pixel_tile(WarpRows);
    constexpr int Each = Step * Pixels / Threads;
    __shared__ cf::WmmaInput<Math, Nchw, Step, Pixels> xs;
    __shared__ cf::WmmaFilter<Math, Channels, Step> fs;
    __shared__ cf::WmmaOutput<Math, Nchw, Channels, Pixels> ys;
    p.layout = Nchw ? CF_NCHW : CF_NHWC; // known to the compiler from here on
    const int warp = threadIdx.x / 32, group = blockIdx.z;
    const int warp_channel = warp % WarpRows * Tile, warp_pixel = warp / WarpRows * Tile;
    const int channels = p.k / p.groups, inputs = p.c / p.groups;
    const unsigned reduction = unsigned(inputs) * p.r * p.s;
    const int channel0 = blockIdx.y * Channels;
    const cf::PixelRun run =
        cf::pixel_run(p, out.first, int64_t(blockIdx.x) * Pixels, pixels, Pixels);
    filter += int64_t(group) * channels * reduction;

    // This thread's elements of the staged tile; neighbours lie side by side.
    struct Place {
        int product, pixel;
    };
    const auto place = [](int j) -> Place {
        const unsigned e = threadIdx.x + j * Threads;
        return Nchw ? Place{int(e / Pixels), int(e % Pixels)} : Place{int(e % Step), int(e / Step)};
    };

    cf::WmmaSums<Math, Nchw, Tile, Tile> sums;
    for (unsigned i0 = 0; i0 < reduction; i0 += Step) {
        // All loads first, so that they wait together.
        T values[Each];
#pragma unroll
        for (int j = 0; j < Each; ++j) {
            const Place at = place(j);
            const unsigned i = i0 + at.product;
            values[j] = at.pixel < run.count && i < reduction
                            ? cf::gather(p, x, run.at(p, at.pixel), cf::tap(p, inputs, int(i)),
                                         group * inputs)
                            : T(0.0f);
        }
#pragma unroll
        for (int j = 0; j < Each; ++j)
            xs.at(place(j).product, place(j).pixel) = cf::wmma_operand<Math>(values[j]);
        cf::wmma_stage<Math, Threads>(fs, filter, channels, channel0, reduction, i0);
        __syncthreads();
        sums.template add<Step>(fs, warp_channel, 0, xs, warp_pixel);
        __syncthreads();
    }
    sums.store(ys, warp_channel, warp_pixel);
    __syncthreads();
    cf::wmma_finish<T, Threads>(p, out, ys, run, group, channel0, threadIdx.x);
}

using State = cf::FusedState<>;

// Counted in gathered elements, whole tiles, at 77 % of the issue rate, as an earlier kernel with
// divisions kept it on an H200. The instructions are those of SASS, with an element's share of the
// filter and the barriers: tile=32x32 stages as much filter as input. Within 0.77 and 1.03 of four
// fifths of the measurements in h200-*.jsonl; down to 0.34 with one image and thousands of
// products, where few blocks run.
double estimate(const cf_query &q) {
    const int rows = Rows[q.config];
    const double gathered =
        cf::wmma_gathered(q.problem, pixel_tile(rows), channel_tile(rows), Step);
    return cf::wmma_us(q, gathered, rows == 1 ? 160 : 190, 0.77);
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    const int warp_rows = Rows[query.config];
    if (!cf::fits_wmma(p, no) ||
        !state.tile(p, pixel_tile(warp_rows), channel_tile(warp_rows), plan, no))
        return false;
    plan.us = estimate(query);
    cf::for_value<Rows[0], Rows[1]>(query.config, [&](auto rows) {
        cf::for_wmma<true>(p, [&](auto storage, auto math) {
            using T = typename cf::StorageType<decltype(storage)::value>::type;
            constexpr int M = decltype(math)::value, R = decltype(rows)::value;
            state.choose(p.layout == CF_NCHW ? fused_wmma_kernel<T, M, true, R>
                                             : fused_wmma_kernel<T, M, false, R>,
                         Threads);
        });
    });
    return true;
}

int32_t launch(const State &state, const cf_args &args) { return state.launch(args); }

} // namespace

extern "C" const cf_row CF_ROW(fused, wmma) = {
    "fused_wmma",
    "fused",
    "implicit GEMM by wmma 16x16x16, operands rounded while staging, indices by division",
    "report B",
    cf::PaddingCaveat,
    CF_NEEDS_SM80,
    configs,
    cf::Row<State, plan, cf::prepare_with_sums<State>, launch>::functions(),
};
