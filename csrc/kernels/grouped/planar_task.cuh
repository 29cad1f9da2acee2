// A warp's unit in grouped_planar: two rows of y of a group, multiplied tile by tile, shifted,
// finished, and put to where they leave from.
#pragma once

#include "core/epilogue.cuh"
#include "core/fragment_epilogue.cuh"
#include "kernels/grouped/planar_load.cuh"
#include "ptx/from_here.cuh"
#include "ptx/mma.cuh"
#include "ptx/store_behind.cuh"

namespace cf::grouped_planar {

// What a kernel is compiled for.
template <class Element_, int Channels_, int Tiles_>
struct Shape {
    using Element = Element_;
    using Of = Products<Channels_>;
    static constexpr int Channels = Channels_, Tiles = Tiles_, TileBytes = TilePixels * Size;
};

// A group's filter.
template <class Shape>
struct Filter {
    uint32_t word[Shape::Of::Fragments][4];

    __device__ __forceinline__ void load(const uint4 *packed, int group, int lane) {
        const uint4 *from = packed + int64_t(group) * Shape::Of::Fragments * 32 + lane;
#pragma unroll
        for (uint32_t(&to)[4] : word) {
            const uint4 v = __ldg(from);
            to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
            from += 32;
        }
    }
};

// Some tiles' pixels in four rows of x, as columns of the products: by tile and step. A load takes
// two steps of a tile, or two tiles where there is but one.
template <class Shape>
struct Pixels {
    static constexpr int Channels = Shape::Channels, Steps = Shape::Of::Steps;
    uint32_t word[Shape::Tiles + 1][Steps][2];

    // Where a lane reads, behind the unit's first pixel in the first channel.
    static __device__ __forceinline__ uint32_t place(const Tiling &tiling, int lane) {
        const int of_sum = Steps == 1 ? lane % 16 : lane, tile = Steps == 1 ? lane / 16 : 0;
        return of_sum % Channels * tiling.plane + of_sum / Channels * tiling.pitch +
               tile * Shape::TileBytes;
    }
    __device__ __forceinline__ void load(const Tiling &tiling, uint32_t from, int tile) {
        if (Steps == 1 && tile % 2 == 1)
            return;
#pragma unroll
        for (int step = 0; step < Steps; step += 2) {
            uint32_t to[4];
            load_matrices_transposed(to, from + tile * Shape::TileBytes +
                                             step / 2 * (32 / Channels) * tiling.pitch);
            uint32_t(&next)[2] = Steps == 1 ? word[tile + 1][0] : word[tile][(step + 1) % Steps];
            word[tile][step][0] = to[0], word[tile][step][1] = to[1];
            next[0] = to[2], next[1] = to[3];
        }
    }
};

// The sums of a tile: of the filter's columns by their order, and of rows of the pair.
template <class Shape>
struct Sums {
    using Of = typename Shape::Of;
    Fragment<typename Shape::Element, float> all[Of::Outer + Of::Middle];

    // Of the left column or the right one, a run's pixel of two.
    __device__ __forceinline__ float get(int right, int run, int pixel) const {
        if constexpr (Shape::Channels == 4)
            return all[0].value[right * 2 + pixel];
        else
            return all[right * Of::Middle + run / 2].value[run % 2 * 2 + pixel];
    }
    // Of the middle column, and in the end of all.
    __device__ __forceinline__ float &of(int run, int pixel) {
        return all[Of::Outer + run / 2].value[run % 2 * 2 + pixel];
    }
    __device__ __forceinline__ void multiply(const Filter<Shape> &filter,
                                             const uint32_t (&pixels)[Of::Steps][2]) {
#pragma unroll
        for (int step = 0; step < Of::Steps; ++step)
#pragma unroll
            for (int i = 0; i < Of::Outer + Of::Middle; ++i) {
                if constexpr (Shape::Channels == 16) {
                    // A step is a row of x.
                    const int r = step - i % PairRows;
                    if (r >= 0 && r < FilterSide)
                        all[i].add(filter.word[i / PairRows * FilterSide + r], pixels[step]);
                } else {
                    all[i].add(filter.word[i * Of::Steps + step], pixels[step]);
                }
            }
    }
    // Adds the outer columns' sums to the middle one's: the left one's come from the pixel before,
    // the right one's from the one behind, which other lanes of four have, or the tiles beside.
    __device__ __forceinline__ void shift(const Sums *before, const Sums *behind, int lane) {
        const int quad = lane & ~3, last = (lane + 3) & 3, next = (lane + 1) & 3;
#pragma unroll
        for (int run = 0; run < Of::Runs; ++run) {
            const float from_left = before ? before->get(0, run, 1) : 0.0f;
            const float from_right = behind ? behind->get(1, run, 0) : 0.0f;
            const float to_right = next == 0 ? from_left : get(0, run, 1);
            const float to_left = last == 3 ? from_right : get(1, run, 0);
            of(run, 0) += __shfl_sync(~0u, to_right, quad | last) + get(1, run, 1);
            of(run, 1) += __shfl_sync(~0u, to_left, quad | next) + get(0, run, 0);
        }
    }
};

// Where a lane's part of a unit lies.
template <class Shape>
struct UnitPlace {
    static constexpr int Runs = Shape::Of::Runs;
    int image, channel; // the group's first
    int row, column;    // the unit's first
    int last[Runs];     // columns from the lane's first on that are the unit's to store,
    bool first;         // and whether those of the first tile are
    uint32_t staged[Runs];
};

// A lane's finished sums, for core/fragment_epilogue.cuh. Rows have whole pairs of pixels.
template <class Shape>
struct OutputMap {
    static constexpr int Tiles = Shape::Tiles, Runs = Shape::Of::Runs;
    Sums<Shape> (&sums)[Tiles];
    const Tiling &tiling;
    const UnitPlace<Shape> &unit;
    int lane;

