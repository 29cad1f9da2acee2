// small_fma: few channels in exact fp32, at the rate of the multiply-add units.
//
// With few channels on either side a matrix product has nothing to tile: 4 output channels fill a
// quarter of a 16-wide tile. So the tile is made of pixels instead. A thread owns a column of
// Rows output pixels in ThreadChannels = 4 output channels, up to 116 sums in registers. For one
// (input channel, filter column) it reads the Rows + R - 1 inputs below each other that its column
// needs, and then R x 4 weights each meet Rows of them: one load per some twenty multiply-adds, and
// one weight per Rows.
//
// - Weights come from constant memory through uniform registers, two at a time, which leaves the
//   vector registers' ports to the multiply-adds (weights=constant; weights=shared reads them as
//   broadcast 16-byte words instead, and needs no constant memory).
// - The loop over (channel, filter column) is not unrolled, so that its body, R x 4 x Rows
//   multiply-adds, stays within the instruction cache. Many rows spread its loads and its counting
//   over more multiply-adds, but leave registers for fewer warps.
// - Lanes run along the columns: reads of shared memory and stores of y are contiguous.
// - Where rows of y are no whole sectors of 32 bytes, two warps would write to one, which costs the
//   memory far more than its bytes. There the sums of a row tile gather in shared memory, and
//   producers store them from there by bulk copies.
// - With 3 x 3 filters a thread takes two adjacent columns of 7 rows instead (Columns = 2): they
//   share inputs, read as words of two or four, and store words of two.
// - Blocks are persistent, one per multiprocessor. Its producers, a warp or two, stream strips
//   (images, or some of their rows where images are few) into a ring of stages; the other warps
//   compute. They meet at no barrier of the block: a warp takes the next task, 32 columns in the
//   block's row of strips and 4 output channels, waits for the strips that it touches and hands
//   back those that it has passed. Where a block has few strips that come by asynchronous copies,
//   and all fit, there are no producers: all warps copy first, and then compute.
// - Few strips go to more blocks where each takes one group of 4 output channels only (blockIdx.y).
// - A strip is one bulk copy, or one for each channel, where images are unpadded and aligned to 16
//   bytes; otherwise asynchronous copies of 16 or 4 bytes, which also write the zeros of the
//   padding's rows. Its columns are zeroed once.
//
// The compiler takes uniform registers only where it can prove that a warp's lanes run together,
// and only when vector registers are short. Hence votes and reductions in all that steers a warp,
// no __syncwarp, and limits on the registers of a thread that leave few over (look for ULDC).
//
// Floor: 2 N K P Q C R S operations of multiply-add units, or the bytes of x and y.
#include "core/constant.cuh"
#include "core/element.cuh"
#include "core/output.cuh"
#include "kernels/small/fma_block.cuh"
#include "kernels/small/fma_load.cuh"
#include "kernels/small/fma_plan.cuh"
#include "kernels/small/fma_store.cuh"
#include "kernels/small/fma_task.cuh"
#include "ptx/grid.cuh"

namespace {

using namespace cf::small_fma;

template <int R, int Rows, int Columns, int Stride, bool Constant>
constexpr int Warps = warps(R, {Rows, Columns}, Stride, Constant);

// Filters of any number of plans, each a part of it.
__constant__ __align__(CF_CONSTANT_ALIGN) float constant_filter[cf::ConstantBytes / sizeof(float)];

struct Filter {
    const float *packed; // [group][c][s][r][ThreadChannels]
    int floats;          // of a split
    int begin;           // in constant memory, counted by ThreadChannels floats
};

#if CF_SM90
// The weights of a group, in the order of packing.
template <bool Constant>
struct Weights {
    uint32_t shared; // where the split's are in shared memory
    // Counts through constant memory, or through what shared memory has of the filter. A multiple
    // of ThreadChannels, so that the compiler reads two weights at a time.
    int next;

