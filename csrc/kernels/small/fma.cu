// small_fma: few channels in exact fp32, at the rate of the multiply-add units.
//
// With 1 to 32 channels on either side a matrix product has nothing to tile: 4 output channels fill
// a quarter of a 16-wide tile. So the tile is made of pixels instead. A thread owns a column of
// Rows output pixels in Maps = 4 output channels, 60 to 68 sums in registers. For one (input
// channel, filter column) it reads the Rows + R - 1 inputs below each other that its column needs,
// and then R x Maps weights each meet Rows of them: one load per some twenty multiply-adds, and one
// weight per 15 to 17.
//
// - Weights come from constant memory through uniform registers, two at a time, which leaves the
//   vector registers' ports to the multiply-adds (weights=constant; weights=shared reads them as
//   broadcast 16-byte words instead, and needs no constant symbol).
// - The loop over (channel, filter column) is not unrolled, so that its body, R x 4 x Rows
//   multiply-adds, stays within the instruction cache.
// - Lanes run along the columns: reads of shared memory and stores of y are contiguous.
// - Blocks are persistent, one per multiprocessor. A warp of its own streams units (images, or
//   strips of their rows where images are few) into a ring of slots; fifteen warps compute. They
//   meet at no barrier of the block: a warp takes the next group of 32 columns in the block's row
//   of units, waits for the units that it touches and hands back those that it
//   has passed.
// - A unit is one bulk copy where images are whole, unpadded and aligned to 16 bytes, otherwise
//   4-byte asynchronous copies row by row, which also write the zeros of the padding.
//
// Floor: 2 N K P Q C R S / 66.9 TFLOP/s, or the bytes of x and y. Per loop body the other
// instructions are Rows + R - 1 loads and half a uniform load per weight, for 28 weights and 16
// rows 8 % of all.
#include "device/constant.cuh"
#include "device/pipeline.cuh"
#include "device/rank.cuh"
#include "device/sums.cuh"

#include <algorithm>

