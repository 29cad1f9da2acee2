// small_mma: few channels on tensor cores, f32 storage: math fp32 by three TF32 products, math tf32
// by one.
//
// An implicit product of matrices from images in shared memory: nothing is unrolled but in
// registers. A task is 8, 16 or 64 columns of output pixels, all rows of a row tile, in one group
// of output channels (device/small_mma.cuh has the forms and the order of a sum). For a step of
// eight products along the sum, pairs of channel and filter column, lanes read inputs of one row
// below the other. With `reach` an input that is loaded and split once meets all filter rows: the
// windows of neighbouring output rows overlap, so one row of inputs comes per row of outputs.
//
// - From 12 output channels on (4 channels x 2 pixels below) four warps work together by wgmma:
//   pixels are the rows of the tile, from registers, weights lie in shared memory, and products run
//   beside the other warpgroups' loads, splits and sums.
// - For fewer a warp works by itself with mma.sync, weights of the step in registers. Where that
//   one step is a whole row of the filter, a task goes down its unit: weights stay in registers,
//   and each row of inputs is loaded and split once.
// - fp32 = hi + lo, hi rounded to 11 bits of mantissa by integers, lo what is left. A product is
//   lo hi + hi lo + hi hi. The tensor core cuts its sums toward zero, so the products of at most
//   four steps, small ones first, are summed there and then added to an fp32 sum. An infinite input
//   becomes a NaN that way.
// - Few output channels leave most of a tile idle, so a column may be 2, 4 or 8 neighbouring
//   pixels: 4 channels of two fill 8 columns of the tile, and a window of 7 + 1 inputs fills a
//   step. An input that is not finite then spoils its neighbours' sums as well, as zero times
//   infinity.
// - The filter is split once and packed in the order in which it is read. A filter that leaves too
//   little room in shared memory comes from the second-level cache, to the forms of mma.sync only.
// - Blocks are persistent, one per multiprocessor: two or three warpgroups compute, and a last one
//   loads and stores for them. It leaves them most of its registers. A warp that stored for its
//   group would let the other three wait at the next products, which all four begin together.
// - Units (images or strips of their rows) stream through a ring of slots. Where rows of y are no
//   whole sectors, sums of a row tile may gather in a ring of stages, as in small_fma, from where
//   they are stored.
//
// Floor: the bytes of x and y, or the products: 6 clocks of one of the four schedulers for 16 x 8 x
// 8 by mma.sync, half as many as there are columns, but 13, of the multiprocessor for 64 x columns
// x 8 by wgmma. 4 -> 16, k7: 28 steps x 3 x 16 clocks for 128 pixels, 525 us for 10000 images
// at 1.75 GHz (25 steps by mma.sync: 704, and 1112 measured, since little overlaps there); 12 ->
// 24, k5: 843.
#include "core/element.cuh"
#include "kernels/small/few_channels.cuh"
#include "core/estimate.cuh"
#include "kernels/small/mma_store.cuh"
#include "kernels/small/mma_task.cuh"
#include "core/output.cuh"

