// Neighbouring elements that are read and written as one word.
#pragma once

#include "core/element.cuh"

#include <cstdint>

namespace cf {

template <class T, int Count>
struct alignas(Count * sizeof(T)) Pack {
    T v[Count];
};

template <int Count, class T>
__device__ __forceinline__ Pack<T, Count> load(const T *from) {
    return *reinterpret_cast<const Pack<T, Count> *>(from);
}

template <class T, int Count>
__device__ __forceinline__ void store(T *to, const Pack<T, Count> &pack) {
    *reinterpret_cast<Pack<T, Count> *>(to) = pack;
}

// Whether so many elements from there on are a word.
template <class T>
bool aligned(const T *address, int count) {
    return reinterpret_cast<uintptr_t>(address) % (count * sizeof(T)) == 0;
}

// Calls body with the first of the counts, from the largest on, that `fits` allows; the last one
// always does.
template <int First, int... Rest, class Fits, class Body>
void largest(Fits fits, Body body) {
    if constexpr (sizeof...(Rest) > 0)
        if (!fits(First))
            return largest<Rest...>(fits, body);
    body(Constant<First>());
}

} // namespace cf
