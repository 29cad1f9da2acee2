// small_wgmma: few channels of NCHW images by wgmma, 16-bit operands and f32 sums.
//
// Beside mma.sync every other instruction costs nearly a clock (docs/kernels/small_mma16.md); wgmma
// runs on its own. A product is 64 positions by the output channels by 16 elements of a row of the
// filter. Positions come from registers: four warps read their windows word by word from images in
// shared memory, where rows of any pitch do. Weights stay in shared memory.
//
// - A task is 64 positions, some rows of y high: what was read from a row of x serves each row of
//   the filter that meets it. Every row of y has accumulators of its own, so that all products are
//   of one shape; ptxas lets products of several shapes on the same registers wait for each other.
// - Rows of even width: a position is two neighbouring pixels, columns are channels times those
//   two, with weights shifted by a pixel. A word of a plane is two taps of one channel then, and
//   images lie in shared memory as in x: nothing is interleaved.
// - Other rows: a position is one pixel, and three warps put channels beside each other. An
//   operand is eight channels at a tap. A lane's two pixels are neighbours, so that the second
//   one's operand is the first one's at the next tap, and is read once.
// - Rows h, h + R, ... of x together meet every row of y once. Their products follow each other, so
//   that no accumulator is needed again soon.
// - Blocks are persistent, one per multiprocessor. One producer warp loads images by bulk copies;
//   twelve consumers in three groups compute and gather outputs in shared memory in the order of y;
//   one warp lets them leave by bulk copies.
//
// What fills up a step meets weights of zero, which makes a NaN of an infinity.
//
// Floor: the bytes of x and y over the bandwidth; half a clock per column of a product, 13 at
// least; or shared memory's 128 bytes per clock: 2 KB for 64 operands, 32 bytes for a column of
// weights. Expected, N = 10000, products / shared memory / memory: 4 -> 16 k7 97 / 108 / 116 us; 12
// -> 24 k5 169 / 200 / 155.
#include "core/element.cuh"
#include "core/estimate.cuh"
#include "core/fragment_epilogue.cuh"
#include "core/plan.cuh"
#include "core/strides.cuh"
#include "kernels/small/few_channels.cuh"
#include "kernels/small/wgmma_block.cuh"
#include "kernels/small/wgmma_load.cuh"
#include "kernels/small/wgmma_plan.cuh"
#include "kernels/small/wgmma_store.cuh"
#include "kernels/small/wgmma_task.cuh"
#include "ptx/grid.cuh"

