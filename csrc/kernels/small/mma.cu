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
// - For fewer a warp works by itself with mma.sync, weights of the step in registers.
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
#include "device/element.cuh"
#include "device/few_channels.cuh"
#include "device/rank.cuh"
#include "device/small_mma_task.cuh"
#include "device/sums.cuh"

namespace {

using namespace cf::small_mma;

// The part of the epilogue that costs an instruction or two: the largest of least and
// scale * sum + bias + residual, and the smaller of that and most.
struct Finish {
    float scale;
    const float *bias, *residual;
    float least, most;
    bool affine, limited;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Arrives `count` times.
__device__ __forceinline__ void arrive(cf::Barrier &barrier, uint32_t count) {
    asm volatile(
        "mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(cf::shared_address(&barrier.word)),
        "r"(count)
        : "memory");
}

// Waits until of this thread's groups of bulk stores, one of which ends here, all but `Last` have
// read what they store.
template <int Last>
__device__ __forceinline__ void end_stores_and_wait() {
    asm volatile("cp.async.bulk.commit_group;\n"
                 "cp.async.bulk.wait_group.read %0;" ::"n"(Last)
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
                     float *__restrict__ y, const Finish finish) {
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
    // A reduction tells the compiler that all lanes have the same.
    const int warp = int(__reduce_max_sync(~0u, threadIdx.x / 32));
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;

    // This block's units are blockIdx.x, blockIdx.x + gridDim.x, ...
    const int units = (cut.units - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x);
    const auto unit = [&](int m) { return int(blockIdx.x) + m * int(gridDim.x); };
    const auto slot_of = [&](int m) { return m - cut.by_slots.quotient(m) * cut.slots; };
    const int helper = warp - Computing;

    const auto load = [&](int m) {
        const int u = unit(m), n = cut.by_strips.quotient(u);
        const int top = (u - n * cut.strips) * cut.tiles * F.rows * cut.stride_h - cut.pad_top;
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
        return Place{n, ((u - n * cut.strips) * cut.tiles + line - m * cut.tiles) * F.rows};
    };
    const int64_t area = int64_t(cut.p) * cut.q;

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
        if (cut.stages == 0)
            return;
        // Items are stored in order, each by all storing warps, so that stages are handed back in
        // order. Eight lanes store a plane: its whole sectors as one bulk copy, the elements before
        // and behind them one by one.
        const int storer = helper - cut.loaders, storers = 4 - cut.loaders;
        int stage = 0, turn = 0;
        for (int line = 0; line < units * cut.tiles; ++line) {
            const Place place = place_of(line);
            const int bytes = max(min(cut.p - place.row, F.rows), 0) * cut.q * 4;
            for (int group = 0; group < cut.groups; ++group) {
                const int channels = min(cut.channels, cut.k - group * cut.channels);
                const float *const planes =
                    y + (int64_t(place.n) * cut.k + group * cut.channels) * area +
                    place.row * cut.q;
                gathered[stage].wait(turn & 1);
                for (int k = storer * 4 + lane / 8; k < channels; k += storers * 4) {
                    const uint64_t begin = __cvta_generic_to_global(planes + k * area);
                    const uint64_t end = begin + bytes;
                    const uint64_t first = (begin + 31) & ~uint64_t(31), last = end & ~uint64_t(31);
                    const uint64_t before = begin + lane % 8 * 4;
                    const uint64_t behind = max(first, last) + lane % 8 * 4;
                    const uint32_t from = stages + stage * cut.stage + k * cut.stage_plane +
                                          uint32_t(begin & 15) - uint32_t(begin);
                    const auto copy = [&](uint64_t at) {
                        *reinterpret_cast<float *>(__cvta_global_to_generic(at)) =
                            *reinterpret_cast<const float *>(shared + (from + uint32_t(at)));
                    };
                    if (lane % 8 == 0 && first < last)
                        cf::store_bulk(first, base + from + uint32_t(first),
                                       uint32_t(last - first));
                    if (before < min(first, end))
                        copy(before);
                    if (behind < end)
                        copy(behind);
                }
                // An item's stage is handed back when the next one's copies have begun.
                end_stores_and_wait<1>();
                if (stage + turn > 0)
                    freed[stage > 0 ? stage - 1 : cut.stages - 1].arrive();
                if (++stage == cut.stages)
                    stage = 0, ++turn;
            }
        }
        end_stores_and_wait<0>();
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
        {
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
            uint32_t at[T::Pixels];
#pragma unroll
            for (int v = 0; v < T::Pixels; ++v) {
                const int column = min(own.begin + g + 8 * v, total - 1);
                const int line = cut.by_across.quotient(column);
                const int m = cut.by_tiles.quotient(line), tile = line - m * cut.tiles;
                at[v] = slot_of(m) * cut.slot + tile * (F.rows * cut.stride_h) * cut.pitch +
                        cut.begin + (column - line * cut.across) * cut.step;
            }
            run(work, order, at, cut.stride_h * cut.pitch);
        }
        // Registers are few up to here: columns are worked out anew.
        asm volatile("" : "+r"(task));
        const Columns own = columns_of(task);
        const int group = own.group, begin = own.begin, end = own.end;
        const int first = own.first, last = own.last;

        // A lane's sums of a tile are two columns (e) by two channels or neighbours (o).
        const auto index = [](int e, int o) { return F.pixel_rows ? 2 * e + o : e + 2 * o; };
        // With neighbours o is a pixel, and the lane's first one is 2 t modulo their number.
        const bool alone = order.neighbours == 1;
        const int shift = __ffs(order.neighbours) - 1;
        const auto channel = [&](int i, int o) { // of the group
            return F.pixel_rows ? (i * 8 + 2 * t + (alone ? o : 0)) >> shift : i * 16 + g + 8 * o;
        };
        const int64_t step_k = order.nhwc ? 1 : area;
        const int step_q = order.nhwc ? cut.k : 1;
        const int step_row = order.nhwc ? cut.q * cut.k : cut.q;
        int64_t to[2]; // in y, of the first row in output channel group * channels
        int rows[2];   // that are stored
        int from[2];   // line
        uint32_t along[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int column = begin + (F.pixel_rows ? g + 8 * e : 2 * t + e);
            const int line = cut.by_across.quotient(min(column, total - 1));
            const Place place = place_of(line);
            from[e] = line;
            along[e] = (column - line * cut.across) * order.neighbours +
                       (F.pixel_rows ? 2 * t & (order.neighbours - 1) : 0);
            const int64_t pixel = (int64_t(place.n) * cut.p + place.row) * cut.q + along[e];
            to[e] = order.nhwc ? pixel * cut.k : pixel + int64_t(place.n) * (cut.k - 1) * area;
            to[e] += group * cut.channels * step_k;
            rows[e] = column < total ? cut.p - place.row : 0;
        }
        const int channels = cut.k - group * cut.channels;
        const auto place = [&](int e, int i, int o) {
            return to[e] + channel(i, o) * step_k + (alone ? 0 : o * step_q);
        };
        const auto height = [&](int e, int i, int o) { // rows that are stored
            return channel(i, o) < channels ? rows[e] : 0;
        };

        if (finish.affine || finish.residual || finish.limited) {
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
                                v += finish.residual[place(e, i, o) + row * step_row];
                            v = cf::between(v, finish.least, finish.most);
                        }
                    }
                }
            }
        }

        if (cut.stages > 0) {
            // Stages are taken in the order of items, so the first item that is not whole yet waits
            // for nobody.
            const auto turn_of = [&](int line) {
                return cut.by_stages.quotient(line * cut.groups + group);
            };
            const auto stage_of = [&](int line) {
                return line * cut.groups + group - turn_of(line) * cut.stages;
            };
            for (int line = first; line <= last && begin < end; ++line)
                if (const int turn = turn_of(line); turn > 0)
                    freed[stage_of(line)].wait((turn - 1) & 1);
            // A plane begins as far behind a multiple of 16 bytes as its place in y does.
            const auto there = [&](int e, int i, int o) {
                const auto origin = uint32_t(uint64_t(y + to[e] - along[e]));
                const uint32_t k = channel(i, o);
                return shared + stages + stage_of(from[e]) * cut.stage + k * cut.stage_plane +
                       ((origin + k * uint32_t(area) * 4) & 15) + (along[e] + (alone ? 0 : o)) * 4;
            };
#pragma unroll
            for (int i = 0; i < F.tiles; ++i) {
#pragma unroll
                for (int pair = 0; pair < 2; ++pair) {
                    if (cut.paired) {
                        const int e = F.pixel_rows ? pair : 0, o = F.pixel_rows ? 0 : pair;
                        const bool live = height(e, i, o) > 0;
                        unsigned char *at = there(e, i, o);
#pragma unroll
                        for (int row = 0; row < F.rows; ++row) {
                            const auto &v = work.sum[row][i].value;
                            if (live)
                                *reinterpret_cast<float2 *>(at + row * cut.q * 4) =
                                    make_float2(v[2 * pair], v[2 * pair + 1]);
                        }
                        continue;
                    }
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        const bool live = height(e, i, pair) > 0;
                        unsigned char *at = there(e, i, pair);
#pragma unroll
                        for (int row = 0; row < F.rows; ++row)
                            if (live)
                                *reinterpret_cast<float *>(at + row * cut.q * 4) =
                                    work.sum[row][i].value[index(e, pair)];
                    }
                }
            }
            cf::publish_to_bulk_copies();
            for (int line = first; line <= last && begin < end; ++line)
                arrive(gathered[stage_of(line)],
                       min(end, (line + 1) * cut.across) - max(begin, line * cut.across));
            continue;
        }
        if (cut.paired) {
#pragma unroll
            for (int i = 0; i < F.tiles; ++i) {
#pragma unroll
                for (int pair = 0; pair < 2; ++pair) {
                    const int e = F.pixel_rows ? pair : 0, o = F.pixel_rows ? 0 : pair;
                    const int high = height(e, i, o);
                    float *there = y + place(e, i, o);
#pragma unroll
                    for (int row = 0; row < F.rows; ++row) {
                        const auto &v = work.sum[row][i].value;
                        if (row < high)
                            *reinterpret_cast<float2 *>(there) =
                                make_float2(v[2 * pair], v[2 * pair + 1]);
                        there += step_row;
                    }
                }
            }
            continue;
        }
