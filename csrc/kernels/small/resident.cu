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
// - One copy of a box brings all rows and channels that some rows of y need, and the zeros of the
//   padding with them (device/tensor_map.cuh). Where units are few, all of a block's are asked for
//   at once, and the first is computed and stored while the others arrive.
// - A task is 32 pixels, wherever they lie in the unit. Of the 16 of a product, those of a lane are
//   g and g + 8; which pixels these are is free. In NCHW a lane takes four neighbours, and stores
//   them together: pieces of 128 bytes in f32. In NHWC it takes eight neighbouring channels.
// - fp32 is three products of tf32, as in small_mma: an input is split once, by integers, and the
//   sum begins with the small products. At most four steps need no sum besides the tensor core's.
// - Blocks are persistent, one per multiprocessor, and all warps compute. Whoever does the last
//   task of a unit asks for the next one in its place. A launch may begin before the one ahead of
//   it ends.
//
// In math fp32 an infinite input becomes a NaN. In 16 bits an infinity or a NaN may reach outputs
// whose window ends just before it or begins just behind it.
//
// Floor: the bytes of x and y. 3 -> 32, 3 x 3, stride 2, 16 images of 224 x 224: 8.4 us in f32, of
// which products take 4.
#include "core/element.cuh"
#include "kernels/small/few_channels.cuh"
#include "ptx/mma.cuh"
#include "core/estimate.cuh"
#include "kernels/small/mma_plan.cuh"
#include "kernels/small/resident_plan.cuh"
#include "core/output.cuh"

