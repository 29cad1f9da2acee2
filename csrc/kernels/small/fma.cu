// small_fma: few channels in exact fp32, at the rate of the multiply-add units.
//
// With 1 to 32 channels on either side a matrix product has nothing to tile: 4 output channels fill
// a quarter of a 16-wide tile. So the tile is made of pixels instead. A thread owns a column of
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
#include "kernels/small/fma_plan.cuh"

#include "core/constant.cuh"
#include "core/element.cuh"
#include "core/output.cuh"
#include "ptx/bulk.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/grid.cuh"
#include "ptx/load_store.cuh"
#include "ptx/predicated.cuh"

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
__device__ __forceinline__ int clamp(int v, int least, int most) {
    return min(max(v, least), most);
}
#endif

template <int R, int Rows, int Columns, int Stride, bool Constant>
__global__ void __launch_bounds__(Warps<R, Rows, Columns, Stride, Constant> * 32, 1)
    small_fma_kernel(const Tiling tiling, const float *__restrict__ x, const Filter filter,
                     float *__restrict__ y, const cf::Finish finish) {
#if CF_SM90
    extern __shared__ __align__(128) float shared[];
    __shared__ cf::Barrier full[MaxStages], empty[MaxStages], out_full[MaxOutputStages];
    // Rounds of the output ring that were stored, the even and the odd ones apart: with one bit
    // each, a warp may be three rounds ahead of the oldest stage (lay_out_outputs sees to it).
    __shared__ cf::Barrier out_empty[2][MaxOutputStages];
    __shared__ int taken; // tasks
    const uint32_t inputs = cf::shared_address(shared);
    const uint32_t outputs = inputs + tiling.stages * tiling.stage_bytes;
    // Where they are in shared memory.
    const uint32_t weights = outputs + tiling.output_stages * tiling.output_stage_bytes;
    constexpr int Threads = Warps<R, Rows, Columns, Stride, Constant> * 32;
    const int consumers = Threads / 32 - tiling.producers; // warps
    const int warp = int(__reduce_max_sync(~0u, threadIdx.x / 32)), lane = threadIdx.x % 32;

    // This block's strips are blockIdx.x, blockIdx.x + gridDim.x, ..., and of them tiling.groups
    // groups.
    const int first_group = blockIdx.y * tiling.groups;
    const int strips = (tiling.strips - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x);
    const auto strip_of = [&](int m) { return int(blockIdx.x) + m * int(gridDim.x); };
    // The ring's round in which strip m comes, and into which stage.
    const auto round_of = [&](int m) { return tiling.by_stages.quotient(m); };
    const auto stage_of = [&](int m) { return m - round_of(m) * tiling.stages; };

    // Warps that copy: producers, or all before they compute.
    const int copiers = tiling.producers ? tiling.producers : Threads / 32;
    const int copier = tiling.producers ? warp - consumers : warp;
    const auto load = [&](int m) {
        const int u = strip_of(m), n = tiling.by_image_strips.quotient(u);
        const int top =
            (u - n * tiling.image_strips) * tiling.row_tiles * (Rows * Stride) - tiling.pad_top;
        const int64_t area = int64_t(tiling.h) * tiling.w;
        const float *from = x + int64_t(n) * tiling.c * area;
        const uint32_t to = inputs + stage_of(m) * tiling.stage_bytes;
        cf::Barrier &barrier = full[stage_of(m)];
        if (tiling.bulk_copies > 0) {
            if (lane == 0 && copier == 0) {
                const int64_t skipped = int64_t(top) * tiling.w;
                const auto bytes = uint32_t(min(tiling.bulk_bytes, tiling.bulk_end - skipped * 4));
                barrier.arrive_and_expect(bytes * tiling.bulk_copies);
#pragma unroll 1
                for (int c = 0; c < tiling.bulk_copies; ++c)
                    cf::copy_bulk(to + c * tiling.plane, from + c * area + skipped, bytes, barrier);
            }
            return;
        }
#pragma unroll 2
        for (int e = copier * 32 + lane; e < tiling.pieces; e += copiers * 32) {
            const int line = tiling.by_row_pieces.quotient(e), piece = e - line * tiling.row_pieces;
            const int c = tiling.by_rows.quotient(line), h = top + line - c * tiling.rows;
            const bool live = h >= 0 && h < tiling.h;
            const float *row = from + c * area + (live ? int64_t(h) * tiling.w : 0);
            const int along = piece * tiling.piece;
            const uint32_t there = to + line * tiling.pitch + tiling.left + along;
            if (tiling.piece == 16)
                cf::copy16_async(there, row + along / 4, live);
            else
                cf::copy4_async(there, row + along / 4, live);
        }
        barrier.arrive_after_copies();
    };

    // Where a row tile of this block's strips begins in output channel 0: image and row.
    struct Place {
        int n, row;
    };
    const auto place_of = [&](int row_tile) {
        const int m = tiling.by_row_tiles.quotient(row_tile), u = strip_of(m),
                  n = tiling.by_image_strips.quotient(u);
        return Place{n, ((u - n * tiling.image_strips) * tiling.row_tiles + row_tile -
                         m * tiling.row_tiles) *
                            Rows};
    };
    // Stores an output tile from its stage, eight lanes to a plane: its whole sectors as one bulk
    // copy, the elements before and behind them one by one.
    const int64_t area = int64_t(tiling.p) * tiling.q;
    const auto store = [&](int output_tile) {
        const int round = tiling.by_output_stages.quotient(output_tile);
        const int stage = output_tile - round * tiling.output_stages;
        const int row_tile = tiling.by_groups.quotient(output_tile);
        const int group = first_group + output_tile - row_tile * tiling.groups;
        const int channel = group * ThreadChannels; // the first
        const int k = lane / 8, element = lane % 8;
        const Place place = place_of(row_tile);
        const int rows = channel + k < tiling.k ? clamp(tiling.p - place.row, 0, Rows) : 0;
        const uint64_t begin = __cvta_generic_to_global(
            y + (int64_t(place.n) * tiling.k + channel + k) * area + int64_t(place.row) * tiling.q);
        const uint64_t end = begin + uint32_t(rows * tiling.q) * 4;
        const uint64_t first = (begin + 31) & ~uint64_t(31), last = end & ~uint64_t(31);
        const uint64_t before = begin + element * 4, behind = max(first, last) + element * 4;
        const uint32_t from = outputs + stage * tiling.output_stage_bytes +
                              k * tiling.output_plane + uint32_t(begin & 15) - uint32_t(begin);
        out_full[stage].wait(round & 1);
        if (element == 0 && first < last)
            cf::store_bulk(first, from + uint32_t(first), uint32_t(last - first));
        if (before < min(first, end))
            cf::store_global(before, cf::load_shared_f32(from + uint32_t(before)));
        if (behind < end)
            cf::store_global(behind, cf::load_shared_f32(from + uint32_t(behind)));
        cf::wait_for_stores_to_read();
        out_empty[round & 1][stage].arrive();
    };

    // Each warp begins with the task of its number: taken from the count, the first ones would
    // gather on some of the four schedulers.
    if (threadIdx.x == 0)
        taken = consumers;
    if (warp == min(consumers, Threads / 32 - 1)) {
        if (lane < tiling.stages) {
            full[lane].init(tiling.bulk_copies > 0 ? 1 : copiers * 32);
            empty[lane].init(consumers * 32);
        }
        if (lane < tiling.output_stages) {
            out_full[lane].init(tiling.q);
            out_empty[0][lane].init(32);
            out_empty[1][lane].init(32);
        }
        cf::publish_barriers();
    }
    cf::let_next_kernel_begin();
    cf::wait_for_kernels_before();
    // What the bulk copies need is there; the others need to be told of the barriers.
    if (tiling.bulk_copies == 0) {
        // The columns of the padding are written only here.
        for (int i = threadIdx.x; i < tiling.stages * tiling.c * tiling.rows; i += Threads) {
            const int lines = tiling.c * tiling.rows, stage = i / lines, line = i - stage * lines;
            float *row =
                shared + (stage * tiling.stage_bytes + line * tiling.pitch + tiling.left) / 4;
            for (int j = 1; j <= tiling.pad_left; ++j)
                row[-j] = 0;
            for (int j = 0; j < tiling.pad_right; ++j)
                row[tiling.w + j] = 0;
        }
        __syncthreads();
    }
    // Asked for before the images, behind which it would wait.
    const float *packed = filter.packed + blockIdx.y * filter.floats; // of the block's split
    float4 first_weights = {};
    if (!Constant && threadIdx.x * 4 < filter.floats)
        first_weights = cf::load_global_f32x4(packed + threadIdx.x * 4);
    // Where there are producers, consumers wait for the first strip to be on its way only.
    const int fit = min(strips, tiling.stages);
    const int preloaded = tiling.producers > 0 ? min(fit, 1) : fit;
    if (copier >= 0) {
        __syncwarp();
        for (int m = 0; m < preloaded; ++m)
            load(m);
    }
    if (!Constant) {
        auto *to = reinterpret_cast<float4 *>(shared + (weights - inputs) / 4);
        const auto *from = reinterpret_cast<const float4 *>(packed);
        if (threadIdx.x * 4 < filter.floats)
            to[threadIdx.x] = first_weights;
        for (int i = threadIdx.x + Threads; i * 4 < filter.floats; i += Threads)
            to[i] = from[i];
    }
    __syncthreads();

    if (warp >= consumers) {
        for (int m = preloaded; m < fit; ++m)
            load(m);
        // Of a strip; the two producers take turns.
        const int output_tiles = tiling.output_stages ? tiling.row_tiles * tiling.groups : 0;
        int output_tile = warp - consumers;
        for (int m = 0; m < strips; ++m) {
            for (; output_tile < (m + 1) * output_tiles; output_tile += tiling.producers)
                store(output_tile);
            if (m + tiling.stages < strips) {
                empty[stage_of(m)].wait(round_of(m) & 1);
                load(m + tiling.stages);
            }
        }
        // Nobody leaves before its copies have arrived.
        cf::wait_for_copies();
        return;
    }

    const int total = strips * tiling.strip_columns;
    const int tasks = (tiling.producers ? (total + 31) / 32 : tiling.column_blocks) * tiling.groups;
    int ready = 0, released = 0; // strips that were waited for, and that were handed back
    const auto wait_next = [&] {
        full[stage_of(ready)].wait(round_of(ready) & 1);
        ++ready;
    };
    // In order: an arrival for a strip that is not there yet would count for the stage's last one.
    const auto release_next = [&] {
        if (ready == released)
            wait_next();
        empty[stage_of(released)].arrive();
        ++released;
    };
    const auto next = [&] {
        int task = 0;
        if (lane == 0)
            task = atomicAdd(&taken, 1);
        // A reduction's result is known to be the same in all lanes.
        return int(__reduce_max_sync(~0u, unsigned(task)));
    };
    // Of the block's split, counted by ThreadChannels. Worked out here: within the loop one kernel
    // would get its weights in vector registers.
    const int first_weight = Constant ? filter.begin + first_group * tiling.c * tiling.s * R : 0;
    for (int task = warp; task < tasks; task = next()) {
        // Constant weights stay in the nearest cache where a group's tasks follow each other. They
        // do where all strips are there together; otherwise strips come one by one.
        int block, group;
        if (tiling.producers > 0) {
            block = tiling.by_groups.quotient(task), group = task - block * tiling.groups;
        } else {
            group = tiling.by_column_blocks.quotient(task);
            block = task - group * tiling.column_blocks;
        }
        const int begin = block * 32;
        if (begin >= total)
            continue;
        const int first = tiling.by_row_columns.quotient(begin); // row tile
        const int last = tiling.by_row_columns.quotient(min(begin + 31, total - 1));
        while (released < tiling.by_row_tiles.quotient(first))
            release_next();
        while (ready <= tiling.by_row_tiles.quotient(last))
            wait_next();

        // The last columns of a block repeat the very last one.
        const int column = min(begin + lane, total - 1);
        const int row_tile = tiling.by_row_columns.quotient(column);
        const int q = (column - row_tile * tiling.row_columns) * Columns;
        const int m = tiling.by_row_tiles.quotient(row_tile);
        const int below = row_tile - m * tiling.row_tiles; // in the strip

        // Addresses within the column: every other row's, to which the loop adds where it is, or
        // that and a row, in uniform registers.
        constexpr int Window = (Rows - 1) * Stride + R;
        constexpr int Every = 2;
        uint32_t at[(Window + Every - 1) / Every];
        at[0] = inputs + stage_of(m) * tiling.stage_bytes + below * (Rows * Stride) * tiling.pitch +
                (q * tiling.stride_w - tiling.pad_left) * 4 + tiling.left;
#pragma unroll
        for (int a = 0; a < (Window + Every - 1) / Every; ++a) {
            if (a > 0)
                at[a] = at[a - 1] + Every * tiling.pitch;
            cf::keep(at[a]);
        }

        float sum[ThreadChannels][Rows][Columns] = {};
        const int channel = (first_group + group) * ThreadChannels; // the first
        // Counts through constant memory, or through what shared memory has of the filter. A
        // multiple of ThreadChannels, so that the compiler reads two weights at a time.
        int weight = (first_weight + group * tiling.c * tiling.s * R) * ThreadChannels;
        // The weights of filter row r of the column whose weights begin at `weight`.
        const auto weights_of = [&](int r, float(&w)[ThreadChannels]) {
            if constexpr (Constant) {
#pragma unroll
                for (int k = 0; k < ThreadChannels; ++k)
                    w[k] = constant_filter[weight + r * ThreadChannels + k];
            } else {
                const float4 four =
                    cf::load_shared_f32x4(weights + (weight + r * ThreadChannels) * 4);
                w[0] = four.x, w[1] = four.y, w[2] = four.z, w[3] = four.w;
            }
        };
#pragma unroll 1
        for (uint32_t plane = 0; plane < tiling.c * tiling.plane; plane += tiling.plane) {
            // Of a row of the window: here and, with a row added, one below.
            const auto moved_to = [&](uint32_t here, uint32_t(&moved)[Every]) {
                moved[0] = here;
#pragma unroll
                for (int a = 1; a < Every; ++a) {
                    moved[a] = moved[a - 1] + tiling.pitch;
                    cf::keep(moved[a]);
                }
            };
            if constexpr (Columns == 1) {
#pragma unroll 1
                for (uint32_t here = plane; here < plane + tiling.s * 4; here += 4) {
                    uint32_t moved[Every];
                    moved_to(here, moved);
                    float window[Window];
#pragma unroll
                    for (int j = 0; j < Window; ++j)
                        window[j] = cf::load_shared_f32(at[j / Every] + moved[j % Every]);
#pragma unroll
                    for (int r = 0; r < R; ++r) {
                        float w[ThreadChannels];
                        weights_of(r, w);
#pragma unroll
                        for (int k = 0; k < ThreadChannels; ++k) {
#pragma unroll
                            for (int j = 0; j < Rows; ++j)
                                sum[k][j][0] = fmaf(window[j * Stride + r], w[k], sum[k][j][0]);
                        }
                    }
                    weight += R * ThreadChannels;
                }
            } else {
                // The columns that both of a thread's need, in words that are aligned behind the
                // first.
                uint32_t moved[Every];
                moved_to(plane, moved);
                float window[Stride + 3][Window];
#pragma unroll
                for (int j = 0; j < Window; ++j) {
                    const uint32_t from = at[j / Every] + moved[j % Every];
                    window[0][j] = cf::load_shared_f32(from);
                    if constexpr (Stride == 1) {
                        const float2 two = cf::load_shared_f32x2<4>(from);
                        window[1][j] = two.x, window[2][j] = two.y;
                        window[3][j] = cf::load_shared_f32<12>(from);
                    } else {
                        const float4 four = cf::load_shared_f32x4<4>(from);
                        window[1][j] = four.x, window[2][j] = four.y;
                        window[3][j] = four.z, window[4][j] = four.w;
                    }
                }
#pragma unroll
                for (int s = 0; s < 3; ++s) {
#pragma unroll
                    for (int r = 0; r < R; ++r) {
                        float w[ThreadChannels];
                        weights_of(s * R + r, w);
#pragma unroll
                        for (int k = 0; k < ThreadChannels; ++k) {
#pragma unroll
                            for (int j = 0; j < Rows; ++j) {
#pragma unroll
                                for (int i = 0; i < Columns; ++i)
                                    sum[k][j][i] = fmaf(window[i * Stride + s][j * Stride + r],
                                                        w[k], sum[k][j][i]);
                            }
                        }
                    }
                }
                weight += 3 * R * ThreadChannels;
            }
        }

        const auto [n, row] = place_of(row_tile);
        const int rows = tiling.p - row, channels = tiling.k - channel; // that are stored
        const int64_t place =
            (int64_t(n) * tiling.k + channel) * area + int64_t(row) * tiling.q + q;
        if (finish.affine) {
#pragma unroll
            for (int k = 0; k < ThreadChannels; ++k) {
                const float bias = finish.bias && k < channels ? finish.bias[channel + k] : 0.0f;
#pragma unroll
                for (int j = 0; j < Rows; ++j)
                    for (float &v : sum[k][j])
                        v = fmaf(finish.scale, v, bias);
            }
        }
        if (finish.residual) {
#pragma unroll
            for (int k = 0; k < ThreadChannels; ++k) {
                const float *from = static_cast<const float *>(finish.residual) + place + k * area;
#pragma unroll
                for (int j = 0; j < Rows; ++j) {
#pragma unroll
                    for (int i = 0; i < Columns; ++i)
                        if (k < channels && j < rows)
                            sum[k][j][i] += from[i];
                    from += tiling.q;
                }
            }
        }
        if (finish.limited) {
#pragma unroll
            for (int k = 0; k < ThreadChannels; ++k)
#pragma unroll
                for (int j = 0; j < Rows; ++j)
                    for (float &v : sum[k][j])
                        v = cf::between(v, finish.least, finish.most);
        }
        if (Columns == 1 && tiling.output_stages > 0) {
            // Stages are taken in the order of output tiles, so the first that is not whole yet
            // waits for nobody.
            const auto round_of = [&](int l) {
                return tiling.by_output_stages.quotient(l * tiling.groups + group);
            };
            const auto stage_of = [&](int l) {
                return l * tiling.groups + group - round_of(l) * tiling.output_stages;
            };
            for (int l = first; l <= last; ++l) {
                const int before = round_of(l) - 1;
                if (before >= 0)
                    out_empty[before & 1][stage_of(l)].wait(before >> 1 & 1);
            }
            uint32_t to[ThreadChannels];
#pragma unroll
            for (int k = 0; k < ThreadChannels; ++k) {
                const auto begin = uint32_t(uint64_t(y + place - q + k * area));
                to[k] = outputs + stage_of(row_tile) * tiling.output_stage_bytes +
                        k * tiling.output_plane + (begin & 15) + q * 4;
                cf::keep(to[k]);
            }
            const bool live = begin + lane < total; // not one that repeats the last column
            uint32_t below = 0;
#pragma unroll
            for (int j = 0; j < Rows; ++j) {
#pragma unroll
                for (int k = 0; k < ThreadChannels; ++k)
                    cf::store_if(live, to[k] + below, sum[k][j][0]);
                below += tiling.q * 4;
                cf::keep(below);
            }
            cf::publish_to_bulk_copies();
            if (live)
                out_full[stage_of(row_tile)].arrive();
            continue;
        }
        uint64_t to[ThreadChannels];
#pragma unroll
        for (int k = 0; k < ThreadChannels; ++k)
            to[k] = __cvta_generic_to_global(y + place + k * area);
        // Where no address of the tile carries into the upper half, one addition leads to the next.
        const uint64_t reach = uint64_t((ThreadChannels - 1) * area + int64_t(Rows) * tiling.q) * 4;
        const bool low = (to[0] & UINT32_MAX) + reach <= UINT32_MAX;
        if (channels >= ThreadChannels && __all_sync(~0u, low)) {
#pragma unroll
            for (int j = 0; j < Rows; ++j) {
                const bool live = j < rows;
#pragma unroll
                for (int k = 0; k < ThreadChannels; ++k) {
                    if (live)
                        cf::store_global(to[k], sum[k][j]);
                    cf::advance_low(to[k], tiling.q * 4);
                }
            }
        } else {
#pragma unroll
            for (int k = 0; k < ThreadChannels; ++k) {
#pragma unroll
                for (int j = 0; j < Rows; ++j) {
                    if (k < channels && j < rows)
                        cf::store_global(to[k], sum[k][j]);
                    to[k] += tiling.q * 4;
                }
            }
        }
    }
    while (released < strips - tiling.stages) // later ones nobody waits for
        release_next();
    // As producers do, where these have copied.
    cf::wait_for_copies();
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
    if (!cf::has_few_channels(p, no))
        return false;
    if (p.stride_h > 2 || p.r > MaxFilter || p.s > MaxFilter)
        return no("takes vertical strides up to 2 and filters up to %d x %d; this has %d and "
                  "%d x %d",
                  MaxFilter, MaxFilter, p.stride_h, p.r, p.s);
    if (!constant && !common_height(p.r))
        return no("reads weights from shared memory for filters of 3, 5 and 7 rows; this has %d",
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
                  "need in shared memory, which has %d bytes",
                  p.c, p.w, device.shared_per_block);
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
    return state.kernel.prepare();
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
