// Division by a number that a launch knows: a multiplication and a shift instead of some twenty
// instructions (Granlund and Montgomery 1994).
#pragma once

#include <cstdint>

namespace cf {

// Exact for 0 <= n < 2^31: factor is 2^(31 + shift) / by rounded up, too large by less than
// by / 2^shift <= 1, so n times the error is less than 2^(31 + shift) / by.
struct Divisor {
    uint32_t factor = 1u << 31, shift = 0;

    Divisor() = default;
    explicit Divisor(int32_t by) {
        while ((int64_t(1) << shift) < by)
            ++shift;
        factor = uint32_t(((uint64_t(1) << (31 + shift)) + by - 1) / by);
    }
    __device__ __forceinline__ int quotient(int n) const {
        return int(__umulhi(2 * unsigned(n), factor) >> shift);
    }
};

// The same for numbers of any size; those from 2^31 on are divided.
struct LongDivisor {
    int64_t by = 1;
    Divisor fast;

    LongDivisor() = default;
    explicit LongDivisor(int64_t by)
        : by(by), fast(by <= INT32_MAX ? Divisor(int32_t(by)) : Divisor()) {}
    __device__ __forceinline__ int64_t quotient(int64_t n) const {
        if (n <= INT32_MAX && by <= INT32_MAX)
            return fast.quotient(int(n));
        return n / by;
    }
    // The last digit of n, of which the others are left.
    __device__ __forceinline__ int digit(int64_t &n) const {
        const int64_t others = quotient(n);
        const auto last = int(n - others * by);
        n = others;
        return last;
    }
};

} // namespace cf