namespace {

using namespace cf::resident;

// Neighbours in y.
template <class Element, int N>
struct alignas(sizeof(Element) * N) Run {
    static constexpr int Count = N;
    Element value[N] = {};
};

#if __CUDA_ARCH__ >= 900
// What was counted before. What the threads that counted so far have read, they have read.
__device__ __forceinline__ int count_one(int &counter) {
    int before;
    asm volatile("atom.acq_rel.cta.shared::cta.add.s32 %0, [%1], 1;"
                 : "=r"(before)
                 : "r"(cf::shared_address(&counter))
                 : "memory");
    return before;
}
#endif

// Parts: 2 for fp32, hi and lo.
template <class Element, int Parts, int Steps, bool Nhwc>
__global__ void __launch_bounds__(warps_of(sizeof(Element)) * 32, 1)
    small_resident_kernel(const __grid_constant__ Cut cut, const __grid_constant__ CUtensorMap x,
                          const uint4 *__restrict__ packed, Element *__restrict__ y,
                          const __grid_constant__ cf::Finish finish) {
#if __CUDA_ARCH__ >= 900
    constexpr int Warps = warps_of(sizeof(Element)), Pixels = 2 * Sets; // of a lane
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ cf::Barrier full[MaxSlots];
    __shared__ int done[MaxSlots]; // tasks of the units in a slot
    const uint32_t slots = cf::shared_address(shared);
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const int g = lane / 4, t = lane % 4;

    // This block's units are blockIdx.x, blockIdx.x + gridDim.x, ...
    const int units = (cut.units - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x);
    struct Place {
        int n, row;
    };
    const auto place_of = [&](int m) {
        const int u = int(blockIdx.x) + m * int(gridDim.x), n = cut.by_strips.quotient(u);
        return Place{n, (u - n * cut.strips) * cut.rows};
    };
    const auto load = [&](int m, int slot) { // by one lane
        const Place at = place_of(m);
        full[slot].arrive_and_expect(cut.box_bytes);
        cf::copy_box(slots + slot * cut.slot, x, cut.begin, at.row * cut.stride_h - cut.pad_top, 0,
                     at.n, full[slot]);
    };
    if (threadIdx.x == 0) {
        for (int i = 0; i < cut.slots; ++i) {
            full[i].init(1);
            done[i] = 0;
        }
        cf::publish_barriers();
    }
    __syncthreads();
    cf::let_next_kernel_begin();
    cf::wait_for_kernels_before();
    if (threadIdx.x == 0)
        for (int m = 0; m < min(units, cut.slots); ++m)
            load(m, m);
    __syncwarp();

    const int worker = cut.by_groups.quotient(warp), group = warp - worker * cut.groups;
    const int workers = cut.by_groups.quotient(Warps);
    uint32_t weights[Parts][Steps][Tiles][2];
#pragma unroll
    for (int part = 0; part < Parts; ++part)
#pragma unroll
        for (int step = 0; step < Steps; ++step)
#pragma unroll
            for (int i = 0; i < Tiles; i += 2) {
                const int fragment = ((group * Parts + part) * Steps + step) * Tiles + i;
                const uint4 two = packed[fragment / 2 * 32 + lane];
                weights[part][step][i][0] = two.x, weights[part][step][i][1] = two.y;
                weights[part][step][i + 1][0] = two.z, weights[part][step][i + 1][1] = two.w;
            }
    uint32_t places[Steps][2];
#pragma unroll
    for (int step = 0; step < Steps; ++step)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            places[step][half] = cut.places[step * 8 + half * 4 + t];

    const int64_t area = int64_t(cut.p) * cut.q;
    const int first_channel = group * Group + (Nhwc ? 8 : 2) * t; // of the lane
    int m = -1, slot = -1; // the unit that was waited for last
    uint32_t parity = 0;
    int pixels = 0; // of it that exist
    Element *unit = y;
    for (int all = worker; all < units * cut.tasks; all += workers) {
        const int unit_of = cut.by_tasks.quotient(all), task = all - unit_of * cut.tasks;
        if (m < unit_of) {
            do { // in turn: a barrier shows one bit
                ++m;
                if (++slot == cut.slots)
                    slot = 0, parity ^= 1;
                full[slot].wait(parity);
            } while (m < unit_of);
            const Place place = place_of(m);
            pixels = min(cut.rows, cut.p - place.row) * cut.q;
            unit = y + place.n * area * cut.k + int64_t(place.row) * cut.q * (Nhwc ? cut.k : 1);
        }

        // The lane's pixels: neighbours, or in NHWC eight apart. Those behind the last row repeat
        // what is there.
        int pixel[Pixels];
        uint32_t at[Pixels];
#pragma unroll
        for (int e = 0; e < Pixels; ++e) {
            pixel[e] = task * TaskPixels + (Nhwc ? g + 8 * e : Pixels * g + e);
            if (Nhwc || e == 0) {
                const int inside = min(pixel[e], cut.rows * cut.q - (Nhwc ? 1 : Pixels));
                const int row = cut.by_q.quotient(inside);
                at[e] = slots + slot * cut.slot + row * cut.row_step +
                        (inside - row * cut.q) * cut.step;
            } else {
                at[e] = at[e - 1] + cut.step;
            }
        }
        cf::Fragment<Element, float> sum[Sets][Tiles];
#pragma unroll
        for (int set = 0; set < Sets; ++set) {
            uint32_t a[Parts][Steps][4];
#pragma unroll
            for (int step = 0; step < Steps; ++step)
#pragma unroll
                for (int half = 0; half < 2; ++half)
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        const uint32_t word = cf::load_shared(at[2 * set + e] + places[step][half]);
                        const int i = 2 * half + e;
                        if constexpr (Parts == 2) {
                            const uint32_t hi = (word + 0x1000) & 0xffffe000;
                            a[0][step][i] = hi;
                            a[1][step][i] =
                                __float_as_uint(__uint_as_float(word) - __uint_as_float(hi));
                        } else {
                            a[0][step][i] = word;
                        }
                    }
#pragma unroll
            for (int kind = Parts == 2 ? 0 : 2; kind < 3; ++kind) // lo hi, hi lo, hi hi
#pragma unroll
                for (int step = 0; step < Steps; ++step)
#pragma unroll
                    for (int i = 0; i < Tiles; ++i)
                        sum[set][i].add(a[Parts == 2 && kind == 1][step],
                                        weights[Parts == 2 && kind == 0][step][i]);
        }

        // Of pixel e, in one of two channels of a tile.
        const auto value = [&](int e, int i, int o) -> float & {
            return sum[e / 2][i].value[e % 2 * 2 + o];
        };
        const auto channel = [&](int i, int o) { // from the lane's first
            return Nhwc ? 2 * i + o : 8 * i + o;
        };
        if (finish.affine) {
#pragma unroll
            for (int i = 0; i < Tiles; ++i)
#pragma unroll
                for (int o = 0; o < 2; ++o) {
                    const int k = first_channel + channel(i, o);
                    const float bias = finish.bias && k < cut.k ? finish.bias[k] : 0.0f;
#pragma unroll
                    for (int e = 0; e < Pixels; ++e)
                        value(e, i, o) = fmaf(finish.scale, value(e, i, o), bias);
                }
        }
        // What the lane holds of neighbours in y: where it lies, whether it exists, and its values.
        const auto for_runs = [&](auto body) {
            if constexpr (Nhwc) {
#pragma unroll
                for (int e = 0; e < Pixels; ++e)
                    body(Run<Element, 2 * Tiles>(),
                         unit + int64_t(pixel[e]) * cut.k + first_channel,
                         pixel[e] < pixels && first_channel < cut.k,
                         [&](int j) -> float & { return value(e, j / 2, j % 2); });
            } else {
                Element *to = unit + first_channel * area + pixel[0];
#pragma unroll
                for (int i = 0; i < Tiles; ++i) {
#pragma unroll
                    for (int o = 0; o < 2; ++o)
                        body(Run<Element, Pixels>(), to + o * area,
                             pixel[0] < pixels && first_channel + channel(i, o) < cut.k,
                             [&](int e) -> float & { return value(e, i, o); });
                    to += 8 * area;
                }
            }
        };
        if (finish.residual)
            for_runs([&](auto run, Element *to, bool live, auto value) {
                if (live)
                    run = *reinterpret_cast<const decltype(run) *>(
                        static_cast<const Element *>(finish.residual) + (to - y));
#pragma unroll
                for (int j = 0; j < run.Count; ++j)
                    value(j) += cf::widen(run.value[j]);
            });
        if (finish.limited) {
#pragma unroll
            for (auto &set : sum)
#pragma unroll
                for (auto &tile : set)
#pragma unroll
                    for (float &v : tile.value)
                        v = cf::between(v, finish.least, finish.most);
        }
        for_runs([&](auto run, Element *to, bool live, auto value) {
#pragma unroll
            for (int j = 0; j < run.Count; ++j)
                run.value[j] = cf::narrow<Element>(value(j));
            if (live)
                *reinterpret_cast<decltype(run) *>(to) = run;
        });

        // Whoever does the last task of a unit asks for the next one in its place.
        __syncwarp();
        if (lane == 0 && m + cut.slots < units) {
            const int tasks = cut.tasks * cut.groups;
            if (count_one(done[slot]) % tasks == tasks - 1)
                load(m + cut.slots, slot);
        }
        __syncwarp();
    }
#endif
}

