// The arithmetic of small_mma's tasks: inputs from shared memory into registers, products of tiles,
// sums. WarpTask multiplies by mma.sync, a warp by itself; WarpgroupTask by
// wgmma, four warps together.
#pragma once

#include "kernels/small/mma_tiling.cuh"

#include "ptx/mma.cuh"
#include "ptx/wgmma.cuh"

namespace cf::small_mma {

#if CF_SM90A
using Accumulator = Fragment<float, float>; // of a lane in a tile of 16 x 8

// Four products along the sum for each of a lane's pixels: of lane 4 g + t product t of pixel g
// (and g + 8). Part 0 is hi, part 1 lo.
template <int Parts, int Pixels>
struct Half {
    uint32_t part[Parts][Pixels];

    // From addresses of shared memory.
    __device__ __forceinline__ void load(const uint32_t (&at)[Pixels]) {
#pragma unroll
        for (int v = 0; v < Pixels; ++v) {
            const uint32_t bits = load_shared(at[v]);
            if constexpr (Parts == 2) {
                const uint32_t hi = (bits + 0x1000) & 0xffffe000;
                part[0][v] = hi;
                part[1][v] = __float_as_uint(__uint_as_float(bits) - __uint_as_float(hi));
            } else {
                part[0][v] = bits; // the tensor core truncates it
            }
        }
    }
};

// The inputs of the rows that one step of a filter's rows needs: `Halves` of them per row, loaded
// row by row. With one half, steps are made of two rows.
template <class Task, int Halves, int Rows>
struct Window {
    Half<Task::Parts, Task::Pixels> row[Rows][Halves];
    uint32_t here[Halves][Task::Pixels];

    __device__ __forceinline__ Window(const Task &task, int place,
                                      const uint32_t (&at)[Task::Pixels]) {
#pragma unroll
        for (int h = 0; h < Halves; ++h)
#pragma unroll
            for (int v = 0; v < Task::Pixels; ++v)
                here[h][v] = at[v] + task.places[place + 4 * h];
    }
    __device__ __forceinline__ void load(const Task &task, int number) {
#pragma unroll
        for (int h = 0; h < Halves; ++h) {
            row[number % Rows][h].load(here[h]);
#pragma unroll
            for (int v = 0; v < Task::Pixels; ++v)
                here[h][v] += task.pitch;
        }
    }
    // Half h of step u, where filter row 0 lies on row `top`. The last of an odd number of filter
    // rows has none below: its weights are zeros there.
    __device__ __forceinline__ const Half<Task::Parts, Task::Pixels> &half(int top, int u,
                                                                           int h) const {
        if constexpr (Halves == 2)
            return row[(top + u) % Rows][h];
        else
            return row[(top + min(2 * u + h, Task::F.row_reuse - 1)) % Rows][0];
    }
};

// A warp's task.
template <int Index, bool Three>
struct WarpTask {
    static constexpr TaskShape F = TaskShapes[Index];
    static constexpr int Pixels = F.pixels(), Regs = F.weights(), Parts = Three ? 2 : 1;
    static constexpr int StepFloats = F.channel_tiles * Parts * 32 * Regs;
    using Half = small_mma::Half<Parts, Pixels>;

    struct Weights {
        uint32_t part[F.channel_tiles][Parts][Regs];
    };

    const int *places;
    const float *weights; // of this lane, generic address
    uint32_t pitch;
    Accumulator sum[F.rows][F.channel_tiles];

    __device__ __forceinline__ Weights weights_of(int step) const {
        Weights w;
#pragma unroll
        for (int i = 0; i < F.channel_tiles; ++i) {
#pragma unroll
            for (int part = 0; part < Parts; ++part) {
                const float *from = weights + step * StepFloats + (i * Parts + part) * 32 * Regs;
                if constexpr (Regs == 4) {
                    const auto v = *reinterpret_cast<const uint4 *>(from);
                    w.part[i][part][0] = v.x, w.part[i][part][1] = v.y;
                    w.part[i][part][2] = v.z, w.part[i][part][3] = v.w;
                } else {
                    const auto v = *reinterpret_cast<const uint2 *>(from);
                    w.part[i][part][0] = v.x, w.part[i][part][1] = v.y;
                }
            }
        }
        return w;
    }

