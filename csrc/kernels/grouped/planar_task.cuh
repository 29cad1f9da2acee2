// A warp's unit in grouped_planar: two rows of y of a group, multiplied tile by tile, shifted,
// finished, and put to where they leave from.
#pragma once

#include "core/fragment_finish.cuh"
#include "kernels/grouped/planar_plan.cuh"
#include "kernels/grouped/split.cuh"
#include "ptx/from_here.cuh"
#include "ptx/mma.cuh"
#include "ptx/predicated_shared.cuh"

namespace cf::grouped_planar {

// What a kernel is compiled for.
template <class Element_, int Products_, int Channels_, int Tiles_>
struct Shape {
    using Element = Element_;
    static constexpr int Size = sizeof(Element), Channels = Channels_, Tiles = Tiles_;
    static constexpr int Parts = grouped::parts_of(Products_);
    using Of = ProductLayout<Size, Channels>;
};

// A group's filter.
template <class Shape>
struct Filter {
    uint32_t word[Shape::Of::Fragments][Shape::Parts][4];

    __device__ __forceinline__ void load(const uint4 *packed, int group, int lane) {
        constexpr int Words = Shape::Of::Fragments * Shape::Parts;
        const uint4 *from = packed + int64_t(group) * Words * 32 + lane;
#pragma unroll
        for (int i = 0; i < Words; ++i) {
            const uint4 v = __ldg(from + i * 32);
            uint32_t(&to)[4] = word[i / Shape::Parts][i % Shape::Parts];
            to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
        }
    }
};

// A step's pixels, as columns of the products, by tile and part.
template <class Shape>
struct Pixels {
    static constexpr int Channels = Shape::Channels, Tiles = Shape::Tiles;
    static constexpr int Each = 4 / Shape::Size; // elements of a word
    uint32_t word[Tiles][Shape::Parts][2];

    // Where a lane reads, behind the unit's first pixel in the first channel, one row above y.
    static __device__ __forceinline__ uint32_t place(const Tiling &tiling, int lane) {
        const int of_sum = lane % 4 * Each;
        return of_sum % Channels * tiling.strips.plane +
               of_sum / Channels * tiling.strips.row_bytes + lane / 4 * Tiles * Shape::Size;
    }
    // The row of x that it begins with.
    static __device__ __forceinline__ int row(int lane) { return lane % 4 * Each / Channels; }

    // `row` is that one's in the image; what is above and below the image is zero.
    template <int Step>
    __device__ __forceinline__ void load(const Tiling &tiling, uint32_t from, int row) {
        load_half<Step, 0>(tiling, from, row);
        load_half<Step, 1>(tiling, from, row);
    }

  private:
    template <int Step, int Half>
    __device__ __forceinline__ void load_half(const Tiling &tiling, uint32_t from, int row) {
        constexpr int OfSum = Step * Shape::Of::Step + Half * 4 * Each;
        const bool live = unsigned(row + OfSum / Channels) < unsigned(tiling.strips.h);
        from += OfSum % Channels * tiling.strips.plane + OfSum / Channels * tiling.strips.row_bytes;
        uint32_t first[Tiles / Each];
        load_shared_if(live, from, first);
        if constexpr (Each == 1) {
#pragma unroll
            for (int tile = 0; tile < Tiles; ++tile)
                split(tile, Half, __uint_as_float(first[tile]));
        } else {
            uint32_t second[Tiles / Each];
            load_shared_if(live, from + tiling.strips.plane, second);
#pragma unroll
            for (int tile = 0; tile < Tiles; ++tile)
                word[tile][0][Half] =
                    __byte_perm(first[tile / 2], second[tile / 2], tile % 2 == 0 ? 0x5410 : 0x7632);
        }
    }
    __device__ __forceinline__ void split(int tile, int half, float v) {
        const float hi = Sum<CF_MATH_TF32>::operand(v);
        word[tile][0][half] = __float_as_uint(hi);
        if constexpr (Shape::Parts == 2)
            word[tile][1][half] = __float_as_uint(Sum<CF_MATH_TF32>::operand(v - hi));
    }
};

// The sums of a tile: of the filter's columns by their order, and of rows of the pair.
template <class Shape>
struct Sums {
    using Of = typename Shape::Of;
    using Tile = Fragment<typename Shape::Element, float>;
    Tile all[Of::Outer + Of::Middle];