namespace {

constexpr int Maps = 4;   // output channels of a thread
constexpr int Warps = 15; // that compute; with the loading one four for each scheduler
constexpr int Threads = (Warps + 1) * 32;
constexpr int MaxSlots = 16;
constexpr int MaxFilter = 11;

__constant__ __align__(16) float constant_filter[cf::ConstantBytes / sizeof(float)];
cf::Turns turns;

// How a problem is cut. Sizes in floats.
struct Cut {
    int tiles;  // row tiles of a unit
    int strips; // units of an image
    int rows;   // input rows of a unit
    int pitch;  // from row to row in a slot
    int plane;  // from channel to channel
    int slot;   // from slot to slot
    int slots;
    int groups; // of Maps output channels
    bool bulk;
    int units;   // of the batch
};

struct Filter {
    const float *packed; // [group][c][s][r][Maps]
    int floats;
};

// The part of the epilogue that costs an instruction or two: the largest of least and
// scale * sum + bias + residual, and the smaller of that and most.
struct Finish {
    float scale;
    const float *bias, *residual;
    float least, most;
};

template <int R, int Rows, int Stride, bool Constant>
__global__ void __launch_bounds__(Threads, 1)
    small_fma_kernel(const cf_problem p, const Cut cut, const float *__restrict__ x,
                     const Filter filter, float *__restrict__ y, const Finish finish) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) float slots[];
    __shared__ cf::Barrier full[MaxSlots], empty[MaxSlots];
    __shared__ int taken;                          // groups of 32 columns
    float *weights = slots + cut.slots * cut.slot; // where they are in shared memory
    // A reduction's result is known to be the same in all lanes. Only behind branches that are
    // known to be uniform are weights read through uniform registers.
    const int warp = int(__reduce_max_sync(~0u, threadIdx.x / 32)), lane = threadIdx.x % 32;

    if (threadIdx.x == 0)
        taken = 0;
    if (threadIdx.x < cut.slots) {
        full[threadIdx.x].init(cut.bulk ? 1 : 32);
        empty[threadIdx.x].init(Warps);
    }
    if (!Constant)
        for (int i = threadIdx.x; i < filter.floats; i += Threads)
            weights[i] = filter.packed[i];
    if (!cut.bulk) // the columns of the padding are written only here
        for (int i = threadIdx.x; i < cut.slots * cut.slot; i += Threads)
            slots[i] = 0;
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncthreads();

    // This block's units are blockIdx.x, blockIdx.x + gridDim.x, ...
    const int units = (cut.units - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x);
    const auto unit = [&](int m) { return int(blockIdx.x) + m * int(gridDim.x); };
    const int64_t image = int64_t(p.c) * p.h * p.w;

    if (warp == Warps) {
        for (int m = 0; m < units; ++m) {
            const int slot = m % cut.slots;
            if (m >= cut.slots)
                empty[slot].wait((m / cut.slots - 1) & 1);
            const int64_t n = unit(m) / cut.strips;
            const float *from = x + n * image;
            const uint32_t to = cf::shared_address(slots + slot * cut.slot);
            if (cut.bulk) {
                if (lane == 0) {
                    const uint32_t bytes = uint32_t(image * sizeof(float));
                    full[slot].arrive_and_expect(bytes);
                    cf::copy_bulk(to, from, bytes, full[slot]);
                }
                continue;
            }
            const int top = (unit(m) % cut.strips) * cut.tiles * Rows * Stride - p.pad_top;
            for (int c = 0; c < p.c; ++c) {
                for (int i = 0; i < cut.rows; ++i) {
                    const int h = top + i;
                    const bool live = h >= 0 && h < p.h;
                    const float *row = from + (int64_t(c) * p.h + (live ? h : 0)) * p.w;
                    const uint32_t at =
                        to + (c * cut.plane + i * cut.pitch + p.pad_left) * sizeof(float);
                    for (int w = lane; w < p.w; w += 32)
                        cf::copy4_async(at + w * sizeof(float), row + w, live);
                }
            }
            full[slot].arrive_after_copies();
        }
        // Nobody leaves before its copies have arrived.
        asm volatile("cp.async.wait_all;" ::: "memory");
        return;
    }

    const int columns = cut.tiles * p.q; // of a unit
    // 32 bits: a division of 64 bits is a call, behind which nothing is known to be uniform.
    const int total = units * columns;
    const int64_t area = int64_t(p.p) * p.q;
    const int steps = p.c * p.s; // loop bodies of a group of maps
    int ready = 0, released = 0;
    for (;;) {
        int next = 0;
        if (lane == 0)
            next = atomicAdd(&taken, 1);
        const int begin = int(__reduce_max_sync(~0u, unsigned(next))) * 32;
        if (begin >= total)
            break;
        // The last group of columns repeats the last column.
        const int column = min(begin + lane, total - 1);
        const int first = begin / columns;
        const int last = min(begin + 31, total - 1) / columns;
        for (; released < first; ++released)
            if (lane == 0)
                empty[released % cut.slots].arrive();
        for (; ready <= last; ++ready)
            full[ready % cut.slots].wait((ready / cut.slots) & 1);

        const int m = column / columns, i = column - m * columns;
        const int tile = i / p.q, q = i - tile * p.q;
        const int64_t n = unit(m) / cut.strips;
        const int row = ((unit(m) % cut.strips) * cut.tiles + tile) * Rows;
        const float *at =
            slots + (m % cut.slots) * cut.slot + tile * Rows * Stride * cut.pitch + q * p.stride_w;
#pragma unroll 1
        for (int group = 0; group < cut.groups; ++group) {
            float sum[Maps][Rows] = {};
            const float *from = at;
            int filter_column = 0;
            // One index counts through the filter: in this form the compiler reads weights through
            // uniform registers, and not with the sum of three counters.
#pragma unroll 1
            for (int step = group * steps; step < (group + 1) * steps; ++step) {
                constexpr int Window = (Rows - 1) * Stride + R;
                float window[Window];
#pragma unroll
                for (int j = 0; j < Window; ++j)
                    window[j] = from[j * cut.pitch];
#pragma unroll
                for (int r = 0; r < R; ++r) {
#pragma unroll
                    for (int k = 0; k < Maps; ++k) {
                        const int at = (step * R + r) * Maps + k;
                        const float w = Constant ? constant_filter[at] : weights[at];
#pragma unroll
                        for (int j = 0; j < Rows; ++j)
                            sum[k][j] = fmaf(window[j * Stride + r], w, sum[k][j]);
                    }
                }
                ++from;
                if (++filter_column == p.s) {
                    filter_column = 0;
                    from += cut.plane - p.s;
                }
            }
#pragma unroll
            for (int k = 0; k < Maps; ++k) {
                const int channel = group * Maps + k;
                if (channel >= p.k || begin + lane >= total)
                    break;
                const int64_t first = (n * p.k + channel) * area + int64_t(row) * p.q + q;
                const float bias = finish.bias ? finish.bias[channel] : 0.0f;
                float *to = y + first;
                const float *residual = finish.residual ? finish.residual + first : nullptr;
#pragma unroll
                for (int j = 0; j < Rows; ++j) {
                    if (row + j >= p.p)
                        break;
                    float v = fmaf(finish.scale, sum[k][j], bias);
                    if (residual) {
                        v += *residual;
                        residual += p.q;
                    }
                    // Comparisons that a NaN fails, so that it stays.
                    v = v < finish.least ? finish.least : v;
                    *to = v > finish.most ? finish.most : v;
                    to += p.q;
                }
            }
        }
    }
    for (; released < units; ++released)
        if (lane == 0)
            empty[released % cut.slots].arrive();
