// The arithmetic of small_mma's tasks: inputs from shared memory into registers, products of tiles,
// sums. WarpTask multiplies by mma.sync, a warp by itself; GroupTask by wgmma, four warps together.
#pragma once

#include "ptx/mma.cuh"
#include "kernels/small/mma_plan.cuh"

namespace cf::small_mma {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL    // wgmma is not part of other chips
using Sum = Fragment<float, float>; // of a lane in a tile of 16 x 8

// Four products along the sum for each of a lane's pixels: of lane 4 g + t product t of pixel g
// (and g + 8). Part 0 is hi, part 1 lo.
template <int Parts, int Pixels>
struct Half {
    uint32_t part[Parts][Pixels];

    __device__ __forceinline__ void load(const unsigned char *shared,
                                         const uint32_t (&at)[Pixels]) {
#pragma unroll
        for (int v = 0; v < Pixels; ++v) {
            const uint32_t bits = *reinterpret_cast<const uint32_t *>(shared + at[v]);
            if constexpr (Parts == 2) {
                const uint32_t hi = (bits + 0x1000) & 0xffffe000;
                part[0][v] = hi;
                part[1][v] = __float_as_uint(__uint_as_float(bits) - __uint_as_float(hi));
            } else {
                part[0][v] = bits; // the tensor core cuts it
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
            row[number % Rows][h].load(task.shared, here[h]);
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
            return row[(top + min(2 * u + h, Task::F.reach - 1)) % Rows][0];
    }
};

// A warp's task.
template <int Index, bool Three>
struct WarpTask {
    static constexpr Form F = Forms[Index];
    static constexpr int Pixels = F.pixels(), Regs = F.weights(), Parts = Three ? 2 : 1;
    static constexpr int StepFloats = F.tiles * Parts * 32 * Regs;
    using Half = small_mma::Half<Parts, Pixels>;

    struct Weights {
        uint32_t part[F.tiles][Parts][Regs];
    };

    const unsigned char *shared;
    const int *places;
    const float *weights; // of this lane, generic address
    uint32_t pitch;
    Sum sum[F.rows][F.tiles];

    __device__ __forceinline__ Weights weights_of(int step) const {
        Weights w;
#pragma unroll
        for (int i = 0; i < F.tiles; ++i) {
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

    static __device__ __forceinline__ void multiply(Sum &sum, const uint32_t (&w)[Regs],
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
    __device__ __forceinline__ void add(Sum (&to)[F.tiles], const Weights (&w)[Steps],
                                        Inputs half) {
        constexpr int Groups = (Steps + 3) / 4, Length = (Steps + Groups - 1) / Groups;
        Sum part[Groups][F.tiles];
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
                    for (int i = 0; i < F.tiles; ++i)
                        multiply(part[n][i], w[u].part[i][kind == 0], half(u, 0).part[kind == 1],
                                 half(u, 1).part[kind == 1]);
                }
            }
        }
#pragma unroll
        for (int n = 0; n < Groups; ++n)
#pragma unroll
            for (int i = 0; i < F.tiles; ++i)
#pragma unroll
                for (int v = 0; v < 4; ++v)
                    to[i].value[v] = First && n == 0 ? part[n][i].value[v]
                                                     : to[i].value[v] + part[n][i].value[v];
    }

    // Two halves, or one that forms steps with the row below: inputs are loaded once for all
    // filter rows.
    template <int Halves, bool First = false>
    __device__ __forceinline__ void slide(int step, int place, const uint32_t (&at)[Pixels]) {
        constexpr int Steps = Halves == 2 ? F.reach : (F.reach + 1) / 2;
        Weights w[Steps];
#pragma unroll
        for (int u = 0; u < Steps; ++u)
            w[u] = weights_of(step + u);
        Window<WarpTask, Halves, F.reach> window(*this, place, at);
#pragma unroll
        for (int row = 0; row < F.window(); ++row) {
            window.load(*this, row);
            if constexpr (Three) {
                const int top = row - (F.reach - 1);
                if (top < 0 || top % F.stride != 0)
                    continue;
                add<First, Steps>(sum[top / F.stride], w, [&](int u, int h) -> const Half & {
                    return window.half(top, u, h);
                });
            } else {
                // A sum's products lie far apart: each row of inputs goes to all that it is for.
#pragma unroll
                for (int u = 0; u < Steps; ++u) {
                    const int top = row - (Halves == 2 ? u : min(2 * u + 1, F.reach - 1));
                    if (top < 0 || top % F.stride != 0 || top / F.stride >= F.rows)
                        continue;
#pragma unroll
                    for (int i = 0; i < F.tiles; ++i)
                        multiply(sum[top / F.stride][i], w[u].part[i][0],
                                 window.half(top, u, 0).part[0], window.half(top, u, 1).part[0]);
                }
            }
        }
    }

    // Where a row of the filter is one step: F.rows rows of outputs at a time, down to `rows`, each
    // time followed by store(). Weights stay, and a row of inputs is loaded and split once.
    template <class Store>
    __device__ __forceinline__ void descend(const uint32_t (&at)[Pixels], int rows, Store store) {
        constexpr int Ring = F.reach - 1 + F.rows;
        static_assert(Ring % F.rows == 0 && F.stride == 1);
        Weights w[F.reach];
#pragma unroll
        for (int u = 0; u < F.reach; ++u)
            w[u] = weights_of(u);
        Window<WarpTask, 2, Ring> window(*this, 0, at);
#pragma unroll
        for (int row = 0; row < F.reach - 1; ++row)
            window.load(*this, row);
#pragma unroll 1
        for (;; rows -= Ring) {
#pragma unroll
            for (int top = 0; top < Ring; top += F.rows) {
#pragma unroll
                for (int row = 0; row < F.rows; ++row)
                    window.load(*this, top + F.reach - 1 + row);
#pragma unroll
                for (int row = 0; row < F.rows; ++row) {
                    const auto half = [&](int u, int h) -> const Half & {
                        return window.half(top + row, u, h);
                    };
                    if constexpr (Three) {
                        add<true, F.reach>(sum[row], w, half);
                    } else {
                        sum[row][0] = Sum();
#pragma unroll
                        for (int u = 0; u < F.reach; ++u)
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
    __device__ __forceinline__ void walk(int step, const uint32_t (&at)[Pixels],
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
                    inputs[u][h].load(shared, here);
                }
            }
            if constexpr (Three) {
                add<false, Steps>(sum[row], w,
                                  [&](int u, int h) -> const Half & { return inputs[u][h]; });
            } else {
#pragma unroll
                for (int u = 0; u < Steps; ++u)
#pragma unroll
                    for (int i = 0; i < F.tiles; ++i)
                        multiply(sum[row][i], w[u].part[i][0], inputs[u][0].part[0],
                                 inputs[u][1].part[0]);
            }
        }
    }
};

// d += a b, or d = a b, of 64 x 8 by 8 x 8 Tiles: a in registers, sixteen rows to a warp as in
// mma.sync; b in shared memory, where the descriptor says. Runs on its own until wait_for_products.
template <int Tiles>
__device__ __forceinline__ void multiply_group(Sum (&d)[Tiles], const uint32_t (&a)[4], uint64_t b,
                                               bool add) {
    static_assert(Tiles == 3 || Tiles == 4 || Tiles == 8, "written for these");
    if constexpr (Tiles == 3)
        asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %17, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n24k8.f32.tf32.tf32 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11}, "
                     "{%12, %13, %14, %15}, %16, add, 1, 1;\n}"
                     : "+f"(d[0].value[0]), "+f"(d[0].value[1]), "+f"(d[0].value[2]),
                       "+f"(d[0].value[3]), "+f"(d[1].value[0]), "+f"(d[1].value[1]),
                       "+f"(d[1].value[2]), "+f"(d[1].value[3]), "+f"(d[2].value[0]),
                       "+f"(d[2].value[1]), "+f"(d[2].value[2]), "+f"(d[2].value[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)));
    else if constexpr (Tiles == 8)
        asm volatile(
            "{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 "
            "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
            "{%32, %33, %34, %35}, %36, add, 1, 1;\n}"
            : "+f"(d[0].value[0]), "+f"(d[0].value[1]), "+f"(d[0].value[2]), "+f"(d[0].value[3]),
              "+f"(d[1].value[0]), "+f"(d[1].value[1]), "+f"(d[1].value[2]), "+f"(d[1].value[3]),
              "+f"(d[2].value[0]), "+f"(d[2].value[1]), "+f"(d[2].value[2]), "+f"(d[2].value[3]),
              "+f"(d[3].value[0]), "+f"(d[3].value[1]), "+f"(d[3].value[2]), "+f"(d[3].value[3]),
              "+f"(d[4].value[0]), "+f"(d[4].value[1]), "+f"(d[4].value[2]), "+f"(d[4].value[3]),
              "+f"(d[5].value[0]), "+f"(d[5].value[1]), "+f"(d[5].value[2]), "+f"(d[5].value[3]),
              "+f"(d[6].value[0]), "+f"(d[6].value[1]), "+f"(d[6].value[2]), "+f"(d[6].value[3]),
              "+f"(d[7].value[0]), "+f"(d[7].value[1]), "+f"(d[7].value[2]), "+f"(d[7].value[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)));
    else
        asm volatile(
            "{\n.reg .pred add;\nsetp.ne.b32 add, %21, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n32k8.f32.tf32.tf32 "
            "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
            "{%16, %17, %18, %19}, %20, add, 1, 1;\n}"
            : "+f"(d[0].value[0]), "+f"(d[0].value[1]), "+f"(d[0].value[2]), "+f"(d[0].value[3]),
              "+f"(d[1].value[0]), "+f"(d[1].value[1]), "+f"(d[1].value[2]), "+f"(d[1].value[3]),
              "+f"(d[2].value[0]), "+f"(d[2].value[1]), "+f"(d[2].value[2]), "+f"(d[2].value[3]),
              "+f"(d[3].value[0]), "+f"(d[3].value[1]), "+f"(d[3].value[2]), "+f"(d[3].value[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)));
}

// Before products read registers that other instructions wrote.
__device__ __forceinline__ void begin_products() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void end_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits for all products. `to` was being written: nothing that reads it may move up.
template <int Tiles>
__device__ __forceinline__ void wait_for_products(Sum (&to)[Tiles]) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < Tiles; ++i)
#pragma unroll
        for (int v = 0; v < 4; ++v)
            asm volatile("" : "+f"(to[i].value[v])::"memory");
}

// Four warps' task, sixteen columns each. Weights are not in registers but in shared memory:
// [step][part][half][column of the tile][4], as 8 x 16-byte blocks without a swizzle.
template <int Index, bool Three>
struct GroupTask {
    static constexpr Form F = Forms[Index];
    static constexpr int Pixels = 2, Parts = Three ? 2 : 1;
    static constexpr int PartBytes = F.tiles * 8 * 8 * 4;
    static constexpr int StepFloats = Parts * PartBytes / 4;
    using Half = small_mma::Half<Parts, Pixels>;

