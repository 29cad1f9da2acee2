// implicit_gemm_mma: any convolution on tensor cores that every chip from sm_80 on has, by mma.sync
// and cp.async.
//
// A convolution is a product of the filter with a matrix of pixels that is never written: a block
// copies what its pixels read under some taps and channels, a step along the sum, to shared memory,
// beside the filter's part of it.
//
// - What lies beside each other in y, output channels in NHWC and pixels in NCHW, are the columns
//   of the product, and are numbered so that a lane has 16 bytes of neighbours: a vector store. The
//   rest of the main loop is the same.
// - A step is 64 bytes along the sum: four pieces of 16 bytes, each of some channels under a tap.
//   Where pieces lie in x as they are multiplied, cp.async brings them, some stages ahead. They
//   come past the first-level cache: that taps beside each other find what the ones before read
//   there has gained nothing.
// - Everything else is gathered through registers: x in NCHW, channel counts that are no multiple
//   of a piece, unaligned addresses, f32 that is multiplied in 16 bits. With fewer channels than a
//   piece has, it has those of neighbouring taps as well.
// - Which taps fall on x is a bit mask of each pixel, so that a tap costs a comparison. Where the
//   pieces of a block of channels lie, and under which tap, is in a table.
// - Half a step's operands are read while the half before is multiplied.
// - Groups are tiles of their own.
//
// Floor: six clocks (sm_90; 8 on sm_80) of a quarter of a multiprocessor for each mma.sync, and on
// sm_90 the instructions between; the bytes of x and y over the bandwidth, and what comes from the
// second-level cache.
#include "core/plan.cuh"
#include "kernels/implicit_gemm/mma_kernel.cuh"

namespace {

using namespace cf::implicit_mma;

template <class Stored, Product Kind>
__global__ void __launch_bounds__(256)
    pack_kernel(const Order of, int64_t all, const cf::Strides strides,
                const Stored *__restrict__ w, uint32_t *__restrict__ packed) {
    using Operand = typename OperandType<Kind>::type;
    const int64_t step = int64_t(gridDim.x) * 256;
    for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < all; i += step) {
        const auto element = [&](int e) {
            const FilterPlace at = filter_place(of, i, e);
            return at.live ? cf::widen(w[strides.at(at.k, at.c, at.r, at.s)]) : 0.0f;
        };
        if constexpr (Kind == Tf32)
            packed[i] = __float_as_uint(cf::Sum<CF_MATH_TF32>::operand(element(0)));
        else
            packed[i] = cf::pack<Operand>(element(0), element(1));
    }
}

struct State {
    Launched kernel;
    cf::Kernel<Order, int64_t, cf::Strides, const void *, void *> pack;
    cf_problem problem;
    Tiling tiling;
};

// Calls body with an element of x and the product, as compile-time constants.
template <class Body>
void for_product(const cf_problem &p, Body body) {
    if (p.storage == CF_STORE_F16)
        return body(__half(), cf::Constant<F16>());
    if (p.storage == CF_STORE_BF16)
        return body(__nv_bfloat16(), cf::Constant<Bf16>());
    cf::for_value<F16, Bf16, Tf32>(product_of(p), [&](auto product) { body(float(), product); });
}

void describe(const cf_problem &p, const Option &option, State &state) {
    state.problem = p;
    state.tiling = option.tiling;
    for_product(p, [&](auto stored, auto product) {
        using Stored = decltype(stored);
        constexpr auto Kind = Product(decltype(product)::value);
        state.kernel = kernel_for<Stored, Kind>(option, p.layout == CF_NCHW);
        state.pack = cf::kernel_of(pack_kernel<Stored, Kind>,
                                   cf::blocks(option.tiling.order.packed_words(), 256), 256);
    });
}

constexpr const char *configs[] = {"tile=any",    "tile=128x256", "tile=128x128", "tile=64x256",
                                   "tile=64x128", "tile=64x64",   "tile=32x64",   nullptr};