    // Those of filter row r from the next one on.
    __device__ __forceinline__ void read(int r, float (&w)[ThreadChannels]) const {
        if constexpr (Constant) {
#pragma unroll
            for (int k = 0; k < ThreadChannels; ++k)
                w[k] = constant_filter[next + r * ThreadChannels + k];
        } else {
            const float4 four = cf::load_shared_f32x4(shared + (next + r * ThreadChannels) * 4);
            w[0] = four.x, w[1] = four.y, w[2] = four.z, w[3] = four.w;
        }
    }
    __device__ __forceinline__ void advance(int rows) { next += rows * ThreadChannels; }
};

// Strips, and output tiles of those that are done; the producers share these evenly.
template <int Rows, int Stride>
__device__ __forceinline__ void produce(const Block &block, const float *x, float *y, int loaded) {
    const Tiling &tiling = block.tiling;
    const int fit = min(block.strips, tiling.stages);
    for (int m = loaded; m < fit; ++m)
        load_strip<Rows * Stride>(block, x, m);
    const int output_tiles = tiling.output_stages ? tiling.row_tiles * tiling.groups : 0;
    int output_tile = block.loader;
    for (int m = 0; m < block.strips; ++m) {
        for (; output_tile < (m + 1) * output_tiles; output_tile += tiling.producers)
            store_output_tile<Rows>(block, y, output_tile);
        if (m + tiling.stages < block.strips) {
            block.shared.inputs.wait_empty(block.position(m + tiling.stages));
            load_strip<Rows * Stride>(block, x, m + tiling.stages);
        }
    }
    // Nobody leaves before its copies have arrived.
    cf::wait_for_copies();
}

template <int R, int Rows, int Columns, int Stride, bool Constant>
__device__ __forceinline__ void consume(const Block &block, const Filter &filter, float *y,
                                        const cf::Finish &finish) {
    const Tiling &tiling = block.tiling;
    const int total = block.columns(), tasks = block.tasks();
    cf::RingWindow window(block.shared.inputs, tiling.stages, tiling.by_stages);
    // Of the block's split, counted by ThreadChannels. Worked out here: within the loop one kernel
    // would get its weights in vector registers.
    const int first_weight =
        Constant ? filter.begin + block.first_group * tiling.c * tiling.s * R : 0;
    for (int number = block.warp; number < tasks; number = block.shared.tasks.take(block.lane)) {
        const Task task = block.task(number);
        if (task.begin >= total)
            continue;
        window.release_before(block.strip_of(task.first));
        window.wait_through(block.strip_of(task.last));

        // The last columns of a block repeat the very last one.
        const int column = min(task.begin + block.lane, total - 1);
        const int row_tile = tiling.by_row_columns.quotient(column);
        const int q = (column - row_tile * tiling.row_columns) * Columns;
        const int m = block.strip_of(row_tile);
        const int below = row_tile - m * tiling.row_tiles; // in the strip
        // Before the products: with fewer values alive across them the compiler would think that it
        // has registers left, and read constant weights into vector registers.
        const Place place = block.place_of<Rows>(row_tile);
        ThreadSums<R, Rows, Columns, Stride> sums;
        sums.multiply(
            tiling,
            block.stage(block.position(m)) + below * (Rows * Stride) * tiling.pitch +
                (q * tiling.stride_w - tiling.pad_left) * 4 + tiling.left,
            Weights<Constant>{block.weights, (first_weight + task.group * tiling.c * tiling.s * R) *
                                                 ThreadChannels});

        const OutputColumn out(tiling, place, (block.first_group + task.group) * ThreadChannels, q);
        finish_sums(sums.value, out, finish, tiling.k);
        if constexpr (Columns == 1) {
            if (tiling.output_stages > 0) {
                const bool live = task.begin + block.lane < total;
                gather(block, sums.value, task, out, row_tile, live, y);
                continue;
            }
        }
        store(tiling, sums.value, out, y);
    }
    window.release_before(block.strips - tiling.stages); // later ones nobody waits for
    // As producers do, where these have copied.
    cf::wait_for_copies();
}
#endif

template <int R, int Rows, int Columns, int Stride, bool Constant>
__global__ void __launch_bounds__(Warps<R, Rows, Columns, Stride, Constant> * 32, 1)
    small_fma_kernel(const Tiling tiling, const float *__restrict__ x, const Filter filter,
                     float *__restrict__ y, const cf::Finish finish) {
#if CF_SM90
    constexpr int BlockWarps = Warps<R, Rows, Columns, Stride, Constant>;
    extern __shared__ __align__(128) float dynamic[];
    __shared__ Shared shared;
    const Block block(tiling, shared, dynamic, BlockWarps);
    init_barriers(block);
    cf::let_next_kernel_begin();
    cf::wait_for_kernels_before();
    // What the bulk copies need is there; the others need to be told of the barriers.
    if (tiling.bulk_copies == 0) {
        zero_padding(block, dynamic);
        __syncthreads();
    }
    const FilterLoad weights(filter.packed + blockIdx.y * filter.floats,
                             Constant ? 0 : filter.floats);
    // Where there are producers, consumers wait for the first strip to be on its way only.
    const int fit = min(block.strips, tiling.stages);
    const int preloaded = tiling.producers > 0 ? min(fit, 1) : fit;
    if (block.loader >= 0) {
        __syncwarp();
        for (int m = 0; m < preloaded; ++m)
            load_strip<Rows * Stride>(block, x, m);
    }
    if (!Constant)
        weights.store(dynamic + (block.weights - block.inputs) / 4, BlockWarps * 32);
    __syncthreads();

    if (block.warp >= block.consumers) {
        produce<Rows, Stride>(block, x, y, preloaded);
        return;
    }
    consume<R, Rows, Columns, Stride, Constant>(block, filter, y, finish);
#else
    cf::not_compiled();
#endif
}

__global__ void pack_kernel(const float *__restrict__ w, float *__restrict__ packed, int k, int c,
                            int r, int s, int floats) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < floats; i += gridDim.x * blockDim.x) {
        const int lane = i % ThreadChannels, ir = i / ThreadChannels % r,
                  is = i / ThreadChannels / r % s, ic = i / ThreadChannels / r / s % c;
        const int ik = i / ThreadChannels / r / s / c * ThreadChannels + lane;
        packed[i] = ik < k ? w[((int64_t(ik) * c + ic) * r + ir) * s + is] : 0.0f;
    }
}

