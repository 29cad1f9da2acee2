// small_wgmma: few channels of NCHW images by wgmma, 16-bit operands and f32 sums.
//
// Beside mma.sync every other instruction costs nearly a clock (docs/kernels/small_mma16.md); wgmma
// runs on its own. A product is 64 positions by the output channels by 16 elements of a row of the
// filter. Positions come from registers: four warps read their windows word by word from images in
// shared memory, where rows of any pitch do. Weights stay in shared memory.
//
// - A task is 64 positions, some rows of y high: what was read from a row of x serves each row of
//   the filter that meets it. Every row of y has accumulators of its own, so that all products are
//   of one shape; ptxas lets products of several shapes on the same registers wait for each other.
// - Rows of even width: a position is two neighbouring pixels, columns are channels times those
//   two, with weights shifted by a pixel. A word of a plane is two taps of one channel then, and
//   images lie in shared memory as in x: nothing is interleaved.
// - Other rows: a position is one pixel, and three warps put channels beside each other. An
//   operand is eight channels at a tap. A lane's two pixels are neighbours, so that the second
//   one's operand is the first one's at the next tap, and is read once.
// - Rows h, h + R, ... of x together meet every row of y once. Their products follow each other, so
//   that no accumulator is needed again soon.
// - Blocks are persistent, one per multiprocessor. One producer warp loads images by bulk copies;
//   twelve consumers in three groups compute and gather outputs in shared memory in the order of y;
//   one warp lets them leave by bulk copies. These are small_mma16's.
//
// What fills up a step meets weights of zero, which makes a NaN of an infinity.
//
// Floor: the bytes of x and y over the bandwidth; half a clock per column of a product, 13 at
// least; or shared memory's 128 bytes per clock: 2 KB for 64 operands, 32 bytes for a column of
// weights. Expected, N = 10000, products / shared memory / memory: 4 -> 16 k7 97 / 108 / 116 us; 12
// -> 24 k5 169 / 200 / 155.
#include "core/element.cuh"
#include "core/estimate.cuh"
#include "core/plan.cuh"
#include "core/strides.cuh"
#include "kernels/small/few_channels.cuh"
#include "kernels/small/mma16_load.cuh"
#include "kernels/small/mma16_store.cuh"
#include "kernels/small/wgmma_plan.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/grid.cuh"
#include "ptx/wgmma.cuh"

