// How small_mma16 stores y: from registers to where it belongs, or into an output stage in shared
// memory, from which bulk copies take it there.
#pragma once

#include "core/fragment_epilogue.cuh"
#include "kernels/small/mma16_product.cuh"
#include "pipeline/segment.cuh"

#include <type_traits>

namespace cf::small16 {

#if CF_SM90
// Where a strip lies.
struct Place {
    int n, row; // image, first row of y
};

// Address in y of a segment of the strip at `place`.
__device__ __forceinline__ uint64_t segment_of(const Tiling &tiling, const char *y, Place place,
                                               int segment) {
    const int64_t area = int64_t(tiling.p) * tiling.q, row = int64_t(place.row) * tiling.q;
    const int64_t before = tiling.nchw ? segment * area + row : row * tiling.k;
    return reinterpret_cast<uint64_t>(y + (place.n * area * tiling.k + before) *
                                              (tiling.to_floats ? 4 : 2));
}

// A warp stores what an output stage holds, a segment per lane.
__device__ __noinline__ void store_stage(const Tiling &tiling, const char *y, Place place, int rows,
                                         uint32_t stage, int lane) {
    const int64_t part =
        int64_t(min(tiling.strips_per_out_stage * tiling.row_tiles * rows, tiling.p - place.row)) *
        tiling.q;
    const int64_t bytes = part * (tiling.segments > 1 ? 1 : tiling.k) * (tiling.to_floats ? 4 : 2);
    for (int s = lane; s < tiling.segments; s += 32) {
        const uint64_t begin = segment_of(tiling, y, place, s);
        store_segment<uint16_t, 16, 1>(begin, uint32_t(bytes),
                                       stage + s * tiling.segment_bytes + uint32_t(begin & 15), 0);
    }
    wait_for_stores_to_read();
}

// Which outputs the sums of a task are. Value v of a fragment is at position v / 2 and in column
// v % 2 of the lane's two.
template <class Shape>
struct TaskMap {
    const Tiling &tiling;
    Accumulators<Shape> &sum;
    Place strip;
    int group0, channel0;   // the group's first channel, and the lane's
    int tile[2], column[2]; // of the lane's positions
    int rows[2];            // of them that exist

    __device__ __forceinline__ TaskMap(const Tiling &tiling, Accumulators<Shape> &sum, Place strip,
                                       int group, const LanePositions &lanes, int lane)
        : tiling(tiling), sum(sum), strip(strip), group0(group * tiling.per_group),
          channel0(group0 + lane % 4 * tiling.per_pair) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            tile[i] = lanes.tile[i], column[i] = lanes.column[i];
            rows[i] = lanes.live(tiling, i) ? tiling.p - strip.row - tile[i] * Shape::Rows : 0;
        }
    }

    // As core/fragment_epilogue.cuh asks for it.
    template <class Body>
    __device__ __forceinline__ void for_channels(Body body) {
#pragma unroll
        for (int t = 0; t < Shape::Tiles; ++t)
#pragma unroll
            for (int v = 0; v < 4; ++v)
                body(channel0 + t * tiling.per_tile + (Shape::Single ? 0 : v % 2),
                     Constant<Shape::Rows>(), [&](int j) -> float & { return sum[j][t].value[v]; });
    }
};

// Where they lie: in y or a tensor like it, or in the strip's output stage, where each segment
// keeps its place among 16 bytes.
template <class Shape, bool Staged>
struct TaskAddresses {
    using Address = std::conditional_t<Staged, uint32_t, char *>; // in shared memory, or global
    using Offset = std::conditional_t<Staged, int, int64_t>;

    const TaskMap<Shape> &map;
    int pixel_bytes; // from one to the next
    Offset row_bytes, area_bytes, channel_bytes;
    uint32_t begin; // of the stage's first segment in y
    Address at[2];  // of the lane's positions in its first channel