__global__ void empty_kernel() {}

struct Config {
    bool constant;
};
constexpr Config Configs[] = {{true}, {false}};
constexpr const char *configs[] = {"weights=constant", "weights=shared", nullptr};

struct State {
    cf::Kernel<Tiling, const void *, Filter, void *, cf::Finish> kernel;
    cf_problem problem;
    cf::Sums sums;
    Tiling tiling;
    bool constant;
    int filter_floats;
    void *constant_begin;
};

bool takes(const cf_problem &p, bool constant, const cf::Refusal &no) {
    if (p.layout != CF_NCHW)
        return no("is written for NCHW");
    if (p.storage != CF_STORE_F32 || (p.math != CF_MATH_FP32 && p.math != CF_MATH_TF32))
        return no("multiplies f32 elements in fp32 (math fp32 or tf32)");
    if (!cf::has_few_channels(p, no, cf::MostGroupedOutputs))
        return false;
    if (p.stride_h > 2 || p.r > MaxFilter || p.s > MaxFilter)
        return no("takes vertical strides up to 2 and filters up to %d x %d; this has %d and "
                  "%d x %d",
                  MaxFilter, MaxFilter, p.stride_h, p.r, p.s);
    if (!constant && !shared_height(p.r))
        return no("reads weights from shared memory for filters of 1, 3, 5 and 7 rows; this has %d",
                  p.r);
    if (!constant && p.stride_h == 2 && !suits(p, {7, 2}, false))
        return no("reads weights from shared memory for a vertical stride of 1, or of 2 with 3 x 3 "
                  "filters, one column of padding and an even number of output columns");
    if (constant && filter_floats(p) * 4 > cf::ConstantBytes)
        return no("keeps the filter in constant memory, %d bytes; this one has %d with its "
                  "channels padded to a multiple of %d",
                  cf::ConstantBytes, filter_floats(p) * 4, ThreadChannels);
    const int64_t rows = int64_t(p.p) * p.stride_h;
    if (rows > MaxRows)
        return no("counts rows in 31 bits, too few for images of %lld", (long long)rows);
    return true;
}

