// The kernel of grouped_any: a block stages what its tile of y reads of x, part by part of the
// filter, and its warps multiply that.
#pragma once

#include "core/epilogue.cuh"
#include "kernels/grouped/any_load.cuh"

namespace cf::grouped_any {

using Launched = cf::Kernel<Tiling, const void *, const void *, Target, int>;

// Some pixels of a tile in a chunk of a set's output channels.
struct Task {
    int pixel;           // of the tile
    int set;             // of all
    int tile;            // of the set
    int filters_left;    // output channels of the set that exist, from the tile's first on
    uint32_t set_offset; // in shared memory

    __device__ __forceinline__ Task(const Tiling &t, const Tile &tile_of_block, int number,
                                    int pixels, int tiles) {
        const int others = t.by_chunks.quotient(number), chunk = number - others * t.chunks;
        const int block = t.by_sets.quotient(others), of_sets = others - block * t.sets;
        const Sets &sets = t.filter.sets;
        pixel = block * pixels;
        set = tile_of_block.set + of_sets;
        tile = (tile_of_block.chunk + chunk) * tiles;
        const int64_t before = int64_t(set) * sets.filters;
        filters_left = int(min(int64_t(sets.filters), t.filter.k - before)) - tile * TileChannels;
        set_offset = of_sets * t.part_pieces * PieceBytes;
    }
};

// A task's sums, for core/fragment_epilogue.cuh.
template <class Shape>
struct OutputMap {
    static constexpr int Rows = Shape::Rows, Tiles = Shape::Tiles;
    static constexpr int Run = Shape::Run, Pixels = Shape::Pixels;
    const Tiling &t;
    Sums<Shape> &sums;
    int64_t begin;           // of the tile's first pixel in y, and the lane's first channel
    int channel, left;       // the lane's first channel; those from there on that are the task's
    int pixel[Rows][Pixels]; // behind the tile's first, or negative

    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile)
#pragma unroll
            for (int i = 0; i < Run; ++i)
                body(channel + tile * TileChannels + i, Constant<Rows * Pixels>(),
                     [&](int of) -> float & {
                         return sums.at(of / Pixels, tile, of % Pixels * Run + i);
                     });
    }
    template <int Together, class T, class Body>
    __device__ __forceinline__ void for_runs_of(T *tensor, Body body) {
#pragma unroll
        for (int row = 0; row < Rows; ++row)
#pragma unroll
            for (int p = 0; p < Pixels; ++p)
#pragma unroll
                for (int tile = 0; tile < Tiles; ++tile)
#pragma unroll
                    for (int i = 0; i < Run; i += Together) {
                        const int behind = tile * TileChannels + i;
                        body(Constant<Together>(),
                             tensor + begin + pixel[row][p] + behind * t.channel_y,
                             pixel[row][p] >= 0 && behind < left,
                             [&](int j) -> float & { return sums.at(row, tile, p * Run + i + j); });
                    }
    }
    template <class T, class Body>
    __device__ __forceinline__ void for_runs(T *tensor, Body body) {
        if (t.runs)
            for_runs_of<Run>(tensor, body);
        else
            for_runs_of<1>(tensor, body);
    }
    template <class T>
    __device__ __forceinline__ void store(T *tensor) {
        for_runs(tensor, [](auto count, T *at, bool live, auto value) {
            float v[count.value];
#pragma unroll
            for (int i = 0; i < count.value; ++i)
                v[i] = value(i);
            store_neighbours<T>(reinterpret_cast<char *>(at), live, v);
        });
    }
    __device__ __forceinline__ void activate() {
#pragma unroll
        for (int row = 0; row < Rows; ++row)
#pragma unroll
            for (int tile = 0; tile < Tiles; ++tile)
#pragma unroll
                for (int i = 0; i < Run * Pixels; ++i)
                    sums.at(row, tile, i) =
                        activate_keeping_nan(t.activation, sums.at(row, tile, i));
    }
};