namespace {

using namespace cf::small_mma;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Arrives `count` times.
__device__ __forceinline__ void arrive(cf::Barrier &barrier, uint32_t count) {
    asm volatile(
        "mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(cf::shared_address(&barrier.word)),
        "r"(count)
        : "memory");
}

// Stores into shared memory where `live`: a branch would cost more.
__device__ __forceinline__ void stage_one(uint32_t to, bool live, float v) {
    asm volatile("{\n.reg .pred live;\nsetp.ne.b32 live, %1, 0;\n"
                 "@live st.shared.f32 [%0], %2;\n}" ::"r"(to),
                 "r"(int(live)), "f"(v)
                 : "memory");
}
__device__ __forceinline__ void stage_two(uint32_t to, bool live, float v, float next) {
    asm volatile("{\n.reg .pred live;\nsetp.ne.b32 live, %1, 0;\n"
                 "@live st.shared.v2.f32 [%0], {%2, %3};\n}" ::"r"(to),
                 "r"(int(live)), "f"(v), "f"(next)
                 : "memory");
}
// Into global memory: the compiler makes two stores of some float2.
__device__ __forceinline__ void store_two(float *to, bool live, float v, float next) {
    asm volatile("{\n.reg .pred live;\nsetp.ne.b32 live, %1, 0;\n"
                 "@live st.global.v2.f32 [%0], {%2, %3};\n}" ::"l"(to),
                 "r"(int(live)), "f"(v), "f"(next)
                 : "memory");
}

// A thread's registers from here on, for all four warps of a warpgroup.
template <int Registers>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
#endif

template <int Index, bool Three>
__global__ void __launch_bounds__(Forms[Index].threads(), 1)
    small_mma_kernel(const Cut cut, const float *__restrict__ x, const float *__restrict__ packed,
                     float *__restrict__ y, const cf::Finish finish) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr Form F = Forms[Index];
    using T = std::conditional_t<F.group, GroupTask<Index, Three>, WarpTask<Index, Three>>;
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ cf::Barrier full[MaxSlots], empty[MaxSlots];
    __shared__ cf::Barrier gathered[MaxStages], freed[MaxStages];
    __shared__ int taken; // tasks
    const uint32_t base = cf::shared_address(shared);
    const uint32_t stages = cut.slots * cut.slot;
    const uint32_t weights = stages + cut.stages * cut.stage;
    int *const places = reinterpret_cast<int *>(shared + weights + cut.weights);
    constexpr int Computing = F.warpgroups * 4; // warps; four more load and store
    // Reductions tell the compiler that all lanes have the same.
    const int warp = int(__reduce_max_sync(~0u, threadIdx.x / 32));
    const int lane = threadIdx.x % 32;

    // This block's units are blockIdx.x, blockIdx.x + gridDim.x, ...
    const int units = int(__reduce_max_sync(
        ~0u, (cut.units - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x)));
    const auto unit = [&](int m) { return int(blockIdx.x) + m * int(gridDim.x); };
    const auto slot_of = [&](int m) { return m - cut.by_slots.quotient(m) * cut.slots; };
    const int helper = warp - Computing;

    const auto load = [&](int m) {
        const int u = unit(m), n = cut.by_strips.quotient(u);
        const int top = (u - n * cut.strips) * cut.tiles * cut.height * cut.stride_h - cut.pad_top;
        const int64_t area = int64_t(cut.h) * cut.wide;
        const float *from = x + int64_t(n) * cut.planes * area;
        const uint32_t to = base + slot_of(m) * cut.slot;
        cf::Barrier &barrier = full[slot_of(m)];
        if (cut.bulks > 0) {
            if (lane == 0) { // of one warp
                const int64_t skipped = int64_t(top) * cut.wide;
                const auto bytes = uint32_t(min(cut.bulk, cut.end - skipped * 4));
                barrier.arrive_and_expect(bytes * cut.bulks);
#pragma unroll 1
                for (int c = 0; c < cut.bulks; ++c)
                    cf::copy_bulk(to + c * cut.plane, from + c * area + skipped, bytes, barrier);
            }
            return;
        }
        for (int c = 0; c < cut.planes; ++c) {
            uint32_t there = to + c * cut.plane + helper * cut.pitch + cut.left + lane * cut.piece;
            const float *row =
                from + c * area + int64_t(top + helper) * cut.wide + lane * (cut.piece / 4);
#pragma unroll 2
            for (int h = top + helper; h < top + cut.rows; h += cut.loaders) {
                const bool live = h >= 0 && h < cut.h;
#pragma unroll 2
                for (int e = lane; e < cut.row_pieces; e += 32) {
                    const int along = (e - lane) * cut.piece;
                    const float *piece = live ? row + along / 4 : x;
                    if (cut.piece == 16)
                        cf::copy16_async(there + along, piece, live);
                    else
                        cf::copy4_async(there + along, piece, live);
                }
                row += cut.loaders * cut.wide;
                there += cut.loaders * cut.pitch;
            }
        }
        barrier.arrive_after_copies();
    };

