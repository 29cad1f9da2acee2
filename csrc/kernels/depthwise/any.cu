// depthwise_any: one filter per channel, any filter, stride, dilation and multiplier, both layouts.
//
// The other rows of the family are for the filters that most networks have; this one takes what
// they refuse. Its idea is theirs, a thread slides down over rows of x that lie in shared memory
// and reads each once for all sums that it meets, but nothing of the filter is compiled in.
//
// - Taps whose distance is a multiple of the stride are a class. To a class a convolution of any
//   stride and dilation is one without stride, over every stride-th row and column of x, and to
//   rows of y that are as far apart as its taps these are neighbours. So a thread has 8, 4 or 1
//   rows of y at that distance, and each tap moves its window by one row. No row or column is
//   staged that no output needs.
// - x comes as f32, rounded where the math wants it, zeros where the filter hangs over an edge; its
//   rows lie behind each other in shared memory, so that a window is read in words of four, and so
//   are the taps of a column of the filter.
// - Threads run along what is contiguous: columns in NCHW, channels in NHWC; behind them columns,
//   rows, and several planes or images where these are small.
// - What of a filter does not fit comes part by part; parts that fit together are staged together.
//
// Floor: the bytes of x and y over the bandwidth; the products, of large filters: 64 of 77
// instructions where a filter has many rows.
#include "core/output.cuh"
#include "kernels/depthwise/any_kernel.cuh"
#include "kernels/depthwise/any_plan.cuh"

namespace {

using namespace cf::depthwise_any;

struct State {
    cf::Kernel<Tiling, const void *, const void *, Target, Units> kernel;
    cf_problem problem;
    Tiling tiling;
    cf::Sums sums;
};

void choose_kernel(const Option &option, State &state) {
    const auto choose = [&](auto stored, auto nchw) {
        using T = decltype(stored);
        const int number = option.rows == 8 ? 2 : option.rows == 4;
        cf::for_value<1, 4, 8>(number, [&](auto rows) {
            state.kernel =
                cf::kernel_of(depthwise_any_kernel<T, decltype(nchw)::value, decltype(rows)::value>,
                              dim3(), unsigned(option.threads), size_t(option.shared));
        });
    };
    const auto of = [&](auto stored) {
        if (state.problem.layout == CF_NCHW)
            choose(stored, std::true_type());
        else
            choose(stored, std::false_type());
    };
    if (state.problem.storage == CF_STORE_F32)
        of(float());
    else if (state.problem.storage == CF_STORE_F16)
        of(__half());
    else
        of(__nv_bfloat16());
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    if (p.groups != p.c)
        return no("takes as many groups as input channels; this has %d groups and %d channels",
                  p.groups, p.c);
    if (p.math == CF_MATH_F16_ACC)
        return no("sums in fp32");
    if (p.r > MaxFilter || p.s > MaxFilter)
        return no("counts taps in 30 bits; this filter is %dx%d", p.r, p.s);
    const Option best = best_option(query);
    if (best.rows == 0)
        return no("keeps what a few outputs read of x in shared memory, of which a block has %d "
                  "bytes, and counts tiles of an image in 31 bits",
                  query.device.shared_per_block);
    state.tiling = best.tiling;
    state.sums = cf::Sums(p);
    state.sums.workspace(plan);
    plan.us = best.us;
    choose_kernel(best, state);
    return true;
}

// Elements, before pooling.
int64_t image_of_y(const cf_problem &p) { return cf::residual_strides(p).image; }

// Of images from `first` on. Their sums, where there are any, begin at `sums`.
int32_t launch_images(const State &state, const cf_args &args, int64_t first, int64_t images,
                      float *sums) {
    const cf_problem &p = state.problem;
    const Tiling &t = state.tiling;
    const bool nchw = p.layout == CF_NCHW;
    const int64_t image_x = cf::input_strides(p).image * t.element;
    const int64_t image_y = image_of_y(p) * t.element;
    const Units units = {int(images * (nchw ? p.k : 1)), int(images * (nchw ? p.c : 1))};
    Target to = {static_cast<char *>(args.y) + first * image_y, sums, cf::finish_of(p, args)};
    if (to.finish.residual)
        to.finish.residual = static_cast<const char *>(to.finish.residual) + first * image_y;
    auto kernel = state.kernel;
    kernel.grid = unsigned(cf::ceil_div(units.y, t.units) * tiles_of_units(t));
    return kernel.launch(args.stream, t, static_cast<const char *>(args.x) + first * image_x,
                         args.w, to, units);
}

int32_t launch(const State &state, const cf_args &args) {
    const int64_t most = state.tiling.most_images;
    const auto chunk = [&](int64_t first, int64_t images, float *sums) -> int32_t {
        for (int64_t done = 0; done < images; done += most) {
            float *const to = sums ? sums + done * image_of_y(state.problem) : nullptr;
            const int64_t part = std::min(most, images - done);
            if (const int32_t error = launch_images(state, args, first + done, part, to))
                return error;
        }
        return 0;
    };
    return state.sums.launch(state.problem, args, "depthwise", chunk);
}

} // namespace

extern "C" const cf_row CF_ROW(depthwise, any) = {
    "depthwise_any",
    "depthwise",
    "a filter per channel, of any size, stride and dilation: a tile of x in shared memory, windows "
    "of it slide down in registers",
    "this project",
    "padding is multiplied as zeros: where a weight that is infinite or NaN meets it, the sum is "
    "NaN",
    CF_NEEDS_SM80,
    nullptr, // configs
    cf::Row<State, plan, cf::prepare_with_sums<State>, launch>::functions(),
};