    // Of the filter's left column or its right one, in one of a run's two columns.
    __device__ __forceinline__ float get(int right, int run, int column) const {
        if constexpr (Shape::Channels == 4)
            return all[0].value[right * 2 + column];
        else
            return all[right * Of::Middle + run / 2].value[run % 2 * 2 + column];
    }
    // Of the middle column, and in the end of all.
    __device__ __forceinline__ float &of(int run, int column) {
        return all[Of::Outer + run / 2].value[run % 2 * 2 + column];
    }
    template <int Step>
    __device__ __forceinline__ void multiply(const Filter<Shape> &filter,
                                             const uint32_t (&pixels)[Shape::Parts][2]) {
#pragma unroll
        for (int i = 0; i < Of::Outer + Of::Middle; ++i) {
            if constexpr (Shape::Channels == 16) {
                const int r = Step / Of::StepsOfRow - i % PairRows;
                const int tap = i / PairRows * FilterSide + r;
                if (r >= 0 && r < FilterSide)
                    add(all[i], filter.word[tap * Of::StepsOfRow + Step % Of::StepsOfRow], pixels);
            } else {
                add(all[i], filter.word[i * Of::Steps + Step], pixels);
            }
        }
    }
    static __device__ __forceinline__ void add(Tile &sum, const uint32_t (&filter)[Shape::Parts][4],
                                               const uint32_t (&pixels)[Shape::Parts][2]) {
        if constexpr (Shape::Parts == 2) { // the smaller products first
            sum.add(filter[1], pixels[0]);
            sum.add(filter[0], pixels[1]);
        }
        sum.add(filter[0], pixels[0]);
    }
};

// Adds the outer columns' sums to the middle one's: the left one's come from the pixel before, the
// right one's from the one behind. At the ends of a lane's pixels these are the next lane's, of
// four, and at the ends of theirs nobody's.
template <class Shape>
__device__ __forceinline__ void shift(Sums<Shape> (&sums)[Shape::Tiles], int lane) {
    constexpr int Last = Shape::Tiles - 1;
    // Numbers whose past the compiler does not know: it would branch around the shuffles.
    const int has_before = from_here(lane % 4 > 0 ? -1 : 0);
    const int has_behind = from_here(lane % 4 < 3 ? -1 : 0);
    const auto masked = [](float v, int mask) { return __int_as_float(__float_as_int(v) & mask); };
#pragma unroll
    for (int run = 0; run < Shape::Of::Runs; ++run) {
        const float before = __shfl_up_sync(~0u, sums[Last].get(0, run, 1), 1, 4);
        const float behind = __shfl_down_sync(~0u, sums[0].get(1, run, 0), 1, 4);
        const float ends[2][2] = {{masked(before, has_before), sums[0].get(1, run, 1)},
                                  {sums[Last].get(0, run, 0), masked(behind, has_behind)}};
#pragma unroll
        for (int tile = 0; tile <= Last; ++tile)
#pragma unroll
            for (int column = 0; column < 2; ++column) {
                const float left = tile > 0 ? sums[tile - 1].get(0, run, column) : ends[column][0];
                const float right =
                    tile < Last ? sums[tile + 1].get(1, run, column) : ends[column][1];
                sums[tile].of(run, column) += left + right;
            }
    }
}

// Where a lane's part of a unit lies.
template <class Shape>
struct UnitPlace {
    static constexpr int Runs = Shape::Of::Runs;
    int image, channel;   // the group's first
    int row, column;      // the unit's first
    bool live_rows[Runs]; // whether a run is the unit's to store,
    bool live_columns[2]; // and a column of a run
    uint32_t to;          // the first run, in shared memory
};

// Bytes of shared memory from a lane's first run to another.
template <int Channels>
__device__ __forceinline__ uint32_t behind_first_run(const Tiling &tiling, int run) {
    const plane_strips::Tiling &strips = tiling.strips;
    return (channel_of<Channels>(run, 0) - channel_of<Channels>(0, 0)) * strips.y_pitch +
           (row_of<Channels>(run, 0) - row_of<Channels>(0, 0)) * strips.y_row_bytes;
}

// A lane's finished sums, for core/fragment_epilogue.cuh: of a run two columns, with a pixel of
// each tile.
template <class Shape>
struct OutputMap {
    static constexpr int Tiles = Shape::Tiles, Runs = Shape::Of::Runs;
    Sums<Shape> (&sums)[Tiles];
    const Tiling &tiling;
    const UnitPlace<Shape> &unit;
    int lane;

    __device__ __forceinline__ bool live(int run, int column) const {
        return unit.live_rows[run] && unit.live_columns[column];
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
            const plane_strips::Tiling &strips = tiling.strips;
            const int64_t plane = int64_t(unit.image) * strips.c + channel(run);
            const int row = from_here(unit.row) + row_of<Shape::Channels>(run, lane);
            T *from =
                tensor + (plane * strips.p + row) * strips.q + unit.column + lane % 4 * 2 * Tiles;
#pragma unroll
            for (int column = 0; column < 2; ++column)
                body(Constant<Tiles>(), from + column * Tiles, live(run, column),
                     [&](int i) -> float & { return sums[i].of(run, column); });
        }
    }
    __device__ __forceinline__ void store() const {
#pragma unroll
        for (int run = 0; run < Runs; ++run)
#pragma unroll
            for (int column = 0; column < 2; ++column) {
                float v[Tiles];
#pragma unroll
                for (int tile = 0; tile < Tiles; ++tile)
                    v[tile] = sums[tile].of(run, column);
                store_neighbours<typename Shape::Element>(
                    unit.to + behind_first_run<Shape::Channels>(tiling, run) +
                        column * Tiles * Shape::Size,
                    live(run, column), v);
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

} // namespace cf::grouped_planar