    int loaded = 0;
    if (helper == 0) {
        if (lane < cut.slots) {
            full[lane].init(cut.bulks > 0 ? 1 : cut.loaders * 32);
            empty[lane].init(Computing * 32);
        }
        if (lane < cut.stages) {
            gathered[lane].init(cut.across * 32);
            freed[lane].init((4 - cut.loaders) * 32);
        }
        cf::publish_barriers();
        __syncwarp();
        for (; cut.bulks > 0 && loaded < min(units, cut.slots); ++loaded)
            load(loaded);
    }
    if (threadIdx.x == 0)
        taken = 0;
    const int lines = cut.slots * cut.planes * cut.rows;
    for (int i = threadIdx.x; cut.bulks == 0 && i < lines; i += F.threads()) {
        // The columns of the padding are written only here.
        const int slot = i / (cut.planes * cut.rows), line = i - slot * (cut.planes * cut.rows);
        auto *row =
            reinterpret_cast<float *>(shared + slot * cut.slot + line * cut.pitch + cut.left);
        for (int j = 1; j <= cut.zeros_left; ++j)
            row[-j] = 0;
        for (int j = 0; j < cut.zeros_right; ++j)
            row[cut.wide + j] = 0;
    }
    for (uint32_t i = threadIdx.x * 16; i < cut.weights; i += F.threads() * 16)
        *reinterpret_cast<uint4 *>(shared + weights + i) =
            *reinterpret_cast<const uint4 *>(packed + i / 4);
    cf::publish_to_bulk_copies(); // wgmma reads them the same way
    const Order &order = cut.order;
    const int count = F.reach == 1 ? 8 * order.steps : 4 * (2 * order.full + order.odd);
    for (int i = threadIdx.x; i < count; i += F.threads()) {
        const Order::Tap tap =
            F.reach == 1 ? order.tap(1, i / 8, i / 4 % 2, i % 4) : order.element(i, 0);
        places[i] =
            tap.r * cut.pitch + tap.s * cut.pixel + tap.c * (order.nhwc ? uint32_t(4) : cut.plane);
    }
    __syncthreads();
    // Where row tile `line` of this block's units begins in output channel 0: image and row.
    struct Place {
        int n, row;
    };
    const auto place_of = [&](int line) {
        const int m = cut.by_tiles.quotient(line), u = unit(m), n = cut.by_strips.quotient(u);
        return Place{n, ((u - n * cut.strips) * cut.tiles + line - m * cut.tiles) * cut.height};
    };
    const int area = cut.p * cut.q;

    if (helper >= 0) {
        give_registers<F.helpers_registers()>();
        if (helper < cut.loaders) {
            for (int m = loaded; m < units; ++m) {
                if (m >= cut.slots)
                    empty[slot_of(m)].wait((cut.by_slots.quotient(m) - 1) & 1);
                load(m);
            }
            // Nobody leaves before its copies have arrived.
            asm volatile("cp.async.wait_all;" ::: "memory");
            return;
        }
        if (cut.stages > 0)
            store_items(cut, F.rows, shared, stages, gathered, freed, y, helper - cut.loaders,
                        lane);
        return;
    }
    take_registers<F.registers()>();

    int ready = 0, passed = 0; // units that were waited for, and that were handed back
    const auto wait_next = [&] {
        full[slot_of(ready)].wait(cut.by_slots.quotient(ready) & 1);
        ++ready;
    };
    // In turn: an arrival for a unit that is not there yet would count for the slot's last one.
    const auto pass_next = [&] {
        if (ready == passed)
            wait_next();
        empty[slot_of(passed)].arrive();
        ++passed;
    };

