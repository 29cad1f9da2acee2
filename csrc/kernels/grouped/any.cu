// grouped_any: groups of any size, any filter, stride, dilation and alignment, both layouts, every
// math.
//
// The other rows of the family are for groups as most networks have them; this one takes what they
// refuse. It is a product of matrices for each group: pixels times the products of a sum, that
// times output channels. Nothing is unrolled but on the way to registers.
//
// - A block stages what a tile of y reads of x: of each pixel the channels of some groups, as
//   operands of the math, 16 bytes at a time (a piece), zeros where a group or the image ends. Only
//   rows and columns that some tap falls on are staged.
// - A sum is a list of pieces, of all taps: where each lies behind the first one is in a table, as
//   a number that is the same for all pixels. ldmatrix reads a piece of eight pixels wherever they
//   lie, so a step of mma.sync takes any two, and 16 pixels are any of a tile's: nothing depends on
//   the filter's sides, stride, dilation or the width of the image.
// - Groups of few channels are put side by side to a set, with zeros in the filter between them, as
//   far as that saves time: sets of 3 channels leave more of a piece empty than two groups of 3.
// - In math fp32 a lane multiplies pieces of four channels by itself: tensor cores truncate sums,
//   and three products of tf32 round those of few products more than fp32 does. f16acc is summed
//   in fp32 as f16 is.
// - What of a filter or of its channels does not fit comes part by part, and sums wait in
//   registers.
//
// Floor: the bytes of x and y over the bandwidth; in fp32 the products.
#include "core/output.cuh"
#include "core/plan.cuh"
#include "kernels/grouped/any_kernel.cuh"

namespace {

using namespace cf::grouped_any;

template <class Stored, Product Kind>
__global__ void __launch_bounds__(256)
    pack_kernel(const Packed of, const cf::Strides strides, const Stored *__restrict__ w,
                uint32_t *__restrict__ packed) {
    using Operand = typename Shape<Stored, Kind, 1>::Operand;
    const int64_t all = of.words(), step = int64_t(gridDim.x) * 256;
    for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < all; i += step) {
        const auto element = [&](int e) {
            const FilterPlace at = filter_place(of, i, e);
            return at.live ? cf::widen(w[strides.at(at.k, at.c, at.r, at.s)]) : 0.0f;
        };
        if constexpr (Kind == Fp32)
            packed[i] = __float_as_uint(element(0));
        else if constexpr (Kind == Tf32)
            packed[i] = __float_as_uint(cf::Sum<CF_MATH_TF32>::operand(element(0)));
        else
            packed[i] = cf::pack<Operand>(element(0), element(1));
    }
}

struct State {
    Launched kernel;
    cf::Kernel<Packed, cf::Strides, const void *, void *> pack;
    cf_problem problem;
    Tiling tiling;
    cf::Sums sums;
};

// Calls body with an element of x and the product, as compile-time constants.
template <class Body>
void for_product(const cf_problem &p, Body body) {
    const auto of = [&](auto stored) {
        cf::for_value<Fp32, Tf32, F16, Bf16>(product_of(p),
                                             [&](auto product) { body(stored, product); });
    };
    if (p.storage == CF_STORE_F32)
        of(float());
    else if (p.storage == CF_STORE_F16)
        of(__half());
    else
        of(__nv_bfloat16());
}

void choose_kernels(const Option &option, State &state) {
    const cf_problem &p = state.problem;
    for_product(p, [&](auto stored, auto product) {
        constexpr auto Kind = Product(decltype(product)::value);
        state.kernel = kernel_for<Kind>(p.storage, option.tiles, unsigned(option.warps) * 32,
                                        size_t(option.shared));
        state.pack = cf::kernel_of(pack_kernel<decltype(stored), Kind>,
                                   cf::blocks(state.tiling.filter.words(), 256), 256);
    });
}

// What of the packed filter is counted and addressed in 31 bits, or no memory holds.
bool is_packable(const cf_query &query, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    const Packed packed(p, sets_of(p));
    const double pieces = double(p.r) * p.s * packed.sets.pieces;
    const double bytes = (pieces + 1) * Lanes * 4 * packed.sets.tiles * packed.sets.count;
    const auto memory = double(query.device.memory_bytes);
    if (pieces > 1 << 30 || bytes > memory)
        return no("packs the filter in tiles of 8 output channels by 16 bytes of input channels, "
                  "%.0f of one tile and %.3g bytes in all; it counts them in 30 bits, and the "
                  "device has %.3g bytes",
                  pieces, bytes, memory);
    return true;
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    if (p.groups < 2)
        return no("takes several groups");
    if (!is_packable(query, no))
        return false;
    const Option best = best_option(query);
    if (best.warps == 0)
        return no("keeps what some outputs read of x in shared memory, of which a block has %d "
                  "bytes, and counts tiles of an image in 31 bits",
                  query.device.shared_per_block);
    state.tiling = best.tiling;
    state.sums = cf::Sums(p);
    state.sums.workspace(plan);
    plan.packed_bytes = uint64_t(state.tiling.filter.words()) * 4;
    plan.filter_layout = uint64_t(state.tiling.filter.sets.groups) << 2 | uint64_t(product_of(p));
    plan.us = best.us;
    choose_kernels(best, state);
    return true;
}

int32_t prepare(State &state) {
    if (const int32_t error = state.pack.prepare())
        return error;
    return cf::prepare_with_sums(state);
}

int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    return state.pack.launch(stream, state.tiling.filter, cf::filter_strides(state.problem), w,
                             packed);
}

// Of images from `first` on. Their sums, where there are any, begin at `sums`.
int32_t launch_images(const State &state, const cf_args &args, int64_t first, int64_t images,
                      float *sums) {
    const Tiling &t = state.tiling;
    const int64_t in_y = first * t.image_y * t.element;
    Target to = {static_cast<char *>(args.y) + in_y, sums, cf::finish_of(state.problem, args)};
    if (to.finish.residual)
        to.finish.residual = static_cast<const char *>(to.finish.residual) + in_y;
    auto kernel = state.kernel;
    kernel.grid = unsigned(cf::ceil_div(images, t.images) * int64_t(tiles_of_images(t)));
    return kernel.launch(args.stream, t, static_cast<const char *>(args.x) + first * t.image_x,
                         args.packed, to, int(images));
}

int32_t launch(const State &state, const cf_args &args) {
    const Tiling &t = state.tiling;
    const auto chunk = [&](int64_t first, int64_t images, float *sums) -> int32_t {
        for (int64_t done = 0; done < images; done += t.most_images) {
            float *const to = sums ? sums + done * t.image_y : nullptr;
            const int64_t part = std::min(t.most_images, images - done);
            if (const int32_t error = launch_images(state, args, first + done, part, to))
                return error;
        }
        return 0;
    };
    return state.sums.launch(state.problem, args, "grouped", chunk);
}

} // namespace

extern "C" const cf_row CF_ROW(grouped, any) = {
    "grouped_any",
    "grouped",
    "groups of any size, any filter, stride and dilation: what a tile reads lies in shared memory "
    "as operands, a sum is a list of 16-byte pieces of it; math f16acc is summed in fp32",
    "this project",
    "padding, the next channels beside a group of few, and a filter's first tap are multiplied as "
    "zeros or by zeros: where an infinity or a NaN meets them, the sum is NaN; in math tf32 a "
    "weight from 3.40199e38 on counts as infinite",
    CF_NEEDS_SM80,
    nullptr, // configs
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