namespace {

using namespace cf::small_wgmma;

#if CF_SM90A
using cf::pack;
using cf::small16::load_bulk;
using cf::small16::PipelineState;
using cf::small16::store_strip;
using cf::small16::value_if;
using cf::small16::wait_for_producers;
#endif

#if CF_SM90A
// The channels of an image from planes, which lie one behind the other, to beside each other, two
// pixels in one step. The first plane begins between two words where Between; of an Odd area every
// other one does not begin as it does.
template <int Quads, bool Between, bool Odd>
__device__ __forceinline__ void interleave_quads(const Tiling &tiling, uint32_t planes,
                                                 uint32_t stage, int thread, int threads) {
    constexpr int Channels = pixel_of(Quads); // zeros included
    const int area = tiling.h * tiling.w;
    uint32_t from = planes + thread * 4, to = stage + thread * Channels * 4;
#pragma unroll 1
    for (int i = thread; i < area / 2; i += threads) {
        uint32_t two[Channels];
#pragma unroll
        for (int c = 0; c < Channels; ++c) {
            // Some of the last quad may not exist; those before begin as they would.
            const bool exists = c <= Quads * 4 - 4 || c < tiling.c;
            const uint32_t at = from + (exists ? c : c - 4) * area * 2;
            if (c >= Quads * 4)
                two[c] = 0;
            else if (Between != (Odd && c % 2))
                two[c] = __byte_perm(cf::load_shared(at - 2), cf::load_shared(at + 2), 0x5432);
            else
                two[c] = cf::load_shared(at);
            if (!exists)
                two[c] = 0;
        }
        uint32_t word[Channels]; // of the first pixel, then of the second
#pragma unroll
        for (int c = 0; c < Channels; c += 2) {
            word[c / 2] = __byte_perm(two[c], two[c + 1], 0x5410);
            word[(c + Channels) / 2] = __byte_perm(two[c], two[c + 1], 0x7632);
        }
#pragma unroll
        for (int c = 0; c < Channels; c += 4)
            cf::store_shared4(to + c * 4, word[c], word[c + 1], word[c + 2], word[c + 3]);
        from += threads * 4, to += threads * Channels * 4;
    }
    if (Odd && thread < tiling.c) // the last pixel
        cf::store_shared_u16(stage + ((area - 1) * Channels + thread) * 2,
                             cf::load_shared_u16(planes + ((thread + 1) * area - 1) * 2));
}

template <int Quads>
__device__ __forceinline__ void interleave_quads(const Tiling &tiling, uint32_t planes,
                                                 uint32_t stage, int thread, int threads) {
    const bool between = planes % 4, odd = tiling.h * tiling.w % 2;
    if (between && odd)
        interleave_quads<Quads, true, true>(tiling, planes, stage, thread, threads);
    else if (between)
        interleave_quads<Quads, true, false>(tiling, planes, stage, thread, threads);
    else if (odd)
        interleave_quads<Quads, false, true>(tiling, planes, stage, thread, threads);
    else
        interleave_quads<Quads, false, false>(tiling, planes, stage, thread, threads);
}
#endif

// Quads: four channels each of a pixel in shared memory; 0 where a position is two pixels.
template <class Element, int R, int N, int Quads>
__global__ void __launch_bounds__(Warps * 32, 1)
    small_wgmma_kernel(const __grid_constant__ Tiling tiling, const uint16_t *x,
                       const uint4 *filter, char *y, const __grid_constant__ cf::Finish finish) {
#if CF_SM90A
    constexpr bool Pairs = Quads == 0;
    constexpr int Rows = rows_of(R, N), Window = Rows + R - 1;
    extern __shared__ __align__(128) char shared[];
    __shared__ cf::Barrier full[MaxStages], empty[MaxStages], out_full[MaxOutStages],
        out_empty[MaxOutStages], planar_full[PlanarBuffers];
    char *const out_ring = shared + tiling.weight_bytes;
    char *const ring = out_ring + tiling.out_stages * tiling.out_stage_bytes;
    const uint32_t weights = cf::shared_address(shared), stages = cf::shared_address(ring);
    const uint32_t planar = stages + tiling.stages * tiling.stage_bytes;
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;

    // This block's images are blockIdx.x, blockIdx.x + gridDim.x, ...
    const int images = (tiling.strips - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x);
    const auto number = [&](int m) { return int(blockIdx.x) + m * int(gridDim.x); };
    const int64_t image_of_x = int64_t(tiling.c) * tiling.h * tiling.w;
    const int64_t image_of_y = int64_t(tiling.k) * tiling.p * tiling.q;
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
    // What lies below and behind images meets weights of zero.
    for (uint32_t i = threadIdx.x * 16; i < tiling.stages * tiling.stage_bytes;
         i += Warps * 32 * 16)
        *reinterpret_cast<uint4 *>(ring + i) = make_uint4(0, 0, 0, 0);
    cf::let_next_kernel_begin();
    cf::wait_for_kernels_before();
    for (uint32_t i = threadIdx.x * 16; i < tiling.weight_bytes; i += Warps * 32 * 16)
        cf::copy16_async(weights + i, reinterpret_cast<const char *>(filter) + i, true);
    cf::end_of_group();
    cf::wait_for_groups<0>();
    cf::publish_to_bulk_copies(); // wgmma reads the same way
    __syncthreads();

    if (warp == Warps - 1) {
        for (int m = 0; m < images; ++m, out.next()) {
            out_full[out.index].wait(out.parity);
            store_strip(tiling, y, {number(m), 0}, Rows,
                        out_ring + out.index * tiling.out_stage_bytes, lane);
            out_empty[out.index].arrive();
        }
        return;
    }
    if (warp >= Consumers) {
        if (warp >= Consumers + tiling.producers)
            return;
        const int thread = int(threadIdx.x) - Consumers * 32, threads = tiling.producers * 32;
        const auto load = [&](int m, uint32_t to, cf::Barrier &there) {
            load_bulk(x + number(m) * image_of_x, uint32_t(image_of_x * 2), tiling.zero_bytes, to,
                      there, lane);
        };
        if (!Pairs && warp == Consumers)
            for (int m = 0; m < min(images, PlanarBuffers); ++m)
                load(m, planar + m * tiling.planar_bytes, planar_full[m]);
        for (int m = 0; m < images; ++m, in.next()) {
            if (m >= tiling.stages)
                empty[in.index].wait(in.parity ^ 1);
            const uint32_t to = stages + in.index * tiling.stage_bytes;
            if constexpr (Pairs) {
                load(m, to, full[in.index]);
            } else {
                planar_full[m % PlanarBuffers].wait(m / PlanarBuffers & 1);
                const auto skew =
                    uint32_t(reinterpret_cast<uint64_t>(x + number(m) * image_of_x) & 15);
                interleave_quads<Quads>(tiling,
                                        planar + m % PlanarBuffers * tiling.planar_bytes + skew, to,
                                        thread, threads);
                full[in.index].arrive();
                wait_for_producers(threads); // all have read
                if (m + PlanarBuffers < images && warp == Consumers)
                    load(m + PlanarBuffers, planar + m % PlanarBuffers * tiling.planar_bytes,
                         planar_full[m % PlanarBuffers]);
            }
        }
        return;
    }

    const int pair = lane % 4;
    // Makes a copy that the compiler does not see through: ptxas lets products wait for each other
    // where a register is an operand of two.
    const uint32_t zero = tiling.strips >> 31;
    const uint32_t plane = tiling.h * tiling.pitch;
    const uint64_t columns = cf::wgmma_descriptor(weights, R * N * 16);
    const int all = tiling.row_tiles * tiling.positions;
    // Every group enters and leaves every image, in order, so that no arrival counts for another.
    int task = warp / 4;
    for (int m = 0; m < images; ++m, in.next(), out.next(), task -= tiling.tasks) {
        full[in.index].wait(in.parity);
        if (m >= tiling.out_stages)
            out_empty[out.index].wait(out.parity ^ 1);
        const uint32_t skew =
            Pairs ? uint32_t(reinterpret_cast<uint64_t>(x + number(m) * image_of_x) & 15) : 0;
        for (; task < tiling.tasks; task += Groups) {
            // The lane's two positions: row tile and first pixel. The last ones repeat.
            int tile[2], column[2];
            int rows[2]; // that exist
            uint32_t at[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int lanes = Pairs ? lane / 4 + 8 * i : lane / 4 * 2 + i;
                const int position = task * Positions + warp % 4 * 16 + lanes;
                const int known = min(position, all - 1);
                tile[i] = tiling.by_positions.quotient(known);
                column[i] = (known - tile[i] * tiling.positions) * (Pairs ? 2 : 1);
                rows[i] = position == known ? tiling.p - tile[i] * Rows : 0;
                at[i] = stages + in.index * tiling.stage_bytes + skew +
                        tile[i] * Rows * tiling.pitch +
                        column[i] * (Pairs ? 2 : pixel_of(Quads) * 2) + pair * 4;
            }

            float sum[Rows][N / 2];
            // Rows h, h + R, ... of x, those of phase h, together meet each row of y once.
            constexpr int Most = (Window + R - 1) / R;
            uint32_t window[2][Most][4]; // of the products on the way, and of the next
            const auto multiply_phase = [&](int h, const uint32_t(&rows_of_x)[Most][4], uint64_t b,
                                            bool add) {
                cf::wgmma_fence();
#pragma unroll
                for (int j = 0; j < Rows; ++j) {
                    const int m = j > h ? (j - h + R - 1) / R : 0, r = h + m * R - j;
                    cf::wgmma_16bit<Element, N>(sum[j], rows_of_x[m], b + (R - 1 - r) * N, add);
                }
                cf::wgmma_commit();
                cf::wgmma_wait<1>();
            };
            if constexpr (Pairs) {
                const auto load = [&](int h, uint32_t(&to)[Most][4]) {
#pragma unroll
                    for (int m = 0; m < Most; ++m)
#pragma unroll
                        for (int i = 0; i < 2; ++i) {
                            const int row = h + m * R;
                            if (row >= Window)
                                continue;
                            to[m][i] = cf::load_shared(at[i] + row * tiling.pitch);
                            to[m][2 + i] = cf::load_shared(at[i] + row * tiling.pitch + plane);
                        }
                };
                // Two channels. R is odd: steps begin with each of the two windows in turn.
                const auto step_from = [&](auto first, int step) {
                    constexpr int First = decltype(first)::value;
#pragma unroll
                    for (int h = 0; h < R; ++h) {
                        multiply_phase(h, window[(First + h) % 2], columns + step * (2 * R * N),
                                       step > 0 || h > 0);
                        if (h + 1 < R) {
                            load(h + 1, window[(First + h + 1) % 2]);
                        } else if (step + 1 < tiling.steps) {
                            at[0] += 2 * plane, at[1] += 2 * plane;
                            load(0, window[1 - First]);
                        }
                    }
                };
                load(0, window[0]);
#pragma unroll 1
                for (int step = 0; step < tiling.steps; step += 2) {
                    step_from(cf::Constant<0>{}, step);
                    if (step + 1 < tiling.steps)
                        step_from(cf::Constant<1>{}, step + 1);
                }
            } else {
                // Halves of steps, 8 elements: 8 channels tap by tap, then, where 4 are left, these
                // at two taps. The second pixel's operand is the first one's at the next
                // tap, and is loaded once.
                constexpr int Whole = Quads / 2, Halves = halves_of(Quads, R);
                constexpr int Steps = (Halves + 1) / 2, Pixel = pixel_of(Quads) * 2;
                constexpr int Split = (R + 1) / 2; // taps of the rest's first lane
                const uint32_t rest =
                    at[0] - pair * 4 + Whole * 16 + pair / 2 * 4 + pair % 2 * (Split * Pixel);
                const auto load = [&](int g, uint32_t(&to)[Most][4],
                                      const uint32_t(&last)[Most][4]) {
#pragma unroll
                    for (int m = 0; m < Most; ++m)
#pragma unroll
                        for (int i = 0; i < 2; ++i) {
                            const int row = g / Steps + m * R, half = g % Steps * 2 + i;
                            if (row >= Window)
                                continue;
                            const bool whole = half < Whole * R;
                            const int tap = whole ? half % R : half - Whole * R;
                            const uint32_t from = (whole ? at[0] + half / R * 16 : rest) +
                                                  row * tiling.pitch + tap * Pixel;
                            const uint32_t before = i ? to[m][1] : last[m][3];
                            to[m][2 * i] = tap > 0 ? before | zero : cf::load_shared(from);
                            to[m][2 * i + 1] = cf::load_shared(from + Pixel);
                        }
                };
                load(0, window[0], window[1]);
#pragma unroll
                for (int g = 0; g < R * Steps; ++g) {
                    multiply_phase(g / Steps, window[g % 2], columns + g % Steps * (2 * R * N),
                                   g > 0);
                    if (g + 1 < R * Steps)
                        load(g + 1, window[(g + 1) % 2], window[g % 2]);
                }
            }
            cf::wgmma_wait<0>();
#pragma unroll
            for (int j = 0; j < Rows; ++j)
#pragma unroll
                for (int v = 0; v < N / 2; ++v)
                    cf::settle(sum[j][v]);

            // Value 4 u + 2 i + e is at position i and in column 8 u + 2 (lane % 4) + e.
            const int channel0 = pair * (Pairs ? N / 8 : 2);
            const auto channel = [&](int u, int e) { return channel0 + (Pairs ? u : 8 * u + e); };
            const int area = tiling.p * tiling.q;
            if (finish.affine) {
#pragma unroll
                for (int u = 0; u < N / 8; ++u)
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        const int k = channel(u, e);
                        const float bias = finish.bias && k < tiling.k ? finish.bias[k] : 0.0f;
#pragma unroll
                        for (int j = 0; j < Rows; ++j)
#pragma unroll
                            for (int i = 0; i < 2; ++i) {
                                float &v = sum[j][4 * u + 2 * i + e];
                                v = fmaf(finish.scale, v, bias);
                            }
                    }
            }
            // Calls body(value, offset of an output in its image, whether it exists).
            const auto each = [&](auto body) {
#pragma unroll
                for (int u = 0; u < N / 8; ++u)
#pragma unroll
                    for (int i = 0; i < 2; ++i)
#pragma unroll
                        for (int e = 0; e < 2; ++e) {
                            const int k = channel(u, e), q = column[i] + (Pairs ? e : 0);
                            const int live = k < tiling.k && q < tiling.q ? rows[i] : 0;
                            const int first = k * area + tile[i] * Rows * tiling.q + q;
#pragma unroll
                            for (int j = 0; j < Rows; ++j)
                                body(sum[j][4 * u + 2 * i + e], first + j * tiling.q, j < live);
                        }
            };
            if (finish.residual)
                each([&](float &v, int offset, bool live) {
                    v += value_if(live, static_cast<const Element *>(finish.residual) +
                                            number(m) * image_of_y + offset);
                });
            if (finish.limited)
#pragma unroll
                for (int j = 0; j < Rows; ++j)
#pragma unroll
                    for (int v = 0; v < N / 2; ++v)
                        sum[j][v] = cf::between(sum[j][v], finish.least, finish.most);

            // As far behind a multiple of 16 bytes as the image in y.
            const auto image = reinterpret_cast<uint64_t>(y + number(m) * image_of_y * 2);
            const uint32_t to = cf::shared_address(out_ring) + out.index * tiling.out_stage_bytes +
                                uint32_t(image & 15);
            if (tiling.per_store == 2) {
                // Neighbours in a row: both columns of a position, or both positions in a column.
#pragma unroll
                for (int u = 0; u < N / 8; ++u)
#pragma unroll
                    for (int f = 0; f < 2; ++f) {
                        const int i = Pairs ? f : 0, k = channel(u, Pairs ? 0 : f);
                        const int live = k < tiling.k ? rows[i] : 0;
                        const uint32_t first =
                            to + (k * area + tile[i] * Rows * tiling.q + column[i]) * 2;
#pragma unroll
                        for (int j = 0; j < Rows; ++j) {
                            const float *v = &sum[j][4 * u + (Pairs ? 2 * f : f)];
                            const uint32_t word[1] = {pack<Element>(v[0], v[Pairs ? 1 : 2])};
                            cf::store_if(j < live, first + j * tiling.q * 2, word);
                        }
                    }
            } else if (!Pairs && area % 2) {
                // Of two neighbouring channels one has its two pixels in a word.
                const uint32_t first =
                    to + (channel0 * area + tile[0] * Rows * tiling.q + column[0]) * 2;
                const bool both = column[1] < tiling.q;
#pragma unroll
                for (int u = 0; u < N / 8; ++u)
#pragma unroll
                    for (int j = 0; j < Rows; ++j) {
                        const float *v = &sum[j][4 * u];
                        const uint32_t of[2] = {pack<Element>(v[0], v[2]),
                                                pack<Element>(v[1], v[3])};
                        const bool second = (first / 2 + j) % 2;
                        const uint32_t word[1] = {second ? of[1] : of[0]};
                        const uint32_t apart = second ? of[0] : of[1];
                        const uint32_t at_word =
                            first + (j * tiling.q + (8 * u + second) * area) * 2;
                        const uint32_t at_apart =
                            first + (j * tiling.q + (8 * u + !second) * area) * 2;
                        const bool live = j < rows[0] && channel(u, second) < tiling.k;
                        const bool beside = j < rows[0] && channel(u, !second) < tiling.k;
                        cf::store_if(live && both, at_word, word);
                        cf::store_if(live && !both, at_word, uint16_t(word[0]));
                        cf::store_if(beside, at_apart, uint16_t(apart));
                        cf::store_if(beside && both, at_apart + 2, uint16_t(apart >> 16));
                    }
            } else {
                each([&](float v, int offset, bool live) {
                    const Element narrow = cf::narrow<Element>(v);
                    cf::store_if(live, to + offset * 2, reinterpret_cast<const uint16_t &>(narrow));
                });
            }
            cf::publish_to_bulk_copies();
        }
        empty[in.index].arrive();
        out_full[out.index].arrive();
    }
#else
    cf::not_compiled();
#endif
}