    static __device__ __forceinline__ void multiply(Accumulator &sum, const uint32_t (&w)[Regs],
                                                    const uint32_t (&first)[Pixels],
                                                    const uint32_t (&second)[Pixels]) {
        if constexpr (F.pixel_rows) {
            const uint32_t a[4] = {first[0], first[1], second[0], second[1]};
            sum.add(a, w);
        } else {
            const uint32_t b[2] = {first[0], second[0]};
            sum.add(w, b);
        }
    }

    // Adds the products of `Steps` steps to one row of sums; half(u, h) is half h of the inputs of
    // step u. Parts of them are summed in turn, so that products that wait for each other lie
    // apart. The first of all finds nothing in the sums.
    template <bool First, int Steps, class Inputs>
    __device__ __forceinline__ void add(Accumulator (&to)[F.channel_tiles],
                                        const Weights (&w)[Steps], Inputs half) {
        constexpr int Groups = (Steps + 3) / 4, Length = (Steps + Groups - 1) / Groups;
        Accumulator part[Groups][F.channel_tiles];
#pragma unroll
        for (int kind = 0; kind < 3; ++kind) { // lo hi, hi lo, hi hi
#pragma unroll
            for (int j = 0; j < Length; ++j) {
#pragma unroll
                for (int n = 0; n < Groups; ++n) {
                    const int u = n * Length + j;
                    if (u >= Steps)
                        continue;
#pragma unroll
                    for (int i = 0; i < F.channel_tiles; ++i)
                        multiply(part[n][i], w[u].part[i][kind == 0], half(u, 0).part[kind == 1],
                                 half(u, 1).part[kind == 1]);
                }
            }
        }
#pragma unroll
        for (int n = 0; n < Groups; ++n)
#pragma unroll
            for (int i = 0; i < F.channel_tiles; ++i)
#pragma unroll
                for (int v = 0; v < 4; ++v)
                    to[i].value[v] = First && n == 0 ? part[n][i].value[v]
                                                     : to[i].value[v] + part[n][i].value[v];
    }

    // Two halves, or one that forms steps with the row below: inputs are loaded once for all
    // filter rows.
    template <int Halves, bool First = false>
    __device__ __forceinline__ void add_reusing_rows(int step, int place,
                                                     const uint32_t (&at)[Pixels]) {
        constexpr int Steps = Halves == 2 ? F.row_reuse : (F.row_reuse + 1) / 2;
        Weights w[Steps];
#pragma unroll
        for (int u = 0; u < Steps; ++u)
            w[u] = weights_of(step + u);
        Window<WarpTask, Halves, F.row_reuse> window(*this, place, at);
#pragma unroll
        for (int row = 0; row < F.window(); ++row) {
            window.load(*this, row);
            if constexpr (Three) {
                const int top = row - (F.row_reuse - 1);
                if (top < 0 || top % F.stride != 0)
                    continue;
                add<First, Steps>(sum[top / F.stride], w, [&](int u, int h) -> const Half & {
                    return window.half(top, u, h);
                });
            } else {
                // A sum's products lie far apart: each row of inputs goes to all that it is for.
#pragma unroll
                for (int u = 0; u < Steps; ++u) {
                    const int top = row - (Halves == 2 ? u : min(2 * u + 1, F.row_reuse - 1));
                    if (top < 0 || top % F.stride != 0 || top / F.stride >= F.rows)
                        continue;
#pragma unroll
                    for (int i = 0; i < F.channel_tiles; ++i)
                        multiply(sum[top / F.stride][i], w[u].part[i][0],
                                 window.half(top, u, 0).part[0], window.half(top, u, 1).part[0]);
                }
            }
        }
    }