template <class Shape>
__device__ __forceinline__ void store_task(const Tiling &t, const Tile &tile, const Task &task,
                                           uint32_t pixels, const Target &to, int lane,
                                           Sums<Shape> &sums) {
    const int of_lane = channel_of_lane<Shape>(lane);
    const int channel = task.set * t.filter.sets.filters + task.tile * TileChannels + of_lane;
    OutputMap<Shape> map = {t,
                            sums,
                            tile.image * t.image_y + tile.row * t.row_y + tile.column * t.column_y +
                                channel * t.channel_y,
                            channel,
                            task.filters_left - of_lane,
                            {}};
#pragma unroll
    for (int row = 0; row < Shape::Rows; ++row)
#pragma unroll
        for (int p = 0; p < Shape::Pixels; ++p) {
            const int pixel = task.pixel + row * RowPixels + pixel_of_lane<Shape>(lane, p);
            map.pixel[row][p] = int(load_shared(pixels + pixel * EntryBytes + 4));
        }
    if (to.sums)
        return map.store(to.sums);
    using Stored = typename Shape::Stored;
    // By itself, so that it costs one branch where there is none.
    if (t.finishes) {
        finish_fragment<Stored>(to.finish, t.filter.k, map);
        if (t.activation != CF_ACT_NONE)
            map.activate();
    }
    map.store(static_cast<Stored *>(to.y));
}

template <class Shape>
__device__ __forceinline__ Source<Shape>
source_of(const Tiling &t, const Task &task, uint32_t shared, const uint32_t *filter, int lane) {
    Source<Shape> from;
    from.table = shared + t.pieces_at;
#pragma unroll
    for (int row = 0; row < Shape::Rows; ++row) {
        const int pixel = task.pixel + row * RowPixels + lane % RowPixels;
        from.pixels[row] =
            shared + t.x_at + load_shared(shared + pixel * EntryBytes) + task.set_offset;
    }
    from.filter =
        filter + task.set * t.filter.set_words() + task.tile * Lanes + word_of_lane<Shape>(lane);
    from.piece_words = t.filter.piece_words();
    return from;
}

template <class Shape>
__global__ void __launch_bounds__(MaxThreads, MaxBlocks)
    grouped_any_kernel(const __grid_constant__ Tiling t, const char *__restrict__ x,
                       const uint32_t *__restrict__ filter, const __grid_constant__ Target to,
                       const int images) {
    extern __shared__ __align__(16) unsigned char dynamic[];
    uint32_t shared = shared_address(dynamic);
    keep(shared); // or each use reads a special register anew
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Tile tile(t, blockIdx.x);
    list_pixels(t, tile, images, shared);
    Sums<Shape> sums = {};
#pragma unroll 1
    for (int i = 0; i < t.parts; ++i) {
        const Part part(t, i);
        if (i > 0)
            __syncthreads(); // until nobody reads what was here before
        list_pieces(t, part, shared + t.pieces_at);
        stage<Shape>(t, Window(t, tile, part, x, images), shared + t.x_at);
        __syncthreads();
        // Several to a warp only where there is one part.
#pragma unroll 1
        for (int number = warp; number < t.tasks; number += blockDim.x / 32) {
            const Task task(t, tile, number, Shape::Rows * RowPixels, Shape::Tiles);
            if (task.filters_left <= 0)
                continue;
            sums.add(source_of<Shape>(t, task, shared, filter, lane), t.steps, lane);
            if (i + 1 < t.parts)
                continue;
            store_task<Shape>(t, tile, task, shared, to, lane, sums);
            sums = {};
        }
    }
}

// The kernel for how x is stored, with so many tiles to a warp; each operand's are compiled by
// themselves, in the folder any.
template <Product Kind>
Launched kernel_for(int storage, int tiles, dim3 block, size_t shared);

template <class Stored, Product Kind, int... Tiles>
Launched kernel_among(int tiles, dim3 block, size_t shared) {
    Launched kernel;
    for_value<Tiles...>(tiles - 1, [&](auto number) {
        kernel = kernel_of(grouped_any_kernel<Shape<Stored, Kind, decltype(number)::value>>, dim3(),
                           block, shared);
    });
    return kernel;
}

} // namespace cf::grouped_any
