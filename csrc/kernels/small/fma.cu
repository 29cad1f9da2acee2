// small_fma: few channels in exact fp32, at the rate of the multiply-add units.
//
// With 1 to 32 channels on either side a matrix product has nothing to tile: 4 output channels fill
// a quarter of a 16-wide tile. So the tile is made of pixels instead. A thread owns a column of
// Rows output pixels in Maps = 4 output channels, up to 116 sums in registers. For one (input
// channel, filter column) it reads the Rows + R - 1 inputs below each other that its column needs,
// and then R x Maps weights each meet Rows of them: one load per some twenty multiply-adds, and one
// weight per Rows.
//
// - Weights come from constant memory through uniform registers, two at a time, which leaves the
//   vector registers' ports to the multiply-adds (weights=constant; weights=shared reads them as
//   broadcast 16-byte words instead, and needs no constant symbol).
// - The loop over (channel, filter column) is not unrolled, so that its body, R x 4 x Rows
//   multiply-adds, stays within the instruction cache. Tall columns spread its loads and its
//   counting over more multiply-adds, but leave registers for fewer warps.
// - Lanes run along the columns: reads of shared memory and stores of y are contiguous.
// - Where rows of y are no whole sectors of 32 bytes, two warps would write to one, which costs the
//   memory far more than its bytes. There the sums of a row tile gather in shared memory, and the
//   loading warps store them from there by bulk copies.
// - With 3 x 3 filters a thread takes two adjacent columns of 7 rows instead (Wide = 2): they share
//   inputs, read as words of two or four, and store words of two.
// - Blocks are persistent, one per multiprocessor. A warp of its own streams units (images, or
//   strips of their rows where images are few) into a ring of slots; the others compute. They
//   meet at no barrier of the block: a warp takes the next task, 32 columns in the block's row of
//   units and 4 output channels, waits for the units that it touches and hands back those that it
//   has passed. Where a block has few units that come by asynchronous copies, and all fit, there is
//   no such warp: all warps copy first, and then compute.
// - Few units go to more blocks where each takes one group of 4 output channels only (blockIdx.y).
// - A unit is one bulk copy, or one for each channel of a strip, where images are unpadded and
//   aligned to 16 bytes; otherwise asynchronous copies of 16 or 4 bytes, which also write the
//   zeros of the padding's rows. Its columns are zeroed once.
//
// The compiler takes uniform registers only where it can prove that a warp's lanes run together,
// and only when vector registers are short. Hence votes and reductions in all that steers a warp,
// no __syncwarp, and limits on the registers of a thread that leave few over (look for ULDC).
//
// Floor: 2 N K P Q C R S / 66.9 TFLOP/s, or the bytes of x and y.
#include "core/constant.cuh"
#include "kernels/small/few_channels.cuh"
#include "ptx/pipeline.cuh"
#include "core/estimate.cuh"
#include "kernels/small/fma_plan.cuh"
#include "kernels/small/fma.cuh"
#include "core/output.cuh"

