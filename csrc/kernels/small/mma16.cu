// small_mma16: few channels on tensor cores, 16-bit operands and f32 sums.
//
// An implicit product without tiles in memory: a row of it is a position (an output pixel), a
// column an output channel, and the sum runs along the filter. The 16 positions of a task lie
// beside each other; lanes read the operand of one mma.sync, 16 positions by 16 elements,
// straight from the image in shared memory, where channels lie beside each other and so the window
// of a row of the filter is contiguous. What was read from one row of x serves all rows of the
// filter that meet it: a task is 4 to 8 rows of y high, and its sums stay in registers.
//
// - One input channel: a position is two neighbouring pixels, columns are channels times those two,
//   with weights shifted by a pixel, and a step of the sum is 8 elements in two rows of the filter.
//   Four output channels fill 8 columns, and 7 x 7 products of two pixels 4 steps of 16. All pairs
//   of rows begin with an even one, so that each is read once: odd rows of y have weights of their
//   own, which begin a row earlier.
// - Weights are packed once as lanes hold them and stay in shared memory: one load of 16 bytes
//   serves 8 to 16 mma.sync.
// - Positions of a lane are 2 l and 2 l + 1: reads of 1, 2, 4 and 12 channels meet no bank twice,
//   and in NCHW a lane holds two neighbours of a row of y, which it stores together. In NHWC a lane
//   holds up to 8 neighbouring channels, and stores them together.
// - Blocks are persistent, one per multiprocessor. Four producer warps load images or strips of
//   their rows into a ring of stages; twelve compute. Rows that lie in shared memory as in x come
//   by bulk copies, as do images in NCHW, whose channels are interleaved from shared memory;
//   whatever has padding or is to be rounded comes through registers. Consumers only know where
//   among 16 bytes a copy began.
// - Where rows of y are no whole sectors of 32 bytes, outputs gather in shared memory in the order
//   of y and leave by bulk copies. A warp stores instead of loading then. Strips of an image in
//   NCHW gather together where there is room, as their channels by themselves are short.
// - Where strips are few, all warps load what their block needs and then compute, and blocks that
//   would have none share the tasks of a strip. A launch may begin before the one ahead of it ends.
// - Filters of other heights than 3, 5 and 7, and such as do not fit, take a kernel that reads all
//   its operands anew for each row of the filter.
//
// What fills up a step meets weights of zero, which makes a NaN of an infinity. math fp32 is
// refused: tensor cores truncate their sums.
//
// Floor: the bytes of x and y over the bandwidth, or 6 clocks of a quarter of a multiprocessor per
// mma.sync. Expected, f16 NCHW, N = 10000: 1 -> 4 k7 52 us of products and 153 of memory; 4 -> 16
// k7 137 and 116; 1 -> 12 k5 85 and 266; 12 -> 24 k5 215 and 155.
#include "core/element.cuh"
#include "core/estimate.cuh"
#include "core/output.cuh"
#include "kernels/small/few_channels.cuh"
#include "kernels/small/mma16_load.cuh"
#include "kernels/small/mma16_plan.cuh"
#include "kernels/small/mma16_store.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/grid.cuh"
#include "ptx/mma.cuh"

