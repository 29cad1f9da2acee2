// small_resident: first layers, whose sums are so short that a warp keeps the filter in registers.
//
// An implicit product on tensor cores, one warp at a time: rows are pixels, columns output
// channels, and the sum has at most four steps (27 products of 3 x 3 x 3 are 4 of tf32, or 2 of 16
// bits). A warp holds all weights of 32 output channels as operands from its first task to its
// last, so that a task is nothing but loads of inputs, products and stores.
//
// - x lies in shared memory as in global memory, and a lane reads its words of a window from there
//   one by one: nothing is interleaved or unrolled. Two 16-bit elements of a word are neighbours in
//   a row: in NHWC channels, in NCHW columns. A window begins at the same place of a word for every
//   pixel, or the row refuses the problem; what a word has beyond the window meets zeros.
// - One copy of a box loads all rows and channels that some rows of y need, and the zeros of the
//   padding with them (ptx/tensor.cuh). Where strips are few, all of a block's are asked for in the
//   beginning, and the first is computed and stored while the others arrive.
// - A task is 32 pixels, wherever they lie in the strip. Of the 16 of a product, those of a lane
//   are g and g + 8; which pixels these are is free. In NCHW a lane takes four neighbours, and
//   stores them together: pieces of 128 bytes in f32. In NHWC it takes eight neighbouring channels.
// - fp32 is three products of tf32, as in small_mma: an input is split once, by integers, and the
//   sum begins with the small products. At most four steps need no sum besides the tensor core's.
// - Blocks are persistent, one per multiprocessor, and all warps compute. Whoever does the last
//   task of a strip asks for the next one in its place. A launch may begin before the one ahead of
//   it ends.
//
// In math fp32 the high part of an infinity, and of what rounds to one from 0x7f7ff000 on, is
// infinite, and the low part its opposite or a NaN. What fills up a step, and in 16 bits words
// beyond a window, meets weights of zero, which makes a NaN of an infinity.
//
// Floor: the bytes of x and y. 3 -> 32, 3 x 3, stride 2, 16 images of 224 x 224: 8.4 us in f32, of
// which products take 4.
#include "core/element.cuh"
#include "core/estimate.cuh"
#include "core/fragment_epilogue.cuh"
#include "core/plan.cuh"
#include "core/strides.cuh"
#include "core/tensor_map.cuh"
#include "kernels/small/few_channels.cuh"
#include "kernels/small/mma_plan.cuh"
#include "kernels/small/resident_plan.cuh"
#include "kernels/small/resident_task.cuh"
#include "pipeline/ring.cuh"
#include "pipeline/scheduler.cuh"
#include "ptx/grid.cuh"
#include "ptx/tensor.cuh"

namespace {

using namespace cf::resident;

#if CF_SM90
// A block's strips, and how they come to shared memory.
struct Strips {
    const Tiling &tiling;
    const CUtensorMap &x;
    cf::SelfLoadingRing<MaxStages> &ring;
    uint32_t stages; // in shared memory
    cf::StridedTiles mine;
    int count;