namespace {

using namespace cf::small;

template <int R, int Rows, int Wide, int Stride, bool Constant>
constexpr int Warps = warps(R, {Rows, Wide}, Stride, Constant);

__constant__ __align__(16) float constant_filter[cf::ConstantBytes / sizeof(float)];
cf::Turns turns;

template <int R, int Rows, int Wide, int Stride, bool Constant>
__global__ void __launch_bounds__(Warps<R, Rows, Wide, Stride, Constant> * 32, 1)
    small_fma_kernel(const Cut cut, const float *__restrict__ x, const Filter filter,
                     float *__restrict__ y, const cf::Finish finish) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) float shared[];
    __shared__ cf::Barrier full[MaxSlots], empty[MaxSlots], gathered[MaxStages];
    // Turns of the ring of stages that were stored, the even and the odd ones apart: with one bit
    // each, a warp may be three turns ahead of the oldest stage (small.cuh sees to it).
    __shared__ cf::Barrier freed[2][MaxStages];
    __shared__ int taken; // tasks
    const uint32_t slots = cf::shared_address(shared);
    const uint32_t stages = slots + cut.slots * cut.slot;
    const uint32_t weights = stages + cut.stages * cut.stage; // where they are in shared memory
    constexpr int Threads = Warps<R, Rows, Wide, Stride, Constant> * 32;
    const int computing = Threads / 32 - cut.loaders; // warps; the others load
    const int warp = int(__reduce_max_sync(~0u, threadIdx.x / 32)), lane = threadIdx.x % 32;

    // This block's units are blockIdx.x, blockIdx.x + gridDim.x, ..., and of them cut.groups
    // groups.
    const int first_group = blockIdx.y * cut.groups;
    const int units = (cut.units - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x);
    const auto unit = [&](int m) { return int(blockIdx.x) + m * int(gridDim.x); };
    // Which of the ring's turns brings unit m, and into which slot.
    const auto turn_of = [&](int m) { return cut.by_slots.quotient(m); };
    const auto slot_of = [&](int m) { return m - turn_of(m) * cut.slots; };

    // Warps that copy: the loading ones, or all before they compute.
    const int copiers = cut.loaders ? cut.loaders : Threads / 32;
    const int copier = cut.loaders ? warp - computing : warp;
    const auto load = [&](int m) {
        const int u = unit(m), n = cut.by_strips.quotient(u);
        const int top = (u - n * cut.strips) * cut.tiles * (Rows * Stride) - cut.pad_top;
        const int64_t area = int64_t(cut.h) * cut.w;
        const float *from = x + n * cut.c * area;
        const uint32_t to = slots + slot_of(m) * cut.slot;
        cf::Barrier &barrier = full[slot_of(m)];
        if (cut.bulks > 0) {
            if (lane == 0 && copier == 0) {
                const int64_t skipped = int64_t(top) * cut.w;
                const auto bytes = uint32_t(min(cut.bulk, cut.end - skipped * 4));
                barrier.arrive_and_expect(bytes * cut.bulks);
#pragma unroll 1
                for (int c = 0; c < cut.bulks; ++c)
                    cf::copy_bulk(to + c * cut.plane, from + c * area + skipped, bytes, barrier);
            }
            return;
        }
#pragma unroll 2
        for (int e = copier * 32 + lane; e < cut.pieces; e += copiers * 32) {
            const int line = cut.by_row.quotient(e), piece = e - line * cut.row_pieces;
            const int c = cut.by_rows.quotient(line), h = top + line - c * cut.rows;
            const bool live = h >= 0 && h < cut.h;
            const float *row = from + c * area + (live ? int64_t(h) * cut.w : 0);
            const int along = piece * cut.piece;
            const uint32_t there = to + line * cut.pitch + cut.left + along;
            if (cut.piece == 16)
                cf::copy16_async(there, row + along / 4, live);
            else
                cf::copy4_async(there, row + along / 4, live);
        }
        barrier.arrive_after_copies();
    };

    // Where row tile `line` of this block's units begins in output channel 0: image and row.
    struct Place {
        int n, row;
    };
    const auto place_of = [&](int line) {
        const int m = cut.by_tiles.quotient(line), u = unit(m), n = cut.by_strips.quotient(u);
        return Place{n, ((u - n * cut.strips) * cut.tiles + line - m * cut.tiles) * Rows};
    };
    // Stores a gathered item, eight lanes to a plane: its whole sectors as one bulk copy, the
    // elements before and behind them one by one.
    const int64_t area = int64_t(cut.p) * cut.q;
    const auto store = [&](int item) {
        const int turn = cut.by_stages.quotient(item), stage = item - turn * cut.stages;
        const int line = cut.by_groups.quotient(item);
        const int map = (first_group + item - line * cut.groups) * Maps; // the first
        const int k = lane / 8, element = lane % 8;
        const Place place = place_of(line);
        const int rows = map + k < cut.k ? clamp(cut.p - place.row, 0, Rows) : 0;
        const uint64_t begin = __cvta_generic_to_global(
            y + (int64_t(place.n) * cut.k + map + k) * area + place.row * cut.q);
        const uint64_t end = begin + uint32_t(rows * cut.q) * 4;
        const uint64_t first = (begin + 31) & ~uint64_t(31), last = end & ~uint64_t(31);
        const uint64_t before = begin + element * 4, behind = max(first, last) + element * 4;
        const uint32_t from = stages + stage * cut.stage + k * cut.stage_plane +
                              uint32_t(begin & 15) - uint32_t(begin);
        gathered[stage].wait(turn & 1);
        if (element == 0 && first < last)
            cf::store_bulk(first, from + uint32_t(first), uint32_t(last - first));
        if (before < min(first, end))
            store_global(before, load_shared(from + uint32_t(before)));
        if (behind < end)
            store_global(behind, load_shared(from + uint32_t(behind)));
        cf::wait_for_stores_to_read();
        freed[turn & 1][stage].arrive();
    };

    // Each warp begins with the task of its number: taken from the count, the first ones would
    // gather on some of the four schedulers.
    if (threadIdx.x == 0)
        taken = computing;
    if (warp == min(computing, Threads / 32 - 1)) {
        if (lane < cut.slots) {
            full[lane].init(cut.bulks > 0 ? 1 : copiers * 32);
            empty[lane].init(computing * 32);
        }
        if (lane < cut.stages) {
            gathered[lane].init(cut.q);
            freed[0][lane].init(32);
            freed[1][lane].init(32);
        }
        cf::publish_barriers();
    }
    cf::let_next_kernel_begin();
    cf::wait_for_kernels_before();
    // What the bulk copies need is there; the others need to be told of the barriers.
    if (cut.bulks == 0) {
        // The columns of the padding are written only here.
        for (int i = threadIdx.x; i < cut.slots * cut.c * cut.rows; i += Threads) {
            const int slot = i / (cut.c * cut.rows), line = i - slot * (cut.c * cut.rows);
            float *row = shared + (slot * cut.slot + line * cut.pitch + cut.left) / 4;
            for (int j = 1; j <= cut.pad_left; ++j)
                row[-j] = 0;
            for (int j = 0; j < cut.pad_right; ++j)
                row[cut.w + j] = 0;
        }
        __syncthreads();
    }
    // Asked for before the images, behind which it would wait.
    const float *packed = filter.packed + blockIdx.y * filter.floats; // of the block's part
    float4 first_weights = {};
    if (!Constant && threadIdx.x * 4 < filter.floats)
        first_weights = load_global4(packed + threadIdx.x * 4);
    // Where warps of their own load, the others wait for the first unit to be on its way only.
    const int there = min(units, cut.slots), at_once = cut.loaders > 0 ? min(there, 1) : there;
    if (copier >= 0) {
        __syncwarp();
        for (int m = 0; m < at_once; ++m)
            load(m);
    }
    if (!Constant) {
        auto *to = reinterpret_cast<float4 *>(shared + (weights - slots) / 4);
        const auto *from = reinterpret_cast<const float4 *>(packed);
        if (threadIdx.x * 4 < filter.floats)
            to[threadIdx.x] = first_weights;
        for (int i = threadIdx.x + Threads; i * 4 < filter.floats; i += Threads)
            to[i] = from[i];
    }
    __syncthreads();

    if (warp >= computing) {
        for (int m = at_once; m < there; ++m)
            load(m);
        const int items = cut.stages ? cut.tiles * cut.groups : 0; // of a unit
        int item = warp - computing;                               // in turn with the other warp
        for (int m = 0; m < units; ++m) {
            for (; item < (m + 1) * items; item += cut.loaders)
                store(item);
            if (m + cut.slots < units) {
                empty[slot_of(m)].wait(turn_of(m) & 1);
                load(m + cut.slots);
            }
        }
        // Nobody leaves before its copies have arrived.
        asm volatile("cp.async.wait_all;" ::: "memory");
        return;
    }

    const int total = units * cut.columns;
    const int tasks = (cut.loaders ? (total + 31) / 32 : cut.blocks) * cut.groups;
    int ready = 0, passed = 0; // units that were waited for, and that were handed back
    const auto wait_next = [&] {
        full[slot_of(ready)].wait(turn_of(ready) & 1);
        ++ready;
    };
    // In turn: an arrival for a unit that is not there yet would count for the slot's last one.
    const auto pass_next = [&] {
        if (ready == passed)
            wait_next();
        empty[slot_of(passed)].arrive();
        ++passed;
    };
    const auto next = [&] {
        int task = 0;
        if (lane == 0)
            task = atomicAdd(&taken, 1);
        // A reduction's result is known to be the same in all lanes.
        return int(__reduce_max_sync(~0u, unsigned(task)));
    };
    for (int task = warp; task < tasks; task = next()) {
        // Constant weights stay in the nearest cache where a group's tasks follow each other. They
        // do where all units are there at once; otherwise units come one by one.
        int block, group;
        if (cut.loaders > 0) {
            block = cut.by_groups.quotient(task), group = task - block * cut.groups;
        } else {
            group = cut.by_blocks.quotient(task), block = task - group * cut.blocks;
        }
        const int begin = block * 32;
        if (begin >= total)
            continue;
        const int first = cut.by_across.quotient(begin); // line
        const int last = cut.by_across.quotient(min(begin + 31, total - 1));
        while (passed < cut.by_tiles.quotient(first))
            pass_next();
        while (ready <= cut.by_tiles.quotient(last))
            wait_next();

        // The last columns of a block repeat the very last one.
        const int column = min(begin + lane, total - 1);
        const int line = cut.by_across.quotient(column);
        const int q = (column - line * cut.across) * Wide;
        const int m = cut.by_tiles.quotient(line), tile = line - m * cut.tiles;

        // Addresses within the column: every other row's, to which the loop adds where it is, or
        // that and a row, in uniform registers.
        constexpr int Window = (Rows - 1) * Stride + R;
        constexpr int Every = 2;
        uint32_t at[(Window + Every - 1) / Every];
        at[0] = slots + slot_of(m) * cut.slot + tile * (Rows * Stride) * cut.pitch +
                (q * cut.stride_w - cut.pad_left) * 4 + cut.left;
#pragma unroll
        for (int a = 0; a < (Window + Every - 1) / Every; ++a) {
            if (a > 0)
                at[a] = at[a - 1] + Every * cut.pitch;
            keep(at[a]);
        }

        float sum[Maps][Rows][Wide] = {};
        const int map = (first_group + group) * Maps; // the first
        // Counts through the filter, or through what shared memory has of it.
        int weight = (Constant ? map : group * Maps) * cut.c * cut.s * R;
        // The weights of filter row r of the column whose weights begin at `weight`.
        const auto weights_of = [&](int r, float(&w)[Maps]) {
            if constexpr (Constant) {
#pragma unroll
                for (int k = 0; k < Maps; ++k)
                    w[k] = constant_filter[weight + r * Maps + k];
            } else {
                const float4 four = load_shared4(weights + (weight + r * Maps) * 4);
                w[0] = four.x, w[1] = four.y, w[2] = four.z, w[3] = four.w;
            }
        };
#pragma unroll 1
        for (uint32_t channel = 0; channel < cut.c * cut.plane; channel += cut.plane) {
            // Of a row of the window: here and, with a row added, one below.
            const auto moved_to = [&](uint32_t here, uint32_t(&moved)[Every]) {
                moved[0] = here;
#pragma unroll
                for (int a = 1; a < Every; ++a) {
                    moved[a] = moved[a - 1] + cut.pitch;
                    keep(moved[a]);
                }
            };
            if constexpr (Wide == 1) {
#pragma unroll 1
                for (uint32_t here = channel; here < channel + cut.s * 4; here += 4) {
                    uint32_t moved[Every];
                    moved_to(here, moved);
                    float window[Window];
#pragma unroll
                    for (int j = 0; j < Window; ++j)
                        window[j] = load_shared(at[j / Every] + moved[j % Every]);
#pragma unroll
                    for (int r = 0; r < R; ++r) {
                        float w[Maps];
                        weights_of(r, w);
#pragma unroll
                        for (int k = 0; k < Maps; ++k) {
#pragma unroll
                            for (int j = 0; j < Rows; ++j)
                                sum[k][j][0] = fmaf(window[j * Stride + r], w[k], sum[k][j][0]);
                        }
                    }
                    weight += R * Maps;
                }
            } else {
                // The columns that both of a thread's need, in words that are aligned behind the
                // first.
                uint32_t moved[Every];
                moved_to(channel, moved);
                float window[Stride + 3][Window];
#pragma unroll
                for (int j = 0; j < Window; ++j) {
                    const uint32_t from = at[j / Every] + moved[j % Every];
                    window[0][j] = load_shared(from);
                    if constexpr (Stride == 1) {
                        const float2 two = load_shared2<4>(from);
                        window[1][j] = two.x, window[2][j] = two.y;
                        window[3][j] = load_shared<12>(from);
                    } else {
                        const float4 four = load_shared4<4>(from);
                        window[1][j] = four.x, window[2][j] = four.y;
                        window[3][j] = four.z, window[4][j] = four.w;
                    }
                }
#pragma unroll
                for (int s = 0; s < 3; ++s) {
#pragma unroll
                    for (int r = 0; r < R; ++r) {
                        float w[Maps];
                        weights_of(s * R + r, w);
#pragma unroll
                        for (int k = 0; k < Maps; ++k) {
#pragma unroll
                            for (int j = 0; j < Rows; ++j) {
#pragma unroll
                                for (int i = 0; i < Wide; ++i)
                                    sum[k][j][i] = fmaf(window[i * Stride + s][j * Stride + r],
                                                        w[k], sum[k][j][i]);
                            }
                        }
                    }
                }
                weight += 3 * R * Maps;
            }
        }

        const auto [n, row] = place_of(line);
        const int rows = cut.p - row, maps = cut.k - map; // that are stored
        const int64_t place = (int64_t(n) * cut.k + map) * area + int64_t(row) * cut.q + q;
        if (finish.affine) {
#pragma unroll
            for (int k = 0; k < Maps; ++k) {
                const float bias = finish.bias && k < maps ? finish.bias[map + k] : 0.0f;
#pragma unroll
                for (int j = 0; j < Rows; ++j)
                    for (float &v : sum[k][j])
                        v = fmaf(finish.scale, v, bias);
            }
        }
        if (finish.residual) {
#pragma unroll
            for (int k = 0; k < Maps; ++k) {
                const float *from = static_cast<const float *>(finish.residual) + place + k * area;
#pragma unroll
                for (int j = 0; j < Rows; ++j) {
#pragma unroll
                    for (int i = 0; i < Wide; ++i)
                        if (k < maps && j < rows)
                            sum[k][j][i] += from[i];
                    from += cut.q;
                }
            }
        }
        if (finish.limited) {
#pragma unroll
            for (int k = 0; k < Maps; ++k)
#pragma unroll
                for (int j = 0; j < Rows; ++j)
                    for (float &v : sum[k][j])
                        v = cf::between(v, finish.least, finish.most);
        }
        if (Wide == 1 && cut.stages > 0) {
            // Stages are taken in the order of items, so the first item that is not whole yet waits
            // for nobody.
            const auto turn_of = [&](int l) {
                return cut.by_stages.quotient(l * cut.groups + group);
            };
            const auto stage_of = [&](int l) {
                return l * cut.groups + group - turn_of(l) * cut.stages;
            };
            for (int l = first; l <= last; ++l) {
                const int before = turn_of(l) - 1;
                if (before >= 0)
                    freed[before & 1][stage_of(l)].wait(before >> 1 & 1);
            }
            uint32_t to[Maps];
#pragma unroll
            for (int k = 0; k < Maps; ++k) {
                const auto begin = uint32_t(uint64_t(y + place - q + k * area));
                to[k] = stages + stage_of(line) * cut.stage + k * cut.stage_plane + (begin & 15) +
                        q * 4;
                keep(to[k]);
            }
            const bool live = begin + lane < total; // not one that repeats the last column
            uint32_t below = 0;
#pragma unroll
            for (int j = 0; j < Rows; ++j) {
#pragma unroll
                for (int k = 0; k < Maps; ++k)
                    store_shared_if(live, to[k] + below, sum[k][j][0]);
                below += cut.q * 4;
                keep(below);
            }
            cf::publish_to_bulk_copies();
            if (live)
                gathered[stage_of(line)].arrive();
            continue;
        }
        uint64_t to[Maps];
#pragma unroll
        for (int k = 0; k < Maps; ++k)
            to[k] = __cvta_generic_to_global(y + place + k * area);
        // Where no address of the tile carries into the upper half, one addition leads to the next.
        const uint64_t reach = uint64_t((Maps - 1) * area + int64_t(Rows) * cut.q) * 4;
        const bool low = (to[0] & UINT32_MAX) + reach <= UINT32_MAX;
        if (maps >= Maps && __all_sync(~0u, low)) {
#pragma unroll
            for (int j = 0; j < Rows; ++j) {
                const bool live = j < rows;
#pragma unroll
                for (int k = 0; k < Maps; ++k) {
                    if (live)
                        store_global(to[k], sum[k][j]);
                    advance_low(to[k], cut.q * 4);
                }
            }
        } else {
#pragma unroll
            for (int k = 0; k < Maps; ++k) {
#pragma unroll
                for (int j = 0; j < Rows; ++j) {
                    if (k < maps && j < rows)
                        store_global(to[k], sum[k][j]);
                    to[k] += cut.q * 4;
                }
            }
        }
    }
    while (passed < units - cut.slots) // later ones nobody waits for
        pass_next();
    // As the loading warps do, where these have copied.
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