namespace {

using namespace cf::small16;

constexpr int Threads = Warps * 32;
// What a launch is faster by where it has no ring to fill first
// (benches/results/evidence/h200-small-mma16-tries.txt).
constexpr double PreloadedUs = 2;

#if CF_SM90
// A lane's part of the first or the second of two fragments of weights.
__device__ __forceinline__ uint2 half_of(uint4 two, int second) {
    return second ? make_uint2(two.z, two.w) : make_uint2(two.x, two.y);
}
#endif

// R = 0: any filter and stride, weights from global memory.
template <class Element, int R, int Stride, int Tiles, bool Single>
__global__ void __launch_bounds__(Threads, 1)
    small_mma16_kernel(const __grid_constant__ Tiling tiling, const void *x, const uint4 *filter,
                       char *y, const __grid_constant__ cf::Finish finish) {
#if CF_SM90
    constexpr int Rows = rows_of(Tiles), PositionPixels = Single ? 2 : 1;
    extern __shared__ __align__(128) char shared[];
    __shared__ cf::Barrier full[MaxStages], empty[MaxStages], out_full[MaxOutStages],
        out_empty[MaxOutStages], planar_full[PlanarBuffers];
    char *const out_ring = shared + tiling.weight_bytes;
    char *const ring = out_ring + tiling.out_stages * tiling.out_stage_bytes;
    const uint32_t weights = cf::shared_address(shared), stages = cf::shared_address(ring);
    const uint32_t planar = stages + tiling.stages * tiling.stage_bytes;
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;

    // This block's sets of strips that share an output stage are first, first + gridDim.x, ...: all
    // of their tasks, or where strips are few a share of one.
    const int first = tiling.by_blocks.quotient(int(blockIdx.x));
    const int share = int(blockIdx.x) - first * tiling.blocks_per_strip;
    const int sets =
        (tiling.by_out_stage.quotient(tiling.strips) - first + int(gridDim.x) - 1) / int(gridDim.x);
    const int strips = sets * tiling.strips_per_out_stage;
    const auto place = [&](int m) {
        const int before = tiling.by_out_stage.quotient(m) *
                           tiling.strips_per_out_stage; // in sets before this one
        return place_of(tiling,
                        first * tiling.strips_per_out_stage + before * int(gridDim.x) + m - before,
                        Rows);
    };
    // Of strip m of this block.
    PipelineState in = {tiling.stages}, out = {tiling.out_stages};

    if (threadIdx.x == 0) {
        for (int i = 0; i < tiling.stages; ++i) {
            full[i].init(tiling.producers * 32);
            empty[i].init(Consumers * 32);
        }
        for (int i = 0; i < tiling.out_stages; ++i) {
            out_full[i].init(Consumers * 32);
            out_empty[i].init(32);
        }
        for (int i = 0; i < PlanarBuffers; ++i)
            planar_full[i].init(32);
        cf::publish_barriers();
    }
    // Columns of padding, and what is read beyond rows, are written only here.
    for (uint32_t i = threadIdx.x * 16; i < tiling.stages * tiling.stage_bytes; i += Threads * 16)
        *reinterpret_cast<uint4 *>(ring + i) = make_uint4(0, 0, 0, 0);
    cf::publish_to_bulk_copies();
    __syncthreads();
    cf::let_next_kernel_begin();
    cf::wait_for_kernels_before();
    for (uint32_t i = threadIdx.x * 16; i < tiling.weight_bytes; i += Threads * 16)
        cf::copy16_async(weights + i, reinterpret_cast<const char *>(filter) + i, true);
    cf::end_of_group();

    const int64_t image_of_x = int64_t(tiling.c) * tiling.h * tiling.w;
    const auto x16 = static_cast<const uint16_t *>(x);
    const auto load = [&](int m, int stage, int thread, int threads) {
        const Place at = place(m);
        const int top = at.row * tiling.stride_h - tiling.pad_top;
        const uint32_t to = stages + stage * tiling.stage_bytes;
        if (tiling.from_floats)
            load_strip<Element>(tiling, static_cast<const float *>(x) + at.n * image_of_x, top, to,
                                thread, threads);
        else
            load_strip<Element>(tiling, x16 + at.n * image_of_x, top, to, thread, threads);
    };
    if (tiling.preloaded) { // as many warps for each strip
        const int warps = Warps / strips, m = warp / warps;
        if (m < strips)
            load(m, m, int(threadIdx.x) - m * warps * 32, warps * 32);
    }
    cf::wait_for_groups<0>(); // the weights are there
    __syncthreads();
    if (tiling.preloaded) {
        // All warps compute.
    } else if (warp >= Consumers + tiling.producers) {
        if (!tiling.staged || warp > Consumers + tiling.producers)
            return;
        for (int m = 0; m < strips; m += tiling.strips_per_out_stage, out.next()) {
            out_full[out.index].wait(out.parity);
            store_strip(tiling, y, place(m), Rows, out_ring + out.index * tiling.out_stage_bytes,
                        lane);
            out_empty[out.index].arrive();
        }
        return;
    } else if (warp >= Consumers) {
        const int thread = int(threadIdx.x) - Consumers * 32, threads = tiling.producers * 32;
        const auto load_planes = [&](int m) {
            load_bulk(x16 + place(m).n * image_of_x, uint32_t(image_of_x * 2), 0,
                      planar + m % PlanarBuffers * tiling.planar_bytes,
                      planar_full[m % PlanarBuffers], lane);
        };
        if (tiling.copy == Planes && warp == Consumers)
            for (int m = 0; m < min(strips, PlanarBuffers); ++m)
                load_planes(m);
        for (int m = 0; m < strips; ++m, in.next()) {
            if (m >= tiling.stages)
                empty[in.index].wait(in.parity ^ 1);
            const Place at = place(m);
            const uint32_t to = stages + in.index * tiling.stage_bytes;
            if (tiling.copy == Direct) {
                const int row = tiling.w * tiling.c, top = at.row * tiling.stride_h;
                load_bulk(x16 + at.n * image_of_x + top * row,
                          min(tiling.input_rows, tiling.h - top) * row * 2, tiling.zero_bytes, to,
                          full[in.index], lane);
                continue;
            }
            if (tiling.copy == Planes) {
                planar_full[m % PlanarBuffers].wait(m / PlanarBuffers & 1);
                const auto skew =
                    uint32_t(reinterpret_cast<uint64_t>(x16 + at.n * image_of_x) & 15);
                const uint32_t planes = planar + m % PlanarBuffers * tiling.planar_bytes + skew;
                if (tiling.pixel_elements % 4)
                    interleave<2>(tiling, planes, to, thread, threads);
                else if (planes % 4)
                    interleave<4>(tiling, planes, to, thread, threads);
                else if (tiling.h * tiling.w % 2)
                    interleave_pairs<true>(tiling, planes, to, thread, threads);
                else
                    interleave_pairs<false>(tiling, planes, to, thread, threads);
                full[in.index].arrive();
                wait_for_producers(threads); // all have read
                if (m + PlanarBuffers < strips && warp == Consumers)
                    load_planes(m + PlanarBuffers);
                continue;
            }
            load(m, in.index, thread, threads);
            full[in.index].arrive();
        }
        return;
    }

    // Every warp enters and leaves every strip, in order, so that no arrival counts for another.
    bool inside = tiling.preloaded;
    int m = 0, of_set = 0;
    const auto enter = [&] {
        full[in.index].wait(in.parity);
        if (tiling.staged && m >= tiling.out_stages * tiling.strips_per_out_stage)
            out_empty[out.index].wait(out.parity ^ 1);
        inside = true;
    };
    const auto leave = [&] {
        if (!tiling.preloaded) {
            if (!inside)
                enter();
            empty[in.index].arrive();
            if (tiling.staged && ++of_set == tiling.strips_per_out_stage) {
                out_full[out.index].arrive();
                out.next();
                of_set = 0;
            }
            inside = false;
        }
        in.next();
        ++m;
    };

    const int columns = tiling.row_tiles * tiling.positions;
    const int pair = lane % 4;
    const int workers = (tiling.preloaded ? Warps : Consumers) * tiling.blocks_per_strip;
    // Tasks are counted from strip m on.
    for (int task = warp * tiling.blocks_per_strip + share;; task += workers) {
        for (; m < strips && task >= tiling.tasks; task -= tiling.tasks)
            leave();
        if (m == strips)
            break;
        if (!inside)
            enter();
        const int block = tiling.by_groups.quotient(task), group = task - block * tiling.groups;

        const Place strip = place(m);
        // Of the strip in its stage, which a bulk copy keeps.
        const uint32_t skew_of_stage =
            tiling.copy == Direct
                ? uint32_t(reinterpret_cast<uint64_t>(x)) +
                          (uint32_t(strip.n) * tiling.h + strip.row * tiling.stride_h) * tiling.w *
                              tiling.c * 2 &
                      15
                : 0;
        const int first_position = block * Positions;
        // The lane's two positions: row tile and place in the row. The last ones repeat.
        int tile[2], column[2];
        uint32_t at[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int position = min(first_position + lane / 4 * 2 + i, columns - 1);
            tile[i] = tiling.by_positions.quotient(position);
            column[i] = (position - tile[i] * tiling.positions) * PositionPixels;
            at[i] = stages + in.index * tiling.stage_bytes + skew_of_stage +
                    tile[i] * Rows * tiling.stride_h * tiling.pitch +
                    column[i] * tiling.stride_w * tiling.pixel_elements * 2 + pair * 4;
        }

        cf::Fragment<Element, float> sum[Rows][Tiles];
        const auto multiply = [&](int row, int t, const uint32_t(&a)[4], uint2 b) {
            const uint32_t two[2] = {b.x, b.y};
            sum[row][t].add(a, two);
        };
        if constexpr (R > 0) {
            // Rows of x in registers, each read once for a step. Halves of a step are 8 elements:
            // of one row, or of two, of which the first is even. Odd rows of y have weights that
            // begin a row earlier then.
            constexpr int Each = Single ? 2 : 1, Parities = Each; // rows of x, of y
            constexpr int Window = ((Rows - 1) * Stride + R + Each) / Each;
            constexpr int FilterRows = (R + Each - 1) / Each;
            constexpr int Fragments = fragments_of(FilterRows, Tiles);
            constexpr int StepBytes = Parities * Fragments * FragmentBytes;
            uint32_t weight = weights + group * tiling.steps * StepBytes + lane * 16;
            int step = 0;
#pragma unroll 1
            do { // once at least, so that sums need not be moved around the loop
                uint32_t window[Window][4];
                uint32_t from[2] = {at[0] + step * (32 / Each), at[1] + step * (32 / Each)};
                uint4 two[Parities] = {}; // fragments of weights
                int read = 0;
#pragma unroll
                for (int r = 0; r < FilterRows; ++r) {
                    const int last = (Rows - 1) / Each * Stride + r;
#pragma unroll
                    for (int j = 0; j < Window; ++j) {
                        if (j < read || j > last)
                            continue;
#pragma unroll
                        for (int i = 0; i < 2; ++i) {
                            window[j][i] = cf::load_shared(from[i]);
                            if constexpr (Single) {
                                from[i] += tiling.pitch;
                                window[j][2 + i] = cf::load_shared(from[i]);
                            } else {
                                window[j][2 + i] = cf::load_shared_behind<16>(from[i]);
                            }
                            from[i] += tiling.pitch;
                        }
                    }
                    read = last + 1;
#pragma unroll
                    for (int parity = 0; parity < Parities; ++parity)
#pragma unroll
                        for (int t = 0; t < Tiles; ++t) {
                            const int f = r * Tiles + t;
                            if (f % 2 == 0)
                                two[parity] = cf::load_shared4(weight + (parity * Fragments + f) *
                                                                            FragmentBytes);
                            const uint2 b = half_of(two[parity], f % 2);
#pragma unroll
                            for (int j = parity; j < Rows; j += Parities)
                                multiply(j, t, window[j / Each * Stride + r], b);
                        }
                }
                weight += StepBytes;
            } while (++step < tiling.steps);
        } else {
            static_assert(R > 0 || Tiles % 2 == 0, "rows of fragments are whole pairs");
            const uint4 *weight =
                filter + int64_t(group) * tiling.steps * tiling.filter_rows * (Tiles / 2) * 32 +
                lane;
#pragma unroll 1
            for (int step = 0; step < tiling.steps; ++step) {
#pragma unroll 1
                for (int r = 0; r < tiling.filter_rows; ++r) {
                    uint32_t a[Rows][4];
                    const int low = Single ? 2 * r : r, high = Single && 2 * r + 1 < tiling.r;
#pragma unroll
                    for (int j = 0; j < Rows; ++j)
#pragma unroll
                        for (int i = 0; i < 4; ++i)
                            a[j][i] = cf::load_shared(at[i % 2] + step * (Single ? 16 : 32) +
                                                      (j * tiling.stride_h + low) * tiling.pitch +
                                                      i / 2 * (Single ? high * tiling.pitch : 16));
#pragma unroll
                    for (int t = 0; t < Tiles; ++t) {
                        const uint2 b = half_of(__ldg(weight + t / 2 * 32), t % 2);
#pragma unroll
                        for (int j = 0; j < Rows; ++j)
                            multiply(j, t, a[j], b);
                    }
                    weight += Tiles / 2 * 32;
                }
            }
        }

        // Value v of a fragment is at position v / 2 and in column v % 2 of the lane's two.
        const int channel0 = group * tiling.per_group + pair * tiling.per_pair;
        const auto channel = [&](int t, int v) {
            return channel0 + t * tiling.per_tile + (Single ? 0 : v % 2);
        };
        const auto pixel = [&](int v) { return column[v / 2] + (Single ? v % 2 : 0); };
        int rows[2]; // of a position that exist
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const bool live = first_position + lane / 4 * 2 + i < columns;
            rows[i] = live ? tiling.p - strip.row - tile[i] * Rows : 0;
        }
        const int64_t area = int64_t(tiling.p) * tiling.q;
        const int64_t image = strip.n * area * tiling.k;
        if (finish.affine) {
#pragma unroll
            for (int t = 0; t < Tiles; ++t)
#pragma unroll
                for (int v = 0; v < 4; ++v) {
                    const int k = channel(t, v);
                    const float bias = finish.bias && k < tiling.k ? finish.bias[k] : 0.0f;
#pragma unroll
                    for (int j = 0; j < Rows; ++j)
                        sum[j][t].value[v] = fmaf(finish.scale, sum[j][t].value[v], bias);
                }
        }
        const auto add_residual = [&](auto stored) {
            using T = decltype(stored);
#pragma unroll
            for (int t = 0; t < Tiles; ++t)
#pragma unroll
                for (int v = 0; v < 4; ++v) {
                    const int k = channel(t, v), q = pixel(v);
                    const int64_t row = strip.row + tile[v / 2] * Rows;
                    const int64_t from =
                        image + (tiling.nchw ? k * area + row * tiling.q + q
                                             : (row * tiling.q + q) * tiling.k + k);
                    const int live = q < tiling.q && k < tiling.k ? rows[v / 2] : 0;
                    const T *at = static_cast<const T *>(finish.residual) + from;
#pragma unroll
                    for (int j = 0; j < Rows; ++j) {
                        sum[j][t].value[v] += value_if(j < live, at);
                        at += int64_t(tiling.q) * (tiling.nchw ? 1 : tiling.k);
                    }
                }
        };
        if (finish.residual && tiling.to_floats)
            add_residual(float());
        else if (finish.residual)
            add_residual(Element());
        if (finish.limited) {
#pragma unroll
            for (int j = 0; j < Rows; ++j)
#pragma unroll
                for (int t = 0; t < Tiles; ++t)
#pragma unroll
                    for (int v = 0; v < 4; ++v)
                        sum[j][t].value[v] =
                            cf::between(sum[j][t].value[v], finish.least, finish.most);
        }

        const auto store = [&](auto output, auto staged) {
            using Output = decltype(output);
            constexpr bool Staged = decltype(staged)::value;
            // In y itself, or in the strip's output stage, where each segment keeps its place among
            // 16 bytes.
            using Address = std::conditional_t<Staged, uint32_t, char *>;
            using Offset = std::conditional_t<Staged, int, int64_t>;
            const int pixel_bytes = (tiling.nchw ? 1 : tiling.k) * int(sizeof(Output));
            const Offset row_bytes = Offset(tiling.q) * pixel_bytes;
            const auto area_bytes = Offset(int64_t(tiling.p) * tiling.q * int(sizeof(Output)));
            const Offset plane = !tiling.nchw                    ? Offset(sizeof(Output))
                                 : Staged && tiling.segments > 1 ? Offset(tiling.segment_bytes)
                                                                 : area_bytes;
            Address base;
            uint32_t begin = 0; // of the first segment in y
            if constexpr (Staged) {
                const int row = tiling.strips_per_out_stage > 1 ? strip.row : 0; // of the stage
                base = cf::shared_address(out_ring) + out.index * tiling.out_stage_bytes +
                       row * row_bytes;
                begin = uint32_t(segment_of(tiling, y, {strip.n, strip.row - row}, 0));
            } else {
                base = y + image * Offset(sizeof(Output)) + strip.row * row_bytes;
            }
            Address place_of_lane[2]; // output channel channel0
#pragma unroll
            for (int i = 0; i < 2; ++i)
                place_of_lane[i] =
                    base + channel0 * plane + tile[i] * Rows * row_bytes + column[i] * pixel_bytes;
            // How far behind a multiple of 16 bytes the segment of an output channel begins.
            const auto skew = [&](int k) {
                return Staged
                           ? int(begin + (tiling.segments > 1 ? k * uint32_t(area_bytes) : 0) & 15)
                           : 0;
            };
            const auto store_planes = [&](auto width) {
                constexpr int Width = decltype(width)::value; // pixels of a store
                // Neighbours in a row: both columns of each position, or both positions in a
                // column.
                constexpr int Channels = Single ? 1 : 2, Pixels = 4 / Channels;
#pragma unroll
                for (int t = 0; t < Tiles; ++t)
#pragma unroll
                    for (int i = 0; i < Channels; ++i) {
                        const int k = channel0 + t * tiling.per_tile + i;
                        const Offset along = (t * tiling.per_tile + i) * plane + skew(k);
#pragma unroll
                        for (int u = 0; u < Pixels; u += Width) {
                            const int of = Single ? u / 2 : u, within = Single ? u % 2 : 0;
                            const bool exists = k < tiling.k && column[of] + within < tiling.q;
                            const int live = exists ? rows[of] : 0;
                            Address to = place_of_lane[of] + along + within * int(sizeof(Output));
#pragma unroll
                            for (int j = 0; j < Rows; ++j) {
                                float v[Width];
#pragma unroll
                                for (int e = 0; e < Width; ++e)
                                    v[e] = sum[j][t].value[Single ? u + e : 2 * (u + e) + i];
                                store_run<Output, (Width > 1)>(to, v, j < live);
                                to += row_bytes;
                            }
                        }
                    }
            };
            const auto store_channels = [&](auto vectors) {
                // Neighbouring channels of a pixel: the lane's columns, or with a single input
                // channel every other of them.
                constexpr int Count = Tiles * 2 / PositionPixels;
#pragma unroll
                for (int i = 0; i < 2 * PositionPixels; ++i) {
                    const int v0 = i * (2 / PositionPixels), q = pixel(v0);
                    const int live = q < tiling.q ? tiling.k - channel0 : 0;
                    Address to =
                        place_of_lane[v0 / 2] + (q - column[v0 / 2]) * pixel_bytes + skew(0);
#pragma unroll
                    for (int j = 0; j < Rows; ++j) {
                        float v[Count];
#pragma unroll
                        for (int e = 0; e < Count; ++e)
                            v[e] = Single ? sum[j][e].value[v0] : sum[j][e / 2].value[v0 + e % 2];
                        store_run<Output, decltype(vectors)::value>(to, v,
                                                                    j < rows[v0 / 2] ? live : 0);
                        to += row_bytes;
                    }
                }
            };
            if (tiling.nchw && Single && tiling.per_store == 4)
                store_planes(cf::Constant < Single ? 4 : 2 > {});
            else if (tiling.nchw && tiling.per_store == 2)
                store_planes(cf::Constant<2>{});
            else if (tiling.nchw)
                store_planes(cf::Constant<1>{});
            else if (!Single && tiling.per_store > 1)
                store_channels(std::bool_constant<!Single>{});
            else
                store_channels(std::false_type{});
        };
        const auto store_as = [&](auto output) {
            if (tiling.staged)
                store(output, std::true_type{});
            else
                store(output, std::false_type{});
        };
        if (tiling.to_floats)
            store_as(float());
        else
            store_as(Element());
        if (tiling.staged)
            cf::publish_to_bulk_copies();
    }
#else
    cf::not_compiled();
#endif
}

