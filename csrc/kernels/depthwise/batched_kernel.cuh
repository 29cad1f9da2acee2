// The kernel of depthwise_batched: a strip comes to shared memory, warps multiply its channels, and
// y leaves it.
#pragma once

#include "core/epilogue.cuh"
#include "kernels/depthwise/batched_plan.cuh"
#include "ptx/bulk.cuh"
#include "ptx/grid.cuh"
#include "ptx/load_store.cuh"
#include "ptx/mma_half.cuh"

namespace cf::depthwise_batched {

// What a kernel is compiled for: stored elements, filter, and the form of rows.
template <class StoredOf, int FilterOf, int HalvesOf, int TilesOf>
struct Shape {
    using Stored = StoredOf;
    static constexpr int R = FilterOf, Halves = HalvesOf, Tiles = TilesOf;
    static constexpr bool Windowed = Halves > 2;
    static constexpr int Lead = Windowed ? WindowLead : 0;
    // Steps along a sum, and tiles of y that differ in their bands.
    static constexpr int Steps = Halves == 1 ? (R + 1) / 2 : R, BandTiles = Windowed ? 1 : Tiles;
    // Tiles of rows that a warp has under way together, so that their products fill each other's
    // gaps.
    static constexpr int Together = together_of(Tiles);
};

#if CF_SM90
// A warp's share of a strip: a channel's rows of a class and chunk, in some images. Rows of x begin
// `skew(r)` elements behind a word for row r of the filter, rows of y `shift` behind one.
struct Task {
    int plane, channel; // in the strip, in y
    int first_row, row_step;
    int shift;
    int image, end; // in the strip
    int odd, skew0; // whether rows of x have an odd number of columns

    __device__ __forceinline__ int skew(int r) const { return (skew0 + r) & odd; }
};

// A strip of a block.
struct Strip {
    int channel, channels;
    int64_t image;
    int images;
};

__device__ __forceinline__ Strip strip_of(const Tiling &t, int number) {
    const int set = t.by_channel_blocks.quotient(number);
    Strip strip;
    strip.channel = (number - set * t.channel_blocks) * t.set;
    strip.channels = min(t.set, t.c - strip.channel);
    strip.image = int64_t(set) * t.images;
    strip.images = int(min(int64_t(t.images), t.n - strip.image));
    return strip;
}

__device__ __forceinline__ Task task_of(const Tiling &t, const Strip &strip, int number) {
    Task task;
    task.plane = t.by_pieces.quotient(number);
    task.channel = strip.channel + task.plane;
    const int piece = number - task.plane * t.pieces, of_rows = t.by_parts.quotient(piece);
    const int part = piece - of_rows * t.parts, kind = t.by_chunks.quotient(of_rows);
    const int chunk = of_rows - kind * t.chunks;
    // Rows of the second class begin in the middle of a word.
    task.shift = kind;
    const int parity = t.classes == 2 ? (kind + task.channel * t.p) & 1 : 0;
    task.row_step = t.classes;
    task.first_row = chunk * TileRows * t.classes + parity;
    const int most = 16 >> t.log_rows;
    const int images = ((t.images + t.parts - 1) / t.parts + most - 1) / most * most;
    task.image = part * images, task.end = min(task.image + images, strip.images);
    task.odd = t.w & 1;
    task.skew0 = parity * t.stride + t.pad_top + task.channel * t.h;
    return task;
}

// A channel's filter as bands, of a lane: for each step and tile of y, units [t][g] of both halves
// (ptx/mma_half.cuh).
template <class Shape>
struct Bands {
    uint32_t word[Shape::Steps][Shape::BandTiles][2];

    __device__ __forceinline__ Bands(const Tiling &t, const Task &task, const uint16_t *filter,
                                     int lane) {
#pragma unroll
        for (int step = 0; step < Shape::Steps; ++step)
#pragma unroll
            for (int tile = 0; tile < Shape::BandTiles; ++tile) {
                const int y = TileColumns * tile + lane / 4 - task.shift;
                const int from = 2 * (lane % 4) - Shape::Lead - y * t.stride + t.pad_left;
                auto &to = word[step][tile];
                if constexpr (Shape::Halves == 1) {
                    to[0] = pair(filter, 2 * step, from - task.skew(2 * step));
                    to[1] = 2 * step + 1 < Shape::R
                                ? pair(filter, 2 * step + 1, from - task.skew(2 * step + 1))
                                : 0;
                } else { // 8 columns apart, a lane has taps in one half at most
                    const int tap = from - task.skew(step);
                    const bool right = tap < -1;
                    const uint32_t taps = pair(filter, step, right ? tap + Columns : tap);
                    to[0] = right ? 0 : taps, to[1] = right ? taps : 0;
                }
            }
    }