namespace {

using namespace cf::small_wgmma;

#if CF_SM90A
// Every group enters and leaves every image, in order, so that no arrival counts for another.
template <class Element, int R, int N, int Quads>
__device__ __forceinline__ void consume(const Block &block, const uint16_t *x, const char *y,
                                        const cf::Finish &finish, int warp, int lane) {
    constexpr bool Pairs = Quads == 0;
    const Tiling &tiling = block.tiling;
    // A reduction tells the compiler that all lanes have the same: products read descriptors from
    // uniform registers.
    const uint64_t weights =
        cf::wgmma_descriptor(__reduce_max_sync(~0u, block.weights), R * N * 16);
    cf::RingPosition in, out;
    int task = warp / 4;
    for (int m = 0; m < block.images;
         ++m, in.next(tiling.stages), out.next(tiling.out_stages), task -= tiling.tasks) {
        block.shared.inputs.wait_full(in);
        block.shared.outputs.wait_empty(out);
        const uint32_t image = block.stage(in) + (Pairs ? skew(block, x, m) : 0);
        for (; task < tiling.tasks; task += Groups) {
            const LanePositions<rows_of(R, N), Quads> positions(tiling, task, image, warp, lane);
            TaskSums<Element, R, N> sums;
            if constexpr (Pairs)
                sums.multiply_pairs(tiling, positions.at, weights);
            else
                sums.template multiply_pixels<Quads>(tiling, positions.at[0], lane, weights);
            sums.wait();

            OutputMap<Element, R, N, Quads> map(tiling, sums, positions, block.output(m), lane);
            cf::finish_fragment<Element>(finish, tiling.k, map);
            // As far behind a multiple of 16 bytes as the image in y.
            const uint32_t to = block.out_stage(out) +
                                uint32_t(reinterpret_cast<uint64_t>(y + block.output(m) * 2) & 15);
            if (tiling.per_store == 2)
                map.store_words(to);
            else if (!Pairs && map.area % 2)
                map.store_odd(to);
            else
                map.store_elements(to);
            cf::publish_to_bulk_copies();
        }
        block.shared.inputs.release(in);
        block.shared.outputs.full[out.stage].arrive();
    }
}
#endif

// Quads: four channels each of a pixel in shared memory; 0 where a position is two pixels.
template <class Element, int R, int N, int Quads>
__global__ void __launch_bounds__(Warps * 32, 1)
    small_wgmma_kernel(const __grid_constant__ Tiling tiling, const uint16_t *x,
                       const uint4 *filter, char *y, const __grid_constant__ cf::Finish finish) {
#if CF_SM90A
    extern __shared__ __align__(128) char dynamic[];
    __shared__ Shared shared;
    const Block block(tiling, shared, dynamic);
    // Taken from one lane, so that the compiler knows what is the same in all.
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (warp == 0)
        init_barriers(block, lane);
    zero_stages(block, dynamic);
    cf::let_next_kernel_begin();
    cf::wait_for_kernels_before();
    load_weights(block, filter);
    cf::publish_to_bulk_copies(); // wgmma reads as they do
    __syncthreads();

    const int producer = warp - Consumers;
    if (producer < 0)
        consume<Element, R, N, Quads>(block, x, y, finish, warp, lane);
    else if (warp == Warps - 1)
        store_images(block, y, lane);
    else if (producer < tiling.producers) {
        if constexpr (Quads == 0)
            produce(block, x, lane);
        else
            produce_interleaved<Quads>(block, x, producer, lane);
    }
#else
    cf::not_compiled();
#endif
}

// The filter as wgmma reads it: [step][half][row from the last on][column][8 elements].
template <class Element>
__global__ void pack_kernel(const Tiling tiling, const Element *__restrict__ w, cf::Strides strides,
                            Element *__restrict__ packed, int s_count, int elements) {
    const int columns = tiling.column_tiles * 8;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += gridDim.x * blockDim.x) {
        const int e = i % 8, column = i / 8 % columns, row = i / 8 / columns;
        const int r = tiling.r - 1 - row % tiling.r, half = row / tiling.r; // of all steps
        int k = column, c, s;
        if (tiling.pixels_per_position == 2) {
            k = column / 8 + column % 8 / 2 * tiling.column_tiles;
            c = half, s = e - column % 2;
        } else {
            const int whole = (tiling.c + 3) / 4 / 2;
            if (half < whole * tiling.r) {
                s = half % tiling.r, c = half / tiling.r * 8 + e;
            } else { // lanes 0 and 1, and 2 and 3, have the same word at two taps
                const int split = (tiling.r + 1) / 2, tap = half - whole * tiling.r;
                s = tap < split ? tap + e / 2 % 2 * split : s_count;
                c = whole * 8 + e / 4 * 2 + e % 2;
            }
        }
        const bool live = k < tiling.k && c < tiling.c && s >= 0 && s < s_count;
        packed[i] = live ? w[strides.at(k, c, r, s)] : cf::narrow<Element>(0.0f);
    }
}

struct State {
    cf::Kernel<Tiling, const void *, const void *, void *, cf::Finish> kernel;
    cf_problem problem;
    Shapes shapes; // of what is packed
    Tiling tiling;
};

template <class Element>
void choose_kernel(State &state, dim3 grid, size_t shared) {
    const Tiling &t = state.tiling;
    const auto choose = [&](auto r, auto columns, auto quads) {
        state.kernel =
            cf::kernel_of(small_wgmma_kernel<Element, decltype(r)::value, decltype(columns)::value,
                                             decltype(quads)::value>,
                          grid, Warps * 32, shared, true);
    };
    const auto with_rows = [&](auto r) {
        constexpr int R = decltype(r)::value;
        if (is_paired(t))
            cf::for_value<16, 24, 32, 48>(
                t.column_tiles == 6 ? 3 : t.column_tiles - 2,
                [&](auto columns) { choose(r, columns, cf::Constant<0>{}); });
        else if constexpr (R < 7)
            cf::for_value<16, 24, 32>(t.column_tiles - 2, [&](auto columns) {
                cf::for_value<2, 3, 4>(int(cf::ceil_div(t.c, 4)) - 2,
                                       [&](auto quads) { choose(r, columns, quads); });
            });
    };
    cf::for_value<3, 5, 7>((t.r - 3) / 2, with_rows);
}