    __device__ __forceinline__ TaskAddresses(const TaskMap<Shape> &map, int element_bytes,
                                             const char *y, Address first)
        : map(map) {
        const Tiling &tiling = map.tiling;
        if constexpr (Shape::Tiles < MaxTiles) {
            pixel_bytes = tiling.pixel_bytes, row_bytes = tiling.row_bytes;
            area_bytes = Offset(tiling.area_bytes);
        } else { // as in lane_positions
            pixel_bytes = (tiling.nchw ? 1 : tiling.k) * element_bytes;
            row_bytes = Offset(tiling.q) * pixel_bytes;
            area_bytes = Offset(int64_t(tiling.p) * tiling.q * element_bytes);
        }
        channel_bytes = !tiling.nchw                    ? Offset(element_bytes)
                        : Staged && tiling.segments > 1 ? Offset(tiling.segment_bytes)
                                                        : area_bytes;
        int row = map.strip.row;
        if constexpr (Staged) { // of the stage
            row = tiling.strips_per_out_stage > 1 ? row : 0;
            begin = uint32_t(segment_of(tiling, y, {map.strip.n, map.strip.row - row}, 0));
        } else {
            first += map.strip.n * area_bytes * tiling.k;
        }
#pragma unroll
        for (int i = 0; i < 2; ++i)
            at[i] = first + row * row_bytes + map.channel0 * channel_bytes +
                    map.tile[i] * Shape::Rows * row_bytes + map.column[i] * pixel_bytes;
    }
    // How far behind a multiple of 16 bytes the segment of an output channel begins.
    __device__ __forceinline__ int skew(int k) const {
        return Staged ? int(begin + (map.tiling.segments > 1 ? k * uint32_t(area_bytes) : 0) & 15)
                      : 0;
    }

    // Calls body(address, live, value) for each row of y with a run of Width neighbours: from pixel
    // u of the lane on, of those that column i of tile t has. A run is both columns of a position
    // or both positions in a column; one pixel may be that of any layout.
    template <int Width, class Body>
    __device__ __forceinline__ void for_rows(int t, int i, int u, Body body) const {
        constexpr bool Single = Shape::Single;
        const int channel = t * map.tiling.per_tile + i, k = map.channel0 + channel;
        const int of = Single ? u / 2 : u, within = Single ? u % 2 : 0;
        const bool exists = k < map.tiling.k && map.column[of] + within < map.tiling.q;
        const int live = exists ? map.rows[of] : 0;
        const Offset along = channel * channel_bytes + skew(k);
        Address to = at[of] + along + within * pixel_bytes;
#pragma unroll
        for (int j = 0; j < Shape::Rows; ++j) {
            body(to, j < live, [&](int e) -> float & {
                return map.sum[j][t].value[Single ? u + e : 2 * (u + e) + i];
            });
            to += row_bytes;
        }
    }
    // body(t, i, u) for all of these runs.
    template <int Width, class Body>
    static __device__ __forceinline__ void for_runs(Body body) {
#pragma unroll
        for (int t = 0; t < Shape::Tiles; ++t)
#pragma unroll
            for (int i = 0; i < Shape::Channels; ++i)
#pragma unroll
                for (int u = 0; u < 4 / Shape::Channels; u += Width)
                    body(t, i, u);
    }
    // The same for all channels of a position, which are neighbours in NHWC.
    template <class Body>
    __device__ __forceinline__ void for_positions(Body body) const {
        static_assert(!Shape::Single && !Staged, "these make whole sectors");
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const bool exists = map.column[i] < map.tiling.q && map.channel0 < map.tiling.k;
            const int live = exists ? map.rows[i] : 0;
            Address to = at[i];
#pragma unroll
            for (int j = 0; j < Shape::Rows; ++j) {
                body(to, j < live,
                     [&](int e) -> float & { return map.sum[j][e / 2].value[2 * i + e % 2]; });
                to += row_bytes;
            }
        }
    }
};

// Adds what lies where the sums belong, element by element. A meeting of the warp keeps the loads
// apart, of which the compiler would have all on the way together, and spill.
template <class Stored, class Shape>
__device__ __forceinline__ void add_residual_apart(const Finish &finish, TaskMap<Shape> &map) {
    using Addresses = TaskAddresses<Shape, false>;
    char *const residual = static_cast<char *>(const_cast<void *>(finish.residual)); // only read
    const Addresses addresses(map, sizeof(Stored), residual, residual);
    Addresses::template for_runs<1>([&](int t, int i, int u) {
        addresses.template for_rows<1>(t, i, u, [&](char *at, bool live, auto value) {
            float added[1];
            load_neighbours(reinterpret_cast<Stored *>(at), live, added);
            value(0) += added[0];
        });
        __syncwarp();
    });
}