// The filter as lanes hold it: [group][step][parity of the row of y][two fragments][lane]
// [2][4 elements], where fragments are [row or pair of rows][tile] and an odd one is left alone.
template <class Element, class T>
__global__ void pack_kernel(const Tiling tiling, const T *__restrict__ w, cf::Strides strides,
                            Element *__restrict__ packed, int r_count, int s_count, int elements) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += gridDim.x * blockDim.x) {
        const int fragments = fragments_of(tiling.filter_rows, tiling.column_tiles);
        const int e = i % 4, lane = i / 8 % 32, fragment = i / 256 * 2 + i / 4 % 2;
        const int set = fragment / fragments, of_set = fragment % fragments;
        const int tile = of_set % tiling.column_tiles, row = of_set / tiling.column_tiles;
        const int parity = set % tiling.parities, step = set / tiling.parities % tiling.steps;
        const int group = set / tiling.parities / tiling.steps;
        const int column = lane / 4;
        const int k = group * tiling.per_group + tile * tiling.per_tile +
                      column / 2 * tiling.per_pair + column % 2 * tiling.per_column;
        const bool single = tiling.pixels_per_position == 2;
        const int r = single ? row * 2 + e / 2 - parity : row;
        const int along = (single ? step * 8 : step * 16 + e / 2 * 8) + lane % 4 * 2 + e % 2;
        const int s = along / tiling.pixel_elements - (single ? column % 2 * tiling.stride_w : 0);
        const int c = along % tiling.pixel_elements;
        const bool live =
            k < tiling.k && r >= 0 && r < r_count && s >= 0 && s < s_count && c < tiling.c;
        packed[i] = cf::narrow<Element>(live ? cf::widen(w[strides.at(k, c, r, s)]) : 0.0f);
    }
}