// The filter as wgmma reads it: [step][half][row from the last on][column][8 elements].
template <class Element>
__global__ void pack_kernel(const Tiling tiling, const Element *__restrict__ w, cf::Strides strides,
                            Element *__restrict__ packed, int s_count, int elements) {
    const int columns = tiling.column_tiles * 8;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += gridDim.x * blockDim.x) {
        const int e = i % 8, column = i / 8 % columns, row = i / 8 / columns;
        const int r = tiling.r - 1 - row % tiling.r, half = row / tiling.r; // of all steps
        int k = column, c, s;
        if (tiling.pixels_per_position == 2) {
            k = column / 8 + column % 8 / 2 * tiling.column_tiles;
            c = half, s = e - column % 2;
        } else {
            const int whole = (tiling.c + 3) / 4 / 2;
            if (half < whole * tiling.r) {
                s = half % tiling.r, c = half / tiling.r * 8 + e;
            } else { // lanes 0 and 1, and 2 and 3, have the same word at two taps
                const int split = (tiling.r + 1) / 2, tap = half - whole * tiling.r;
                s = tap < split ? tap + e / 2 % 2 * split : s_count;
                c = whole * 8 + e / 4 * 2 + e % 2;
            }
        }
        const bool live = k < tiling.k && c < tiling.c && s >= 0 && s < s_count;
        packed[i] = live ? w[strides.at(k, c, r, s)] : cf::narrow<Element>(0.0f);
    }
}