bool takes(const cf_query &query, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    if (p.math == CF_MATH_FP32)
        return no("runs on tensor cores, which truncate their sums; math fp32 wants fp32 sums");
    if (p.epilogue.pool_h)
        return no("fuses no pooling");
    if (p.r + p.s > MaxTapBits)
        return no("keeps a bit for each row and column of a filter, %d in all; this one is %dx%d",
                  MaxTapBits, p.r, p.s);
    if (double(p.p) * p.q > 1 << 30)
        return no("counts the pixels of an image in 30 bits; %dx%d are more", p.p, p.q);
    return true;
}

// Until a launch's first pieces are there, the same for every tile: 13 problems that were estimated
// under 6 us without it took 0.7 us more in the mean (f16 in
// benches/results/h200-*-68938065.jsonl); this is 0.6, as the fastest of them took less.
constexpr double BeginClocks = 1050;

// What it takes of what tiles are compared by: more where x is copied in pieces of few channels and
// multiprocessors have more than a block each. In tf32 with 4 and 12 channels, 16 to 10000 images,
// eight problems took 1.16 to 1.34 times what they were told without, one image 0.97 and 0.99
// (h200-told-few-channels.csv).
double told(const cf_query &query, const Option &best) {
    const cf_problem &p = query.problem;
    const bool is_few = best.tiling.copied && p.storage == CF_STORE_F32 && p.c / p.groups < 16;
    return is_few && best.grid > query.device.sm_count ? 1.25 : 1;
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    if (!takes(query, no))
        return false;
    const Option best = best_option(query, query.config - 1);
    if (best.tile < 0 && query.config > 0)
        return no("has no %s for this: pieces of x are gathered, or the device's %d bytes of "
                  "shared memory for a block are too few",
                  configs[query.config], query.device.shared_per_block);
    if (best.tile < 0)
        return no("keeps stages of some steps in shared memory, of which a block has %d bytes, and "
                  "counts tiles in 31 bits",
                  query.device.shared_per_block);
    const Order &order = best.tiling.order;
    const auto bytes = double(order.packed_words()) * 4;
    if (bytes > double(query.device.memory_bytes))
        return no("packs the filter as %.3g bytes, which the device's memory does not hold", bytes);
    plan.packed_bytes = uint64_t(order.packed_words()) * 4;
    plan.filter_layout =
        uint64_t(order.block_pieces) << 3 | uint64_t(order.whole) << 2 | uint64_t(product_of(p));
    plan.us =
        told(query, best) * best.us + cf::clocks_us(query.device, BeginClocks, cf::TensorClock);
    cf::tell(plan, "%s grid=%lld", configs[best.tile + 1], (long long)best.grid);
    describe(p, best, state);
    return true;
}

int32_t prepare(State &state) {
    const int32_t error = state.pack.prepare();
    return error ? error : state.kernel.prepare();
}

int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    const Order &order = state.tiling.order;
    return state.pack.launch(stream, order, order.packed_words(), cf::filter_strides(state.problem),
                             w, packed);
}

int32_t launch(const State &state, const cf_args &args) {
    if (state.kernel.grid.x == 0)
        return 0;
    return state.kernel.launch(args.stream, state.tiling, args.x, args.packed,
                               {args.y, cf::finish_of(state.problem, args)});
}

} // namespace

extern "C" const cf_row CF_ROW(implicit_gemm, mma) = {
    "implicit_gemm_mma",
    "implicit_gemm",
    "any convolution by mma.sync and cp.async, from sm_80 on: a step of taps and channels at a "
    "time in shared memory; math f16acc is summed in fp32",
    "this project",
    "padding, and what fills up the last step along a sum, are multiplied as zeros or by zeros: "
    "where an infinity or a NaN meets them, the sum is NaN; in math tf32 a weight from 3.40199e38 "
    "on counts as infinite, and a NaN of x with nothing above its lowest 13 bits as infinity",
    CF_NEEDS_SM80,
    configs,
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