    struct Place {
        int n, row;
    };
    __device__ __forceinline__ Place place_of(int m) const {
        const int strip = mine.tile(m), n = tiling.by_image.quotient(strip);
        return {n, (strip - n * tiling.strips_per_image) * tiling.rows};
    }
    __device__ __forceinline__ uint32_t stage(cf::RingPosition at) const {
        return stages + at.stage * tiling.stage_bytes;
    }
    // Strip m, by one lane.
    __device__ __forceinline__ void load(int m, int stage) const {
        const Place at = place_of(m);
        ring.full[stage].arrive_and_expect(tiling.box_bytes);
        cf::copy_box(stages + stage * tiling.stage_bytes, x, tiling.begin,
                     at.row * tiling.stride_h - tiling.pad_top, 0, at.n, ring.full[stage]);
    }
};

// What a warp does: tasks of one group of output channels, from the first strip to the last.
template <class Element, int Parts, int Steps, bool Nhwc>
__device__ __forceinline__ void compute(const Strips &strips, int warp, int lane,
                                        const uint4 *packed, Element *y, const cf::Finish &finish) {
    const Tiling &tiling = strips.tiling;
    const int worker = tiling.by_groups.quotient(warp), group = warp - worker * tiling.groups;
    const int workers = tiling.by_groups.quotient(warps_of(sizeof(Element)));
    const Filter<Parts, Steps> filter(tiling, packed, group, lane);
    const int64_t area = int64_t(tiling.p) * tiling.q;
    const int first_channel = group * Group + (Nhwc ? 8 : 2) * (lane % 4); // of the lane
    int m = -1; // the strip that was waited for last
    cf::RingPosition at = {-1, 0};
    int pixels_of_strip = 0; // that exist
    int64_t strip = 0;       // where it begins in y
    for (int number = worker; number < strips.count * tiling.tasks; number += workers) {
        const int strip_of_task = tiling.by_tasks.quotient(number);
        if (m < strip_of_task) {
            do { // one by one: a barrier shows one bit
                ++m;
                at.next(tiling.stages);
                strips.ring.wait_full(at);
            } while (m < strip_of_task);
            const Strips::Place place = strips.place_of(m);
            pixels_of_strip = min(tiling.rows, tiling.p - place.row) * tiling.q;
            strip =
                place.n * area * tiling.k + int64_t(place.row) * tiling.q * (Nhwc ? tiling.k : 1);
        }
        const Pixels<Nhwc> pixels(tiling, strips.stage(at), number - strip_of_task * tiling.tasks,
                                  lane);
        TaskSums<Element, Parts, Steps> sums;
        sums.multiply(pixels.at, filter);
        OutputMap<Nhwc, TaskSums<Element, Parts, Steps>> map = {
            sums, pixels, strip, pixels_of_strip, first_channel, tiling.k, area};
        cf::finish_fragment<Element>(finish, tiling.k, map);
        map.for_runs(y, [&](auto count, Element *to, bool live, auto value) {
            float v[count.value];
#pragma unroll
            for (int i = 0; i < count.value; ++i)
                v[i] = value(i);
            cf::store_neighbours<Element>(reinterpret_cast<char *>(to), live, v);
        });

        // Whoever does the last task of a strip asks for the next one in its place.
        __syncwarp();
        if (lane == 0 && m + tiling.stages < strips.count)
            if (strips.ring.release(at, tiling.tasks * tiling.groups))
                strips.load(m + tiling.stages, at.stage);
        __syncwarp();
    }
}
#endif

template <class Element, int Parts, int Steps, bool Nhwc>
__global__ void __launch_bounds__(warps_of(sizeof(Element)) * 32, 1)
    small_resident_kernel(const __grid_constant__ Tiling tiling,
                          const __grid_constant__ CUtensorMap x, const uint4 *__restrict__ packed,
                          Element *__restrict__ y, const __grid_constant__ cf::Finish finish) {
#if CF_SM90
    extern __shared__ __align__(128) unsigned char dynamic[];
    __shared__ cf::SelfLoadingRing<MaxStages> ring;
    static_assert(sizeof(ring) <= StaticShared, "the plan leaves room for it");
    const auto mine = cf::StridedTiles::of_block();
    const Strips strips = {
        tiling, x, ring, cf::shared_address(dynamic), mine, mine.count(tiling.strips)};
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (warp == 0) {
        ring.init(tiling.stages, 1, lane);
        cf::publish_barriers();
    }
    __syncthreads();
    cf::let_next_kernel_begin();
    cf::wait_for_kernels_before();
    if (threadIdx.x == 0)
        for (int m = 0; m < min(strips.count, tiling.stages); ++m)
            strips.load(m, m);
    __syncwarp();
    compute<Element, Parts, Steps, Nhwc>(strips, warp, lane, packed, y, finish);
#else
    cf::not_compiled();
#endif
}

template <class Element>
__global__ void pack_kernel(const Order order, const Element *__restrict__ w, cf::Strides strides,
                            uint32_t *__restrict__ packed, int count) {
    constexpr int Each = 4 / sizeof(Element); // elements of a word
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const int half = i % 2, lane = i / 4 % 32, column = lane / 4;
        const int tile = i / 128 % (Tiles / 2) * 2 + i / 2 % 2;
        const int step = i / (64 * Tiles) % order.steps;
        const int part = i / (64 * Tiles) / order.steps % order.parts;
        const int group = i / (64 * Tiles) / order.steps / order.parts;
        const int k = group * Group +
                      (order.nhwc ? column / 2 * 8 + tile * 2 + column % 2 : tile * 8 + column);
        const int word = step * 8 + half * 4 + lane % 4;
        const int line = word / order.row.words, of_line = word % order.row.words;
        Element element[Each];
        for (int e = 0; e < Each; ++e) {
            // Elements along the window's row: of all channels in NHWC.
            const int along = of_line * Each + e - order.row.lead / int(sizeof(Element));
            const int c = order.nhwc ? along % order.c : line / order.r;
            const int r = order.nhwc ? line : line % order.r;
            const int s = order.nhwc ? along / order.c : along;
            const bool live = word < order.words && k < order.k && along >= 0 && s < order.s;
            element[e] = live ? w[strides.at(k, c, r, s)] : cf::narrow<Element>(0.0f);
        }
        if constexpr (Each == 1) {
            const float hi = cf::Sum<CF_MATH_TF32>::operand(element[0]);
            element[0] = part == 1 ? cf::Sum<CF_MATH_TF32>::operand(element[0] - hi) : hi;
            packed[i] = __float_as_uint(element[0]);
        } else {
            packed[i] = reinterpret_cast<const uint16_t &>(element[0]) |
                        uint32_t(reinterpret_cast<const uint16_t &>(element[1])) << 16;
        }
    }
}