struct Config {
    bool constant;
};
constexpr Config Configs[] = {{true}, {false}};

int32_t supports(const cf_call *call, char *why, uint64_t bytes) {
    const cf_problem &p = call->problem;
    if (p.layout != CF_NCHW)
        return cf::no(why, bytes, "is written for NCHW");
    if (p.storage != CF_STORE_F32 || (p.math != CF_MATH_FP32 && p.math != CF_MATH_TF32))
        return cf::no(why, bytes, "multiplies f32 elements in fp32 (math fp32 or tf32)");
    if (!cf::has_few_channels(p, why, bytes))
        return 0;
    if (p.stride_h > 2 || p.r > MaxFilter || p.s > MaxFilter)
        return cf::no(why, bytes,
                      "takes vertical strides up to 2 and filters up to %d x %d; this has %d and "
                      "%d x %d",
                      MaxFilter, MaxFilter, p.stride_h, p.r, p.s);
    if (!Configs[call->config].constant && !common_height(p.r))
        return cf::no(
            why, bytes,
            "reads weights from shared memory for filters of 3, 5 and 7 rows; this has %d", p.r);
    if (!Configs[call->config].constant && p.stride_h == 2 && !has(p, {7, 2}, false))
        return cf::no(why, bytes,
                      "reads weights from shared memory for a vertical stride of 1, or of 2 with "
                      "3 x 3 filters, one column of padding and an even number of output columns");
    if (Configs[call->config].constant && floats(p) * 4 > cf::ConstantBytes)
        return cf::no(why, bytes,
                      "keeps the filter in constant memory, %d bytes; this one has %d with its "
                      "channels padded to a multiple of %d",
                      cf::ConstantBytes, floats(p) * 4, Maps);
    if (double(p.n) * cf::ceil_div(p.p, Shapes[0].rows) * p.q * cf::ceil_div(p.k, Maps) > (1 << 30))
        return cf::no(why, bytes, "counts columns of pixels in 31 bits, too few for %lld images",
                      (long long)p.n);
    if (plan_of(call, Configs[call->config].constant).rows == 0)
        return cf::no(why, bytes,
                      "keeps strips of %d channels, %d columns and all rows that 8 rows of outputs "
                      "need in shared memory, which has %d bytes",
                      p.c, p.w, call->device.shared_per_block);
    return 1;
}

