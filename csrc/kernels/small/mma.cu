// small_mma: few channels on tensor cores, f32 storage: math fp32 by three TF32 products, math tf32
// by one.
//
// An implicit product of matrices from images in shared memory: nothing is unrolled but in
// registers. A task is 8, 16 or 64 columns of output pixels, all rows of a row tile, in one group
// of output channels (mma_plan.cuh has the shapes of tasks and the order of a sum). For a step of
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
//   lo hi + hi lo + hi hi. The tensor core cuts its sums toward zero, so the products of at most
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
#include "kernels/small/mma_plan.cuh"

#include "core/element.cuh"
#include "core/output.cuh"
#include "kernels/small/mma_store.cuh"
#include "kernels/small/mma_task.cuh"
#include "ptx/bulk.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/load_store.cuh"
#include "ptx/predicated.cuh"
#include "ptx/registers.cuh"

namespace {

using namespace cf::small_mma;

template <int Index, bool Three>
__global__ void __launch_bounds__(TaskShapes[Index].threads(), 1)
    small_mma_kernel(const Tiling tiling, const float *__restrict__ x,
                     const float *__restrict__ packed, float *__restrict__ y,
                     const cf::Finish finish) {
#if CF_SM90A
    constexpr TaskShape F = TaskShapes[Index];
    using T = std::conditional_t<F.wgmma, WarpgroupTask<Index, Three>, WarpTask<Index, Three>>;
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ cf::Barrier full[MaxStages], empty[MaxStages];
    __shared__ cf::Barrier out_full[MaxOutputStages], out_empty[MaxOutputStages];
    __shared__ int taken; // tasks
    const uint32_t base = cf::shared_address(shared);
    const uint32_t outputs = tiling.stages * tiling.stage_bytes;
    const uint32_t weights = outputs + tiling.output_stages * tiling.output_stage_bytes;
    int *const places = reinterpret_cast<int *>(shared + weights + tiling.weight_bytes);
    constexpr int Consumers = F.warpgroups * 4; // warps; four more load and store
    // Reductions tell the compiler that all lanes have the same.
    const int warp = int(__reduce_max_sync(~0u, threadIdx.x / 32));
    const int lane = threadIdx.x % 32;

    // This block's strips are blockIdx.x, blockIdx.x + gridDim.x, ...
    const int strips = int(__reduce_max_sync(
        ~0u, (tiling.strips - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x)));
    const auto strip_of = [&](int m) { return int(blockIdx.x) + m * int(gridDim.x); };
    const auto stage_of = [&](int m) { return m - tiling.by_stages.quotient(m) * tiling.stages; };
    const int producer = warp - Consumers; // or a storing warp

    const auto load = [&](int m) {
        const int u = strip_of(m), n = tiling.by_image_strips.quotient(u);
        const int top =
            (u - n * tiling.image_strips) * tiling.row_tiles * tiling.tile_rows * tiling.stride_h -
            tiling.pad_top;
        const int64_t area = int64_t(tiling.h) * tiling.row_floats;
        const float *from = x + int64_t(n) * tiling.planes * area;
        const uint32_t to = base + stage_of(m) * tiling.stage_bytes;
        cf::Barrier &barrier = full[stage_of(m)];
        if (tiling.bulk_copies > 0) {
            if (lane == 0) { // of one warp
                const int64_t skipped = int64_t(top) * tiling.row_floats;
                const auto bytes = uint32_t(min(tiling.bulk_bytes, tiling.bulk_end - skipped * 4));
                barrier.arrive_and_expect(bytes * tiling.bulk_copies);
#pragma unroll 1
                for (int c = 0; c < tiling.bulk_copies; ++c)
                    cf::copy_bulk(to + c * tiling.plane, from + c * area + skipped, bytes, barrier);
            }
            return;
        }
        for (int c = 0; c < tiling.planes; ++c) {
            uint32_t there =
                to + c * tiling.plane + producer * tiling.pitch + tiling.left + lane * tiling.piece;
            const float *row = from + c * area + int64_t(top + producer) * tiling.row_floats +
                               lane * (tiling.piece / 4);
#pragma unroll 2
            for (int h = top + producer; h < top + tiling.rows; h += tiling.producers) {
                const bool live = h >= 0 && h < tiling.h;
#pragma unroll 2
                for (int e = lane; e < tiling.row_pieces; e += 32) {
                    const int along = (e - lane) * tiling.piece;
                    const float *piece = live ? row + along / 4 : x;
                    if (tiling.piece == 16)
                        cf::copy16_async(there + along, piece, live);
                    else
                        cf::copy4_async(there + along, piece, live);
                }
                row += tiling.producers * tiling.row_floats;
                there += tiling.producers * tiling.pitch;
            }
        }
        barrier.arrive_after_copies();
    };

    int loaded = 0;
    if (producer == 0) {
        if (lane < tiling.stages) {
            full[lane].init(tiling.bulk_copies > 0 ? 1 : tiling.producers * 32);
            empty[lane].init(Consumers * 32);
        }
        if (lane < tiling.output_stages) {
            out_full[lane].init(tiling.row_columns * 32);
            out_empty[lane].init((4 - tiling.producers) * 32);
        }
        cf::publish_barriers();
        __syncwarp();
        for (; tiling.bulk_copies > 0 && loaded < min(strips, tiling.stages); ++loaded)
            load(loaded);
    }
    if (threadIdx.x == 0)
        taken = 0;
    const int lines = tiling.stages * tiling.planes * tiling.rows;
    for (int i = threadIdx.x; tiling.bulk_copies == 0 && i < lines; i += F.threads()) {
        // The columns of the padding are written only here.
        const int stage = i / (tiling.planes * tiling.rows);
        const int line = i - stage * (tiling.planes * tiling.rows);
        auto *row = reinterpret_cast<float *>(shared + stage * tiling.stage_bytes +
                                              line * tiling.pitch + tiling.left);
        for (int j = 1; j <= tiling.zeros_left; ++j)
            row[-j] = 0;
        for (int j = 0; j < tiling.zeros_right; ++j)
            row[tiling.row_floats + j] = 0;
    }
    for (uint32_t i = threadIdx.x * 16; i < tiling.weight_bytes; i += F.threads() * 16)
        *reinterpret_cast<uint4 *>(shared + weights + i) =
            *reinterpret_cast<const uint4 *>(packed + i / 4);
    cf::publish_to_bulk_copies(); // wgmma reads them the same way
    const Order &order = tiling.order;
    const int count = F.row_reuse == 1 ? 8 * order.steps : 4 * (2 * order.full + order.odd);
    for (int i = threadIdx.x; i < count; i += F.threads()) {
        const Order::Tap tap =
            F.row_reuse == 1 ? order.tap(1, i / 8, i / 4 % 2, i % 4) : order.element(i, 0);
        places[i] = tap.r * tiling.pitch + tap.s * tiling.pixel +
                    tap.c * (order.nhwc ? uint32_t(4) : tiling.plane);
    }
    __syncthreads();
    // Where a row tile of this block's strips begins in output channel 0: image and row.
    struct Place {
        int n, row;
    };
    const auto place_of = [&](int row_tile) {
        const int m = tiling.by_row_tiles.quotient(row_tile), u = strip_of(m),
                  n = tiling.by_image_strips.quotient(u);
        return Place{n, ((u - n * tiling.image_strips) * tiling.row_tiles + row_tile -
                         m * tiling.row_tiles) *
                            tiling.tile_rows};
    };
    const int area = tiling.p * tiling.q;

    if (producer >= 0) {
        cf::give_registers<F.producer_registers()>();
        if (producer < tiling.producers) {
            for (int m = loaded; m < strips; ++m) {
                if (m >= tiling.stages)
                    empty[stage_of(m)].wait((tiling.by_stages.quotient(m) - 1) & 1);
                load(m);
            }
            // Nobody leaves before its copies have arrived.
            cf::wait_for_copies();
            return;
        }
        if (tiling.output_stages > 0)
            store_output_tiles(tiling, F.rows, shared, outputs, out_full, out_empty, y,
                               producer - tiling.producers, lane);
        return;
    }
    cf::take_registers<F.consumer_registers()>();

    int ready = 0, released = 0; // strips that were waited for, and that were handed back
    const auto wait_next = [&] {
        full[stage_of(ready)].wait(tiling.by_stages.quotient(ready) & 1);
        ++ready;
    };
    // In order: an arrival for a strip that is not there yet would count for the stage's last one.
    const auto release_next = [&] {
        if (ready == released)
            wait_next();
        empty[stage_of(released)].arrive();
        ++released;
    };

    const int total = strips * tiling.strip_columns;
    const int tasks = (total + F.columns() - 1) / F.columns() * tiling.groups;
    // A warp's columns, of which the last of a block may have none, and the first and last row tile
    // that they touch.
    struct Columns {
        int group, begin, end, first, last;
    };
    const auto columns_of = [&](int task) {
        constexpr int Mine = 8 * F.pixels();
        // Mostly there is one group.
        const int block = tiling.groups == 1 ? task : tiling.by_groups.quotient(task);
        const int group = task - block * tiling.groups;
        const int begin = block * F.columns() + (F.wgmma ? warp % 4 * Mine : 0);
        const int end = min(begin + Mine, total);
        return Columns{group, begin, end, tiling.by_row_columns.quotient(min(begin, total - 1)),
                       tiling.by_row_columns.quotient(end - 1)};
    };
    for (int round = 0;; ++round) {
        int task = round * F.warpgroups + warp / 4; // of a warpgroup; its warps need not agree
        if constexpr (!F.wgmma) {
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
            while (released < tiling.by_row_tiles.quotient(own.first))
                release_next();
            while (ready <= tiling.by_row_tiles.quotient(own.last))
                wait_next();

            work.shared = shared;
            work.places = places + t;
            const int64_t skipped = int64_t(own.group) * order.steps * T::StepFloats;
            if constexpr (F.wgmma)
                // A reduction tells the compiler that all lanes have the same: products read
                // descriptors from uniform registers.
                work.weights =
                    T::descriptor(__reduce_max_sync(~0u, base + weights + uint32_t(skipped) * 4));
            else
                work.weights =
                    (tiling.weight_bytes ? reinterpret_cast<const float *>(shared + weights)
                                         : packed) +
                    skipped + lane * T::Regs;
            work.pitch = tiling.pitch;
            // The last columns of a block repeat the very last one.
#pragma unroll
            for (int v = 0; v < T::Pixels; ++v) {
                const int column = min(own.begin + g + 8 * v, total - 1);
                const int row_tile = tiling.by_row_columns.quotient(column);
                const int m = tiling.by_row_tiles.quotient(row_tile);
                const int below = row_tile - m * tiling.row_tiles; // in the strip
                at[v] = stage_of(m) * tiling.stage_bytes +
                        below * (tiling.tile_rows * tiling.stride_h) * tiling.pitch + tiling.begin +
                        (column - row_tile * tiling.row_columns) * tiling.column_step;
            }
            if constexpr (!F.weight_stationary)
                add_products(work, order, at, tiling.stride_h * tiling.pitch);
        }
        // Registers are few up to here: columns are worked out anew, and where there are three
        // warpgroups, what follows from the lane.
        int self = lane;
        if constexpr (F.warpgroups == 3)
            cf::keep(self);
        cf::keep(task);
        const int g = self / 4, t = self % 4;
        const Columns own = columns_of(task);
        const int group = own.group, begin = own.begin, end = own.end;
        const int first = own.first, last = own.last;

        // A lane's sums of a tile are two columns (e) by two channels or pixels (o).
        const auto index = [](int e, int o) { return F.pixel_rows ? 2 * e + o : e + 2 * o; };
        // Where pixels share a column o is one of them, and the lane's first is 2 t modulo their
        // number.
        const bool single = order.pixels_per_column == 1;
        const int shift = __ffs(order.pixels_per_column) - 1;
        // Of the group: what lanes differ in, and the rest.
        const int mine = F.pixel_rows ? 2 * t >> shift : g;
        const auto others = [&](int i, int o) {
            return F.pixel_rows ? (i * 8 >> shift) + (single ? o : 0) : i * 16 + 8 * o;
        };
        const auto channel = [&](int i, int o) { return mine + others(i, o); };
        // Within an image elements are counted in 31 bits.
        const int step_k = order.nhwc ? 1 : area;
        const int step_q = order.nhwc ? tiling.k : 1;
        const int step_row = tiling.q * step_q;
        float *to[2]; // in y, of the first row in the lane's first channel
        int rows[2];  // that are stored
        int from[2];  // row tile
        uint32_t along[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int column = begin + (F.pixel_rows ? g + 8 * e : 2 * t + e);
            const int row_tile = tiling.by_row_columns.quotient(min(column, total - 1));
            const Place place = place_of(row_tile);
            from[e] = row_tile;
            along[e] = (column - row_tile * tiling.row_columns) * order.pixels_per_column +
                       (F.pixel_rows ? 2 * t & (order.pixels_per_column - 1) : 0);
            to[e] = y + int64_t(place.n) * (tiling.k * area) +
                    (place.row * step_row + int(along[e]) * step_q +
                     (group * tiling.channels + mine) * step_k);
            rows[e] = column < total ? tiling.p - place.row : 0;
        }
        const int channels = tiling.k - group * tiling.channels;
        const auto ahead = [&](int i, int o) { // elements
            return others(i, o) * step_k + (single ? 0 : o * step_q);
        };
        const auto height = [&](int e, int i, int o) { // rows that are stored
            return channel(i, o) < channels ? rows[e] : 0;
        };

        const auto finish_sums = [&] {
            if (!finish.affine && !finish.residual && !finish.limited)
                return;
#pragma unroll
            for (int i = 0; i < F.channel_tiles; ++i) {
#pragma unroll
                for (int o = 0; o < 2; ++o) {
                    const int k = channel(i, o);
                    const float bias = finish.bias && k < channels
                                           ? finish.bias[group * tiling.channels + k]
                                           : 0.0f;
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
            const auto walk = [&](auto vector) {
#pragma unroll
                for (int i = 0; i < F.channel_tiles; ++i)
#pragma unroll
                    for (int o = 0; o < 2; ++o)
#pragma unroll
                        for (int e = 0; e < 2; ++e)
                            if (!vector.value || index(e, o) % 2 == 0)
                                body(vector, i, o, e);
            };
            if (tiling.vector_stores)
                walk(std::true_type());
            else
                walk(std::false_type());
        };
        const auto store = [&] {
            each([&](auto vector, int i, int o, int e) {
                const int high = height(e, i, o);
                float *there = to[e] + ahead(i, o);
#pragma unroll
                for (int row = 0; row < F.rows; ++row) {
                    const float *v = work.sum[row][i].value + index(e, o);
                    if constexpr (vector.value)
                        cf::store_if(row < high, there, v[0], v[1]);
                    else if (row < high)
                        *there = v[0];
                    there += step_row;
                }
            });
        };

        if constexpr (F.weight_stationary) {
            const int most = __reduce_max_sync(~0u, max(max(rows[0], rows[1]), 0));
            work.add_stationary(at, min(most, tiling.tile_rows), [&] {
                finish_sums();
                store();
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    to[e] += F.rows * step_row, rows[e] -= F.rows;
            });
            continue;
        }
        finish_sums();
        if (tiling.output_stages > 0) {
            // Stages are taken in the order of output tiles, so the first that is not whole yet
            // waits for nobody.
            const int output_tile = first * tiling.groups + group;
            const int round = tiling.by_output_stages.quotient(output_tile);
            const int stage = output_tile - round * tiling.output_stages;
            const auto stage_of = [&](int row_tile) { // counted on into the next round
                return stage + (row_tile - first) * tiling.groups;
            };
            const auto wrap = [&](int stage) {
                return stage < tiling.output_stages ? stage : stage - tiling.output_stages;
            };
            for (int row_tile = first; row_tile <= last && begin < end; ++row_tile) {
                const int before = round - (stage_of(row_tile) < tiling.output_stages);
                if (before >= 0)
                    out_empty[wrap(stage_of(row_tile))].wait(before & 1);
            }
            const uint32_t row_bytes = tiling.q * 4;
            uint32_t there[2],
                origin[2]; // of the lane's first channel: in the stage, its plane in y
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                there[e] = base + outputs + wrap(stage_of(from[e])) * tiling.output_stage_bytes +
                           mine * tiling.output_plane + along[e] * 4;
                origin[e] = uint32_t(uint64_t(to[e])) - along[e] * 4;
            }
            each([&](auto vector, int i, int o, int e) {
                // A plane begins as far behind a sector as its place in y does.
                const uint32_t at = there[e] + others(i, o) * tiling.output_plane +
                                    ((origin[e] + uint32_t(others(i, o) * area) * 4) & 31) +
                                    (single ? 0 : o * 4);
                const bool live = height(e, i, o) > 0;
#pragma unroll
                for (int row = 0; row < F.rows; ++row) {
                    const float *v = work.sum[row][i].value + index(e, o);
                    if constexpr (vector.value)
                        cf::store_if(live, at + row * row_bytes, v[0], v[1]);
                    else
                        cf::store_if(live, at + row * row_bytes, v[0]);
                }
            });
            cf::publish_to_bulk_copies();
            for (int row_tile = first; row_tile <= last && begin < end; ++row_tile)
                out_full[wrap(stage_of(row_tile))].arrive(
                    uint32_t(min(end, (row_tile + 1) * tiling.row_columns) -
                             max(begin, row_tile * tiling.row_columns)));
            continue;
        }
        store();
    }
    while (released < strips - tiling.stages) // later ones nobody waits for
        release_next();
#else
    cf::not_compiled();
#endif
}

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
    if (!cf::has_few_channels(p, no))
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
    // docs/kernels/small.md.
    const bool split_nchw = p.layout == CF_NCHW && state.choice.three;
    const double fitted = (split_nchw ? 0.85 : 1) * (best.tiling.output_stages ? 0.7 : 1);
    const double launches = double(p.n) / chunk.n;
    plan.us = launches * (cf::ShortLaunchUs +
                          cf::clocks_us(device, fitted * best.clocks, cf::TensorClock)) +
              (state.sums.follow ? cf::finish_us(query) : 0);
    return true;
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
    "NaN of every sum that it is part of, and an infinite one may in math tf32; up to 7 outputs "
    "beside them in a row may become NaN as well, and padding is multiplied as zeros, so that a "
    "weight that is not finite gives NaN there",
    CF_NEEDS_SM90A,
    nullptr, // configs
    cf::Row<State, plan, cf::prepare_kernel<State>, launch, pack>::functions(),
};