    const unsigned char *shared;
    const int *places;
    uint32_t weights; // lower half of the descriptor
    uint32_t pitch;
    Sum sum[F.rows][F.tiles];

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
    __device__ __forceinline__ void begin(Sum (&to)[F.tiles], int step, Inputs half) {
        begin_products();
#pragma unroll
        for (int kind = Three ? 0 : 2; kind < 3; ++kind) { // lo hi, hi lo, hi hi
#pragma unroll
            for (int u = 0; u < Steps; ++u) {
                const auto &first = half(u, 0).part[Three && kind == 1];
                const auto &second = half(u, 1).part[Three && kind == 1];
                const uint32_t a[4] = {first[0], first[1], second[0], second[1]};
                multiply_group(to, a, weights_of(step + u, Three && kind == 0),
                               !Three || kind > 0 || u > 0);
            }
        }
        end_products();
    }

    // The same in parts of at most four steps, while next() loads what comes after them.
    template <int Steps, class Inputs, class Next>
    __device__ __forceinline__ void add(Sum (&to)[F.tiles], int step, Inputs half, Next next) {
        if constexpr (!Three) {
            begin<Steps>(to, step, half);
            next();
            wait_for_products(to);
        } else {
            constexpr int First = Steps > 4 ? (Steps + 1) / 2 : Steps, Second = Steps - First;
            Sum one[F.tiles], two[F.tiles];
            begin<First>(one, step, half);
            if constexpr (Second > 0)
                begin<Second>(two, step + First,
                              [&](int u, int h) -> const Half & { return half(First + u, h); });
            next();
            wait_for_products(one);
            if constexpr (Second > 0)
                wait_for_products(two);
#pragma unroll
            for (int i = 0; i < F.tiles; ++i)
#pragma unroll
                for (int v = 0; v < 4; ++v)
                    to[i].value[v] += one[i].value[v] + (Second > 0 ? two[i].value[v] : 0);
        }
    }