#endif
}

__global__ void pack_kernel(const float *__restrict__ w, float *__restrict__ packed, int k, int c,
                            int r, int s, int floats) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < floats; i += gridDim.x * blockDim.x) {
        const int map = i % Maps, ir = i / Maps % r, is = i / Maps / r % s,
                  ic = i / Maps / r / s % c;
        const int ik = i / Maps / r / s / c * Maps + map;
        packed[i] = ik < k ? w[((int64_t(ik) * c + ic) * r + ir) * s + is] : 0.0f;
    }
}

struct Config {
    bool constant;
};
constexpr Config Configs[] = {{true}, {false}};

int floats(const cf_problem &p) { return int(cf::ceil_div(p.k, Maps)) * Maps * p.c * p.r * p.s; }

constexpr int RowTiles[] = {17, 16, 15, 8};

// The rows of a thread that leave the fewest idle and share a weight among the most.
int rows_of(const cf_problem &p) {
    int best = 0;
    double least = 0;
    for (int rows : RowTiles) {
        if (p.stride_h == 2 && rows % 8 != 0)
            continue; // not compiled
        const double body = p.r * Maps * rows;
        const double other = (rows - 1) * p.stride_h + p.r + p.r * Maps * 0.5 + 8;
        const double cost = double(cf::ceil_div(p.p, rows)) * (body + other);
        if (best == 0 || cost < least) {
            best = rows;
            least = cost;
        }
    }
    return best;
}

