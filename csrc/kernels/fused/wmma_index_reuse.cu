// fused_wmma_index_reuse: fused_wmma with every index computed once and stepped from there.
//
// The same tiles, the same tensor-core products; only how the input is staged differs. A thread
// keeps to one line of the staged tile for the whole sum. In NCHW, where neighbouring threads run
// along pixels, that is one pixel: image, row and column are found once per block, and the thread
// walks consecutive products by counting channel and tap up with carries. In NHWC, where they run
// along channels, it is one product per step and a few pixels, whose windows it holds in registers:
// channel and tap are counted up once per step and serve all of them. No division is left in the
// loop; a gathered element costs some thirty instructions (NCHW) or a dozen (NHWC) instead of some
// 150 (SASS of sm_90a). The report saw over half of the time go. What bounds it is staging still:
// these instructions, then the latency of the gathered loads between two barriers.
//
// Configurations as in fused_wmma.
#include "core/window.cuh"
#include "kernels/fused/wmma.cuh"

namespace {

constexpr int Tile = 16, Step = 16, Warps = 4, Threads = Warps * 32;
// Rows of warps, one above the other along the channels, per configuration.
constexpr const char *configs[] = {"tile=16x64", "tile=32x32", nullptr};
constexpr int Rows[] = {1, 2};

__host__ __device__ constexpr int channel_tile(int rows) { return Tile * rows; }
__host__ __device__ constexpr int pixel_tile(int rows) { return Tile * (Warps / rows); }
// Elements of the input that a thread stages per step.
__host__ __device__ constexpr int each(int rows) { return Step * pixel_tile(rows) / Threads; }
// Threads side by side, and how many such lines there are.
__host__ __device__ constexpr int line(int rows, bool nchw) {
    return nchw ? pixel_tile(rows) : Step;
}
__host__ __device__ constexpr int lines(int rows, bool nchw) { return Threads / line(rows, nchw); }

static_assert(Threads % pixel_tile(1) == 0 && Threads % pixel_tile(2) == 0, "lines are whole");
static_assert(lines(1, true) * each(1) == Step && lines(2, true) * each(2) == Step,
              "NCHW: the lines share the products of a step");
static_assert(lines(1, false) * each(1) == pixel_tile(1) &&
                  lines(2, false) * each(2) == pixel_tile(2),
              "NHWC: the lines share the pixels");

// A number written in three digits: (channel, tap row, tap column), or (tap row, tap column,
// channel), or (image, row, column). The first digit has no end.
struct Digits {
    unsigned high, middle, low;