  private:
    // Two neighbouring taps of a row.
    static __device__ __forceinline__ uint32_t pair(const uint16_t *filter, int r, int tap) {
        const uint16_t *const at = filter + tap;
        const uint32_t low = load_if(unsigned(tap) < unsigned(Shape::R), at + r * Shape::R);
        const uint32_t high =
            load_if(unsigned(tap + 1) < unsigned(Shape::R), at + r * Shape::R + 1);
        return low | high << 16;
    }
};

// Where a lane's rows g and g + 8 of a task's tiles lie, and which of their elements of x exist.
template <class Shape>
struct Rows {
    static constexpr int R = Shape::R, Halves = Shape::Halves;
    uint32_t x[2], y[2];         // in shared memory, of the task's first images
    uint32_t behind[R];          // from the first row of x to those of the filter's others
    uint32_t inside[2][R];       // masks of rows of x
    uint32_t columns[Halves][2]; // and of their words, for even and odd rows of the filter
    int row[2], image[2];        // of y; of the tile's images
    uint32_t live;               // of columns of y, two bits for each tile

    __device__ __forceinline__ Rows(const Tiling &t, const Task &task, uint32_t scratch, int lane) {
        const int unit = 2 * (lane % 4), rows = 1 << t.log_rows;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int slot = lane / 4 + half * 8;
            image[half] = slot >> t.log_rows;
            row[half] = task.first_row + (slot & (rows - 1)) * task.row_step;
            // Rows that do not exist are those of others that begin alike.
            const int there = row[half] < t.p ? row[half] : task.first_row;
            const int first = there * t.stride - t.pad_top;
            const int element = (task.plane * t.h + first) * t.w + unit - Shape::Lead;
            x[half] = scratch + t.x_at + (task.image + image[half]) * t.x_image + element * 2;
            y[half] = scratch + t.y_at + (task.image + image[half]) * t.y_image +
                      ((task.plane * t.p + there) * t.q + unit - task.shift) * 2;
#pragma unroll
            for (int r = 0; r < R; ++r)
                inside[half][r] = unsigned(first + r) < unsigned(t.h) ? ~0u : 0;
        }
#pragma unroll
        for (int r = 0; r < R; ++r)
            behind[r] = (r * t.w - task.skew(r)) * 2;
#pragma unroll
        for (int half = 0; half < Halves; ++half)
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
                const int column = half * Columns + unit - Shape::Lead - task.skew(odd);
                columns[half][odd] = (unsigned(column) < unsigned(t.w) ? 0xffff : 0) |
                                     (unsigned(column + 1) < unsigned(t.w) ? 0xffff0000 : 0);
            }
        live = 0;
#pragma unroll
        for (int i = 0; i < 2 * Shape::Tiles; ++i)
            if (unsigned(i / 2 * TileColumns + unit + i % 2 - task.shift) < unsigned(t.q))
                live |= 1u << i;
    }
    __device__ __forceinline__ void next(uint32_t x_bytes, uint32_t y_bytes) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
            x[half] += x_bytes, y[half] += y_bytes;
    }
};

// Of a tile.
template <class Shape>
struct Sums {
    Fragment<typename Shape::Stored, float> tile[Shape::Tiles];
};

// A lane's units of a row of x that rows g and g + 8 of a tile meet: 8 columns to a half. Of rows
// of one half two are kept.
template <class Shape>
struct Units {
    static constexpr int Halves = Shape::Halves;
    uint32_t a[Halves == 1 ? 2 : Halves][2];

