// Plans of the tiled direct rows: what their blocks take, what that needs, how long it should last,
// and the launch. A row adds its kernels and where the filter comes from.
#pragma once

#include "core/plan.cuh"
#include "core/tensors.cuh"
#include "kernels/direct/halo.cuh"

namespace cf {

// Padding is staged as zeros, which are multiplied as all else.
constexpr const char *HaloCaveat =
    "an infinite or NaN weight gives NaN where its tap lies in the padding";

// Which outputs a block takes, and what it keeps in shared memory for them: the tiles of its images
// and behind them so many elements of a filter.
struct HaloTiling {
    Halo halo;
    int side, images; // of a block
    int64_t tiles;    // of an image
    double shared;    // bytes; what does not fit may be any number

    HaloTiling() = default;
    HaloTiling(const cf_problem &p, int side, int images, double weights)
        : halo(cf::halo(p, side)), side(side), images(images),
          tiles(ceil_div(p.p, side) * ceil_div(p.q, side)),
          shared((double(halo.height) * double(halo.pitch) * images + weights) *
                 (p.math == CF_MATH_F16_ACC ? 2 : 4)) {}

    bool fits(const cf_device &device, const Refusal &no) const {
        if (shared > device.shared_per_block)
            return no("keeps the %lld x %lld input pixels that a tile of outputs reads in shared "
                      "memory: %.0f bytes for %d image(s); a block has %d",
                      (long long)halo.height, (long long)halo.width, shared, images,
                      device.shared_per_block);
        if (tiles > INT32_MAX)
            return no("divides an image into %lld tiles of %d x %d outputs; the grid takes %d",
                      (long long)tiles, side, side, INT32_MAX);
        return true;
    }

    // Tiles, output channels, groups of images. Blocks walk what exceeds the last two.
    dim3 grid(const cf_problem &p, int64_t count) const {
        return dim3(unsigned(tiles), unsigned(std::min(p.k, MaxGrid)),
                    unsigned(std::min<int64_t>(ceil_div(count, images), MaxGrid)));
    }

    // Instructions of threads, of which a multiprocessor issues 128 in a clock: at a quarter of
    // that, by which half of the measurements in h200-reports-*.jsonl and h200-small-*.jsonl are
    // within 0.7 to 1.4. 12 for a staged element, 20 per thread and channel around them, and
    // `product` for each product: these are assumed.
    double us(const cf_query &q, double product) const {
        const cf_problem &p = q.problem;
        const double taps = double(p.r) * p.s, channels = p.c / p.groups;
        const double channel = 12 * (double(halo.height) * double(halo.width) + taps / images) +
                               double(side) * side * (20 + product * taps);
        const double all_images = padded(double(p.n), images);
        const double instructions = all_images * p.k * double(tiles) * channels * channel;
        // A block meets at barriers for each channel, which few blocks do not hide: fitted to one
        // image of the reports' layers, with a launch of 5 us.
        const double alone = alone_us(q, LaunchUs, 120) + clocks_us(q.device, 5000 * channels, 1);
        const double busy = beside_tensors_us(q, busy_us(q.device, instructions, 34));
        return std::max(alone, LaunchUs + busy) + (p.epilogue.pool_h ? finish_us(q) : 0);
    }
};

// The state of a plan, and most of what its row does with it. Filter is how the kernel is told
// where the filter lies: by an address, or by an offset in constant memory.
template <class Filter>
struct HaloState {
    Kernel<cf_problem, Halo, const void *, Filter, Output, int64_t> kernel;
    cf_problem problem;
    HaloTiling tiling;
    Sums sums;

    // Everything but the kernel.
    bool tile(const cf_query &q, const HaloTiling &by, cf_plan &plan, const Refusal &no) {
        problem = q.problem, tiling = by;
        if (!tiling.fits(q.device, no))
            return false;
        sums = Sums(problem);
        sums.workspace(plan);
        return true;
    }

    template <class Block, class... Parameters>
    void choose(void (*function)(Parameters...)) {
        kernel = kernel_of(function, tiling.grid(problem, sums.chunks.most),
                           dim3(Block::Side, Block::Side, Block::Layers), size_t(tiling.shared));
    }

    int32_t launch(const cf_args &args, Filter filter) const {
        return sums.launch(problem, args, "direct",
                           [&](int64_t first, int64_t count, float *to) -> int32_t {
                               auto part = kernel;
                               part.grid = tiling.grid(problem, count);
                               return part.launch(args.stream, problem, tiling.halo, args.x, filter,
                                                  Output(args, to, first), count);
                           });
    }
};

} // namespace cf