// The same, neighbours together as store_task has them.
template <class Stored, class Shape>
__device__ __forceinline__ void add_residual(const Finish &finish, TaskMap<Shape> &map) {
    if constexpr (Shape::Apart)
        return add_residual_apart<Stored>(finish, map);
    using Addresses = TaskAddresses<Shape, false>;
    const Tiling &tiling = map.tiling;
    char *const residual = static_cast<char *>(const_cast<void *>(finish.residual)); // only read
    const Addresses addresses(map, sizeof(Stored), residual, residual);
    const auto add = [](auto count) {
        return [](char *at, bool live, auto value) {
            float added[decltype(count)::value];
            load_neighbours(reinterpret_cast<Stored *>(at), live, added);
#pragma unroll
            for (int e = 0; e < decltype(count)::value; ++e) {
                value(e) += added[e];
                // All ways through here add to the same sums. The compiler would make these
                // additions once, behind them, where all that was loaded is in registers.
                asm volatile("" : "+f"(value(e)));
            }
        };
    };
    const auto add_pixels = [&](auto width) {
        Addresses::template for_runs<decltype(width)::value>([&](int t, int i, int u) {
            if (!Shape::Single || map.group0 + t * tiling.per_tile < tiling.k)
                addresses.template for_rows<decltype(width)::value>(t, i, u, add(width));
        });
    };
    // The plain kernel has no registers for neighbours where sums are most.
    if constexpr (Shape::R > 0 || Shape::Single) {
        if constexpr (!Shape::Single)
            if (!tiling.nchw && tiling.per_store > 1)
                return addresses.for_positions(add(Constant<2 * Shape::Tiles>()));
        if constexpr (Shape::Single)
            if (tiling.nchw && tiling.per_store == 4)
                return add_pixels(Constant<4>());
        if (tiling.nchw && tiling.per_store == 2)
            return add_pixels(Constant<2>());
    }
    add_pixels(Constant<1>());
}

// Stores a task's sums, neighbours together.
template <class Stored, class Shape, bool Staged>
__device__ __forceinline__ void store_task(const TaskAddresses<Shape, Staged> &addresses) {
    const Tiling &tiling = addresses.map.tiling;
    // A store takes words, and the compiler makes words of all sums in front of the epilogue, by a
    // move for each, unless it cannot see through the values. Other shapes pay for that with the
    // walk's uniform registers, which costs them more.
    constexpr bool StayFloats = !Shape::Single && (Shape::Stride == 2 || Shape::Tiles <= 2);
    const auto store = [](auto count) {
        return [](auto to, bool live, auto value) {
            constexpr int Count = decltype(count)::value;
            float v[Count];
#pragma unroll
            for (int e = 0; e < Count; ++e) {
                v[e] = value(e);
                if constexpr (StayFloats)
                    asm("" : "+f"(v[e]));
            }
            store_neighbours<Stored>(to, live, v);
        };
    };
    const auto store_pixels = [&](auto width) {
        constexpr int Width = decltype(width)::value;
        addresses.template for_runs<Width>([&](int t, int i, int u) {
            addresses.template for_rows<Width>(t, i, u, store(width));
        });
    };
    if constexpr (!Shape::Single && !Staged)
        if (!tiling.nchw && tiling.per_store > 1)
            return addresses.for_positions(store(Constant<2 * Shape::Tiles>()));
    if constexpr (Shape::Single)
        if (tiling.nchw && tiling.per_store == 4)
            return store_pixels(Constant<4>());
    if (tiling.nchw && tiling.per_store == 2)
        return store_pixels(Constant<2>());
    store_pixels(Constant<1>());
}

// What follows a task's products: the epilogue, and the stores.
template <class Shape>
__device__ __forceinline__ void finish_task(const Finish &finish, TaskMap<Shape> &map, char *y,
                                            uint32_t stage) {
    using Element = typename Shape::Element;
    const Tiling &tiling = map.tiling;
    // One branch around all of it keeps the walk over tasks in uniform registers. Where sums are
    // most it would spill them.
    const bool most_sums = !Shape::Single && Shape::Tiles == MaxTiles;
    if (most_sums || finish.affine || finish.residual || finish.limited) {
        scale_and_add_bias(finish, tiling.k, map);
        if constexpr (Shape::Residual) {
            if (finish.residual && tiling.to_floats)
                add_residual<float>(finish, map);
            else if (finish.residual)
                add_residual<Element>(finish, map);
        }
        limit(finish, map);
    }
    const auto store_as = [&](auto stored) {
        using Stored = decltype(stored);
        if (tiling.staged)
            store_task<Stored>(TaskAddresses<Shape, true>(map, sizeof(Stored), y, stage));
        else
            store_task<Stored>(TaskAddresses<Shape, false>(map, sizeof(Stored), y, y));
    };
    if (tiling.to_floats)
        store_as(float());
    else
        store_as(Element());
    if (tiling.staged)
        publish_to_bulk_copies();
}
#endif

} // namespace cf::small16