struct State {
    cf::Kernel<Tiling, CUtensorMap, const void *, void *, cf::Finish> kernel;
    cf_problem problem;
    Tiling tiling;
    cf::Box box;
    cf::TensorMap x;
};

void choose_kernel(State &state, dim3 grid, size_t shared) {
    const cf_problem &p = state.problem;
    const auto choose = [&](auto element, auto parts, auto steps, auto nhwc) {
        using Element = decltype(element);
        state.kernel =
            cf::kernel_of(small_resident_kernel<Element, decltype(parts)::value,
                                                decltype(steps)::value, decltype(nhwc)::value>,
                          grid, warps_of(sizeof(Element)) * 32, shared, true);
    };
    constexpr cf::Constant<1> one;
    constexpr cf::Constant<2> two;
    constexpr cf::Constant<3> three;
    constexpr cf::Constant<4> four;
    constexpr std::false_type nchw;
    constexpr std::true_type nhwc;
    const auto choose_16 = [&](auto element) {
        if (p.layout == CF_NHWC)
            choose(element, one, two, nhwc);
        else
            choose(element, one, three, nchw);
    };
    if (p.storage == CF_STORE_F16)
        choose_16(__half());
    else if (p.storage == CF_STORE_BF16)
        choose_16(__nv_bfloat16());
    else if (p.math == CF_MATH_FP32)
        choose(float(), two, four, nchw);
    else
        choose(float(), one, four, nchw);
}

