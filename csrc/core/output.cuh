// Where a kernel leaves its sums: through the epilogue into y or, where pooling follows and needs
// neighbours that other threads hold, as f32 in the workspace for the shared pass of
// passes/finish.cu.
#pragma once

#include "core/chunks.cuh"
#include "core/element.cuh"
#include "core/epilogue.cuh"
#include "core/strides.cuh"
#include "passes.h"

namespace cf {

// A kernel's parameter: the operands of the epilogue and the place of the result. `sums` is null
// where the kernel applies the epilogue itself.
struct Output {
    void *y = nullptr;
    float *sums = nullptr;
    const float *bias = nullptr;
    const void *residual = nullptr;
    int64_t first = 0; // the image that `sums` begins with

    Output() = default;
    Output(const cf_args &args, float *sums, int64_t first)
        : y(args.y), sums(sums), bias(args.bias), residual(args.residual), first(first) {}

    // Stores the sum of output channel k at (row, column) of image n, before pooling. T is what y
    // is stored as.
    template <class T>
    __device__ __forceinline__ void store(const cf_problem &p, int64_t n, int k, int row,
                                          int column, float sum) const {
        const Strides ys = residual_strides(p);
        if (sums) {
            sums[ys.at(n - first, k, row, column)] = sum;
            return;
        }
        const int64_t at = ys.at(n, k, row, column);
        const cf_epilogue &e = p.epilogue;
        const float added = e.residual ? widen(static_cast<const T *>(residual)[at]) : 0.0f;
        static_cast<T *>(y)[at] = narrow<T>(epilogue(e, sum, e.bias ? bias + k : nullptr, added));
    }
};

// The part of a plan that says whether the shared pass follows, and on how many images at a time.
struct Sums {
    bool follow = false;
    Chunks chunks;

    Sums() = default;
    // A row that fuses less of the epilogue than all but pooling says itself whether it `follows`.
    Sums(const cf_problem &p, bool follow)
        : follow(follow), chunks(p, uint64_t(p.p) * p.q * p.k * sizeof(float)) {
        if (!follow)
            chunks.most = std::max<int64_t>(chunks.images, 1);
    }
    explicit Sums(const cf_problem &p) : Sums(p, p.epilogue.pool_h > 0) {}

    // Readies the shared pass, if it follows.
    int32_t prepare(const cf_problem &p) const {
        return follow ? cf_prepare_finish(&p, residual_strides(p)) : 0;
    }

    // Workspace of a row that needs none but for these sums.
    void workspace(cf_plan &plan) const {
        if (follow)
            chunks.workspace(plan);
    }

    // Calls body(first, count, sums), which enqueues the kernel for these images: once, with sums
    // == null, or chunk by chunk with the shared pass after it.
    template <class Body>
    int32_t launch(const cf_problem &p, const cf_args &args, const char *name, Body body) const {
        if (!follow)
            return body(int64_t(0), p.n, static_cast<float *>(nullptr));
        return chunks.walk(args, [&](int64_t first, int64_t count) -> int32_t {
            auto *sums = static_cast<float *>(args.workspace);
            if (const int32_t error = body(first, count, sums))
                return error;
            stage(args, name);
            const int32_t error = cf_finish(&p, &args, first, count, sums, residual_strides(p));
            stage(args, "finish");
            return error;
        });
    }
};

// cf_functions::prepare of a State with one kernel and sums behind it.
template <class State>
int32_t prepare_with_sums(State &state) {
    const int32_t error = state.kernel.prepare();
    return error ? error : state.sums.prepare(state.problem);
}

} // namespace cf