    __device__ __forceinline__ bool live(int tile, int run) const {
        return tile * TilePixels < unit.last[run] && (tile > 0 || unit.first);
    }
    __device__ __forceinline__ int channel(int run) const {
        return from_here(unit.channel) + channel_of<Shape::Channels>(run, lane);
    }
    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
#pragma unroll
        for (int run = 0; run < Runs; ++run)
            body(channel(run), Constant<Tiles * 2>(),
                 [&](int i) -> float & { return sums[i / 2].of(run, i % 2); });
    }
    template <class T, class Body>
    __device__ __forceinline__ void for_runs(T *tensor, Body body) {
#pragma unroll
        for (int run = 0; run < Runs; ++run) {
            const int64_t plane = int64_t(unit.image) * tiling.c + channel(run);
            const int row = from_here(unit.row) + row_of<Shape::Channels>(run, lane);
            T *from = tensor + (plane * tiling.h + row) * tiling.w + unit.column + lane % 4 * 2;
#pragma unroll
            for (int tile = 0; tile < Tiles; ++tile)
                body(Constant<2>(), from + tile * TilePixels, live(tile, run),
                     [&](int i) -> float & { return sums[tile].of(run, i); });
        }
    }
    __device__ __forceinline__ void activate() {
        if (tiling.activation == CF_ACT_NONE)
            return;
#pragma unroll
        for (int i = 0; i < Tiles * Runs * 2; ++i) {
            float &of = sums[i / (Runs * 2)].of(i / 2 % Runs, i % 2);
            of = activate_keeping_nan(tiling.activation, of);
        }
    }
};

// Calls body(Constant<i>) for each i of so many.
template <int I, int Count, class Body>
__device__ __forceinline__ void for_each_constant(Body body) {
    if constexpr (I < Count) {
        body(Constant<I>());
        for_each_constant<I + 1, Count>(body);
    }
}

// To where the strip leaves from.
template <class Shape>
__device__ __forceinline__ void store_unit(const OutputMap<Shape> &map) {
    constexpr int Runs = Shape::Of::Runs;
    for_each_constant<0, Shape::Tiles * Runs>([&](auto i) {
        constexpr int Run = i.value % Runs, Tile = i.value / Runs;
        auto &sums = map.sums[Tile];
        store_behind_if<Tile * Shape::TileBytes>(
            map.live(Tile, Run), map.unit.staged[Run],
            pack<typename Shape::Element>(sums.of(Run, 0), sums.of(Run, 1)));
    });
}

// From x in shared memory, where the lane reads the unit's first pixels.
template <class Shape>
__device__ __forceinline__ void compute_unit(const Tiling &tiling, const UnitPlace<Shape> &unit,
                                             const Filter<Shape> &filter, uint32_t from,
                                             const Finish &finish, int lane) {
    constexpr int Tiles = Shape::Tiles;
    Sums<Shape> sums[Tiles];
    Pixels<Shape> pixels;
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
        pixels.load(tiling, from, tile);
        sums[tile].multiply(filter, pixels.word[tile]);
    }
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile)
        sums[tile].shift(tile > 0 ? &sums[tile - 1] : nullptr,
                         tile + 1 < Tiles ? &sums[tile + 1] : nullptr, lane);
    OutputMap<Shape> map = {sums, tiling, unit, lane};
    // One branch where there is nothing to do.
    if (tiling.finishes) {
        finish_fragment<typename Shape::Element>(finish, tiling.c, map);
        map.activate();
    }
    store_unit(map);
}

} // namespace cf::grouped_planar