struct State {
    cf::Kernel<Tiling, const void *, const void *, void *, cf::Finish> kernel;
    cf_problem problem;
    Shapes shapes; // of what is packed
    Tiling tiling;
    cf::Sums sums;
};

template <class Element>
void choose_kernel(State &state, dim3 grid, size_t shared) {
    const Tiling &t = state.tiling;
    const auto choose = [&](auto r, auto stride, auto tiles, auto single) {
        state.kernel =
            cf::kernel_of(small_mma16_kernel<Element, decltype(r)::value, decltype(stride)::value,
                                             decltype(tiles)::value, decltype(single)::value != 0>,
                          grid, Threads, shared, true);
    };
    constexpr cf::Constant<0> no;
    constexpr cf::Constant<1> one, yes;
    constexpr cf::Constant<2> two;
    constexpr cf::Constant<MaxTiles> most;
    const bool single = t.pixels_per_position == 2;
    const auto with_rows = [&](auto r) {
        if (t.stride_h == 2)
            choose(r, two, two, no);
        else if (single)
            cf::for_value<1, 2, 3>(t.column_tiles - 1,
                                   [&](auto tiles) { choose(r, one, tiles, yes); });
        else
            cf::for_value<1, 2, 3, MaxTiles>(t.column_tiles - 1,
                                             [&](auto tiles) { choose(r, one, tiles, no); });
    };
    if (t.unrolled)
        cf::for_value<3, 5, 7>((t.unrolled - 3) / 2, with_rows);
    else if (single)
        choose(no, no, most, yes);
    else
        choose(no, no, most, no);
}

