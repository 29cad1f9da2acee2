// direct_shared_unroll: the shared tile of direct_shared_batched, the filter in constant memory,
// restrict pointers and unrolled loops.
//
// Report C's last kernel: a block of 8x8 threads and 4 images. The weight of a product comes from
// constant memory, one word for the whole warp, so shared memory is read once per product and not
// twice; with the side of the filter known at compile time and the loops unrolled, that read and
// the FMA are nearly all that is left of a product. The tile is staged as before.
//
// The report measured 11.0 + 40.5 ms, and 10.95 + 40.6 with restrict alone: a compiler unrolls
// loops of a constant length by itself. What the three forms mean here:
//
// - both: restrict pointers, and the loops over the taps under #pragma unroll.
// - restrict: restrict pointers. The side is a constant as well, as it was in the report, but
//   whether to unroll is left to the compiler.
// - unroll: unrolled, but the pointers are plain, so an input may not be read through the read-only
//   path nor moved across a store.
//
// The products read shared and constant memory only, so restrict can change the staging and nothing
// else. Bounds: shared memory, one load for one FMA, a quarter of the FMA rate at best; for small
// filters the staging and its barriers.
#include "core/constant.cuh"
#include "kernels/direct/outputs.cuh"
#include "kernels/direct/halo.cuh"

namespace {

using Block = cf::HaloBlock<8, 4>;

const char *const configs[] = {"form=both", "form=restrict", "form=unroll", nullptr};
enum Form { Both, Restrict, Unroll };

__constant__ __align__(16) unsigned char filter[cf::ConstantBytes];
cf::Turns turns;

template <int Side, bool Unrolled, class Body>
__device__ __forceinline__ void for_taps(Body body) {
    if constexpr (Unrolled) {
#pragma unroll
        for (int r = 0; r < Side; ++r)
#pragma unroll
            for (int s = 0; s < Side; ++s)
                body(r, s);
    } else {
        for (int r = 0; r < Side; ++r)
            for (int s = 0; s < Side; ++s)
                body(r, s);
    }
}

// Adds the products of one channel: the steps are in elements, from tap to tap.
template <class T, int Side, bool Unrolled, class Sum>
__device__ __forceinline__ void add_taps(Sum &sum, const typename Sum::Operand *tile, int down,
                                         int across, int weight, int step) {
    for_taps<Side, Unrolled>([&](int r, int s) {
        const T w = reinterpret_cast<const T *>(filter)[weight + (r * Side + s) * step];
        sum.add(tile[r * down + s * across], Sum::operand(cf::widen(w)));
    });
}

template <class T, int Math, int Side, bool Unrolled>
__device__ __forceinline__ void convolve(const cf_problem &p, const cf::Halo &halo, const T *x,
                                         const cf::Out<T> &out, int64_t images) {
    using Sum = cf::Sum<Math>;
    const bool nchw = p.layout == CF_NCHW;
    const int channels = p.c / p.groups;
    // The pitch of a tile without stride.
    constexpr int Pitch = int(cf::halo_pitch(Block::Side + Side - 1, Block::Side));
    const bool plain = nchw && p.dilation_h == 1 && p.dilation_w == 1 && halo.pitch == Pitch;
    const auto nothing = [](int, int) {}; // the filter needs no staging
    const auto taps = [&](int k, int c, const typename Sum::Operand *tile, int, Sum *sums) {
        // The index of a weight: a filter that fits is small enough for int.
        const int begin = k * channels * (Side * Side) + c * (nchw ? Side * Side : 1);
        // As in the report every tap is a constant distance from the first, or steps are run-time
        // values.
        if (plain)
            add_taps<T, Side, Unrolled>(sums[0], tile, Pitch, 1, begin, 1);
        else
            add_taps<T, Side, Unrolled>(sums[0], tile, p.dilation_h * int(halo.pitch), p.dilation_w,
                                        begin, nchw ? 1 : channels);
    };
    cf::halo_outputs<Block, Math>(p, halo, Math, x, out, images, nothing, taps);
}

template <class T, int Math, int Side, bool Unrolled>
__global__ void __launch_bounds__(Block::Threads, Block::Resident)
    direct_restrict_kernel(const cf_problem p, const cf::Halo halo, const T *__restrict__ x,
                           const cf::Out<T> out, int64_t images) {
    convolve<T, Math, Side, Unrolled>(p, halo, x, out, images);
}

template <class T, int Math, int Side>
__global__ void __launch_bounds__(Block::Threads, Block::Resident)
    direct_plain_kernel(const cf_problem p, const cf::Halo halo, const T *x, const cf::Out<T> out,
                        int64_t images) {
    convolve<T, Math, Side, true>(p, halo, x, out, images);
}

template <class T, int Math, int Side, int Form>
constexpr auto kernel() {
    if constexpr (Form == Unroll)
        return direct_plain_kernel<T, Math, Side>;
    else
        return direct_restrict_kernel<T, Math, Side, Form == Both>;
}

int32_t supports(const cf_call *call, char *why, uint64_t bytes) {
    return cf::unrolled_side(call, why, bytes) && cf::fits_constant(call, why, bytes) &&
           cf::halo_supports(call, Block::Side, Block::Images, 0, why, bytes);
}

// A load, the FMA and half of a constant load.
double rank(const cf_call *call) {
    return cf::LaunchUs + cf::halo_us(call->problem, Block::Side, Block::Images, 2.5);
}

int32_t multiply(const cf_call *call, int64_t first, int64_t count, float *sums) {
    const cf_problem &p = call->problem;
    return cf::for_value<Both, Restrict, Unroll>(call->config, [&](auto form) {
        return cf::for_unrolled_side(p, [&](auto side) {
            return cf::for_storage_and_math(p, [&](auto storage, auto math) {
                using T = typename cf::StorageType<decltype(storage)::value>::type;
                return cf::halo_launch<Block>(
                    call, kernel<T, math, side, form>(), count, 0, p, cf::halo(p, Block::Side),
                    static_cast<const T *>(call->x), cf::out<T>(call, sums, first), count);
            });
        });
    });
}

int32_t launch(const cf_call *call) {
    const cf_problem &p = call->problem;
    return turns.take(call, filter, call->w, cf::filter_bytes(p), [&] {
        return cf::with_sums(call, "direct", [&](int64_t first, int64_t count, float *sums) {
            const int32_t error = multiply(call, first, count, sums);
            if (!sums)
                cf::stage(call, "direct");
            return error;
        });
    });
}

} // namespace

extern "C" const cf_row direct_shared_unroll = {
    "direct_shared_unroll",
    "direct",
    "8x8 tile of 4 images in shared memory, constant filter, restrict and unrolled loops",
    "report C",
    80,
    INT32_MAX,
    configs,
    supports,
    cf::sums_workspace,
    nullptr, // packed_bytes
    nullptr, // pack
    nullptr, // bind
    rank,
    launch,
};