#pragma unroll
        for (int i = 0; i < F.tiles; ++i) {
#pragma unroll
            for (int o = 0; o < 2; ++o) {
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const int high = height(e, i, o);
                    float *there = y + place(e, i, o);
#pragma unroll
                    for (int row = 0; row < F.rows; ++row) {
                        if (row < high)
                            *there = work.sum[row][i].value[index(e, o)];
                        there += step_row;
                    }
                }
            }
        }
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

// Pooling, and activations that are not a comparison or two, are left to the shared pass.
bool sums_follow(const cf_problem &p) {
    return p.epilogue.pool_h || p.epilogue.activation > CF_ACT_RELU6;
}

cf_bytes workspace(const cf_call *call) {
    return cf::sums_workspace(call, sums_follow(call->problem));
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
int32_t start(const cf_call *call, const Cut &cut, const float *x, float *y, const Finish &finish) {
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
                   const Finish &finish) {
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
    const int64_t skipped = first * p.k * p.p * p.q;
    float *y = sums ? sums : static_cast<float *>(call->y) + skipped;
    Finish finish = {1, nullptr, nullptr, -INFINITY, INFINITY, false, false};
    if (!sums) {
        const cf_epilogue &e = p.epilogue;
        const auto *residual = static_cast<const float *>(call->residual);
        finish.scale = e.scale;
        finish.bias = e.bias ? call->bias : nullptr;
        finish.residual = e.residual ? residual + skipped : nullptr;
        finish.affine = e.bias || e.scale != 1;
        finish.limited = e.activation != CF_ACT_NONE;
        if (finish.limited)
            finish.least = 0;
        if (e.activation == CF_ACT_RELU6)
            finish.most = 6;
    }
    return start_form(plan.choice.form, &part, cut, x, y, finish);
}

int32_t launch(const cf_call *call) {
    const auto body = [&](int64_t first, int64_t count, float *sums) {
        return run(call, first, count, sums);
    };
    return cf::with_sums(call, "small", body, sums_follow(call->problem));
}

// Assumes 1.75 GHz.
double rank(const cf_call *call) {
    const cf_problem &p = call->problem;
    return cf::ShortLaunchUs + plan_of(call).clocks / 1750 +
           (sums_follow(p) ? cf::finish_us(p) : 0);
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