    const int total = units * cut.columns;
    const int tasks = (total + F.columns() - 1) / F.columns() * cut.groups;
    // A warp's columns, the last of a block may have none, and the first and last line they touch.
    struct Columns {
        int group, begin, end, first, last;
    };
    const auto columns_of = [&](int task) {
        constexpr int Mine = 8 * F.pixels();
        // Mostly there is one group.
        const int block = cut.groups == 1 ? task : cut.by_groups.quotient(task);
        const int group = task - block * cut.groups;
        const int begin = block * F.columns() + (F.group ? warp % 4 * Mine : 0);
        const int end = min(begin + Mine, total);
        return Columns{group, begin, end, cut.by_across.quotient(min(begin, total - 1)),
                       cut.by_across.quotient(end - 1)};
    };
    for (int turn = 0;; ++turn) {
        int task = turn * F.warpgroups + warp / 4; // of a group; its warps need not agree
        if constexpr (!F.group) {
            if (lane == 0)
                task = atomicAdd(&taken, 1);
            task = int(__reduce_max_sync(~0u, unsigned(lane == 0 ? task : 0)));
        }
        if (task >= tasks)
            break;
        T work;
        uint32_t at[T::Pixels];
        {
            const int g = lane / 4, t = lane % 4;
            const Columns own = columns_of(task);
            while (passed < cut.by_tiles.quotient(own.first))
                pass_next();
            while (ready <= cut.by_tiles.quotient(own.last))
                wait_next();

            work.shared = shared;
            work.places = places + t;
            const int64_t skipped = int64_t(own.group) * order.steps * T::StepFloats;
            if constexpr (F.group)
                // A reduction tells the compiler that all lanes have the same: products read
                // descriptors from uniform registers.
                work.weights =
                    T::descriptor(__reduce_max_sync(~0u, base + weights + uint32_t(skipped) * 4));
            else
                work.weights =
                    (cut.weights ? reinterpret_cast<const float *>(shared + weights) : packed) +
                    skipped + lane * T::Regs;
            work.pitch = cut.pitch;
            // The last columns of a block repeat the very last one.
#pragma unroll
            for (int v = 0; v < T::Pixels; ++v) {
                const int column = min(own.begin + g + 8 * v, total - 1);
                const int line = cut.by_across.quotient(column);
                const int m = cut.by_tiles.quotient(line), tile = line - m * cut.tiles;
                at[v] = slot_of(m) * cut.slot + tile * (cut.height * cut.stride_h) * cut.pitch +
                        cut.begin + (column - line * cut.across) * cut.step;
            }
            if constexpr (!F.tall)
                run(work, order, at, cut.stride_h * cut.pitch);
        }
        // Registers are few up to here: columns are worked out anew, and where there are three
        // warpgroups, what follows from the lane.
        int self = lane;
        if constexpr (F.warpgroups == 3)
            asm volatile("" : "+r"(self));
        asm volatile("" : "+r"(task));
        const int g = self / 4, t = self % 4;
        const Columns own = columns_of(task);
        const int group = own.group, begin = own.begin, end = own.end;
        const int first = own.first, last = own.last;

        // A lane's sums of a tile are two columns (e) by two channels or neighbours (o).
        const auto index = [](int e, int o) { return F.pixel_rows ? 2 * e + o : e + 2 * o; };
        // With neighbours o is a pixel, and the lane's first one is 2 t modulo their number.
        const bool alone = order.neighbours == 1;
        const int shift = __ffs(order.neighbours) - 1;
        // Of the group: what lanes differ in, and the rest.
        const int mine = F.pixel_rows ? 2 * t >> shift : g;
        const auto others = [&](int i, int o) {
            return F.pixel_rows ? (i * 8 >> shift) + (alone ? o : 0) : i * 16 + 8 * o;
        };
        const auto channel = [&](int i, int o) { return mine + others(i, o); };
        // Within an image elements are counted in 31 bits.
        const int step_k = order.nhwc ? 1 : area;
        const int step_q = order.nhwc ? cut.k : 1;
        const int step_row = cut.q * step_q;
        float *to[2]; // in y, of the first row in the lane's first channel
        int rows[2];  // that are stored
        int from[2];  // line
        uint32_t along[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int column = begin + (F.pixel_rows ? g + 8 * e : 2 * t + e);
            const int line = cut.by_across.quotient(min(column, total - 1));
            const Place place = place_of(line);
            from[e] = line;
            along[e] = (column - line * cut.across) * order.neighbours +
                       (F.pixel_rows ? 2 * t & (order.neighbours - 1) : 0);
            to[e] = y + int64_t(place.n) * (cut.k * area) +
                    (place.row * step_row + int(along[e]) * step_q +
                     (group * cut.channels + mine) * step_k);
            rows[e] = column < total ? cut.p - place.row : 0;
        }
        const int channels = cut.k - group * cut.channels;
        const auto ahead = [&](int i, int o) { // elements
            return others(i, o) * step_k + (alone ? 0 : o * step_q);
        };
        const auto height = [&](int e, int i, int o) { // rows that are stored
            return channel(i, o) < channels ? rows[e] : 0;
        };

        const auto finish_sums = [&] {
            if (!finish.affine && !finish.residual && !finish.limited)
                return;
#pragma unroll
            for (int i = 0; i < F.tiles; ++i) {
#pragma unroll
                for (int o = 0; o < 2; ++o) {
                    const int k = channel(i, o);
                    const float bias =
                        finish.bias && k < channels ? finish.bias[group * cut.channels + k] : 0.0f;
#pragma unroll
                    for (int row = 0; row < F.rows; ++row) {
#pragma unroll
                        for (int e = 0; e < 2; ++e) {
                            float &v = work.sum[row][i].value[index(e, o)];
                            if (finish.affine)
                                v = fmaf(finish.scale, v, bias);
                            if (finish.residual && row < height(e, i, o))
                                v += static_cast<const float *>(
                                    finish.residual)[to[e] - y + ahead(i, o) + row * step_row];
                            v = cf::between(v, finish.least, finish.most);
                        }
                    }
                }
            }
        };
        // Calls with each sum's tile, channel (o) and column (e), or with the first of two sums
        // that lie next to each other in y.
        const auto each = [&](auto body) {
            const auto walk = [&](auto paired) {
#pragma unroll
                for (int i = 0; i < F.tiles; ++i)
#pragma unroll
                    for (int o = 0; o < 2; ++o)
#pragma unroll
                        for (int e = 0; e < 2; ++e)
                            if (!paired.value || index(e, o) % 2 == 0)
                                body(paired, i, o, e);
            };
            if (cut.paired)
                walk(std::true_type());
            else
                walk(std::false_type());
        };
        const auto store = [&] {
            each([&](auto paired, int i, int o, int e) {
                const int high = height(e, i, o);
                float *there = to[e] + ahead(i, o);
#pragma unroll
                for (int row = 0; row < F.rows; ++row) {
                    const float *v = work.sum[row][i].value + index(e, o);
                    if constexpr (paired.value)
                        store_two(there, row < high, v[0], v[1]);
                    else if (row < high)
                        *there = v[0];
                    there += step_row;
                }
            });
        };

        if constexpr (F.tall) {
            const int most = __reduce_max_sync(~0u, max(max(rows[0], rows[1]), 0));
            work.descend(at, min(most, cut.height), [&] {
                finish_sums();
                store();
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    to[e] += F.rows * step_row, rows[e] -= F.rows;
            });
            continue;
        }
        finish_sums();
        if (cut.stages > 0) {
            // Stages are taken in the order of items, so the first item that is not whole yet waits
            // for nobody.
            const int item = first * cut.groups + group;
            const int turn = cut.by_stages.quotient(item), stage = item - turn * cut.stages;
            const auto stage_of = [&](int line) { // counted on into the next turn
                return stage + (line - first) * cut.groups;
            };
            const auto wrap = [&](int stage) {
                return stage < cut.stages ? stage : stage - cut.stages;
            };
            for (int line = first; line <= last && begin < end; ++line) {
                const int before = turn - (stage_of(line) < cut.stages);
                if (before >= 0)
                    freed[wrap(stage_of(line))].wait(before & 1);
            }
            const uint32_t row_bytes = cut.q * 4;
            uint32_t there[2],
                origin[2]; // of the lane's first channel: in the stage, its plane in y
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                there[e] = base + stages + wrap(stage_of(from[e])) * cut.stage +
                           mine * cut.stage_plane + along[e] * 4;
                origin[e] = uint32_t(uint64_t(to[e])) - along[e] * 4;
            }
            each([&](auto paired, int i, int o, int e) {
                // A plane begins as far behind a sector as its place in y does.
                const uint32_t at = there[e] + others(i, o) * cut.stage_plane +
                                    ((origin[e] + uint32_t(others(i, o) * area) * 4) & 31) +
                                    (alone ? 0 : o * 4);
                const bool live = height(e, i, o) > 0;
#pragma unroll
                for (int row = 0; row < F.rows; ++row) {
                    const float *v = work.sum[row][i].value + index(e, o);
                    if constexpr (paired.value)
                        stage_two(at + row * row_bytes, live, v[0], v[1]);
                    else
                        stage_one(at + row * row_bytes, live, v[0]);
                }
            });
            cf::publish_to_bulk_copies();
            for (int line = first; line <= last && begin < end; ++line)
                arrive(gathered[wrap(stage_of(line))],
                       min(end, (line + 1) * cut.across) - max(begin, line * cut.across));
            continue;
        }
        store();
    }
    while (passed < units - cut.slots) // later ones nobody waits for
        pass_next();