    // Where a row of the filter is one step: F.rows rows of outputs at a time, down to `rows`, each
    // time followed by store(). Weights stay, and a row of inputs is loaded and split once.
    template <class Store>
    __device__ __forceinline__ void add_stationary(const uint32_t (&at)[Pixels], int rows,
                                                   Store store) {
        constexpr int Ring = F.row_reuse - 1 + F.rows;
        static_assert(Ring % F.rows == 0 && F.stride == 1);
        Weights w[F.row_reuse];
#pragma unroll
        for (int u = 0; u < F.row_reuse; ++u)
            w[u] = weights_of(u);
        Window<WarpTask, 2, Ring> window(*this, 0, at);
#pragma unroll
        for (int row = 0; row < F.row_reuse - 1; ++row)
            window.load(*this, row);
#pragma unroll 1
        for (;; rows -= Ring) {
#pragma unroll
            for (int top = 0; top < Ring; top += F.rows) {
#pragma unroll
                for (int row = 0; row < F.rows; ++row)
                    window.load(*this, top + F.row_reuse - 1 + row);
#pragma unroll
                for (int row = 0; row < F.rows; ++row) {
                    const auto half = [&](int u, int h) -> const Half & {
                        return window.half(top + row, u, h);
                    };
                    if constexpr (Three) {
                        add<true, F.row_reuse>(sum[row], w, half);
                    } else {
                        sum[row][0] = Accumulator();
#pragma unroll
                        for (int u = 0; u < F.row_reuse; ++u)
                            multiply(sum[row][0], w[u].part[0][0], half(u, 0).part[0],
                                     half(u, 1).part[0]);
                    }
                }
                store();
                if (rows <= top + F.rows)
                    return;
            }
        }
    }

    // Each step has its own inputs.
    template <int Steps>
    __device__ __forceinline__ void add_steps(int step, const uint32_t (&at)[Pixels],
                                              uint32_t row_step) {
        Weights w[Steps];
        uint32_t offset[Steps][2];
#pragma unroll
        for (int u = 0; u < Steps; ++u) {
            w[u] = weights_of(step + u);
            offset[u][0] = places[(step + u) * 8], offset[u][1] = places[(step + u) * 8 + 4];
        }
#pragma unroll
        for (int row = 0; row < F.rows; ++row) {
            Half inputs[Steps][2];
#pragma unroll
            for (int u = 0; u < Steps; ++u) {
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    uint32_t here[Pixels];
#pragma unroll
                    for (int v = 0; v < Pixels; ++v)
                        here[v] = at[v] + offset[u][h] + row * row_step;
                    inputs[u][h].load(here);
                }
            }
            if constexpr (Three) {
                add<false, Steps>(sum[row], w,
                                  [&](int u, int h) -> const Half & { return inputs[u][h]; });
            } else {
#pragma unroll
                for (int u = 0; u < Steps; ++u)
#pragma unroll
                    for (int i = 0; i < F.channel_tiles; ++i)
                        multiply(sum[row][i], w[u].part[i][0], inputs[u][0].part[0],
                                 inputs[u][1].part[0]);
            }
        }
    }
};

// Waits for all products. `to` was being written: nothing that reads it may move up.
template <int Tiles>
__device__ __forceinline__ void wait_for_products(Accumulator (&to)[Tiles]) {
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < Tiles; ++i)
#pragma unroll
        for (int v = 0; v < 4; ++v)
            settle(to[i].value[v]);
}

// Four warps' task, sixteen columns each. Weights are not in registers but in shared memory:
// [step][part][half][column of the tile][4], as 8 x 16-byte blocks without a swizzle.
template <int Index, bool Three>
struct WarpgroupTask {
    static constexpr TaskShape F = TaskShapes[Index];
    static constexpr int Pixels = 2, Parts = Three ? 2 : 1;
    static constexpr int PartBytes = F.channel_tiles * 8 * 8 * 4;
    static constexpr int StepFloats = Parts * PartBytes / 4;
    using Half = small_mma::Half<Parts, Pixels>;

    const int *places;
    uint32_t weights; // lower half of the descriptor
    uint32_t pitch;
    Accumulator sum[F.rows][F.channel_tiles];