bool takes(const cf_problem &p, const cf::Refusal &no) {
    const bool floats = p.storage == CF_STORE_F32;
    if (floats ? p.math != CF_MATH_FP32 && p.math != CF_MATH_TF32
               : p.math != (p.storage == CF_STORE_F16 ? CF_MATH_F16 : CF_MATH_BF16))
        return no("multiplies f32 in fp32 or tf32, f16 in f16 and bf16 in bf16");
    if (floats && p.layout != CF_NCHW)
        return no("is written for NCHW where elements are f32");
    if (!cf::has_few_channels(p, no))
        return false;
    if (words_of(p) > steps_of(p) * 8)
        return no("keeps the filter in registers: of a window up to %d words of 4 bytes; this has "
                  "%lld",
                  steps_of(p) * 8, (long long)words_of(p));
    if (const double products = cf::small_mma::mean_products(p);
        p.math == CF_MATH_FP32 && products < cf::small_mma::MinProducts)
        return no("rounds each product a little more than fp32 does, which shows in sums of fewer "
                  "than %d products; this has %.1f on average, padding not counted (math tf32 has "
                  "no such limit)",
                  cf::small_mma::MinProducts, products);
    if (p.math == CF_MATH_FP32 && p.k < MinChannels)
        return no("in math fp32 is for %d output channels and more; with %d a few large weights "
                  "would decide the error",
                  MinChannels, p.k);
    if (cf::sums_follow(p))
        return no("fuses no pooling, and of activations ReLU and ReLU6");
    if (p.align < 16 || int64_t(p.w) * pixel_bytes(p) % 16 != 0)
        return no("copies boxes of x, whose rows are multiples of 16 bytes");
    if (int64_t(p.stride_w) * pixel_bytes(p) % 4 != 0)
        return no("reads windows by words of 4 bytes, as far apart as multiples");
    if (p.layout == CF_NHWC ? p.k % (2 * Tiles) != 0 : p.q % (2 * Sets) != 0)
        return no("stores %d neighbours together: output columns in NCHW, channels in NHWC",
                  p.layout == CF_NHWC ? 2 * Tiles : 2 * Sets);
    return true;
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    if (!takes(p, no))
        return false;
    const Option best = best_option(query);
    if (best.tiling.stages == 0)
        return no("copies boxes of up to 256 elements in a row, of up to 8 bytes each, and keeps "
                  "two in shared memory; %d columns are too many",
                  p.w);
    state.tiling = best.tiling;
    state.box = best.box;
    plan.packed_bytes = packed_bytes(p);
    plan.filter_layout = filter_layout(p);
    plan.us = cf::ShortLaunchUs + cf::clocks_us(query.device, best.clocks, cf::TensorClock);
    choose_kernel(state, unsigned(std::min(state.tiling.strips, query.device.sm_count)),
                  size_t(state.tiling.stages) * state.tiling.stage_bytes);
    return true;
}

// Calls body with an element of x and w.
template <class Body>
int32_t for_storage(const cf_problem &p, Body body) {
    return p.storage == CF_STORE_F32   ? body(float())
           : p.storage == CF_STORE_F16 ? body(__half())
                                       : body(__nv_bfloat16());
}

int32_t prepare(State &state) {
    const int32_t error = for_storage(state.problem, [](auto element) {
        return cf::prepare_all(pack_kernel<decltype(element)>);
    });
    if (error)
        return error;
    if (const int32_t error = state.kernel.prepare())
        return error;
    return state.x.prepare(state.box);
}

int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    const cf_problem &p = state.problem;
    const int count = int(packed_bytes(p) / 4);
    return for_storage(p, [&](auto element) {
        return cf::launch(pack_kernel<decltype(element)>, cf::blocks(count, 256), 256, stream,
                          order_of(p), w, cf::filter_strides(p), packed, count);
    });
}

int32_t launch(const State &state, const cf_args &args) {
    CUtensorMap x;
    if (const int32_t error = state.x.at(args.x, x))
        return error;
    return state.kernel.launch(args.stream, state.tiling, x, args.packed, args.y,
                               cf::finish_of(state.problem, args));
}

} // namespace

extern "C" const cf_row CF_ROW(small, resident) = {
    "small_resident",
    "small",
    "first layers on tensor cores: the filter stays in registers, boxes of x come with their "
    "padding",
    "this project; three products as in CUTLASS, example 27",
    "in math fp32 an infinity, or a number from 3.4019e38 on, becomes a NaN, in tf32 an infinity "
    "may, and a weight from there on counts as infinite; in 16 bits an infinity or a NaN in x may "
    "make NaN of outputs whose windows it lies just "
    "beside",
    CF_NEEDS_SM90,
    nullptr, // configs
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