cf_bytes workspace(const cf_call *call) {
    return cf::sums_workspace(call, cf::sums_follow(call->problem));
}

uint64_t packed_bytes(const cf_call *call) { return uint64_t(floats(call->problem)) * 4; }

int32_t pack(const cf_call *call, void *packed) {
    const cf_problem &p = call->problem;
    const int count = floats(p);
    pack_kernel<<<cf::blocks(count, 256), 256, 0, cf::stream(call)>>>(
        static_cast<const float *>(call->w), static_cast<float *>(packed), p.k, p.c, p.r, p.s,
        count);
    return cudaGetLastError();
}

template <bool Constant>
int32_t run(const cf_call *call, int64_t first, int64_t count, float *sums) {
    cf_call part = *call;
    part.problem.n = count;
    const cf_problem &p = part.problem;
    const Plan plan = plan_of(&part, Constant);
    if (plan.rows == 0)
        return cudaErrorInvalidValue;
    Cut cut = plan.cut;
    cut.by_across = cf::Divisor(cut.across);
    cut.by_tiles = cf::Divisor(cut.tiles);
    cut.by_groups = cf::Divisor(cut.groups);
    cut.by_blocks = cf::Divisor(cut.blocks);
    cut.by_strips = cf::Divisor(cut.strips);
    cut.by_slots = cf::Divisor(cut.slots);
    cut.by_stages = cf::Divisor(std::max(cut.stages, 1));
    cut.by_row = cf::Divisor(std::max(cut.row_pieces, 1));
    cut.by_rows = cf::Divisor(cut.rows);
    const Filter filter = {static_cast<const float *>(call->packed), floats(p) / cut.parts};
    const size_t shared = size_t(cut.slots) * cut.slot + size_t(cut.stages) * cut.stage +
                          (Constant ? 0 : filter.floats * 4);
    const dim3 grid(std::min(cut.units, call->device.sm_count / cut.parts), cut.parts);
    const float *x = static_cast<const float *>(call->x) + first * p.c * p.h * p.w;
    float *y = sums ? sums : static_cast<float *>(call->y);
    const cf::Finish finish = sums ? cf::Finish() : cf::finish_of(call);
    const auto launch = [&](auto r, auto rows, auto wide, auto stride) -> int32_t {
        constexpr int R = decltype(r)::value, Rows = decltype(rows)::value,
                      Wide = decltype(wide)::value, Stride = decltype(stride)::value;
        constexpr int Threads = Warps<R, Rows, Wide, Stride, Constant> * 32;
        auto *kernel = small_fma_kernel<R, Rows, Wide, Stride, Constant>;
        // The copy into constant memory may not begin early.
        return cf::start(call, kernel, grid, Threads, shared, !Constant, cut, x, filter, y, finish);
    };
    constexpr cf::Constant<1> one;
    constexpr cf::Constant<2> two;
    const auto for_rows = [&](auto r, auto stride) -> int32_t {
        constexpr int Stride = decltype(stride)::value;
        if constexpr (decltype(r)::value == 3) {
            if (cut.wide == 2) {
                return launch(r, cf::Constant<7>{}, two, stride);
            }
        }
        if constexpr (Stride == 1) {
            if (plan.rows == 22)
                return launch(r, cf::Constant<22>{}, one, stride);
        }
        if constexpr (!Constant && Stride == 1) {
            if (plan.rows == 16)
                return launch(r, cf::Constant<16>{}, one, stride);
            if (plan.rows == 7)
                return launch(r, cf::Constant<7>{}, one, stride);
        }
        if constexpr (Constant && Stride == 1) {
            if (plan.rows == 29)
                return launch(r, cf::Constant<29>{}, one, stride);
            if (plan.rows == 17)
                return launch(r, cf::Constant<17>{}, one, stride);
            if (plan.rows == 15)
                return launch(r, cf::Constant<15>{}, one, stride);
        }
        if constexpr (Constant || Stride == 1)
            return plan.rows == 20 ? launch(r, cf::Constant<20>{}, one, stride)
                                   : launch(r, cf::Constant<8>{}, one, stride);
        return cudaErrorInvalidValue;
    };
    const auto for_stride = [&](auto r) -> int32_t {
        if constexpr (common_height(decltype(r)::value))
            return p.stride_h == 2 ? for_rows(r, two) : for_rows(r, one);
        else if constexpr (Constant) {
            constexpr cf::Constant<8> eight;
            if (p.stride_h == 2)
                return launch(r, eight, one, two);
            return plan.rows == 8 ? launch(r, eight, one, one)
                                  : launch(r, cf::Constant<tall(decltype(r)::value)>{}, one, one);
        }
        return cudaErrorInvalidValue;
    };
    return with_height(p.r, for_stride);
}

