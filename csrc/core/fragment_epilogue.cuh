// The epilogue on fragments: sums that a thread holds in registers are scaled, biased, added to a
// residual, limited, and stored, neighbours in y as vectors.
//
// Which sums belong where is for a kernel to say, by a coordinate map. Numbers of sums are
// compile-time constants, cf::Constant, and value(i) is a sum by its number, a float &:
//
//     struct Map {
//         // body(k, count, value) for each output channel that the thread has sums of.
//         template <class Body>
//         __device__ void for_channels(Body body);
//         // body(count, at, live, value) for each run of neighbours in a tensor that lies as y
//         // does: `at` is the address of the first, live is false where they do not exist. Those
//         // of more than one are aligned to their size, up to 16 bytes.
//         template <class Stored, class Body>
//         __device__ void for_runs(const Stored *tensor, Body body);
//     };
//
// Activations that are no limits are the kernel's to apply (late_activation), or the shared pass's,
// as pooling is (sums_follow, core/output.cuh).
#pragma once

#include "core/element.cuh"
#include "ptx/minmax.cuh"
#include "ptx/predicated.cuh"
#include "row.h"

#include <cmath>
#include <type_traits>

namespace cf {

// A kernel's parameter: the largest of `least` and scale * sum + bias + residual, and the smaller
// of that and `most`.
struct Finish {
    float scale = 1;
    const float *bias = nullptr;
    const void *residual = nullptr; // stored as y is
    float least = -INFINITY, most = INFINITY;
    bool affine = false, limited = false;
};

inline bool sums_follow(const cf_problem &p) {
    return p.epilogue.pool_h || p.epilogue.activation > CF_ACT_RELU6;
}

// The activation, where it is more than the limits of Finish: for a kernel that applies it itself.
inline int late_activation(const cf_problem &p) {
    return p.epilogue.activation > CF_ACT_RELU6 ? p.epilogue.activation : CF_ACT_NONE;
}
// Whether the epilogue changes a sum.
inline bool has_epilogue(const cf_problem &p) {
    const cf_epilogue &e = p.epilogue;
    return e.scale != 1 || e.bias || e.residual || e.activation != CF_ACT_NONE;
}
inline Finish finish_of(const cf_problem &p, const cf_args &args) {
    const cf_epilogue &e = p.epilogue;
    Finish finish;
    finish.scale = e.scale;
    finish.bias = e.bias ? args.bias : nullptr;
    finish.residual = e.residual ? args.residual : nullptr;
    finish.affine = e.bias || e.scale != 1;
    finish.limited = e.activation != CF_ACT_NONE && !late_activation(p);
    if (finish.limited)
        finish.least = 0;
    if (e.activation == CF_ACT_RELU6)
        finish.most = 6;
    return finish;
}

// Words of the largest vectors that N neighbours are made of.
template <class Stored, int N>
struct Words {
    static constexpr int Count = N * int(sizeof(Stored)) / 4;
    static constexpr int Vector = Count % 4 == 0 ? 4 : Count % 2 == 0 ? 2 : 1;
};

// Loads N neighbours of constant global memory; zeros where `live` is false. Nothing branches, so
// that many loads are under way together.
template <class Stored, int N>
__device__ __forceinline__ void load_neighbours(const Stored *from, bool live, float (&v)[N]) {
    if constexpr (N * sizeof(Stored) == 2) {
        const auto bits = uint16_t(load_if(live, reinterpret_cast<const uint16_t *>(from)));
        v[0] = widen(reinterpret_cast<const Stored &>(bits));
    } else {
        constexpr int Count = Words<Stored, N>::Count, Vector = Words<Stored, N>::Vector;
        using Load = std::conditional_t<Vector == 4, uint4,
                                        std::conditional_t<Vector == 2, uint2, uint32_t>>;
        alignas(16) Stored stored[N];
#pragma unroll
        for (int i = 0; i < Count / Vector; ++i)
            reinterpret_cast<Load *>(stored)[i] =
                load_if(live, reinterpret_cast<const Load *>(from) + i);
#pragma unroll
        for (int i = 0; i < N; ++i)
            v[i] = widen(stored[i]);
    }
}

// Stores N neighbours if they are `live`. An address is a char * of global memory, or a uint32_t of
// shared memory.
template <class Stored, class Address, int N>
__device__ __forceinline__ void store_neighbours(Address to, bool live, const float (&v)[N]) {
    constexpr bool Floats = std::is_same_v<Stored, float>;
    if constexpr (N * sizeof(Stored) == 2) {
        const Stored stored = narrow<Stored>(v[0]);
        store_if(live, to, reinterpret_cast<const uint16_t &>(stored));
    } else {
        constexpr int Count = Words<Stored, N>::Count, Vector = Words<Stored, N>::Vector;
#pragma unroll
        for (int i = 0; i < Count; i += Vector) {
            uint32_t word[Vector];
#pragma unroll
            for (int j = 0; j < Vector; ++j)
                if constexpr (Floats)
                    word[j] = __float_as_uint(v[i + j]);
                else
                    word[j] = pack<Stored>(v[2 * (i + j)], v[2 * (i + j) + 1]);
            store_if(live, to + i * 4, word);
        }
    }
}

// Of `channels` output channels; a thread may hold sums of some that do not exist.
template <class Map>
__device__ __forceinline__ void scale_and_add_bias(const Finish &finish, int channels, Map &map) {
    if (!finish.affine)
        return;
    map.for_channels([&](int k, auto count, auto value) {
        const float bias = finish.bias && k < channels ? finish.bias[k] : 0.0f;
#pragma unroll
        for (int i = 0; i < count.value; ++i)
            value(i) = fmaf(finish.scale, value(i), bias);
    });
}

template <class Stored, class Map>
__device__ __forceinline__ void add_residual(const Finish &finish, Map &map) {
    if (!finish.residual)
        return;
    map.for_runs(static_cast<const Stored *>(finish.residual),
                 [&](auto count, const Stored *at, bool live, auto value) {
                     float added[count.value];
                     load_neighbours(at, live, added);
#pragma unroll
                     for (int i = 0; i < count.value; ++i)
                         value(i) += added[i];
                 });
}

template <class Map>
__device__ __forceinline__ void limit(const Finish &finish, Map &map) {
    if (!finish.limited)
        return;
    map.for_channels([&](int, auto count, auto value) {
#pragma unroll
        for (int i = 0; i < count.value; ++i)
            value(i) = between(value(i), finish.least, finish.most);
    });
}

// All of it but the stores, of what y and a residual hold as `Stored`.
template <class Stored, class Map>
__device__ __forceinline__ void finish_fragment(const Finish &finish, int channels, Map map) {
    scale_and_add_bias(finish, channels, map);
    add_residual<Stored>(finish, map);
    limit(finish, map);
}

} // namespace cf
