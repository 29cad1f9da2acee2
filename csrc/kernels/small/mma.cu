// small_mma: few channels on tensor cores, f32 storage: math fp32 by three TF32 products, math tf32
// by one.
//
// An implicit product of matrices from images in shared memory: nothing is unrolled but in
// registers. A task is 8, 16 or 64 columns of output pixels, all rows of a row tile, in one group
// of output channels (mma_tiling.cuh has the shapes of tasks and the order of a sum). For a step of
// eight products along the sum, pairs of channel and filter column, lanes read inputs of one row
// below the other. With `row_reuse` an input that is loaded and split once meets all filter rows:
// the windows of adjacent output rows overlap, so one row of inputs comes per row of outputs.
//
// - From 12 output channels on (4 channels x 2 pixels below) four warps work together by wgmma:
//   pixels are the rows of the tile, from registers, weights lie in shared memory, and products run
//   beside the other warpgroups' loads, splits and sums.
// - For fewer a warp works by itself with mma.sync, weights of the step in registers. Where that
//   one step is a whole row of the filter, weights are stationary: a task goes down its strip, and
//   each row of inputs is loaded and split once.
// - fp32 = hi + lo, hi rounded to 11 bits of mantissa by integers, lo what is left. A product is
//   lo hi + hi lo + hi hi. The tensor core truncates its sums, so the products of at most
//   four steps, small ones first, are summed there and then added to an fp32 sum. hi of an input
//   from (2 - 2^-11) 2^127 on, an infinite one included, is infinite, and the sum becomes a NaN.
// - Few output channels leave most of a tile idle, so a column may be 2, 4 or 8 adjacent pixels: 4
//   channels of two fill 8 columns of the tile, and a window of 7 + 1 inputs fills a step. An input
//   that is not finite then spoils the other pixels' sums as well, as zero times infinity.
// - The filter is split once and packed in the order in which it is read. A filter that leaves too
//   little room in shared memory comes from the second-level cache, to tasks of mma.sync only.
// - Blocks are persistent, one per multiprocessor: two or three warpgroups compute, and a last one
//   loads and stores for them. It leaves them most of its registers. A warp that stored for its
//   group would let the other three wait at the next products, which all four begin together.
// - Strips (images or some of their rows) stream through a ring of stages. Where rows of y are no
//   whole sectors, sums of a row tile may gather in a second ring, as in small_fma, from where they
//   are stored.
//
// Floor: the bytes of x and y, or the products: 6 clocks of one of the four schedulers for 16 x 8 x
// 8 by mma.sync, half as many as there are columns, but 13, of the multiprocessor for 64 x columns
// x 8 by wgmma. 4 -> 16, k7: 28 steps x 3 x 16 clocks for 128 pixels, 525 us for 10000 images on an
// H200 at 1.75 GHz (25 steps by mma.sync: 704, and 1112 measured, since little overlaps there);
// 12 -> 24, k5: 843.
#include "core/element.cuh"
#include "core/output.cuh"
#include "kernels/small/mma_kernel.cuh"
#include "kernels/small/mma_plan.cuh"

namespace {

using namespace cf::small_mma;

// Writes each weight to all its places, split.
__global__ void pack_kernel(const float *__restrict__ w, float *__restrict__ packed,
                            const Order order, const TaskShape shape, bool three, int channels,
                            int k, int64_t floats) {
    const int64_t step = int64_t(gridDim.x) * blockDim.x;
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < floats; i += step) {
        const Weight at = weight_at(order, shape, three, channels, i);
        float v = 0;
        if (at.live && at.k < k)
            v = w[order.nhwc
                      ? ((int64_t(at.k) * order.r + at.r) * order.s + at.s) * order.c + at.c
                      : ((int64_t(at.k) * order.c + at.c) * order.r + at.r) * order.s + at.s];
        const float hi = cf::Sum<CF_MATH_TF32>::operand(v);
        packed[i] = at.lo ? cf::Sum<CF_MATH_TF32>::operand(v - hi) : hi;
    }
}

struct State {
    cf::Kernel<Tiling, const void *, const void *, void *, cf::Finish> kernel;
    cf_problem problem;
    cf::Sums sums;
    Choice choice;
    Tiling tiling;
};

bool takes(const cf_problem &p, const cf::Refusal &no) {
    if (p.storage != CF_STORE_F32 || (p.math != CF_MATH_FP32 && p.math != CF_MATH_TF32))
        return no("multiplies f32 elements in math fp32 or tf32");
    if (!cf::has_few_channels(p, no, cf::MostGroupedOutputs))
        return false;
    if (const double products = mean_products(p); p.math == CF_MATH_FP32 && products < MinProducts)
        return no("rounds each product a little more than fp32 does, which shows in sums of fewer "
                  "than %d products; this has %.1f on average, padding not counted (math tf32 has "
                  "no such limit)",
                  MinProducts, products);
    if (p.r > MaxFilter || p.s > MaxFilter)
        return no("takes filters up to %d x %d; this is %d x %d", MaxFilter, MaxFilter, p.r, p.s);
    if (double(p.k) * p.p * p.q > MaxCount || double(p.c) * p.h * p.w > MaxCount ||
        double(p.p) * p.stride_h > MaxCount)
        return no("counts within an image in 31 bits, too few for this problem");
    return true;
}