    template <int Halves>
    __device__ __forceinline__ void slide(int step, int place, const uint32_t (&at)[Pixels]) {
        constexpr int Steps = Halves == 2 ? F.reach : (F.reach + 1) / 2;
        Window<GroupTask, Halves, F.reach + F.stride> window(*this, place, at);
#pragma unroll
        for (int row = 0; row < F.reach; ++row)
            window.load(*this, row);
#pragma unroll
        for (int row = 0; row < F.rows; ++row)
            add<Steps>(
                sum[row], step,
                [&](int u, int h) -> const Half & { return window.half(row * F.stride, u, h); },
                [&] {
#pragma unroll
                    for (int j = 0; j < F.stride && row + 1 < F.rows; ++j)
                        window.load(*this, row * F.stride + F.reach + j);
                });
    }

    // Where a row of the filter is one step. Rows of inputs come a few at a time and meet all sums
    // that they are for, so that warps wait for products only once for each turn, and the first
    // that a sum gets needs no addition.
    __device__ __forceinline__ void once(const uint32_t (&at)[Pixels]) {
        constexpr int Turns = (F.window() + F.turn - 1) / F.turn;
        static_assert(F.turn <= 4 && F.stride == 1);
        Window<GroupTask, 2, 2 * F.turn> window(*this, 0, at);
        const auto load = [&](int turn) {
#pragma unroll
            for (int row = turn * F.turn; row < min((turn + 1) * F.turn, F.window()); ++row)
                window.load(*this, row);
        };
        load(0);
#pragma unroll
        for (int turn = 0; turn < Turns; ++turn) {
            Sum part[F.rows][F.tiles];
            begin_products();
#pragma unroll
            for (int row = 0; row < F.rows; ++row) {
                bool add = !Three && row / F.turn < turn;
#pragma unroll
                for (int kind = Three ? 0 : 2; kind < 3; ++kind) { // lo hi, hi lo, hi hi
#pragma unroll
                    for (int u = 0; u < F.reach; ++u) {
                        if ((row + u) / F.turn != turn)
                            continue;
                        const auto &first = window.half(row, u, 0).part[Three && kind == 1];
                        const auto &second = window.half(row, u, 1).part[Three && kind == 1];
                        const uint32_t a[4] = {first[0], first[1], second[0], second[1]};
                        multiply_group(Three && row / F.turn < turn ? part[row] : sum[row], a,
                                       weights_of(u, Three && kind == 0), add);
                        add = true;
                    }
                }
            }
            end_products();
            if (turn + 1 < Turns)
                load(turn + 1);
#pragma unroll
            for (int row = 0; row < F.rows; ++row) {
                if (row / F.turn > turn || (row + F.reach - 1) / F.turn < turn)
                    continue;
                if (!Three || row / F.turn == turn) {
                    wait_for_products(sum[row]);
                    continue;
                }
                wait_for_products(part[row]);
#pragma unroll
                for (int i = 0; i < F.tiles; ++i)
#pragma unroll
                    for (int v = 0; v < 4; ++v)
                        sum[row][i].value[v] += part[row][i].value[v];
            }
        }
    }

