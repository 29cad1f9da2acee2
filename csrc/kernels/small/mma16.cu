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
// - Blocks are persistent, one per multiprocessor. Four warps bring images or strips of their rows
//   into a ring of slots; twelve compute. Rows that lie in shared memory as in x come by bulk
//   copies, as do images in NCHW, whose channels are interleaved from shared memory; whatever has
//   padding or is to be rounded comes through registers. Computing warps only know
//   where among 16 bytes a copy began.
// - Where rows of y are no whole sectors of 32 bytes, outputs gather in shared memory in the order
//   of y and leave by bulk copies. A warp stores instead of loading then. Strips of an image in
//   NCHW gather together where there is room, as their channels by themselves are short.
// - Where units are few, all warps bring what their block needs and then compute, and blocks that
//   would have none share the tasks of a unit. A launch may begin before the one ahead of it ends.
// - Filters of other heights than 3, 5 and 7, and such as do not fit, take a kernel that reads all
//   its operands anew for each row of the filter.
//
// An infinity or a NaN in x may reach outputs whose window ends just before it or begins just
// behind it: what fills up a step meets weights of zero. math fp32 is refused: the unit cuts its
// sums.
//
// Floor: the bytes of x and y over the bandwidth, or 6 clocks of a quarter of a multiprocessor per
// mma.sync. Expected, f16 NCHW, N = 10000: 1 -> 4 k7 52 us of products and 153 of memory; 4 -> 16
// k7 137 and 116; 1 -> 12 k5 85 and 266; 12 -> 24 k5 215 and 155.
#include "core/element.cuh"
#include "kernels/small/few_channels.cuh"
#include "ptx/mma.cuh"
#include "core/estimate.cuh"
#include "kernels/small/mma16_plan.cuh"
#include "kernels/small/mma16_load.cuh"
#include "kernels/small/mma16_store.cuh"
#include "core/output.cuh"