    static __device__ __forceinline__ uint32_t descriptor(uint32_t address) {
        constexpr uint32_t along_sum = PartBytes / 2 / 16;
        return (address >> 4) | along_sum << 16;
    }
    // The descriptor of one part of a step's weights. Added to in 32 bits, because its upper half
    // never changes.
    __device__ __forceinline__ uint64_t weights_of(int step, int part) const {
        constexpr uint64_t along_columns = 128 / 16;
        return along_columns << 32 | (weights + (step * Parts + part) * (PartBytes / 16));
    }

    // Begins the products of `Steps` steps for one row of sums.
    template <int Steps, class Inputs>
    __device__ __forceinline__ void begin(Accumulator (&to)[F.channel_tiles], int step,
                                          Inputs half) {
        wgmma_fence();
#pragma unroll
        for (int kind = Three ? 0 : 2; kind < 3; ++kind) { // lo hi, hi lo, hi hi
#pragma unroll
            for (int u = 0; u < Steps; ++u) {
                const auto &first = half(u, 0).part[Three && kind == 1];
                const auto &second = half(u, 1).part[Three && kind == 1];
                const uint32_t a[4] = {first[0], first[1], second[0], second[1]};
                wgmma_tf32(to, a, weights_of(step + u, Three && kind == 0),
                           !Three || kind > 0 || u > 0);
            }
        }
        wgmma_commit();
    }

    // The same in parts of at most four steps, while next() loads what comes after them.
    template <int Steps, class Inputs, class Next>
    __device__ __forceinline__ void add(Accumulator (&to)[F.channel_tiles], int step, Inputs half,
                                        Next next) {
        if constexpr (!Three) {
            begin<Steps>(to, step, half);
            next();
            wait_for_products(to);
        } else {
            constexpr int First = Steps > 4 ? (Steps + 1) / 2 : Steps, Second = Steps - First;
            Accumulator one[F.channel_tiles], two[F.channel_tiles];
            begin<First>(one, step, half);
            if constexpr (Second > 0)
                begin<Second>(two, step + First,
                              [&](int u, int h) -> const Half & { return half(First + u, h); });
            next();
            wait_for_products(one);
            if constexpr (Second > 0)
                wait_for_products(two);
#pragma unroll
            for (int i = 0; i < F.channel_tiles; ++i) {
#pragma unroll
                for (int v = 0; v < 4; ++v) {
                    float sum = one[i].value[v];
                    if constexpr (Second > 0) // no zero instead: it would be added, -0 + 0 is +0
                        sum += two[i].value[v];
                    to[i].value[v] += sum;
                }
            }
        }
    }

    template <int Halves>
    __device__ __forceinline__ void add_reusing_rows(int step, int place,
                                                     const uint32_t (&at)[Pixels]) {
        constexpr int Steps = Halves == 2 ? F.row_reuse : (F.row_reuse + 1) / 2;
        Window<WarpgroupTask, Halves, F.row_reuse + F.stride> window(*this, place, at);
#pragma unroll
        for (int row = 0; row < F.row_reuse; ++row)
            window.load(*this, row);
#pragma unroll
        for (int row = 0; row < F.rows; ++row)
            add<Steps>(
                sum[row], step,
                [&](int u, int h) -> const Half & { return window.half(row * F.stride, u, h); },
                [&] {
#pragma unroll
                    for (int j = 0; j < F.stride && row + 1 < F.rows; ++j)
                        window.load(*this, row * F.stride + F.row_reuse + j);
                });
    }

