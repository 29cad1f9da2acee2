// fused_wmma_8x32: implicit GEMM by wmma 8x32x16 for few output channels, indices in shared memory.
//
// With 4 output channels a 16x16 tile multiplies twelve rows of zeros. wmma has a flat tile of the
// same size, 8 channels x 32 pixels: half as many idle rows, and twice as many pixels per
// instruction, so half as many steps of a warp for the same outputs. Indices are not computed in
// the loop at all: a block writes down once where each product (c, r, s) lies relative to a pixel's
// window, and where each of its pixels' windows begins, and an element is then two table entries,
// an addition and two comparisons. Tables and filter are in shared memory for Chunk products at a
// time; deeper sums refill them.
//
// A warp stages the 32 pixels that it multiplies itself, so between the steps of a chunk no block
// waits, only warps. The report had 7.0 ms for its first layer, against 10.0 with 16x16 tiles.
// Staging bounds it, as it does the whole family, at 8 sums per gathered element: with more than 8
// output channels everything is gathered again for every 8.
#include "core/window.cuh"
#include "kernels/fused/wmma.cuh"

namespace {

constexpr int Channels = 8, WarpPixels = 32, Step = 16;
constexpr int Warps = 4, Threads = Warps * 32, Pixels = Warps * WarpPixels;
constexpr int Chunk = 256; // products in the tables
// Threads side by side, along what is contiguous in the input, and elements of a thread per step.
__host__ __device__ constexpr int line(bool nchw) { return nchw ? WarpPixels : Step; }
constexpr int Each = Step * WarpPixels / 32;

static_assert(Chunk % Step == 0, "a chunk is whole steps");
static_assert(Pixels == Threads, "each thread writes down one window");

// What a warp stages, and after its last step its sums.
template <int Math, bool Nchw>
union Work {
    cf::WmmaInput<Math, Nchw, Step, WarpPixels> input;
    cf::WmmaOutput<Math, Nchw, Channels, WarpPixels> sums;
};

template <class T, int Math, bool Nchw>
__global__ void __launch_bounds__(Threads)
    fused_wmma_8x32_kernel(const cf_problem p, const T *__restrict__ x,
                           const T *__restrict__ filter, const cf::Output out, int64_t pixels) {
    __shared__ cf::Reach reaches[Chunk];
    __shared__ cf::Window<T> windows[Pixels];
    __shared__ cf::WmmaFilter<Math, Channels, Chunk> fs;
    __shared__ Work<Math, Nchw> works[Warps];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = blockIdx.z;
    const int channels = p.k / p.groups, inputs = p.c / p.groups;
    const unsigned reduction = unsigned(inputs) * p.r * p.s;
    const int channel0 = blockIdx.y * Channels;
    const cf::PixelRun run =
        cf::pixel_run(p, out.first, int64_t(blockIdx.x) * Pixels, pixels, Pixels);
    filter += int64_t(group) * channels * reduction;
    Work<Math, Nchw> &work = works[warp];
    const cf::Window<T> *const mine = windows + warp * WarpPixels;

    windows[threadIdx.x] = cf::window<Nchw>(p, x, run.at(p, threadIdx.x), group * inputs,
                                            int(threadIdx.x) < run.count);

    cf::WmmaSums<Math, Nchw, Channels, WarpPixels> sums;
    const int column = lane % line(Nchw), row = lane / line(Nchw);
    for (unsigned begin = 0; begin < reduction; begin += Chunk) {
        const int products = int(min(reduction - begin, unsigned(Chunk)));
        // The tables end with a whole step; products that do not exist reach nowhere.
        const int end = (products + Step - 1) / Step * Step;
        for (int i = threadIdx.x; i < end; i += Threads) {
            const bool exists = i < products;
            reaches[i] =
                cf::reach<Nchw>(p, cf::tap(p, inputs, int(exists ? begin + i : 0)), exists);
#pragma unroll
            for (int k = 0; k < Channels; ++k)
                fs.at(k, i) = cf::wmma_operand<Math>(
                    exists && channel0 + k < channels
                        ? filter[int64_t(channel0 + k) * reduction + begin + i]
                        : T(0.0f));
        }
        __syncthreads();

        for (int i0 = 0; i0 < end; i0 += Step) {
            // All loads first, so that they wait together.
            T values[Each];
            if constexpr (Nchw) {
                const cf::Window<T> window = mine[column];
#pragma unroll
                for (int j = 0; j < Each; ++j)
                    values[j] = cf::read(p, window, reaches[i0 + j]);
            } else {
                const cf::Reach reach = reaches[i0 + column];
#pragma unroll
                for (int j = 0; j < Each; ++j)
                    values[j] = cf::read(p, mine[row + j * (32 / Step)], reach);
            }
#pragma unroll
            for (int j = 0; j < Each; ++j)
                work.input.at(Nchw ? j : column, Nchw ? column : row + j * (32 / Step)) =
                    cf::wmma_operand<Math>(values[j]);
            __syncwarp();
            sums.template add<Step>(fs, 0, i0, work.input, 0);
            __syncwarp();
        }
        __syncthreads();
    }

    sums.store(work.sums, 0, 0);
    __syncwarp();
    const cf::PixelRun part = {run.n, run.place + warp * WarpPixels, run.count - warp * WarpPixels};
    cf::wmma_finish<T, 32>(p, out, work.sums, part, group, channel0, lane);
}

using State = cf::FusedState<>;

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    if (p.math == CF_MATH_TF32)
        return no("multiplies in tiles of 8x32, which wmma has not for TF32: ask for math=f16");
    if (!cf::fits_wmma(p, no) || !state.tile(p, Pixels, Channels, plan, no) ||
        !cf::has_reach(p, no))
        return false;
    // At about 15 instructions for a gathered element, and half of the issue rate: within 0.56 and
    // 1.25 of four fifths of the 205 measurements in h200-*.jsonl.
    plan.us = cf::wmma_us(query, cf::wmma_gathered(p, Pixels, Channels, Step), 15);
    cf::for_wmma<false>(p, [&](auto storage, auto math) {
        using T = typename cf::StorageType<decltype(storage)::value>::type;
        constexpr int M = decltype(math)::value;
        state.choose(p.layout == CF_NCHW ? fused_wmma_8x32_kernel<T, M, true>
                                         : fused_wmma_8x32_kernel<T, M, false>,
                     Threads);
    });
    return true;
}

int32_t launch(const State &state, const cf_args &args) { return state.launch(args); }

} // namespace

extern "C" const cf_row CF_ROW(fused, wmma_8x32) = {
    "fused_wmma_8x32",
    "fused",
    "implicit GEMM by wmma 8x32x16 for few output channels, indices in shared memory",
    "report B",
    cf::PaddingCaveat,
    CF_NEEDS_SM80,
    nullptr, // configs
    cf::Row<State, plan, cf::prepare_with_sums<State>, launch>::functions(),
};