double estimate(const cf_query &query, const State &state) {
    const cf::Chunks &chunks = state.sums.chunks;
    const double launches =
        std::max(double(chunks.images) / double(std::max<int64_t>(chunks.most, 1)), 1.0);
    return cf::ShortLaunchUs +
           cf::clocks_us(query.device, launches * state.tiling.clocks, cf::TensorClock) -
           (state.tiling.preloaded ? PreloadedUs : 0) +
           (state.sums.follow ? cf::finish_us(query) : 0);
}

// Blocks that have something to do, one per multiprocessor.
unsigned blocks_of(const Tiling &tiling, unsigned most) {
    return std::min(unsigned(tiling.strips / tiling.strips_per_out_stage * tiling.blocks_per_strip),
                    most);
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    if (p.math != CF_MATH_F16 && p.math != CF_MATH_BF16)
        return no("multiplies 16-bit operands into f32 sums (math f16 or bf16)");
    if (!cf::has_few_channels(p, no))
        return false;
    if (p.r > MaxFilter || p.s > MaxFilter)
        return no("takes filters up to %dx%d; this one is %dx%d", MaxFilter, MaxFilter, p.r, p.s);
    state.sums = cf::Sums(p, cf::sums_follow(p));
    state.shapes = shapes_of(query);
    const Tiling &t = state.tiling = best_tiling(query, state.shapes, state.sums.chunks.most);
    if (t.input_rows == 0)
        return no("keeps strips of %d channels, %d columns and all rows that a task needs in "
                  "shared memory, which has %d bytes, and counts tasks in 31 bits",
                  p.c, p.w, query.device.shared_per_block);
    state.sums.workspace(plan);
    plan.packed_bytes = packed_bytes(state.shapes);
    plan.filter_layout = filter_layout(p, state.shapes);
    plan.us = estimate(query, state);
    const dim3 grid = blocks_of(t, query.device.sm_count);
    cf::small16::for_element(
        p, [&](auto element) { choose_kernel<decltype(element)>(state, grid, shared_bytes(t)); });
    return true;
}

