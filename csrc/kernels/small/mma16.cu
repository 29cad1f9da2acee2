// small_mma16: few channels on tensor cores, 16-bit operands and f32 sums.
//
// An implicit product without tiles in memory: a row of it is a position (an output pixel), a
// column an output channel, and the sum runs along the filter. The 16 positions of a task lie
// beside each other; lanes read the operand of one mma.sync, 16 positions by 16 elements,
// straight from the image in shared memory, where channels lie beside each other and so the window
// of a row of the filter is contiguous. What was read from one row of x serves all rows of the
// filter that meet it: a task is 4 to 8 rows of y high, and its sums stay in registers.
//
// - One input channel: a position is two neighbouring pixels, columns are channels times those two,
//   with weights shifted by a pixel, and a step of the sum is 8 elements in two rows of the filter.
//   Four output channels fill 8 columns, and 7 x 7 products of two pixels 4 steps of 16. All pairs
//   of rows begin with an even one, so that each is read once: odd rows of y have weights of their
//   own, which begin a row earlier.
// - Weights are packed once as lanes hold them and stay in shared memory: one load of 16 bytes
//   serves 8 to 16 mma.sync.
// - Positions of a lane are 2 l and 2 l + 1: reads of 1, 2, 4 and 12 channels meet no bank twice,
//   and in NCHW a lane holds two neighbours of a row of y, which it stores together. In NHWC a lane
//   holds up to 8 neighbouring channels, and stores them together.
// - Blocks are persistent, one per multiprocessor. Four producer warps load images or strips of
//   their rows into a ring of stages; twelve compute. Rows that lie in shared memory as in x come
//   by bulk copies, as do images in NCHW, whose channels are interleaved from shared memory;
//   whatever has padding or is to be rounded comes through registers. Consumers only know where
//   among 16 bytes a copy began.
// - Where rows of y are no whole sectors of 32 bytes, outputs gather in shared memory in the order
//   of y and leave by bulk copies. A warp stores instead of loading then. Strips of an image in
//   NCHW gather together where there is room, as their channels by themselves are short.
// - Where strips are few, all warps load what their block needs and then compute, and blocks that
//   would have none share the tasks of a strip. A launch may begin before the one ahead of it ends.
// - Filters of other heights than 3, 5 and 7, and such as do not fit, take a kernel that reads all
//   its operands anew for each row of the filter.
//
// What fills up a step meets weights of zero, which makes a NaN of an infinity. math fp32 is
// refused: tensor cores truncate their sums.
//
// Floor: the bytes of x and y over the bandwidth, or 6 clocks of a quarter of a multiprocessor per
// mma.sync. Expected, f16 NCHW, N = 10000: 1 -> 4 k7 52 us of products and 153 of memory; 4 -> 16
// k7 137 and 116; 1 -> 12 k5 85 and 266; 12 -> 24 k5 215 and 155.
#include "core/element.cuh"
#include "core/estimate.cuh"
#include "core/output.cuh"
#include "kernels/small/few_channels.cuh"
#include "kernels/small/mma16_kernel.cuh"
#include "kernels/small/mma16_plan.cuh"

namespace {

using namespace cf::small16;

// What a launch is faster by where it has no ring to fill first
// (benches/results/evidence/h200-small-mma16-experiments.txt).
constexpr double PreloadedUs = 2;
// And where a strip of 16 bits is in shared memory as it lies in x: one copy, after which nothing
// is put in order (1 and 16 images of benches/results/h200-small-f16-nhwc-68938065.jsonl).
constexpr double DirectClocks = 2300;

// The filter as lanes hold it: [group][step][parity of the row of y][two fragments][lane]
// [2][4 elements], where fragments are [row or pair of rows][tile] and an odd one is left alone.
template <class Element, class T>
__global__ void pack_kernel(const Tiling tiling, const T *__restrict__ w, cf::Strides strides,
                            Element *__restrict__ packed, int r_count, int s_count, int elements) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += gridDim.x * blockDim.x) {
        const int fragments = fragments_of(tiling.filter_rows, tiling.column_tiles);
        const int e = i % 4, lane = i / 8 % 32, fragment = i / 256 * 2 + i / 4 % 2;
        const int set = fragment / fragments, of_set = fragment % fragments;
        const int tile = of_set % tiling.column_tiles, row = of_set / tiling.column_tiles;
        const int parity = set % tiling.parities, step = set / tiling.parities % tiling.steps;
        const int group = set / tiling.parities / tiling.steps;
        const int column = lane / 4;
        const int k = group * tiling.per_group + tile * tiling.per_tile +
                      column / 2 * tiling.per_pair + column % 2 * tiling.per_column;
        const bool single = tiling.pixels_per_position == 2;
        const int r = single ? row * 2 + e / 2 - parity : row;
        const int along = (single ? step * 8 : step * 16 + e / 2 * 8) + lane % 4 * 2 + e % 2;
        const int s = along / tiling.pixel_elements - (single ? column % 2 * tiling.stride_w : 0);
        const int c = along % tiling.pixel_elements;
        const bool live =
            k < tiling.k && r >= 0 && r < r_count && s >= 0 && s < s_count && c < tiling.c;
        packed[i] = cf::narrow<Element>(live ? cf::widen(w[strides.at(k, c, r, s)]) : 0.0f);
    }
}

struct State {
    Kernel kernel;
    cf_problem problem;
    Shapes shapes; // of what is packed
    Tiling tiling;
    cf::Sums sums;
};