namespace {

using namespace cf::small16;

constexpr int Threads = Warps * 32;

#if __CUDA_ARCH__ >= 900
// A lane's part of the first or the second of two fragments of weights.
__device__ __forceinline__ uint2 half_of(uint4 two, int second) {
    return second ? make_uint2(two.z, two.w) : make_uint2(two.x, two.y);
}
#endif

// R = 0: any filter and stride, weights from global memory.
template <class Element, int R, int Stride, int Tiles, bool Single>
__global__ void __launch_bounds__(Threads, 1)
    small_mma16_kernel(const __grid_constant__ Cut cut, const void *x, const uint4 *filter, char *y,
                       const __grid_constant__ cf::Finish finish) {
#if __CUDA_ARCH__ >= 900
    constexpr int Rows = rows_of(Tiles), Joint = Single ? 2 : 1;
    extern __shared__ __align__(128) char shared[];
    __shared__ cf::Barrier full[MaxSlots], empty[MaxSlots], gathered[MaxStages], drained[MaxStages],
        fetched[Raws];
    char *const stages = shared + cut.weights, *const ring = stages + cut.stages * cut.stage;
    const uint32_t weights = cf::shared_address(shared), slots = cf::shared_address(ring);
    const uint32_t raws = slots + cut.slots * cut.slot;
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;

    // This block's sets of `joined` units are first, first + gridDim.x, ...: all of their tasks, or
    // where units are few a share of one.
    const int first = cut.by_shares.quotient(int(blockIdx.x));
    const int share = int(blockIdx.x) - first * cut.shares;
    const int sets =
        (cut.by_joined.quotient(cut.units) - first + int(gridDim.x) - 1) / int(gridDim.x);
    const int units = sets * cut.joined;
    const auto place = [&](int m) {
        const int before = cut.by_joined.quotient(m) * cut.joined; // in sets before this one
        return place_of(cut, first * cut.joined + before * int(gridDim.x) + m - before, Rows);
    };
    // Where unit m of this block is, and in which turn of the slots and of the stages.
    Turn slot = {cut.slots}, stage = {cut.stages};

    if (threadIdx.x == 0) {
        for (int i = 0; i < cut.slots; ++i) {
            full[i].init(cut.loading * 32);
            empty[i].init(Computing * 32);
        }
        for (int i = 0; i < cut.stages; ++i) {
            gathered[i].init(Computing * 32);
            drained[i].init(32);
        }
        for (int i = 0; i < Raws; ++i)
            fetched[i].init(32);
        cf::publish_barriers();
    }
    // Columns of padding, and what is read beyond rows, are written only here.
    for (uint32_t i = threadIdx.x * 16; i < cut.slots * cut.slot; i += Threads * 16)
        *reinterpret_cast<uint4 *>(ring + i) = make_uint4(0, 0, 0, 0);
    cf::publish_to_bulk_copies();
    __syncthreads();
    cf::let_next_kernel_begin();
    cf::wait_for_kernels_before();
    for (uint32_t i = threadIdx.x * 16; i < cut.weights; i += Threads * 16)
        cf::copy16_async(weights + i, reinterpret_cast<const char *>(filter) + i, true);
    cf::end_of_group();

    const int64_t image_of_x = int64_t(cut.c) * cut.h * cut.w;
    const auto x16 = static_cast<const uint16_t *>(x);
    const auto load = [&](int m, int slot, int thread, int threads) {
        const Place at = place(m);
        const int top = at.row * cut.stride_h - cut.pad_top;
        const uint32_t to = slots + slot * cut.slot;
        if (cut.from_floats)
            load_unit<Element>(cut, static_cast<const float *>(x) + at.n * image_of_x, top, to,
                               thread, threads);
        else
            load_unit<Element>(cut, x16 + at.n * image_of_x, top, to, thread, threads);
    };
    if (cut.at_once) { // as many warps for each unit
        const int warps = Warps / units, m = warp / warps;
        if (m < units)
            load(m, m, int(threadIdx.x) - m * warps * 32, warps * 32);
    }
    cf::wait_for_groups<0>(); // the weights are there
    __syncthreads();
    if (cut.at_once) {
        // All warps compute.
    } else if (warp >= Computing + cut.loading) {
        if (!cut.staged || warp > Computing + cut.loading)
            return;
        for (int m = 0; m < units; m += cut.joined, stage.next()) {
            gathered[stage.at].wait(stage.parity);
            store_unit(cut, y, place(m), Rows, stages + stage.at * cut.stage, lane);
            drained[stage.at].arrive();
        }
        return;
    } else if (warp >= Computing) {
        const int thread = int(threadIdx.x) - Computing * 32, threads = cut.loading * 32;
        const auto fetch = [&](int m) {
            bring(x16 + place(m).n * image_of_x, uint32_t(image_of_x * 2), 0,
                  raws + m % Raws * cut.raw, fetched[m % Raws], lane);
        };
        if (cut.piece == Planes && warp == Computing)
            for (int m = 0; m < min(units, Raws); ++m)
                fetch(m);
        for (int m = 0; m < units; ++m, slot.next()) {
            if (m >= cut.slots)
                empty[slot.at].wait(slot.parity ^ 1);
            const Place at = place(m);
            const uint32_t to = slots + slot.at * cut.slot;
            if (cut.piece == Direct) {
                const int row = cut.w * cut.c, top = at.row * cut.stride_h;
                bring(x16 + at.n * image_of_x + top * row, min(cut.rows, cut.h - top) * row * 2,
                      cut.fill, to, full[slot.at], lane);
                continue;
            }
            if (cut.piece == Planes) {
                fetched[m % Raws].wait(m / Raws & 1);
                const auto skew =
                    uint32_t(reinterpret_cast<uint64_t>(x16 + at.n * image_of_x) & 15);
                const uint32_t raw = raws + m % Raws * cut.raw + skew;
                if (cut.pixel % 4)
                    interleave<2>(cut, raw, to, thread, threads);
                else if (raw % 4)
                    interleave<4>(cut, raw, to, thread, threads);
                else if (cut.h * cut.w % 2)
                    interleave_pairs<true>(cut, raw, to, thread, threads);
                else
                    interleave_pairs<false>(cut, raw, to, thread, threads);
                full[slot.at].arrive();
                wait_for_loading_warps(threads); // all have read
                if (m + Raws < units && warp == Computing)
                    fetch(m + Raws);
                continue;
            }
            load(m, slot.at, thread, threads);
            full[slot.at].arrive();
        }
        return;
    }

    // Every warp enters and leaves every unit, in order, so that no arrival counts for another.
    bool inside = cut.at_once;
    int m = 0, of_set = 0;
    const auto enter = [&] {
        full[slot.at].wait(slot.parity);
        if (cut.staged && m >= cut.stages * cut.joined)
            drained[stage.at].wait(stage.parity ^ 1);
        inside = true;
    };
    const auto leave = [&] {
        if (!cut.at_once) {
            if (!inside)
                enter();
            empty[slot.at].arrive();
            if (cut.staged && ++of_set == cut.joined) {
                gathered[stage.at].arrive();
                stage.next();
                of_set = 0;
            }
            inside = false;
        }
        slot.next();
        ++m;
    };

    const int columns = cut.row_tiles * cut.positions;
    const int pair = lane % 4;
    const int workers = (cut.at_once ? Warps : Computing) * cut.shares;
    for (int task = warp * cut.shares + share;; task += workers) { // of unit m and those behind it
        for (; m < units && task >= cut.tasks; task -= cut.tasks)
            leave();
        if (m == units)
            break;
        if (!inside)
            enter();
        const int block = cut.by_groups.quotient(task), group = task - block * cut.groups;

        const Place unit = place(m);
        // Of the unit in its slot, which a bulk copy keeps.
        const uint32_t skew_of_slot =
            cut.piece == Direct
                ? uint32_t(reinterpret_cast<uint64_t>(x)) +
                          (uint32_t(unit.n) * cut.h + unit.row * cut.stride_h) * cut.w * cut.c * 2 &
                      15
                : 0;
        const int first_position = block * Positions;
        // The lane's two positions: row tile and place in the row. The last ones repeat.
        int tile[2], column[2];
        uint32_t at[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int position = min(first_position + lane / 4 * 2 + i, columns - 1);
            tile[i] = cut.by_positions.quotient(position);
            column[i] = (position - tile[i] * cut.positions) * Joint;
            at[i] = slots + slot.at * cut.slot + skew_of_slot +
                    tile[i] * Rows * cut.stride_h * cut.pitch +
                    column[i] * cut.stride_w * cut.pixel * 2 + pair * 4;
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
            uint32_t weight = weights + group * cut.steps * StepBytes + lane * 16;
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
                                from[i] += cut.pitch;
                                window[j][2 + i] = cf::load_shared(from[i]);
                            } else {
                                window[j][2 + i] = load_shared_16_behind(from[i]);
                            }
                            from[i] += cut.pitch;
                        }
                    }
                    read = last + 1;
#pragma unroll
                    for (int parity = 0; parity < Parities; ++parity)
#pragma unroll
                        for (int t = 0; t < Tiles; ++t) {
                            const int f = r * Tiles + t;
                            if (f % 2 == 0)
                                two[parity] =
                                    load_shared4(weight + (parity * Fragments + f) * FragmentBytes);
                            const uint2 b = half_of(two[parity], f % 2);
#pragma unroll
                            for (int j = parity; j < Rows; j += Parities)
                                multiply(j, t, window[j / Each * Stride + r], b);
                        }
                }
                weight += StepBytes;
            } while (++step < cut.steps);
        } else {
            static_assert(R > 0 || Tiles % 2 == 0, "rows of fragments are whole pairs");
            const uint4 *weight =
                filter + int64_t(group) * cut.steps * cut.filter_rows * (Tiles / 2) * 32 + lane;
#pragma unroll 1
            for (int step = 0; step < cut.steps; ++step) {
#pragma unroll 1
                for (int r = 0; r < cut.filter_rows; ++r) {
                    uint32_t a[Rows][4];
                    const int low = Single ? 2 * r : r, high = Single && 2 * r + 1 < cut.r;
#pragma unroll
                    for (int j = 0; j < Rows; ++j)
#pragma unroll
                        for (int i = 0; i < 4; ++i)
                            a[j][i] = cf::load_shared(at[i % 2] + step * (Single ? 16 : 32) +
                                                      (j * cut.stride_h + low) * cut.pitch +
                                                      i / 2 * (Single ? high * cut.pitch : 16));
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
        const int channel0 = group * cut.span + pair * cut.of_pair;
        const auto channel = [&](int t, int v) {
            return channel0 + t * cut.of_tile + (Single ? 0 : v % 2);
        };
        const auto pixel = [&](int v) { return column[v / 2] + (Single ? v % 2 : 0); };
        int rows[2]; // of a position that exist
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const bool live = first_position + lane / 4 * 2 + i < columns;
            rows[i] = live ? cut.p - unit.row - tile[i] * Rows : 0;
        }
        const int64_t area = int64_t(cut.p) * cut.q;
        const int64_t image = unit.n * area * cut.k;
        if (finish.affine) {
#pragma unroll
            for (int t = 0; t < Tiles; ++t)
#pragma unroll
                for (int v = 0; v < 4; ++v) {
                    const int k = channel(t, v);
                    const float bias = finish.bias && k < cut.k ? finish.bias[k] : 0.0f;
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
                    const int64_t row = unit.row + tile[v / 2] * Rows;
                    const int64_t from = image + (cut.nchw ? k * area + row * cut.q + q
                                                           : (row * cut.q + q) * cut.k + k);
                    const int live = q < cut.q && k < cut.k ? rows[v / 2] : 0;
                    const T *at = static_cast<const T *>(finish.residual) + from;
#pragma unroll
                    for (int j = 0; j < Rows; ++j) {
                        sum[j][t].value[v] += value_if(j < live, at);
                        at += int64_t(cut.q) * (cut.nchw ? 1 : cut.k);
                    }
                }
        };
        if (finish.residual && cut.wide)
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
            // In y itself, or in the unit's stage, where each segment keeps its place among 16
            // bytes.
            using Address = std::conditional_t<Staged, uint32_t, char *>;
            using Offset = std::conditional_t<Staged, int, int64_t>;
            const int pixel_bytes = (cut.nchw ? 1 : cut.k) * int(sizeof(Output));
            const Offset row_bytes = Offset(cut.q) * pixel_bytes;
            const Offset area_bytes = Offset(cut.p) * cut.q * Offset(sizeof(Output));
            const Offset plane = !cut.nchw                    ? Offset(sizeof(Output))
                                 : Staged && cut.segments > 1 ? Offset(cut.segment)
                                                              : area_bytes;
            Address base;
            uint32_t begin = 0; // of the first segment in y
            if constexpr (Staged) {
                const int row = cut.joined > 1 ? unit.row : 0; // of the stage
                base = cf::shared_address(stages) + stage.at * cut.stage + row * row_bytes;
                begin = uint32_t(segment_of(cut, y, {unit.n, unit.row - row}, 0));
            } else {
                base = y + image * Offset(sizeof(Output)) + unit.row * row_bytes;
            }
            Address place_of_lane[2]; // output channel channel0
#pragma unroll
            for (int i = 0; i < 2; ++i)
                place_of_lane[i] =
                    base + channel0 * plane + tile[i] * Rows * row_bytes + column[i] * pixel_bytes;
            // How far behind a multiple of 16 bytes the segment of an output channel begins.
            const auto skew = [&](int k) {
                return Staged ? int(begin + (cut.segments > 1 ? k * uint32_t(area_bytes) : 0) & 15)
                              : 0;
            };
            const auto store_planes = [&](auto width) {
                constexpr int Width = decltype(width)::value; // pixels at once
                // Neighbours in a row: both columns of each position, or both positions in a
                // column.
                constexpr int Channels = Single ? 1 : 2, Pixels = 4 / Channels;
#pragma unroll
                for (int t = 0; t < Tiles; ++t)
#pragma unroll
                    for (int i = 0; i < Channels; ++i) {
                        const int k = channel0 + t * cut.of_tile + i;
                        const Offset along = (t * cut.of_tile + i) * plane + skew(k);
#pragma unroll
                        for (int u = 0; u < Pixels; u += Width) {
                            const int of = Single ? u / 2 : u, in = Single ? u % 2 : 0;
                            const bool exists = k < cut.k && column[of] + in < cut.q;
                            const int live = exists ? rows[of] : 0;
                            Address to = place_of_lane[of] + along + in * int(sizeof(Output));
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
            const auto store_channels = [&](auto together) {
                // Neighbouring channels of a pixel: the lane's columns, or with a single input
                // channel every other of them.
                constexpr int Count = Tiles * 2 / Joint;
#pragma unroll
                for (int i = 0; i < 2 * Joint; ++i) {
                    const int v0 = i * (2 / Joint), q = pixel(v0);
                    const int live = q < cut.q ? cut.k - channel0 : 0;
                    Address to =
                        place_of_lane[v0 / 2] + (q - column[v0 / 2]) * pixel_bytes + skew(0);
#pragma unroll
                    for (int j = 0; j < Rows; ++j) {
                        float v[Count];
#pragma unroll
                        for (int e = 0; e < Count; ++e)
                            v[e] = Single ? sum[j][e].value[v0] : sum[j][e / 2].value[v0 + e % 2];
                        store_run<Output, decltype(together)::value>(to, v,
                                                                     j < rows[v0 / 2] ? live : 0);
                        to += row_bytes;
                    }
                }
            };
            if (cut.nchw && Single && cut.together == 4)
                store_planes(cf::Constant < Single ? 4 : 2 > {});
            else if (cut.nchw && cut.together == 2)
                store_planes(cf::Constant<2>{});
            else if (cut.nchw)
                store_planes(cf::Constant<1>{});
            else if (!Single && cut.together > 1)
                store_channels(std::bool_constant<!Single>{});
            else
                store_channels(std::false_type{});
        };
        const auto store_as = [&](auto output) {
            if (cut.staged)
                store(output, std::true_type{});
            else
                store(output, std::false_type{});
        };
        if (cut.wide)
            store_as(float());
        else
            store_as(Element());
        if (cut.staged)
            cf::publish_to_bulk_copies();
    }
#endif
}

// The filter as lanes hold it: [group][step][parity of the row of y][two fragments][lane]
// [2][4 elements], where fragments are [row or pair of rows][tile] and an odd one is left alone.
template <class Element, class T>
__global__ void pack_kernel(const Cut cut, const T *__restrict__ w, cf::Strides strides,
                            Element *__restrict__ packed, int r_count, int s_count, int elements) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += gridDim.x * blockDim.x) {
        const int fragments = fragments_of(cut.filter_rows, cut.tiles);
        const int e = i % 4, lane = i / 8 % 32, fragment = i / 256 * 2 + i / 4 % 2;
        const int set = fragment / fragments, of_set = fragment % fragments;
        const int tile = of_set % cut.tiles, row = of_set / cut.tiles;
        const int parity = set % cut.parities, step = set / cut.parities % cut.steps;
        const int group = set / cut.parities / cut.steps;
        const int column = lane / 4;
        const int k = group * cut.span + tile * cut.of_tile + column / 2 * cut.of_pair +
                      column % 2 * cut.of_column;
        const bool single = cut.joint == 2;
        const int r = single ? row * 2 + e / 2 - parity : row;
        const int along = (single ? step * 8 : step * 16 + e / 2 * 8) + lane % 4 * 2 + e % 2;
        const int s = along / cut.pixel - (single ? column % 2 * cut.stride_w : 0);
        const int c = along % cut.pixel;
        const bool live = k < cut.k && r >= 0 && r < r_count && s >= 0 && s < s_count && c < cut.c;
        packed[i] = cf::narrow<Element>(live ? cf::widen(w[strides.at(k, c, r, s)]) : 0.0f);
    }
}