#endif
}

// Writes each weight to all its places, split.
__global__ void pack_kernel(const float *__restrict__ w, float *__restrict__ packed,
                            const Order order, const Form form, bool three, int channels, int k,
                            int64_t floats) {
    const int64_t step = int64_t(gridDim.x) * blockDim.x;
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < floats; i += step) {
        const Weight at = weight_at(order, form, three, channels, i);
        float v = 0;
        if (at.live && at.k < k)
            v = w[order.nhwc
                      ? ((int64_t(at.k) * order.r + at.r) * order.s + at.s) * order.c + at.c
                      : ((int64_t(at.k) * order.c + at.c) * order.r + at.r) * order.s + at.s];
        const float hi = cf::Sum<CF_MATH_TF32>::operand(v);
        packed[i] = at.lo ? cf::Sum<CF_MATH_TF32>::operand(v - hi) : hi;
    }
}

int32_t supports(const cf_call *call, char *why, uint64_t bytes) {
    const cf_problem &p = call->problem;
    if (p.storage != CF_STORE_F32 || (p.math != CF_MATH_FP32 && p.math != CF_MATH_TF32))
        return cf::no(why, bytes, "multiplies f32 elements in math fp32 or tf32");
    if (!cf::has_few_channels(p, why, bytes))
        return 0;
    if (const double products = mean_products(p); p.math == CF_MATH_FP32 && products < MinProducts)
        return cf::no(why, bytes,
                      "rounds each product a little more than fp32 does, which shows in sums of "
                      "fewer than %d products; this has %.1f on average, padding not counted (math "
                      "tf32 has no such limit)",
                      MinProducts, products);
    if (p.r > MaxFilter || p.s > MaxFilter)
        return cf::no(why, bytes, "takes filters up to %d x %d; this is %d x %d", MaxFilter,
                      MaxFilter, p.r, p.s);
    if (double(p.k) * p.p * p.q > (1 << 30) || double(p.c) * p.h * p.w > (1 << 30) ||
        double(p.n) * p.p * p.q * p.k > double(int64_t(1) << 36))
        return cf::no(why, bytes, "counts within an image in 31 bits, too few for this problem");
    if (plan_of(call).choice.form < 0)
        return cf::no(why, bytes,
                      "keeps two strips of %d channels, %d columns and all rows that a row tile of "
                      "outputs needs in shared memory, which has %d bytes, and counts columns of "
                      "pixels in 31 bits",
                      p.c, p.w, call->device.shared_per_block);
    return 1;
}