bool cut_of(const cf_call *call, Cut &cut) {
    const cf_problem &p = call->problem;
    const cf_device &d = call->device;
    const int rows = rows_of(p);
    const int tiles = int(cf::ceil_div(p.p, rows));
    const bool constant = Configs[call->config].constant;
    const int64_t budget =
        (int64_t(d.shared_per_block) - 1024) / 4 - (constant ? 0 : floats(p)) - 32;
    const bool unpadded = !p.pad_top && !p.pad_left && !p.pad_bottom && !p.pad_right;
    const int64_t image = int64_t(p.c) * p.h * p.w;
    double least = 0;
    for (int strips = 1; strips <= tiles; ++strips) {
        Cut c = {};
        c.tiles = int(cf::ceil_div(tiles, strips));
        c.strips = int(cf::ceil_div(tiles, c.tiles));
        if (c.strips != strips)
            continue;
        if (p.n * c.tiles * strips * p.q > INT32_MAX)
            continue;
        c.units = int(p.n * strips);
        c.groups = int(cf::ceil_div(p.k, Maps));
        c.bulk = strips == 1 && unpadded && p.align >= 16 && image % 4 == 0;
        // Row tiles may read below the image: those sums are not stored.
        c.rows = (c.tiles * rows - 1) * p.stride_h + p.r;
        const int width = p.w + p.pad_left + p.pad_right;
        c.pitch = c.bulk ? p.w : width;
        const int64_t plane = int64_t(c.bulk ? p.h : c.rows) * c.pitch;
        // In a bulk slot the reads below the last channel's image stay inside the slot.
        const int64_t slot =
            (c.bulk ? (p.c - 1) * plane + std::max<int64_t>(c.rows, p.h) * c.pitch : p.c * plane);
        const int64_t padded = cf::ceil_div(slot + p.s, 32) * 32;
        const int64_t fit = std::min<int64_t>(budget / padded, MaxSlots);
        if (fit < 2)
            continue;
        c.plane = int(plane);
        c.slot = int(padded);
        c.slots = int(std::min<int64_t>(fit, std::max<int64_t>(2, 16)));
        // A group of 32 columns may touch this many units, all of which have to be there.
        if (c.slots < 31 / (c.tiles * p.q) + 2)
            continue;
        // Rounds of the busiest multiprocessor, and what cutting costs: the halo's rows again.
        const double rounds = double(cf::ceil_div(c.units, d.sm_count)) * c.tiles;
        const double halo = double(c.rows) / (c.tiles * rows * p.stride_h);
        const double cost = rounds * (1 + 0.02 * halo) * (c.bulk ? 1 : 1.02);
        if (least == 0 || cost < least) {
            least = cost;
            cut = c;
        }
    }
    return least > 0;
}

int32_t supports(const cf_call *call, char *why, uint64_t bytes) {
    const cf_problem &p = call->problem;
    if (p.layout != CF_NCHW)
        return cf::no(why, bytes, "is written for NCHW");
    if (p.storage != CF_STORE_F32 || (p.math != CF_MATH_FP32 && p.math != CF_MATH_TF32))
        return cf::no(why, bytes, "multiplies f32 elements in fp32 (math fp32 or tf32)");
    if (p.groups != 1)
        return cf::no(why, bytes, "takes one group; this has %d", p.groups);
    if (p.dilation_h != 1 || p.dilation_w != 1)
        return cf::no(why, bytes, "takes no dilation");
    if (p.c > 32 || p.k > 64)
        return cf::no(why, bytes,
                      "is for up to 32 input and 64 output channels; this has %d and %d", p.c, p.k);
    if (p.r != 3 && p.r != 5 && p.r != 7)
        return cf::no(why, bytes, "is compiled for filters of 3, 5 and 7 rows; this has %d", p.r);
    if (p.stride_h > 2 || p.s > MaxFilter)
        return cf::no(why, bytes,
                      "takes vertical strides up to 2 and filters up to %d columns; this has %d "
                      "and %d",
                      MaxFilter, p.stride_h, p.s);
    if (Configs[call->config].constant && floats(p) * 4 > cf::ConstantBytes)
        return cf::no(why, bytes,
                      "keeps the filter in constant memory, %d bytes; this one has %d with its "
                      "channels padded to a multiple of %d",
                      cf::ConstantBytes, floats(p) * 4, Maps);
    Cut cut;
    if (!cut_of(call, cut))
        return cf::no(
            why, bytes,
            "keeps two strips of %d channels, %d columns and all the rows that %d outputs "
            "need in shared memory, which has %d bytes",
            p.c, p.w, rows_of(p), call->device.shared_per_block);
    return 1;
}