void choose_kernel(const cf_query &query, const Option &option, State &state) {
    const cf_problem &p = query.problem;
    const Tiling &t = state.tiling;
    const size_t shared = size_t(t.stages) * t.stage_bytes +
                          size_t(t.output_stages) * t.output_stage_bytes +
                          (option.constant ? 0 : state.filter_floats / t.channel_splits * 4);
    const dim3 grid(std::min(t.strips, query.device.sm_count / t.channel_splits), t.channel_splits);
    cf::for_value<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11>(p.r - 1, [&](auto r) {
        cf::for_value<0, 1, 2, 3, 4, 5, 6, 7, 8>(option.thread, [&](auto thread) {
            cf::for_value<1, 2>(p.stride_h - 1, [&](auto stride) {
                cf::for_value<0, 1>(option.constant, [&](auto constant) {
                    constexpr int R = decltype(r)::value, Stride = decltype(stride)::value;
                    constexpr ThreadTile Thread = ThreadTiles[decltype(thread)::value];
                    constexpr bool Constant = decltype(constant)::value;
                    if constexpr (is_compiled(R, Thread, Stride, Constant))
                        state.kernel = cf::kernel_of(
                            small_fma_kernel<R, Thread.rows, Thread.columns, Stride, Constant>,
                            grid, warps(R, Thread, Stride, Constant) * 32, shared, true);
                });
            });
        });
    });
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    const cf_device &device = query.device;
    const bool constant = state.constant = Configs[query.config].constant;
    if (!takes(p, constant, no))
        return false;
    state.sums = cf::Sums(p, cf::sums_follow(p));
    cf_problem chunk = p; // tiled for as many images as a launch has at most
    chunk.n = state.sums.chunks.most;
    const int64_t least_columns = cf::ceil_div(p.p, ThreadTiles[0].rows) * p.q;
    if (double(chunk.n) * least_columns * cf::ceil_div(p.k, ThreadChannels) > MaxColumns)
        return no("counts columns of pixels in 31 bits, too few for %lld images",
                  (long long)chunk.n);
    const Best best = search(chunk, device, constant);
    if (!best.found)
        return no("keeps strips of %d channels, %d columns and all rows that 8 rows of outputs "
                  "need in shared memory, which has %d bytes, beside %d of the filter, and counts "
                  "columns in 31 bits",
                  p.c, p.w, device.shared_per_block, constant ? 0 : filter_floats(p) * 4);
    state.tiling = best.tiling;
    state.filter_floats = filter_floats(p);
    choose_kernel(query, best.option, state);

    state.sums.workspace(plan);
    plan.packed_bytes = uint64_t(state.filter_floats) * 4;
    plan.filter_layout = 1;
    plan.filter_in_constant = constant;
    // Two columns with a stride of 2 read words that lie four apart: shared memory is as busy as
    // the multiply-add units then, which holds for every tiling of them.
    const double busy = best.tiling.thread_columns == 2 && p.stride_h == 2 ? 1.35 : 1;
    const double launches = double(p.n) / chunk.n;
    plan.us =
        launches * (cf::ShortLaunchUs + cf::clocks_us(device, busy * best.clocks, cf::FmaClock)) +
        (state.sums.follow ? cf::finish_us(query) : 0);
    return true;
}

int32_t constant_memory(void **address) { return cf::constant_address(constant_filter, address); }

int32_t prepare(State &state) {
    if (state.constant)
        if (const int32_t error = constant_memory(&state.constant_begin))
            return error;
    const int32_t error = cf::prepare_all(pack_kernel, empty_kernel);
    return error ? error : cf::prepare_with_sums(state);
}

int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    const cf_problem &p = state.problem;
    const int floats = state.filter_floats;
    const int32_t error = cf::launch(pack_kernel, cf::blocks(floats, 256), 256, stream, w, packed,
                                     p.k, p.c, p.r, p.s, floats);
    if (error || !state.constant)
        return error;
    // Constant memory must not change while a kernel runs that reads it: its caches are emptied as
    // a kernel begins, and no wait empties them later. A launch that begins early does so when the
    // blocks of the kernel ahead of it have ended, before what they wrote is known to be in memory.
    // That kernel is never the one that packs: it is this one, which itself begins only when packed
    // weights are in memory. So launches begin early and need not care when they read weights.
    return cf::launch(empty_kernel, 1, 1, stream);
}

int32_t launch(const State &state, const cf_args &args) {
    const cf_problem &p = state.problem;
    Filter filter = {static_cast<const float *>(args.packed),
                     state.filter_floats / state.tiling.channel_splits, 0};
    if (state.constant)
        filter.begin = cf::constant_offset(state.constant_begin, args) / int(sizeof(float4));
    return state.sums.launch(
        p, args, "small", [&](int64_t first, int64_t count, float *sums) -> int32_t {
            // Fewer strips than planned give blocks fewer rounds of the ring; the last blocks none.
            Tiling tiling = state.tiling;
            tiling.strips = int(count * tiling.image_strips);
            auto kernel = state.kernel;
            kernel.grid.x = std::min(kernel.grid.x, unsigned(tiling.strips));
            const float *x = static_cast<const float *>(args.x) + first * p.c * p.h * p.w;
            return kernel.launch(args.stream, tiling, x, filter, sums ? sums : args.y,
                                 sums ? cf::Finish() : cf::finish_of(p, args));
        });
}

} // namespace

extern "C" const cf_row CF_ROW(small, fma) = {
    "small_fma",
    "small",
    "few channels in fp32: columns of pixels in registers, images streamed through shared memory",
    "this project; direct convolution with register tiles as in Georganas et al. 2018",
    "padding is multiplied as zeros: where a weight that is infinite or NaN meets it, the sum is "
    "NaN",
    CF_NEEDS_SM90,
    configs,
    cf::Row<State, plan, prepare, launch, pack>::functions(constant_memory),
};