    __device__ __forceinline__ void load(const Rows<Shape> &rows, int r, uint32_t ahead) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
            load<0>(rows, r, half, rows.x[half] + rows.behind[r] + ahead);
    }
    // Products with row r of the filter; two rows of one half are multiplied together.
    __device__ __forceinline__ void add_to(Sums<Shape> &sums, int r,
                                           const Bands<Shape> &bands) const {
        if constexpr (Halves == 1) {
            const auto &band = bands.word[r / 2][0];
            if (r % 2 == 1)
                sums.tile[0].add({a[0][0], a[0][1], a[1][0], a[1][1]}, band);
            else if (r == Shape::R - 1)
                add_half(sums.tile[0], a[0][0], a[0][1], band[0]);
        } else {
#pragma unroll
            for (int i = 0; i < Shape::Tiles; ++i) {
                const auto &band = bands.word[r][Shape::Windowed ? 0 : i];
                const int left = Shape::Windowed ? i : 0, right = left + 1;
                if (right < Halves)
                    sums.tile[i].add({a[left][0], a[left][1], a[right][0], a[right][1]}, band);
                else
                    add_half(sums.tile[i], a[left][0], a[left][1], band[0]);
            }
        }
    }

  private:
    template <int I>
    __device__ __forceinline__ void load(const Rows<Shape> &rows, int r, int half, uint32_t at) {
        if constexpr (I < Halves) {
            a[Halves == 1 ? r % 2 : I][half] = load_shared_behind<I * Columns * 2>(at) &
                                               rows.inside[half][r] & rows.columns[I][r % 2];
            load<I + 1>(rows, r, half, at);
        }
    }
};

// For core/fragment_epilogue.cuh.
template <class Shape>
struct Map {
    Sums<Shape> &sums;
    int channel;
    int64_t place[2]; // of rows g and g + 8 in y
    bool there[2];
    uint32_t live;

    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
        body(channel, Constant<4 * Shape::Tiles>(),
             [&](int i) -> float & { return sums.tile[i / 4].value[i % 4]; });
    }
    template <class T, class Body>
    __device__ __forceinline__ void for_runs(T *tensor, Body body) {
#pragma unroll
        for (int i = 0; i < 4 * Shape::Tiles; ++i) {
            const int column = i / 4 * 2 + i % 2, half = i / 2 % 2;
            body(Constant<1>(), tensor + place[half] + i / 4 * TileColumns + i % 2,
                 there[half] && live >> column & 1,
                 [&](int) -> float & { return sums.tile[i / 4].value[i % 4]; });
        }
    }
};

template <class Shape>
__device__ __forceinline__ void finish_sums(const Tiling &t, const Strip &strip, const Task &task,
                                            int image, const Rows<Shape> &rows,
                                            const bool (&there)[2], Sums<Shape> &sums, int lane,
                                            const Finish &finish) {
    Map<Shape> map = {sums, task.channel, {}, {there[0], there[1]}, rows.live};
#pragma unroll
    for (int half = 0; half < 2; ++half)
        map.place[half] = (strip.image + image + rows.image[half]) * t.y_elements +
                          (int64_t(task.channel) * t.p + rows.row[half]) * t.q + 2 * (lane % 4) -
                          task.shift;
    finish_fragment<typename Shape::Stored>(finish, t.c, map);
    if (t.activation != CF_ACT_NONE)
        map.for_channels([&](int, auto count, auto value) {
#pragma unroll
            for (int i = 0; i < count.value; ++i)
                value(i) = activate_keeping_nan(t.activation, value(i));
        });
}

template <class Shape>
__device__ __forceinline__ void store_sums(const Tiling &t, const Rows<Shape> &rows,
                                           const bool (&there)[2], uint32_t ahead,
                                           const Sums<Shape> &sums) {
    using Stored = typename Shape::Stored;
#pragma unroll
    for (int i = 0; i < Shape::Tiles; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float v[2] = {sums.tile[i].value[2 * half], sums.tile[i].value[2 * half + 1]};
            const uint32_t live = rows.live >> 2 * i & 3,
                           at = rows.y[half] + ahead + i * TileColumns * 2;
            store_neighbours<Stored>(at, there[half] && live == 3, v);
            // The ends of rows of an odd number of columns.
            if (t.classes == 2) {
                const float one[1] = {live == 2 ? v[1] : v[0]};
                store_neighbours<Stored>(at + (live & 2), there[half] && (live == 1 || live == 2),
                                         one);
            }
        }
}

template <class Shape>
__device__ __forceinline__ void compute(const Tiling &t, const Strip &strip, const Task &task,
                                        const Bands<Shape> &bands, uint32_t scratch, int lane,
                                        const Finish &finish) {
    constexpr int Together = Shape::Together;
    Rows<Shape> rows(t, task, scratch, lane);
    const int images = TileRows >> t.log_rows; // of a tile
    const uint32_t x_bytes = images * t.x_image, y_bytes = images * t.y_image;
#pragma unroll 1
    for (int image = task.image; image < task.end; image += Together * images) {
        Sums<Shape> sums[Together];
        Units<Shape> units[Together];
#pragma unroll
        for (int r = 0; r < Shape::R; ++r) {
#pragma unroll
            for (int i = 0; i < Together; ++i)
                units[i].load(rows, r, image + i * images < task.end ? i * x_bytes : 0);
#pragma unroll
            for (int i = 0; i < Together; ++i)
                units[i].add_to(sums[i], r, bands);
        }
#pragma unroll
        for (int i = 0; i < Together; ++i) {
            const int number = image + i * images;
            bool there[2];
#pragma unroll
            for (int half = 0; half < 2; ++half)
                there[half] = rows.row[half] < t.p && number + rows.image[half] < task.end;
            if (t.finishes)
                finish_sums(t, strip, task, number, rows, there, sums[i], lane, finish);
            store_sums(t, rows, there, i * y_bytes, sums[i]);
        }
        rows.next(Together * x_bytes, Together * y_bytes);
    }
}

