// The elements of src/recipe.rs on the GPU, operation by operation: a large tensor takes the host
// longer than all kernels that it is fed to. src/proof.rs compares both.
#pragma once

#include "oracle.h"

#include <cstdint>

namespace cf::recipe {

// splitmix64, as in src/rng.rs.
__device__ inline uint64_t mix(uint64_t value) {
    uint64_t z = value + 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

__device__ inline float power_of_two(int exponent) {
    return __int_as_float((exponent + 127) << 23);
}

// Whole numbers: three of four are positive.
__device__ inline float whole(uint64_t hash, uint64_t magnitude) {
    const float v = float(magnitude);
    return (hash & 3) == 0 ? -v : v;
}

__device__ inline float real(uint64_t hash, int exponent) {
    const float mantissa = 1.0f + float(hash & 0x7fffff) * power_of_two(-23);
    return (hash >> 63 == 0 ? mantissa : -mantissa) * power_of_two(exponent);
}

__device__ inline float normal(uint64_t hash) {
    const uint64_t again = mix(hash), low = 0xffffffff;
    const uint64_t sum = (hash >> 32) + (hash & low) + (again >> 32) + (again & low);
    return float(int64_t(sum) - int64_t(2 * low)) * power_of_two(-31);
}

// Where an element lies: its channel, and its pixel or its filter.
struct Place {
    uint64_t channel, other;

    __device__ Place(const cf_recipe &r, uint64_t index) {
        if (r.tensor == 0) {
            const uint64_t outer = index / r.between[0];
            channel = outer % r.all;
            other = outer / r.all * r.between[0] + index % r.between[0];
        } else {
            other = index / r.row;
            channel = other / r.filters * r.channels + index / r.between[1] % r.channels;
        }
    }
};

// A whole input (operand 0) or weight (1).
__device__ inline float whole_operand(const cf_recipe &r, uint64_t index, uint64_t hash) {
    const uint64_t operand = r.tensor;
    if (operand == 1) {
        const uint64_t tap = index % r.row;
        const uint64_t block = mix(mix(r.stream ^ mix(index / r.row)) + tap / r.block);
        if (block % r.block != tap % r.block)
            return 0;
    }
    const uint64_t random = hash >> 8;
    const uint64_t fine = Place(r, index).channel % r.channels % r.period ^ r.swap;
    if (fine == operand)
        return whole(hash, r.half + 1 + random % (r.half / 2) * 2);
    return whole(hash, random % (fine < 2 ? r.partner : r.largest[operand]) + 1);
}

__device__ inline int other_exponent(const cf_recipe &r, uint64_t random) {
    return int(random % (2 * uint64_t(r.others) + 1)) - r.others;
}

__device__ inline float extreme_operand(const cf_recipe &r, uint64_t index, uint64_t hash) {
    const Place place(r, index);
    const int channel = r.first + int(mix(r.extreme ^ mix(place.channel)) % r.exponents);
    const uint64_t other = r.extreme + place.other;
    if (r.tensor == 0)
        return real(hash, channel + other_exponent(r, mix(other)));
    return real(hash, r.product - channel + other_exponent(r, mix(~other)));
}

// An element before it is rounded to the storage.
__device__ inline float element(const cf_recipe &r, uint64_t index) {
    const uint64_t hash = mix(r.stream + index);
    const bool operand = r.tensor < 2;
    float value;
    if (r.data == CF_DATA_WHOLE)
        value = operand ? whole_operand(r, index, hash) : whole(hash, (hash >> 8) % r.added + 1);
    else if (r.tensor == 2 && r.clips && index == 0)
        value = 1;
    else if (r.data == CF_DATA_POSITIVE)
        value = float((hash >> 40) + 1) * power_of_two(-24);
    else if (r.data == CF_DATA_WIDE)
        value = real(hash, int((hash >> 40) % uint64_t(2 * r.wide)) - r.wide);
    else if (r.data == CF_DATA_EXTREME && operand)
        value = extreme_operand(r, index, hash);
    else
        value = normal(hash);
    return value * r.factor;
}

} // namespace cf::recipe