    // Where a row of the filter is one step. Rows of inputs come a few at a time and meet all sums
    // that they are for, so that warps wait for products only once for so many, and the first
    // that a sum gets needs no addition.
    __device__ __forceinline__ void add_rows_per_step(const uint32_t (&at)[Pixels]) {
        constexpr int RowSteps = (F.window() + F.rows_per_step - 1) / F.rows_per_step;
        static_assert(F.rows_per_step <= 4 && F.stride == 1);
        Window<WarpgroupTask, 2, 2 * F.rows_per_step> window(*this, 0, at);
        const auto load = [&](int step) {
#pragma unroll
            for (int row = step * F.rows_per_step;
                 row < min((step + 1) * F.rows_per_step, F.window()); ++row)
                window.load(*this, row);
        };
        load(0);
#pragma unroll
        for (int step = 0; step < RowSteps; ++step) {
            Accumulator part[F.rows][F.channel_tiles];
            wgmma_fence();
#pragma unroll
            for (int row = 0; row < F.rows; ++row) {
                bool add = !Three && row / F.rows_per_step < step;
#pragma unroll
                for (int kind = Three ? 0 : 2; kind < 3; ++kind) { // lo hi, hi lo, hi hi
#pragma unroll
                    for (int u = 0; u < F.row_reuse; ++u) {
                        if ((row + u) / F.rows_per_step != step)
                            continue;
                        const auto &first = window.half(row, u, 0).part[Three && kind == 1];
                        const auto &second = window.half(row, u, 1).part[Three && kind == 1];
                        const uint32_t a[4] = {first[0], first[1], second[0], second[1]};
                        wgmma_tf32(Three && row / F.rows_per_step < step ? part[row] : sum[row], a,
                                   weights_of(u, Three && kind == 0), add);
                        add = true;
                    }
                }
            }
            wgmma_commit();
            if (step + 1 < RowSteps)
                load(step + 1);
#pragma unroll
            for (int row = 0; row < F.rows; ++row) {
                if (row / F.rows_per_step > step ||
                    (row + F.row_reuse - 1) / F.rows_per_step < step)
                    continue;
                if (!Three || row / F.rows_per_step == step) {
                    wait_for_products(sum[row]);
                    continue;
                }
                wait_for_products(part[row]);
#pragma unroll
                for (int i = 0; i < F.channel_tiles; ++i)
#pragma unroll
                    for (int v = 0; v < 4; ++v)
                        sum[row][i].value[v] += part[row][i].value[v];
            }
        }
    }

    template <int Steps>
    __device__ __forceinline__ void add_steps(int step, const uint32_t (&at)[Pixels],
                                              uint32_t row_step) {
        Half inputs[2][Steps][2];
        uint32_t here[Steps][2][Pixels];
        const auto load = [&](int row) {
#pragma unroll
            for (int u = 0; u < Steps; ++u) {
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    inputs[row % 2][u][h].load(here[u][h]);
#pragma unroll
                    for (int v = 0; v < Pixels; ++v)
                        here[u][h][v] += row_step;
                }
            }
        };
#pragma unroll
        for (int u = 0; u < Steps; ++u)
#pragma unroll
            for (int h = 0; h < 2; ++h)
#pragma unroll
                for (int v = 0; v < Pixels; ++v)
                    here[u][h][v] = at[v] + places[(step + u) * 8 + 4 * h];
        load(0);
#pragma unroll
        for (int row = 0; row < F.rows; ++row)
            add<Steps>(
                sum[row], step, [&](int u, int h) -> const Half & { return inputs[row % 2][u][h]; },
                [&] {
                    if (row + 1 < F.rows)
                        load(row + 1);
                });
    }
};

// All products of a task. The inputs of lane 4 g + t begin at `at`.
template <class Task>
__device__ __forceinline__ void add_products(Task &task, const Order &order,
                                             const uint32_t (&at)[Task::Pixels],
                                             uint32_t row_step) {
    constexpr TaskShape F = Task::F;
    if constexpr (F.rows_per_step > 0) {
        task.add_rows_per_step(at);
    } else if constexpr (F.row_reuse > 1) {
        int full = 0;
        if constexpr (!F.wgmma) {
            if (order.full > 0)
                task.template add_reusing_rows<2, true>(0, 0, at), full = 1;
        }
#pragma unroll 1
        for (; full < order.full; ++full)
            task.template add_reusing_rows<2>(full * F.row_reuse, full * 8, at);
        if (order.odd)
            task.template add_reusing_rows<1>(order.full * F.row_reuse, order.full * 8, at);
    } else {
        int step = 0;
#pragma unroll 1
        for (; step + Ahead <= order.steps; step += Ahead)
            task.template add_steps<Ahead>(step, at, row_step);
#pragma unroll 1
        for (; step < order.steps; ++step)
            task.template add_steps<1>(step, at, row_step);
    }
}
#endif

} // namespace cf::small_mma
