// What estimates of this family's plans share: what goes on side by side.
#pragma once

#include "core/estimate.cuh"

#include <cmath>

namespace cf::implicit_gemm {

// Bytes that shared memory's port moves in a clock.
constexpr double PortBytes = 128;

// What two that go on beside each other take, each by itself so long: nearer to the longer one than
// core's together_us, and of more than two the same in any order.
template <int Exponent>
double norm(double a, double b) {
    return std::pow(std::pow(a, Exponent) + std::pow(b, Exponent), 1.0 / Exponent);
}

} // namespace cf::implicit_gemm