struct State {
    cf::Kernel<Tiling, const void *, const void *, void *, cf::Finish> kernel;
    cf_problem problem;
    Shapes shapes; // of what is packed
    Tiling tiling;
};

template <class Element>
void choose_kernel(State &state, dim3 grid, size_t shared) {
    const Tiling &t = state.tiling;
    const auto choose = [&](auto r, auto columns, auto quads) {
        state.kernel =
            cf::kernel_of(small_wgmma_kernel<Element, decltype(r)::value, decltype(columns)::value,
                                             decltype(quads)::value>,
                          grid, Warps * 32, shared, true);
    };
    const auto with_rows = [&](auto r) {
        constexpr int R = decltype(r)::value;
        if (is_paired(t))
            cf::for_value<16, 24, 32, 48>(
                t.column_tiles == 6 ? 3 : t.column_tiles - 2,
                [&](auto columns) { choose(r, columns, cf::Constant<0>{}); });
        else if constexpr (R < 7)
            cf::for_value<16, 24, 32>(t.column_tiles - 2, [&](auto columns) {
                cf::for_value<2, 3, 4>(int(cf::ceil_div(t.c, 4)) - 2,
                                       [&](auto quads) { choose(r, columns, quads); });
            });
    };
    cf::for_value<3, 5, 7>((t.r - 3) / 2, with_rows);
}