bool takes(const cf_problem &p, const cf::Refusal &no) {
    if (p.math != CF_MATH_F16 && p.math != CF_MATH_BF16)
        return no("multiplies 16-bit operands into f32 sums (math f16 or bf16)");
    if (p.storage != (p.math == CF_MATH_BF16 ? CF_STORE_BF16 : CF_STORE_F16))
        return no("takes operands as they are stored");
    if (p.layout != CF_NCHW)
        return no("is for NCHW");
    if (!cf::has_few_channels(p, no))
        return false;
    if (p.stride_h != 1 || p.stride_w != 1)
        return no("takes a stride of 1");
    if (p.pad_top || p.pad_left || p.pad_bottom || p.pad_right)
        return no("takes no padding: images lie in shared memory as in x");
    if (cf::sums_follow(p))
        return no("fuses bias, residual, ReLU and ReLU6, but nothing else");
    if (!takes_pairs(p) && !takes_pixels(p))
        return no("takes several channels in rows of even width at 4-byte addresses with filters "
                  "of 3, 5 or 7 rows and up to 7 columns and 24 output channels, or filters of 3x3 "
                  "and 5x5 with 5 to 16 input and up to 32 output channels");
    return true;
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = state.problem = query.problem;
    if (!takes(p, no))
        return false;
    state.shapes = shapes_of(p);
    const Tiling &t = state.tiling = best_tiling(query, state.shapes);
    if (t.input_rows == 0)
        return no("keeps two images of %dx%dx%d and what comes of them in shared memory, which has "
                  "%d bytes, and copies less than 1 MB in bulk",
                  p.c, p.h, p.w, query.device.shared_per_block);
    plan.packed_bytes = packed_size(state.shapes);
    plan.filter_layout = filter_layout(p, state.shapes);
    plan.us = cf::ShortLaunchUs + cf::clocks_us(query.device, t.clocks, cf::TensorClock);
    const dim3 grid = unsigned(std::min(t.strips, query.device.sm_count));
    cf::small16::for_element(p, [&](auto element) {
        choose_kernel<decltype(element)>(state, grid, cf::small16::shared_bytes(t));
    });
    return true;
}

int32_t prepare(State &state) {
    const int32_t error = cf::small16::for_element(state.problem, [&](auto element) {
        return cf::prepare_all(pack_kernel<decltype(element)>);
    });
    return error ? error : state.kernel.prepare();
}

int32_t pack_for(const cf_problem &p, const Tiling &shape, const void *w, void *packed,
                 void *stream) {
    const int elements = int(packed_size(shape) / 2);
    if (elements == 0)
        return 0;
    return cf::small16::for_element(p, [&](auto element) {
        return cf::launch(pack_kernel<decltype(element)>, cf::blocks(elements, 256), 256, stream,
                          shape, w, cf::filter_strides(p), packed, p.s, elements);
    });
}

// For pairs of pixels, then for single ones.
int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    if (const int32_t error = pack_for(state.problem, state.shapes.pairs, w, packed, stream))
        return error;
    return pack_for(state.problem, state.shapes.pixels, w,
                    static_cast<char *>(packed) + packed_size(state.shapes.pairs), stream);
}

int32_t launch(const State &state, const cf_args &args) {
    const char *filter = static_cast<const char *>(args.packed) +
                         (is_paired(state.tiling) ? 0 : packed_size(state.shapes.pairs));
    return state.kernel.launch(args.stream, state.tiling, args.x, filter, args.y,
                               cf::finish_of(state.problem, args));
}

} // namespace

extern "C" const cf_row CF_ROW(small, wgmma) = {
    "small_wgmma",
    "small",
    "few channels by wgmma in f16 or bf16: windows from images in shared memory to registers",
    "this project",
    "an infinity or a NaN in x may make NaN of outputs whose windows it lies just beside",
    CF_NEEDS_SM90A,
    nullptr, // configs
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