int32_t launch(const cf_call *call) {
    const auto all = [&](auto constant) {
        const auto body = [&](int64_t first, int64_t count, float *sums) {
            return run<decltype(constant)::value>(call, first, count, sums);
        };
        return cf::with_sums(call, "small", body, cf::sums_follow(call->problem));
    };
    if (!Configs[call->config].constant)
        return all(std::false_type{});
    return turns.take(call, constant_filter, call->packed, floats(call->problem) * 4,
                      [&] { return all(std::true_type{}); });
}

// Assumes 1.9 GHz.
double rank(const cf_call *call) {
    const cf_problem &p = call->problem;
    const bool constant = Configs[call->config].constant;
    const Plan plan = plan_of(call, constant);
    // Two columns with a stride of 2 read words that lie four apart: shared memory is as busy as
    // the multiply-add units then, which holds for every cut of them.
    const double busy = plan.cut.wide == 2 && p.stride_h == 2 ? 1.35 : 1;
    return cf::ShortLaunchUs + (constant ? cf::TurnUs : 0) + busy * plan.clocks / 1900 +
           (cf::sums_follow(p) ? cf::finish_us(p) : 0);
}

constexpr const char *configs[] = {"weights=constant", "weights=shared", nullptr};

} // namespace

extern "C" const cf_row small_fma = {
    "small_fma",
    "small",
    "few channels in fp32: columns of pixels in registers, images streamed through shared memory",
    "this project; direct convolution with register tiles as in Georganas et al. 2018",
    90,
    INT32_MAX,
    configs,
    supports,
    workspace,
    packed_bytes,
    pack,
    nullptr, // bind
    rank,
    launch,
};