cf_bytes workspace(const cf_call *call) {
    return cf::sums_workspace(call, cf::sums_follow(call->problem));
}

uint64_t packed_bytes(const cf_call *call) { return uint64_t(choice_of(call).floats) * 4; }

int32_t pack(const cf_call *call, void *packed) {
    const Choice choice = choice_of(call);
    pack_kernel<<<cf::blocks(choice.floats, 256), 256, 0, cf::stream(call)>>>(
        static_cast<const float *>(call->w), static_cast<float *>(packed), choice.order,
        Forms[choice.form], choice.three, choice.channels, call->problem.k, choice.floats);
    return cudaGetLastError();
}

template <int Index, bool Three>
int32_t start(const cf_call *call, const Cut &cut, const float *x, float *y,
              const cf::Finish &finish) {
    auto *kernel = small_mma_kernel<Index, Three>;
    // All there is, so that launches of other sizes at the same time do not undo it.
    if (const cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 call->device.shared_per_block - 2048))
        return error;
    const size_t shared = size_t(cut.slots) * cut.slot + size_t(cut.stages) * cut.stage +
                          cut.weights +
                          4 * places(choose(call->problem, Index, cut.order.neighbours));
    const auto grid = unsigned(std::min(cut.units, call->device.sm_count));
    kernel<<<grid, Forms[Index].threads(), shared, cf::stream(call)>>>(
        cut, x, static_cast<const float *>(call->packed), y, finish);
    return cudaGetLastError();
}

