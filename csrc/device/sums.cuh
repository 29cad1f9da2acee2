// Where a kernel leaves its sums: through the epilogue into y or, where pooling follows and needs
// neighbours that other threads hold, as f32 in the workspace for the shared pass of
// csrc/finish.cu.
#pragma once

#include "device/element.cuh"
#include "device/epilogue.cuh"
#include "device/index.cuh"
#include "device/launch.cuh"

namespace cf {

// The operands of the epilogue and the place of the result. `sums` is null without pooling.
template <class T>
struct Out {
    T *y;
    float *sums;
    const float *bias;
    const T *residual;
    int64_t first; // the image that `sums` begins with

    // Stores the sum of output channel k at (row, column) of image n, before pooling.
    __device__ __forceinline__ void store(const cf_problem &p, int64_t n, int k, int row,
                                          int column, float sum) const {
        const Strides ys = residual_strides(p);
        if (sums) {
            sums[ys.at(n - first, k, row, column)] = sum;
            return;
        }
        const int64_t at = ys.at(n, k, row, column);
        const cf_epilogue &e = p.epilogue;
        const float added = e.residual ? widen(residual[at]) : 0.0f;
        y[at] = narrow<T>(epilogue(e, sum, e.bias ? bias + k : nullptr, added));
    }
};

template <class T>
Out<T> out(const cf_call *call, float *sums, int64_t first) {
    return {static_cast<T *>(call->y), sums, call->bias, static_cast<const T *>(call->residual),
            first};
}

inline uint64_t sums_per_image(const cf_problem &p) {
    return uint64_t(p.p) * p.q * p.k * sizeof(float);
}

// Whether the shared pass has to follow. A row that fuses less of the epilogue says so itself.
inline bool pooled(const cf_problem &p) { return p.epilogue.pool_h > 0; }

// Workspace of a row that needs none but for these sums.
inline cf_bytes sums_workspace(const cf_call *call, bool follow) {
    if (!follow)
        return {0, 0};
    return chunked_workspace(call->problem, sums_per_image(call->problem));
}
inline cf_bytes sums_workspace(const cf_call *call) {
    return sums_workspace(call, pooled(call->problem));
}

// Calls body(first, count, sums), which enqueues the kernel for these images: once, with sums ==
// null, or chunk by chunk with the shared pass after it.
template <class Body>
int32_t with_sums(const cf_call *call, const char *stage_name, Body body, bool follow) {
    const cf_problem &p = call->problem;
    if (!follow)
        return body(int64_t(0), p.n, static_cast<float *>(nullptr));
    return for_chunks(call, sums_per_image(p), [&](int64_t first, int64_t count) -> int32_t {
        auto *sums = static_cast<float *>(call->workspace);
        if (const int32_t error = body(first, count, sums))
            return error;
        stage(call, stage_name);
        const int32_t error = cf_finish(call, first, count, sums, residual_strides(p));
        stage(call, "finish");
        return error;
    });
}
template <class Body>
int32_t with_sums(const cf_call *call, const char *stage_name, Body body) {
    return with_sums(call, stage_name, body, pooled(call->problem));
}

} // namespace cf