int32_t supports(const cf_call *call, char *why, uint64_t bytes) {
    const cf_problem &p = call->problem;
    if (p.math != CF_MATH_F16 && p.math != CF_MATH_BF16)
        return cf::no(why, bytes, "multiplies 16-bit operands into f32 sums (math f16 or bf16)");
    if (!cf::has_few_channels(p, why, bytes))
        return 0;
    if (p.r > MaxFilter || p.s > MaxFilter)
        return cf::no(why, bytes, "takes filters up to %dx%d; this one is %dx%d", MaxFilter,
                      MaxFilter, p.r, p.s);
    if (plan_of(call).rows == 0)
        return cf::no(why, bytes,
                      "keeps strips of %d channels, %d columns and all rows that a task needs in "
                      "shared memory, which has %d bytes, and counts tasks in 31 bits",
                      p.c, p.w, call->device.shared_per_block);
    return 1;
}

cf_bytes workspace(const cf_call *call) {
    return cf::sums_workspace(call, cf::sums_follow(call->problem));
}

uint64_t packed_bytes(const cf_call *call) { return cf::small16::packed_bytes(plan_of(call)); }

int32_t pack(const cf_call *call, void *packed) {
    const cf_problem &p = call->problem;
    const Cut cut = plan_of(call);
    const int elements = int(cf::small16::packed_bytes(cut) / 2);
    return cf::small16::for_element(p, [&](auto element) -> int32_t {
        using Element = decltype(element);
        const auto run = [&](auto from) -> int32_t {
            using T = decltype(from);
            pack_kernel<Element, T><<<cf::blocks(elements, 256), 256, 0, cf::stream(call)>>>(
                cut, static_cast<const T *>(call->w), cf::filter_strides(p),
                static_cast<Element *>(packed), p.r, p.s, elements);
            return cudaGetLastError();
        };
        return p.storage == CF_STORE_F32 ? run(float()) : run(Element());
    });
}