template <class Element>
Kernel choose_kernel(const Tiling &t, bool residual, dim3 grid, size_t shared) {
    if (t.unrolled) {
        Kernel kernel;
        cf::for_value<3, 5, 7>((t.unrolled - 3) / 2, [&](auto rows) {
            kernel = unrolled_kernel<Element, decltype(rows)::value>(t, residual, grid, shared);
        });
        return kernel;
    }
    if (t.pixels_per_position == 2)
        return kernel_for<Element, 0, 0, MaxTiles, true>(grid, shared);
    return kernel_for<Element, 0, 0, MaxTiles, false>(grid, shared);
}

double estimate(const cf_query &query, const State &state) {
    const cf::Chunks &chunks = state.sums.chunks;
    const double launches =
        std::max(double(chunks.images) / double(std::max<int64_t>(chunks.most, 1)), 1.0);
    return cf::ShortLaunchUs +
           cf::clocks_us(query.device, launches * state.tiling.clocks, cf::TensorClock) -
           (state.tiling.preloaded ? PreloadedUs : 0) -
           (state.tiling.copy == Direct ? cf::clocks_us(query.device, DirectClocks, cf::TensorClock)
                                        : 0) +
           (state.sums.follow ? cf::finish_us(query) : 0);
}

// Blocks that have something to do, one per multiprocessor.
unsigned blocks_of(const Tiling &tiling, unsigned most) {
    return std::min(unsigned(tiling.strips / tiling.strips_per_out_stage * tiling.blocks_per_strip),
                    most);
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    if (p.math != CF_MATH_F16 && p.math != CF_MATH_BF16)
        return no("multiplies 16-bit operands into f32 sums (math f16 or bf16)");
    if (!cf::has_few_channels(p, no, cf::MostGroupedOutputs))
        return false;
    if (p.r > MaxFilter || p.s > MaxFilter)
        return no("takes filters up to %dx%d; this one is %dx%d", MaxFilter, MaxFilter, p.r, p.s);
    state.sums = cf::Sums(p, cf::sums_follow(p));
    state.shapes = shapes_of(query);
    const Tiling &t = state.tiling = best_tiling(query, state.shapes, state.sums.chunks.most);
    if (t.input_rows == 0)
        return no("keeps strips of %d channels, %d columns and all rows that a task needs in "
                  "shared memory, which has %d bytes, and counts tasks in 31 bits",
                  p.c, p.w, query.device.shared_per_block);
    state.sums.workspace(plan);
    plan.packed_bytes = packed_bytes(state.shapes);
    plan.filter_layout = filter_layout(p, state.shapes);
    plan.us = estimate(query, state);
    const dim3 grid = blocks_of(t, query.device.sm_count);
    cf::small16::for_element(p, [&](auto element) {
        state.kernel =
            choose_kernel<decltype(element)>(t, p.epilogue.residual, grid, shared_bytes(t));
    });
    return true;
}

int32_t prepare(State &state) {
    const bool f32 = state.problem.storage == CF_STORE_F32;
    const int32_t error = cf::small16::for_element(state.problem, [&](auto element) {
        using Element = decltype(element);
        return f32 ? cf::prepare_all(pack_kernel<Element, float>)
                   : cf::prepare_all(pack_kernel<Element, Element>);
    });
    return error ? error : cf::prepare_with_sums(state);
}

int32_t pack_for(const cf_problem &p, const Tiling &shape, const void *w, void *packed,
                 void *stream) {
    const int elements = int(packed_bytes(shape) / 2);
    if (elements == 0)
        return 0;
    return cf::small16::for_element(p, [&](auto element) {
        using Element = decltype(element);
        const auto run = [&](auto from) {
            return cf::launch(pack_kernel<Element, decltype(from)>, cf::blocks(elements, 256), 256,
                              stream, shape, w, cf::filter_strides(p), packed, p.r, p.s, elements);
        };
        return p.storage == CF_STORE_F32 ? run(float()) : run(Element());
    });
}

// For the unrolled kernel, then for the plain one.
int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    if (const int32_t error = pack_for(state.problem, state.shapes.unrolled, w, packed, stream))
        return error;
    return pack_for(state.problem, state.shapes.plain, w,
                    static_cast<char *>(packed) + packed_bytes(state.shapes.unrolled), stream);
}

// A chunk of fewer images than was planned for has fewer strips in the same tiling: fewer of them
// for each block, or fewer blocks. No block's share grows, so that what was planned to be preloaded
// still fits.
int32_t launch(const State &state, const cf_args &args) {
    const cf_problem &p = state.problem;
    const char *filter = static_cast<const char *>(args.packed) +
                         (state.tiling.unrolled ? 0 : packed_bytes(state.shapes.unrolled));
    return state.sums.launch(
        p, args, "small", [&](int64_t first, int64_t count, float *sums) -> int32_t {
            Tiling tiling = state.tiling;
            tiling.strips = int(count * tiling.strips_per_image);
            auto kernel = state.kernel;
            kernel.grid.x = blocks_of(tiling, kernel.grid.x);
            const int64_t elements = first * p.c * p.h * p.w;
            const char *x =
                static_cast<const char *>(args.x) + elements * (tiling.from_floats ? 4 : 2);
            return kernel.launch(args.stream, tiling, x, filter, sums ? sums : args.y,
                                 sums ? cf::Finish() : cf::finish_of(p, args));
        });
}

} // namespace

extern "C" const cf_row CF_ROW(small, mma16) = {
    "small_mma16",
    "small",
    "few channels by mma.sync in f16 or bf16: operands straight from images streamed through "
    "shared memory",
    "this project",
    "an infinity or a NaN in x may make NaN of outputs whose windows it lies just beside",
    CF_NEEDS_SM90,
    nullptr, // configs
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