// A strip's images, a segment each, by a warp.
__device__ __forceinline__ void load_strip(const Tiling &t, const Strip &strip, const uint16_t *x,
                                           uint32_t scratch, Barrier &full, int lane) {
    const uint32_t bytes = strip.channels * t.h * t.w * 2;
    if (lane == 0)
        full.arrive_and_expect(bytes * strip.images);
    __syncwarp();
    for (int i = lane; i < strip.images; i += 32)
        copy_bulk(scratch + t.x_at + i * t.x_image,
                  x + (strip.image + i) * t.x_elements + int64_t(strip.channel) * t.h * t.w, bytes,
                  full);
}
__device__ __forceinline__ void store_strip(const Tiling &t, const Strip &strip, uint16_t *y,
                                            uint32_t scratch, int lane) {
    const uint32_t bytes = strip.channels * t.p * t.q * 2;
    for (int i = lane; i < strip.images; i += 32)
        store_bulk(reinterpret_cast<uint64_t>(y + (strip.image + i) * t.y_elements +
                                              int64_t(strip.channel) * t.p * t.q),
                   scratch + t.y_at + i * t.y_image, bytes);
    wait_for_stores_to_read();
}
#endif

template <class Shape>
__global__ void __launch_bounds__(MaxWarps * 32, blocks_of(Shape::R))
    depthwise_batched_kernel(const __grid_constant__ Tiling tiling, const uint16_t *__restrict__ x,
                             const uint16_t *__restrict__ w, uint16_t *__restrict__ y,
                             const __grid_constant__ Finish finish) {
#if CF_SM90
    extern __shared__ __align__(128) unsigned char dynamic[];
    __shared__ Barrier full;
    uint32_t scratch = shared_address(dynamic);
    keep(scratch); // or each use reads a special register anew
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        full.init(1);
        publish_barriers();
    }
    __syncthreads();
    let_next_kernel_begin();
    wait_for_kernels_before();
    const Strip strip = strip_of(tiling, int(blockIdx.x));
    if (warp == 0)
        load_strip(tiling, strip, x, scratch, full, lane);
    const int tasks = strip.channels * tiling.pieces;
    for (int number = warp; number < tasks; number += int(blockDim.x) / 32) {
        const Task task = task_of(tiling, strip, number);
        const Bands<Shape> bands(tiling, task, w + task.channel * (Shape::R * Shape::R), lane);
        full.wait(0);
        compute(tiling, strip, task, bands, scratch, lane, finish);
    }
    publish_to_bulk_copies();
    __syncthreads();
    if (warp == 0)
        store_strip(tiling, strip, y, scratch, lane);
#else
    not_compiled();
#endif
}

using Launched = Kernel<Tiling, const void *, const void *, void *, Finish>;

// The kernel of an option. The files of batched/ compile those of one type of elements.
template <class Stored>
Launched kernel_for(const cf_problem &p, const Option &option);

template <class Stored>
Launched kernel_among(const cf_problem &p, const Option &option) {
    Launched kernel;
    const Form form = form_of(p);
    for_value<3, 5, 7>(p.r / 2 - 1, [&](auto r) {
        const auto choose = [&](auto halves, auto tiles) {
            kernel = kernel_of(
                depthwise_batched_kernel<Shape<Stored, r.value, halves.value, tiles.value>>,
                unsigned(option.blocks), unsigned(option.warps) * 32, size_t(option.shared), true);
        };
        if (form.halves == 1)
            choose(Constant<1>(), Constant<1>());
        else if (form.is_windowed())
            choose(Constant<4>(), Constant<4>());
        else if (form.tiles == 1)
            choose(Constant<2>(), Constant<1>());
        else
            choose(Constant<2>(), Constant<2>());
    });
    return kernel;
}

} // namespace cf::depthwise_batched
