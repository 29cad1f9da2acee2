// What the tensors of a problem take of memory: the least that a kernel takes where a chip computes
// faster than it reads.
#pragma once

#include "core/element.cuh"
#include "core/estimate.cuh"

#include <algorithm>

namespace cf {

// Bytes of the rows of x that a tap falls on, of y, the residual and the bias, each once.
inline double tensor_bytes(const cf_problem &p) {
    const cf_epilogue &e = p.epilogue;
    const double rows = p.r < p.stride_h ? std::min<double>(p.h, double(p.p) * p.r) : p.h;
    const double x = double(p.n) * p.c * rows * p.w;
    const double y = double(p.n) * p.k * e.out_h * e.out_w;
    const double residual = e.residual ? pixels(p) * p.k : 0;
    return (x + y + residual) * element_bytes(p) + (e.bias ? 4.0 * p.k : 0);
}

// A kernel that computes for `us` microseconds and reads and writes the tensors meanwhile.
inline double beside_tensors_us(const cf_query &q, double us) {
    return std::max(us, memory_us(q.device, tensor_bytes(q.problem)));
}

} // namespace cf
