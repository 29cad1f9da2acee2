// What rows of the fused family with a tile of (output pixels, output channels) have in common:
// their grid, and the launch of it on all images or, where pooling follows, on one chunk after the
// other. Pixels of all images form one dimension, so tiles waste nothing at the edge of an image.
#pragma once

#include "core/output.cuh"
#include "core/plan.cuh"
#include "core/tensors.cuh"

namespace cf {

// Of all rows of the family: what hangs over the edge is gathered as zeros, and they are
// multiplied.
constexpr const char *PaddingCaveat = "multiplies the zeros of the padding: an infinite or NaN "
                                      "weight makes NaN also where it hangs over the edge";

// Of a row whose kernel takes (problem, x, filter, output, pixels of these images, More...).
template <class... More>
struct FusedState {
    cf_problem problem;
    Sums sums;
    int pixel_tile = 0, channel_tile = 0;
    Kernel<cf_problem, const void *, const void *, Output, int64_t, More...> kernel;

    // Plans all but the kernel and the estimate, or says why the grid cannot be launched.
    bool tile(const cf_problem &p, int pixels, int channels, cf_plan &plan, const Refusal &no) {
        const int64_t pixel_tiles = ceil_div(p.n * p.p * p.q, pixels);
        const int64_t channel_tiles = ceil_div(p.k / p.groups, channels);
        if (p.groups > MaxGrid || channel_tiles > MaxGrid || pixel_tiles > INT32_MAX)
            return no("needs a grid of %lld x %lld x %d blocks; the limit is %d x %d x %d",
                      (long long)pixel_tiles, (long long)channel_tiles, p.groups, INT32_MAX,
                      MaxGrid, MaxGrid);
        problem = p;
        sums = Sums(p);
        sums.workspace(plan);
        pixel_tile = pixels, channel_tile = channels;
        return true;
    }

    // Pixel tiles of so many images, channel tiles of a group, groups.
    dim3 grid(int64_t images) const {
        const cf_problem &p = problem;
        return dim3(unsigned(ceil_div(images * p.p * p.q, pixel_tile)),
                    unsigned(ceil_div(p.k / p.groups, channel_tile)), unsigned(p.groups));
    }

    template <class... Parameters>
    void choose(void (*function)(Parameters...), dim3 block) {
        kernel = kernel_of(function, grid(sums.chunks.most), block);
    }

    // The tiles of a chunk are the first ones of the largest: a kernel knows by the number of
    // pixels where they end.
    int32_t launch(const cf_args &args, const More &...more) const {
        const cf_problem &p = problem;
        return sums.launch(p, args, "fused", [&](int64_t first, int64_t count, float *to) {
            auto chunk = kernel;
            chunk.grid = grid(count);
            return chunk.launch(args.stream, p, args.x, args.w, Output(args, to, first),
                                count * p.p * p.q, more...);
        });
    }
};

// What rows on tensor cores take in any case: with the launch of the others they took 1.2 to 1.3
// times what they were told.
inline double tensor_rows_alone_us(const cf_query &q) { return alone_us(q, 5, 120); }

// The estimate of a row whose own kernel takes `us` on a busy device, and `alone` in any case.
inline double fused_us(const cf_query &q, double alone, double us) {
    return alone + beside_tensors_us(q, us) + (q.problem.epilogue.pool_h ? finish_us(q) : 0);
}

} // namespace cf