int32_t run(const cf_call *call, int64_t first, int64_t count, float *sums) {
    const cf_problem &p = call->problem;
    Cut cut = plan_of(call); // of the whole batch, as the filter was packed
    if (cut.rows == 0)
        return cudaErrorInvalidValue;
    cut.units = int(count * cut.strips);
    cut.by_groups = cf::Divisor(cut.groups);
    cut.by_positions = cf::Divisor(cut.positions);
    cut.by_strips = cf::Divisor(cut.strips);
    cut.by_items = cf::Divisor(cut.items);
    cut.by_parts = cf::Divisor(std::max(cut.parts, 1));
    cut.by_shares = cf::Divisor(cut.shares);
    cut.by_joined = cf::Divisor(cut.joined);
    const size_t shared = cut.weights + size_t(cut.stages) * cut.stage +
                          size_t(cut.slots) * cut.slot + size_t(Raws) * cut.raw;
    const auto grid =
        unsigned(std::min(cut.units / cut.joined * cut.shares, call->device.sm_count));
    const char *x = static_cast<const char *>(call->x) +
                    first * p.c * p.h * p.w * int64_t(cut.from_floats ? 4 : 2);
    char *y = sums ? reinterpret_cast<char *>(sums) : static_cast<char *>(call->y);
    const cf::Finish finish = sums ? cf::Finish() : cf::finish_of(call);
    return cf::small16::for_element(p, [&](auto element) -> int32_t {
        using Element = decltype(element);
        const auto start = [&](auto r, auto stride, auto tiles, auto single) -> int32_t {
            auto *kernel = small_mma16_kernel<Element, decltype(r)::value, decltype(stride)::value,
                                              decltype(tiles)::value, decltype(single)::value != 0>;
            return cf::start(call, kernel, grid, Threads, shared, true, cut, x,
                             static_cast<const uint4 *>(call->packed), y, finish);
        };
        constexpr cf::Constant<0> no;
        constexpr cf::Constant<1> one, yes;
        constexpr cf::Constant<2> two;
        constexpr cf::Constant<MaxTiles> most;
        const auto with_rows = [&](auto r) -> int32_t {
            if (p.stride_h == 2)
                return start(r, two, two, no);
            if (cut.joint == 2)
                return cf::for_value<1, 2, 3>(
                    cut.tiles - 1, [&](auto tiles) { return start(r, one, tiles, yes); });
            return cf::for_value<1, 2, 3, MaxTiles>(
                cut.tiles - 1, [&](auto tiles) { return start(r, one, tiles, no); });
        };
        switch (cut.unrolled) {
        case 3:
            return with_rows(cf::Constant<3>{});
        case 5:
            return with_rows(cf::Constant<5>{});
        case 7:
            return with_rows(cf::Constant<7>{});
        default:
            return cut.joint == 2 ? start(no, no, most, yes) : start(no, no, most, no);
        }
    });
}

int32_t launch(const cf_call *call) {
    return cf::with_sums(
        call, "small",
        [&](int64_t first, int64_t count, float *sums) { return run(call, first, count, sums); },
        cf::sums_follow(call->problem));
}

// Assumes 1.75 GHz, which tensor cores bring the clock to.
double rank(const cf_call *call) {
    const Cut cut = plan_of(call);
    const double unfilled = cut.at_once ? 2 : 0; // it has no ring of slots to fill first
    return cf::ShortLaunchUs + cut.clocks / 1750 - unfilled +
           (cf::sums_follow(call->problem) ? cf::finish_us(call->problem) : 0);
}

} // namespace

extern "C" const cf_row small_mma16 = {
    "small_mma16",
    "small",
    "few channels by mma.sync in f16 or bf16: operands straight from images streamed through "
    "shared memory",
    "this project",
    90,
    INT32_MAX,
    nullptr, // configs
    supports,
    workspace,
    packed_bytes,
    pack,
    nullptr, // bind
    rank,
    launch,
};