bool takes(const cf_problem &p, const cf::Refusal &no) {
    if (p.math != CF_MATH_F16 && p.math != CF_MATH_BF16)
        return no("multiplies 16-bit operands into f32 sums (math f16 or bf16)");
    if (p.storage != (p.math == CF_MATH_BF16 ? CF_STORE_BF16 : CF_STORE_F16))
        return no("takes operands as they are stored");
    if (p.layout != CF_NCHW)
        return no("is for NCHW");
    if (!cf::has_few_channels(p, no))
        return false;
    if (p.stride_h != 1 || p.stride_w != 1)
        return no("takes a stride of 1");
    if (p.pad_top || p.pad_left || p.pad_bottom || p.pad_right)
        return no("takes no padding: images lie in shared memory as in x");
    if (cf::sums_follow(p))
        return no("fuses bias, residual, ReLU and ReLU6, but nothing else");
    if (!takes_pairs(p) && !takes_pixels(p))
        return no("takes several channels in rows of even width at 4-byte addresses with filters "
                  "of 3, 5 or 7 rows and up to 7 columns and 24 output channels, or filters of 3x3 "
                  "and 5x5 with 5 to 16 input and up to 32 output channels");
    return true;
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    if (!takes(p, no))
        return false;
    state.shapes = shapes_of(p);
    const Tiling &t = state.tiling = best_tiling(query, state.shapes);
    if (t.input_rows == 0)
        return no("keeps two images of %dx%dx%d and what comes of them in shared memory, which has "
                  "%d bytes, and brings less than 1 MB at once",
                  p.c, p.h, p.w, query.device.shared_per_block);
    plan.packed_bytes = packed_size(state.shapes);
    plan.filter_layout = filter_layout(p, state.shapes);
    plan.us = cf::ShortLaunchUs + cf::clocks_us(query.device, t.clocks, cf::TensorClock);
    const dim3 grid = unsigned(std::min(t.strips, query.device.sm_count));
    cf::small16::for_element(p, [&](auto element) {
        choose_kernel<decltype(element)>(state, grid, cf::small16::shared_bytes(t));
    });
    return true;
}