// Pooling, and activations that are not a comparison or two, are left to the shared pass.
bool sums_follow(const cf_problem &p) {
    return p.epilogue.pool_h || p.epilogue.activation > CF_ACT_RELU6;
}

cf_bytes workspace(const cf_call *call) {
    return cf::sums_workspace(call, sums_follow(call->problem));
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
    Cut cut;
    if (!cut_of(&part, cut))
        return cudaErrorInvalidValue;
    const Filter filter = {static_cast<const float *>(call->packed), floats(p)};
    const size_t shared = (size_t(cut.slots) * cut.slot + (Constant ? 0 : filter.floats)) * 4;
    const auto grid = unsigned(std::min<int64_t>(cut.units, call->device.sm_count));
    const float *x = static_cast<const float *>(call->x) + first * p.c * p.h * p.w;
    const int64_t skipped = first * p.k * p.p * p.q;
    float *y = sums ? sums : static_cast<float *>(call->y) + skipped;
    Finish finish = {1, nullptr, nullptr, -INFINITY, INFINITY};
    if (!sums) {
        const cf_epilogue &e = p.epilogue;
        const auto *residual = static_cast<const float *>(call->residual);
        finish.scale = e.scale;
        finish.bias = e.bias ? call->bias : nullptr;
        finish.residual = e.residual ? residual + skipped : nullptr;
        if (e.activation != CF_ACT_NONE)
            finish.least = 0;
        if (e.activation == CF_ACT_RELU6)
            finish.most = 6;
    }
    const auto launch = [&](auto kernel) -> int32_t {
        if (const cudaError_t error = cudaFuncSetAttribute(
                kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)))
            return error;
        kernel<<<grid, Threads, shared, cf::stream(call)>>>(p, cut, x, filter, y, finish);
        return cudaGetLastError();
    };
    const auto for_rows = [&](auto r, auto stride) -> int32_t {
        constexpr int R = decltype(r)::value, S = decltype(stride)::value;
        const int rows = rows_of(p);
        if constexpr (S == 1) {
            if (rows == 17)
                return launch(small_fma_kernel<R, 17, S, Constant>);
            if (rows == 15)
                return launch(small_fma_kernel<R, 15, S, Constant>);
        }
        return rows == 16 ? launch(small_fma_kernel<R, 16, S, Constant>)
                          : launch(small_fma_kernel<R, 8, S, Constant>);
    };
    const auto for_stride = [&](auto r) {
        return p.stride_h == 1 ? for_rows(r, cf::Constant<1>{}) : for_rows(r, cf::Constant<2>{});
    };
    return p.r == 3   ? for_stride(cf::Constant<3>{})
           : p.r == 5 ? for_stride(cf::Constant<5>{})
                      : for_stride(cf::Constant<7>{});
}

int32_t launch(const cf_call *call) {
    const auto all = [&](auto constant) {
        const auto body = [&](int64_t first, int64_t count, float *sums) {
            return run<decltype(constant)::value>(call, first, count, sums);
        };
        return cf::with_sums(call, "small", body, sums_follow(call->problem));
    };
    if (!Configs[call->config].constant)
        return all(std::false_type{});
    return turns.take(call, constant_filter, call->packed, floats(call->problem) * 4,
                      [&] { return all(std::true_type{}); });
}

double rank(const cf_call *call) {
    const cf_problem &p = call->problem;
    const double flops = 2 * double(p.n) * cf::padded(p.k, Maps) * cf::padded(p.p, rows_of(p)) *
                         p.q * cf::reduction(p);
    const double bytes = 4 * (double(p.n) * p.c * p.h * p.w + cf::pixels(p) * p.k);
    return cf::LaunchUs + std::max(flops / 55e6, bytes / cf::BytesPerUs);
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