void choose_kernel(const cf_device &device, State &state) {
    const Choice &choice = state.choice;
    const Tiling &t = state.tiling;
    const size_t shared = size_t(t.stages) * t.stage_bytes +
                          size_t(t.output_stages) * t.output_stage_bytes + t.weight_bytes +
                          4 * places(choice);
    cf::for_value<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11>(choice.number, [&](auto number) {
        cf::for_value<0, 1>(choice.three, [&](auto three) {
            constexpr int Number = decltype(number)::value;
            static_assert(Number < TaskShapeCount);
            state.kernel = cf::kernel_of(small_mma_kernel<Number, decltype(three)::value>,
                                         std::min(t.strips, device.sm_count),
                                         TaskShapes[Number].threads(), shared);
        });
    });
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    const cf_device &device = query.device;
    if (!takes(p, no))
        return false;
    state.sums = cf::Sums(p, cf::sums_follow(p));
    cf_problem chunk = p; // tiled for as many images as a launch has at most
    chunk.n = state.sums.chunks.most;
    Best best;
    if (choose(p, device, state.choice))
        best = search(chunk, device, state.choice);
    if (!best.found)
        return no(
            "keeps two strips of %d channels, %d columns and all rows that a row tile of "
            "outputs needs in shared memory, which has %d bytes, and counts columns of pixels "
            "in 31 bits",
            p.c, p.w, device.shared_per_block);
    state.tiling = best.tiling;
    choose_kernel(device, state);

    state.sums.workspace(plan);
    plan.packed_bytes = uint64_t(state.choice.floats) * 4;
    plan.filter_layout = state.choice.filter_layout();
    // Clocks compare tilings with each other; what a tiling takes is fitted to the layers of
    // docs/kernels/small.md, and with weights from the L2 to those of
    // benches/results/evidence/h200-few-channels.csv.
    const Tiling &t = best.tiling;
    const double split = t.weight_bytes ? 0.85 : 0.68;
    const double fitted = (state.choice.three ? split : 1) * (t.output_stages ? 0.7 : 1);
    const double launches = double(p.n) / chunk.n;
    plan.us = launches * (cf::ShortLaunchUs +
                          cf::clocks_us(device, fitted * best.clocks, cf::TensorClock)) +
              (state.sums.follow ? cf::finish_us(query) : 0);
    return true;
}

int32_t prepare(State &state) {
    const int32_t error = cf::prepare_all(pack_kernel);
    return error ? error : cf::prepare_with_sums(state);
}

int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    const Choice &choice = state.choice;
    return cf::launch(pack_kernel, cf::blocks(choice.floats, 256), 256, stream, w, packed,
                      choice.order, choice.shape(), choice.three, choice.channels, state.problem.k,
                      choice.floats);
}

int32_t launch(const State &state, const cf_args &args) {
    const cf_problem &p = state.problem;
    return state.sums.launch(
        p, args, "small", [&](int64_t first, int64_t count, float *sums) -> int32_t {
            // Fewer strips than planned give blocks fewer rounds of the ring; the last blocks none.
            Tiling tiling = state.tiling;
            tiling.strips = int(count * tiling.image_strips);
            auto kernel = state.kernel;
            kernel.grid.x = std::min(kernel.grid.x, unsigned(tiling.strips));
            const float *x = static_cast<const float *>(args.x) + first * p.c * p.h * p.w;
            return kernel.launch(args.stream, tiling, x, args.packed, sums ? sums : args.y,
                                 sums ? cf::Finish() : cf::finish_of(p, args));
        });
}

} // namespace

extern "C" const cf_row CF_ROW(small, mma) = {
    "small_mma",
    "small",
    "few channels on tensor cores: fp32 by three TF32 products, images streamed through shared "
    "memory",
    "this project; three products as in CUTLASS, example 27",
    "in math fp32 an input or weight that is infinite, or at least 3.40199e38 in magnitude, makes "
    "NaN of every sum that it is part of; in math tf32 an infinite one may, and a weight from "
    "there on "
    "counts as infinite; up to 7 outputs "
    "beside them in a row may become NaN as well, and padding is multiplied as zeros, so that a "
    "weight that is not finite gives NaN there",
    CF_NEEDS_SM90A,
    nullptr, // configs
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
