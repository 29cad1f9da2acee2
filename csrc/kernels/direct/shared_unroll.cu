// direct_shared_unroll: the shared tile of direct_shared_batched, the filter in constant memory,
// restrict pointers and unrolled loops.
//
// Report C's last kernel: a block of 8x8 threads and 4 images. The weight of a product comes from
// constant memory, one word for the whole warp, so shared memory is read once per product and not
// twice; with the side of the filter known at compile time and the loops unrolled, that read and
// the FMA are nearly all that is left of a product. The tile is staged as before.
//
// The report measured 11.0 + 40.5 ms, and 10.95 + 40.6 with restrict alone: a compiler unrolls
// loops of a constant length by itself. What the forms mean here:
//
// - both: restrict pointers, and the loops over the taps under #pragma unroll.
// - restrict: restrict pointers, no pragma.
// - unroll: plain pointers, so an input may not be read through the read-only path nor moved across
//   a store, and the pragma.
// - plain: plain pointers, no pragma.
//
// The side is a constant in all of them, as it was in the report: without the pragma it is left to
// the compiler whether to unroll.
//
// What nvcc 13.0 makes of them for sm_90a: with restrict the tile is loaded by LDG.CONSTANT, with
// plain pointers by LDG. A 3x3 kernel takes 48 registers with restrict and 56 without (in TF32 as
// many with it), so that five or four blocks share a multiprocessor. The pragma changes not a
// single instruction up to 5x5. At 7x7 the loops are unrolled without it as well, except in TF32
// with run-time steps from tap to tap, where two rows of taps are the body of a loop.
//
// The products read shared and constant memory only, so restrict can change the staging and nothing
// else. Bounds: shared memory, one load for one FMA, a quarter of the FMA rate at best; for small
// filters the staging and its barriers.
#include "core/constant.cuh"
#include "kernels/direct/halo_plan.cuh"
#include "kernels/direct/outputs.cuh"

namespace {

using Block = cf::HaloBlock<8, 4>;

const char *const configs[] = {"form=both", "form=restrict", "form=unroll", "form=plain", nullptr};
enum Form { Both, Restrict, Unroll, Plain };

__constant__ __align__(16) unsigned char constants[cf::ConstantBytes];

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

// Adds the products of one channel, whose first weight is at `weight`: the steps are in elements,
// from tap to tap.
template <class T, int Side, bool Unrolled, class Sum>
__device__ __forceinline__ void add_taps(Sum &sum, const typename Sum::Operand *tile, int down,
                                         int across, int weight, int step) {
    for_taps<Side, Unrolled>([&](int r, int s) {
        const T w = reinterpret_cast<const T *>(constants)[weight + (r * Side + s) * step];
        sum.add(tile[r * down + s * across], Sum::operand(cf::widen(w)));
    });
}

// The filter begins with weight number `begin` of `constants`.
template <class T, int Math, int Side, bool Unrolled>
__device__ __forceinline__ void convolve(const cf_problem &p, const cf::Halo &halo, const T *x,
                                         int begin, const cf::Output &out, int64_t images) {
    using Sum = cf::Sum<Math>;
    const bool nchw = p.layout == CF_NCHW;
    const int channels = p.c / p.groups;
    // The pitch of a tile without stride.
    constexpr int Pitch = int(cf::halo_pitch(Block::Side + Side - 1, Block::Side));
    const bool dense = nchw && p.dilation_h == 1 && p.dilation_w == 1 && halo.pitch == Pitch;
    const auto nothing = [](int, int) {}; // the filter needs no staging
    const auto taps = [&](int k, int c, const typename Sum::Operand *tile, int, Sum *sums) {
        // The index of a weight: a filter that fits is small enough for int.
        const int first = begin + k * channels * (Side * Side) + c * (nchw ? Side * Side : 1);
        // As in the report every tap is a constant distance from the first, or steps are run-time
        // values.
        if (dense)
            add_taps<T, Side, Unrolled>(sums[0], tile, Pitch, 1, first, 1);
        else
            add_taps<T, Side, Unrolled>(sums[0], tile, p.dilation_h * int(halo.pitch), p.dilation_w,
                                        first, nchw ? 1 : channels);
    };
    cf::halo_outputs<Block, Math>(p, halo, Math, x, out, images, nothing, taps);
}

template <class T, int Math, int Side, bool Unrolled>
__global__ void __launch_bounds__(Block::Threads, Block::Resident)
    direct_restrict_kernel(const cf_problem p, const cf::Halo halo, const T *__restrict__ x,
                           int begin, const cf::Output out, int64_t images) {
    convolve<T, Math, Side, Unrolled>(p, halo, x, begin, out, images);
}

template <class T, int Math, int Side, bool Unrolled>
__global__ void __launch_bounds__(Block::Threads, Block::Resident)
    direct_plain_kernel(const cf_problem p, const cf::Halo halo, const T *x, int begin,
                        const cf::Output out, int64_t images) {
    convolve<T, Math, Side, Unrolled>(p, halo, x, begin, out, images);
}

template <class T, int Math, int Side, int Form>
constexpr auto kernel() {
    constexpr bool Unrolled = Form == Both || Form == Unroll;
    if constexpr (Form == Both || Form == Restrict)
        return direct_restrict_kernel<T, Math, Side, Unrolled>;
    else
        return direct_plain_kernel<T, Math, Side, Unrolled>;
}

struct State {
    cf::HaloState<int> halo;
    void *constants;
};

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    if (!cf::has_unrolled_side(p, no) || !cf::plan_constant(p, plan, no))
        return false;
    const cf::HaloTiling tiling(p, Block::Side, Block::Images, 0);
    if (!state.halo.tile(query, tiling, plan, no))
        return false;
    plan.us = tiling.us(query, 3.4); // a load, the FMA and a constant load or part of one
    cf::for_value<Both, Restrict, Unroll, Plain>(query.config, [&](auto form) {
        cf::for_unrolled_side(p, [&](auto side) {
            cf::for_storage_and_math(p, [&](auto storage, auto math) {
                using T = typename cf::StorageType<decltype(storage)::value>::type;
                state.halo.choose<Block>(kernel<T, math, side, form>());
            });
        });
    });
    return true;
}

int32_t constant_memory(void **address) { return cf::constant_address(constants, address); }

int32_t prepare(State &state) {
    if (const int32_t error = cf::prepare_with_sums(state.halo))
        return error;
    return constant_memory(&state.constants);
}

int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    return cf::pack_constant(state.halo.problem, w, packed, stream);
}

int32_t launch(const State &state, const cf_args &args) {
    const int offset = cf::constant_offset(state.constants, args);
    return state.halo.launch(args, offset / cf::element_bytes(state.halo.problem));
}

} // namespace

extern "C" const cf_row CF_ROW(direct, shared_unroll) = {
    "direct_shared_unroll",
    "direct",
    "8x8 tile of 4 images in shared memory, constant filter, restrict and unrolled loops",
    "report C",
    cf::HaloCaveat,
    CF_NEEDS_SM80,
    configs,
    cf::Row<State, plan, prepare, launch, pack>::functions(constant_memory),
};