    // Adds a step whose digits are below the bases `m` and `l` as well.
    __device__ __forceinline__ void add(const Digits &step, unsigned m, unsigned l) {
        low += step.low;
        middle += step.middle;
        high += step.high;
        if (low >= l)
            low -= l, ++middle;
        if (middle >= m)
            middle -= m, ++high;
    }
};

__host__ __device__ __forceinline__ Digits digits(unsigned v, unsigned m, unsigned l) {
    return {v / l / m, v / l % m, v % l};
}

// The lower bases of products, in the filter's own order.
struct Bases {
    unsigned middle, low;
};

__host__ __device__ __forceinline__ Bases bases(const cf_problem &p) {
    if (p.layout == CF_NCHW)
        return {unsigned(p.r), unsigned(p.s)};
    return {unsigned(p.s), unsigned(p.c / p.groups)};
}

// The steps of a thread, divided up on the host.
struct Steps {
    Digits product; // NCHW: to the next product of the same step
    Digits step;    // from a thread's last product of a step to its first of the next
    Digits pixel;   // NHWC: to the next pixel of the thread
};

Steps steps(const cf_problem &p, int rows) {
    const bool nchw = p.layout == CF_NCHW;
    const Bases b = bases(p);
    return {digits(1, b.middle, b.low),
            digits(nchw ? Step - each(rows) + 1 : Step, b.middle, b.low),
            digits(lines(rows, nchw), p.p, p.q)};
}

template <class T, int Math, bool Nchw, int WarpRows>
__global__ void __launch_bounds__(Threads)
    fused_wmma_index_reuse_kernel(const cf_problem p, const T *__restrict__ x,
                                  const T *__restrict__ filter, const cf::Output out,
                                  int64_t pixels, const Steps steps) {
    constexpr int Channels = channel_tile(WarpRows), Pixels = pixel_tile(WarpRows);
    constexpr int Each = each(WarpRows), Lines = lines(WarpRows, Nchw);
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

    // Place of this thread on its line, and the line.
    const int lane = threadIdx.x % line(WarpRows, Nchw), row = threadIdx.x / line(WarpRows, Nchw);

    // NCHW: one pixel. NHWC: every Lines-th.
    constexpr int Windows = Nchw ? 1 : Each;
    cf::Window<T> windows[Windows];
    Digits at = digits(run.place + (Nchw ? lane : row), p.p, p.q);
#pragma unroll
    for (int j = 0; j < Windows; ++j) {
        const cf::Pixel pixel = {run.n + at.high, int(at.middle), int(at.low)};
        windows[j] = cf::window<Nchw>(p, x, pixel, group * inputs,
                                      (Nchw ? lane : row + j * Lines) < run.count);
        at.add(steps.pixel, p.p, p.q);
    }

    // NCHW: products first .. first + Each of every step. NHWC: one of them.
    const Bases base = bases(p);
    const int first = Nchw ? row * Each : lane;
    Digits product = digits(first, base.middle, base.low);
    const auto reach = [&](unsigned i) {
        const cf::Tap tap = Nchw
                                ? cf::Tap{int(product.high), int(product.middle), int(product.low)}
                                : cf::Tap{int(product.low), int(product.high), int(product.middle)};
        return cf::reach<Nchw>(p, tap, i < reduction);
    };

    cf::WmmaSums<Math, Nchw, Tile, Tile> sums;
    for (unsigned i0 = 0; i0 < reduction; i0 += Step) {
        // All loads first, so that they wait together.
        T values[Each];
        if constexpr (Nchw) {
#pragma unroll
            for (int j = 0; j < Each; ++j) {
                values[j] = cf::read(p, windows[0], reach(i0 + first + j));
                product.add(j + 1 < Each ? steps.product : steps.step, base.middle, base.low);
            }
        } else {
            const cf::Reach shared = reach(i0 + first);
            product.add(steps.step, base.middle, base.low);
#pragma unroll
            for (int j = 0; j < Each; ++j)
                values[j] = cf::read(p, windows[j], shared);
        }
#pragma unroll
        for (int j = 0; j < Each; ++j)
            xs.at(Nchw ? first + j : first, Nchw ? lane : row + j * Lines) =
                cf::wmma_operand<Math>(values[j]);
        cf::wmma_stage<Math, Threads>(fs, filter, channels, channel0, reduction, i0);
        __syncthreads();
        sums.template add<Step>(fs, warp_channel, 0, xs, warp_pixel);
        __syncthreads();
    }
    sums.store(ys, warp_channel, warp_pixel);
    __syncthreads();
    cf::wmma_finish<T, Threads>(p, out, ys, run, group, channel0, threadIdx.x);
}

struct State : cf::FusedState<Steps> {
    Steps steps;
};

// Counted in gathered elements, whole tiles, at about 40 (NCHW) or 20 (NHWC) instructions each with
// their share of the filter and the barriers, and half of the issue rate; more in NHWC with few
// channels, where neighbouring products lie apart. Within 0.73 and 1.54 of four fifths of the 68
// measurements in h200-*.jsonl.
double estimate(const cf_query &q) {
    const cf_problem &p = q.problem;
    const int rows = Rows[q.config];
    const double gathered = cf::wmma_gathered(p, pixel_tile(rows), channel_tile(rows), Step);
    const double nhwc = p.c / p.groups < 8 ? 133 : 19.5;
    return cf::wmma_us(q, gathered, p.layout == CF_NCHW ? 40 : nhwc);
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    const int warp_rows = Rows[query.config];
    if (!cf::fits_wmma(p, no) ||
        !state.tile(p, pixel_tile(warp_rows), channel_tile(warp_rows), plan, no) ||
        !cf::has_reach(p, no))
        return false;
    state.steps = steps(p, warp_rows);
    plan.us = estimate(query);
    cf::for_value<Rows[0], Rows[1]>(query.config, [&](auto rows) {
        cf::for_wmma<true>(p, [&](auto storage, auto math) {
            using T = typename cf::StorageType<decltype(storage)::value>::type;
            constexpr int M = decltype(math)::value, R = decltype(rows)::value;
            state.choose(p.layout == CF_NCHW ? fused_wmma_index_reuse_kernel<T, M, true, R>
                                             : fused_wmma_index_reuse_kernel<T, M, false, R>,
                         Threads);
        });
    });
    return true;
}

int32_t launch(const State &state, const cf_args &args) { return state.launch(args, state.steps); }

} // namespace

extern "C" const cf_row CF_ROW(fused, wmma_index_reuse) = {
    "fused_wmma_index_reuse",
    "fused",
    "fused_wmma with pixel, channel and tap computed once per thread and counted up",
    "report B",
    cf::PaddingCaveat,
    CF_NEEDS_SM80,
    configs,
    cf::Row<State, plan, cf::prepare_with_sums<State>, launch>::functions(),
};