// How the filter is packed: as lanes hold it, [group][part][step][two tiles][lane][tile][half of
// the step], in words.
struct Order {
    int k, c, r, s;
    bool nhwc;
    int parts, steps;
    Row row;
    int words; // of all rows of a window
};

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

int parts_of(const cf_problem &p) { return p.math == CF_MATH_FP32 ? 2 : 1; }

int32_t supports(const cf_call *call, char *why, uint64_t bytes) {
    const cf_problem &p = call->problem;
    const bool floats = p.storage == CF_STORE_F32;
    if (floats ? p.math != CF_MATH_FP32 && p.math != CF_MATH_TF32
               : p.math != (p.storage == CF_STORE_F16 ? CF_MATH_F16 : CF_MATH_BF16))
        return cf::no(why, bytes, "multiplies f32 in fp32 or tf32, f16 in f16 and bf16 in bf16");
    if (floats && p.layout != CF_NCHW)
        return cf::no(why, bytes, "is written for NCHW where elements are f32");
    if (!cf::has_few_channels(p, why, bytes))
        return 0;
    if (words_of(p) > steps_of(p) * 8)
        return cf::no(why, bytes,
                      "keeps the filter in registers: of a window up to %d words of 4 bytes; this "
                      "has %lld",
                      steps_of(p) * 8, (long long)words_of(p));
    if (const double products = cf::small_mma::mean_products(p);
        p.math == CF_MATH_FP32 && products < cf::small_mma::MinProducts)
        return cf::no(why, bytes,
                      "rounds each product a little more than fp32 does, which shows in sums of "
                      "fewer than %d products; this has %.1f on average, padding not counted (math "
                      "tf32 has no such limit)",
                      cf::small_mma::MinProducts, products);
    if (p.math == CF_MATH_FP32 && p.k < MinChannels)
        return cf::no(
            why, bytes,
            "in math fp32 is for %d output channels and more; with %d a few large weights "
            "would decide the error",
            MinChannels, p.k);
    if (cf::sums_follow(p))
        return cf::no(why, bytes, "fuses no pooling, and of activations ReLU and ReLU6");
    if (p.align < 16 || p.w * pixel_bytes(p) % 16 != 0)
        return cf::no(why, bytes, "copies boxes of x, whose rows are multiples of 16 bytes");
    if (p.stride_w * pixel_bytes(p) % 4 != 0)
        return cf::no(why, bytes, "reads windows by words of 4 bytes, as far apart as multiples");
    if (p.layout == CF_NHWC ? p.k % (2 * Tiles) != 0 : p.q % (2 * Sets) != 0)
        return cf::no(why, bytes,
                      "stores %d neighbours at once: output columns in NCHW, channels in NHWC",
                      p.layout == CF_NHWC ? 2 * Tiles : 2 * Sets);
    if (!row_of(p).fits || plan_of(call).cut.slots == 0)
        return cf::no(why, bytes,
                      "copies boxes of up to 256 elements in a row, of up to 8 bytes each, and "
                      "keeps two in shared memory; %d columns are too many",
                      p.w);
    return 1;
}