template <int Index = 0>
int32_t start_form(int form, const cf_call *call, const Cut &cut, const float *x, float *y,
                   const cf::Finish &finish) {
    if constexpr (Index < FormCount) {
        if (form != Index)
            return start_form<Index + 1>(form, call, cut, x, y, finish);
        return call->problem.math == CF_MATH_FP32 ? start<Index, true>(call, cut, x, y, finish)
                                                  : start<Index, false>(call, cut, x, y, finish);
    }
    return cudaErrorInvalidValue; // `supports` refuses what has no form
}

int32_t run(const cf_call *call, int64_t first, int64_t count, float *sums) {
    cf_call part = *call;
    part.problem.n = count;
    const cf_problem &p = part.problem;
    const Plan plan = plan_of(&part);
    Cut cut = plan.cut;
    cut.by_across = cf::Divisor(cut.across);
    cut.by_tiles = cf::Divisor(cut.tiles);
    cut.by_groups = cf::Divisor(cut.groups);
    cut.by_strips = cf::Divisor(cut.strips);
    cut.by_slots = cf::Divisor(cut.slots);
    cut.by_stages = cf::Divisor(std::max(cut.stages, 1));
    const float *x = static_cast<const float *>(call->x) + first * p.c * p.h * p.w;
    float *y = sums ? sums : static_cast<float *>(call->y);
    const cf::Finish finish = sums ? cf::Finish() : cf::finish_of(call);
    return start_form(plan.choice.form, &part, cut, x, y, finish);
}

int32_t launch(const cf_call *call) {
    const auto body = [&](int64_t first, int64_t count, float *sums) {
        return run(call, first, count, sums);
    };
    return cf::with_sums(call, "small", body, cf::sums_follow(call->problem));
}

// Assumes 1.75 GHz. `clocks` compares cuts with each other; what a cut takes is fitted to the
// layers of docs/kernels/small.md.
double rank(const cf_call *call) {
    const cf_problem &p = call->problem;
    const Plan plan = plan_of(call);
    const bool nchw = p.layout == CF_NCHW;
    const double fitted = (nchw && p.math == CF_MATH_FP32 ? 0.85 : 1) * (plan.cut.stages ? 0.7 : 1);
    return cf::ShortLaunchUs + fitted * plan.clocks / 1750 +
           (cf::sums_follow(p) ? cf::finish_us(p) : 0);
}

} // namespace

extern "C" const cf_row small_mma = {
    "small_mma",
    "small",
    "few channels on tensor cores: fp32 by three TF32 products, images streamed through shared "
    "memory",
    "this project; three products as in CUTLASS, example 27",
    90,
    90, // wgmma
    nullptr,
    supports,
    workspace,
    packed_bytes,
    pack,
    nullptr, // bind
    rank,
    launch,
};