int32_t pack_for(const cf_problem &p, const Tiling &shape, const void *w, void *packed,
                 void *stream) {
    const int elements = int(packed_bytes(shape) / 2);
    if (elements == 0)
        return 0;
    return cf::small16::for_element(p, [&](auto element) {
        using Element = decltype(element);
        const auto run = [&](auto from) {
            return cf::launch(pack_kernel<Element, decltype(from)>, cf::blocks(elements, 256), 256,
                              stream, shape, w, cf::filter_strides(p), packed, p.r, p.s, elements);
        };
        return p.storage == CF_STORE_F32 ? run(float()) : run(Element());
    });
}

// For the unrolled kernel, then for the plain one.
int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    if (const int32_t error = pack_for(state.problem, state.shapes.unrolled, w, packed, stream))
        return error;
    return pack_for(state.problem, state.shapes.plain, w,
                    static_cast<char *>(packed) + packed_bytes(state.shapes.unrolled), stream);
}

// A chunk of fewer images than was planned for has fewer strips in the same tiling: fewer of them
// for each block, or fewer blocks. No block's share grows, so that what was planned to be preloaded
// still fits.
int32_t launch(const State &state, const cf_args &args) {
    const cf_problem &p = state.problem;
    const char *filter = static_cast<const char *>(args.packed) +
                         (state.tiling.unrolled ? 0 : packed_bytes(state.shapes.unrolled));
    return state.sums.launch(
        p, args, "small", [&](int64_t first, int64_t count, float *sums) -> int32_t {
            Tiling tiling = state.tiling;
            tiling.strips = int(count * tiling.strips_per_image);
            auto kernel = state.kernel;
            kernel.grid.x = blocks_of(tiling, kernel.grid.x);
            const int64_t elements = first * p.c * p.h * p.w;
            const char *x =
                static_cast<const char *>(args.x) + elements * (tiling.from_floats ? 4 : 2);
            return kernel.launch(args.stream, tiling, x, filter, sums ? sums : args.y,
                                 sums ? cf::Finish() : cf::finish_of(p, args));
        });
}

} // namespace

extern "C" const cf_row CF_ROW(small, mma16) = {
    "small_mma16",
    "small",
    "few channels by mma.sync in f16 or bf16: operands straight from images streamed through "
    "shared memory",
    "this project",
    "an infinity or a NaN in x may make NaN of outputs whose windows it lies just beside",
    CF_NEEDS_SM90,
    nullptr, // configs
    cf::Row<State, plan, cf::prepare_kernel<State>, launch, pack>::functions(),
};