uint64_t packed_bytes(const cf_call *call) {
    const cf_problem &p = call->problem;
    return uint64_t(cf::ceil_div(p.k, Group)) * parts_of(p) * steps_of(p) * Tiles * 64 * 4;
}

int32_t pack(const cf_call *call, void *packed) {
    const cf_problem &p = call->problem;
    const Order order = {p.k,
                         p.c,
                         p.r,
                         p.s,
                         p.layout == CF_NHWC,
                         parts_of(p),
                         steps_of(p),
                         row_of(p),
                         int(words_of(p))};
    const int count = int(packed_bytes(call) / 4);
    const auto run = [&](auto element) -> int32_t {
        using Element = decltype(element);
        pack_kernel<Element><<<cf::blocks(count, 256), 256, 0, cf::stream(call)>>>(
            order, static_cast<const Element *>(call->w), cf::filter_strides(p),
            static_cast<uint32_t *>(packed), count);
        return cudaGetLastError();
    };
    return p.storage == CF_STORE_F32   ? run(float())
           : p.storage == CF_STORE_F16 ? run(__half())
                                       : run(__nv_bfloat16());
}

int32_t launch(const cf_call *call) {
    const cf_problem &p = call->problem;
    const Plan plan = plan_of(call);
    if (plan.cut.slots == 0)
        return cudaErrorInvalidValue;
    Cut cut = plan.cut;
    cut.by_strips = cf::Divisor(cut.strips);
    cut.by_tasks = cf::Divisor(cut.tasks);
    cut.by_q = cf::Divisor(cut.q);
    cut.by_groups = cf::Divisor(cut.groups);
    CUtensorMap map;
    if (const int32_t error = cf::encode(plan.box, call->x, map))
        return error;
    const cf::Finish finish = cf::finish_of(call);
    const auto start = [&](auto element, auto parts, auto steps, auto nhwc) -> int32_t {
        using Element = decltype(element);
        auto *kernel = small_resident_kernel<Element, decltype(parts)::value,
                                             decltype(steps)::value, decltype(nhwc)::value>;
        return cf::start(call, kernel, unsigned(std::min(cut.units, call->device.sm_count)),
                         warps_of(sizeof(Element)) * 32, size_t(cut.slots) * cut.slot, true, cut,
                         map, static_cast<const uint4 *>(call->packed),
                         static_cast<Element *>(call->y), finish);
    };
    constexpr cf::Constant<1> one;
    constexpr cf::Constant<2> two;
    constexpr cf::Constant<3> three;
    constexpr cf::Constant<4> four;
    constexpr std::false_type nchw;
    constexpr std::true_type nhwc;
    if (p.storage == CF_STORE_F32)
        return p.math == CF_MATH_FP32 ? start(float(), two, four, nchw)
                                      : start(float(), one, four, nchw);
    const auto start_16 = [&](auto element) {
        return p.layout == CF_NHWC ? start(element, one, two, nhwc)
                                   : start(element, one, three, nchw);
    };
    return p.storage == CF_STORE_F16 ? start_16(__half()) : start_16(__nv_bfloat16());
}

// Assumes 1.75 GHz, which tensor cores bring the clock to.
double rank(const cf_call *call) { return cf::ShortLaunchUs + plan_of(call).clocks / 1750; }

} // namespace

extern "C" const cf_row small_resident = {
    "small_resident",
    "small",
    "first layers on tensor cores: the filter stays in registers, boxes of x come with their "
    "padding",
    "this project; three products as in CUTLASS, example 27",
    90,
    INT32_MAX,
    nullptr, // configs
    supports,
    nullptr, // workspace
    packed_bytes,
    pack,
    nullptr, // bind
    rank,
    launch,
};