int32_t pack_for(const cf_problem &p, const Tiling &shape, const void *w, void *packed,
                 void *stream) {
    const int elements = int(packed_size(shape) / 2);
    if (elements == 0)
        return 0;
    return cf::small16::for_element(p, [&](auto element) {
        return cf::launch(pack_kernel<decltype(element)>, cf::blocks(elements, 256), 256, stream,
                          shape, w, cf::filter_strides(p), packed, p.s, elements);
    });
}

// For pairs of pixels, then for single ones.
int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    if (const int32_t error = pack_for(state.problem, state.shapes.pairs, w, packed, stream))
        return error;
    return pack_for(state.problem, state.shapes.pixels, w,
                    static_cast<char *>(packed) + packed_size(state.shapes.pairs), stream);
}

int32_t launch(const State &state, const cf_args &args) {
    const char *filter = static_cast<const char *>(args.packed) +
                         (is_paired(state.tiling) ? 0 : packed_size(state.shapes.pairs));
    return state.kernel.launch(args.stream, state.tiling, args.x, filter, args.y,
                               cf::finish_of(state.problem, args));
}

} // namespace

extern "C" const cf_row CF_ROW(small, wgmma) = {
    "small_wgmma",
    "small",
    "few channels by wgmma in f16 or bf16: windows from images in shared memory to registers",
    "this project",
    "an infinity or a NaN in x may make NaN of outputs whose windows it lies just beside",
    CF_NEEDS_SM90A,
    nullptr, // configs
    cf::Row<State, plan, cf::prepare_kernel<State>, launch, pack>::functions(),
};