    template <int Steps>
    __device__ __forceinline__ void walk(int step, const uint32_t (&at)[Pixels],
                                         uint32_t row_step) {
        Half inputs[2][Steps][2];
        uint32_t here[Steps][2][Pixels];
        const auto load = [&](int row) {
#pragma unroll
            for (int u = 0; u < Steps; ++u) {
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    inputs[row % 2][u][h].load(shared, here[u][h]);
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
__device__ __forceinline__ void run(Task &task, const Order &order,
                                    const uint32_t (&at)[Task::Pixels], uint32_t row_step) {
    constexpr Form F = Task::F;
    if constexpr (F.turn > 0) {
        task.once(at);
    } else if constexpr (F.reach > 1) {
        int full = 0;
        if constexpr (!F.group) {
            if (order.full > 0)
                task.template slide<2, true>(0, 0, at), full = 1;
        }
#pragma unroll 1
        for (; full < order.full; ++full)
            task.template slide<2>(full * F.reach, full * 8, at);
        if (order.odd)
            task.template slide<1>(order.full * F.reach, order.full * 8, at);
    } else {
        int step = 0;
#pragma unroll 1
        for (; step + Ahead <= order.steps; step += Ahead)
            task.template walk<Ahead>(step, at, row_step);
#pragma unroll 1
        for (; step < order.steps; ++step)
            task.template walk<1>(step, at, row_step);
    }
}
#endif

} // namespace cf::small_mma
