// im2col_gemm_constant: im2col_gemm_shared with the filter in constant memory.
//
// Of the two operands of a product only the unrolled matrix is then staged in shared memory; the
// filter's comes through the constant cache, so a product costs one shared-memory read instead of
// two. The cache serves all lanes of a warp in one step when they want the same word, and one
// word after the other when they do not. So here threads run along pixels in both layouts, and a
// warp wants as many words as it has output channels.
//
// Configurations, output channels x pixels of a block's tile:
//   tile=16x16  as in im2col_gemm_shared and report A; a warp has two channels and takes two steps
//   tile=8x32   a warp has one channel; elements of the unrolled matrix are reused 8 times, not 16
//
// Report A saw 73.8 + 78.5 ms against 71.1 + 57.6: nothing gained with 4 output channels, and a
// loss with 16, where staging the filter is cheap and well reused. The filter is packed into its
// part of constant memory once, as it is given; where math rounds operands, they are rounded at
// every product here, which shared memory spares the other rows. Filters over 64 KB are refused.
//
// In NHWC neighbouring outputs are neighbouring channels, so sums pass through shared memory to be
// stored along channels.
#include "core/constant.cuh"
#include "kernels/im2col_gemm/tile_product.cuh"

namespace {

constexpr int Threads = 256;

const char *const configs[] = {"tile=16x16", "tile=8x32", nullptr};

__constant__ uint4 constant_filters[cf::ConstantBytes / sizeof(uint4)];

// `offset`: bytes from the beginning of constant_filters to this product's.
template <class T, int Math, bool Nchw, int Channels>
__global__ void __launch_bounds__(Threads)
    gemm(const T *unrolled, int offset, float *product, int64_t pixels, int channels, int reduction,
         int groups) {
    constexpr int Pixels = Threads / Channels;
    constexpr int Depth = Channels; // products of a tile; one element to stage per thread
    static_assert(Threads % Channels == 0 && Pixels <= 32 && 32 % Depth == 0);
    using Sum = cf::Sum<Math>;
    // Lanes that store down the columns, Depth by 32 / Depth of them, meet no bank twice.
    constexpr int Pitch = Pixels + 32 / Depth;
    __shared__ typename Sum::Operand us[Depth][Pitch];
    __shared__ float sums[Channels][Pixels + 1];
    const int tx = threadIdx.x, ty = threadIdx.y, group = blockIdx.z;
    const int thread = ty * Pixels + tx;
    const int64_t pixel0 = int64_t(blockIdx.x) * Pixels;
    const int channel0 = blockIdx.y * Channels;
    const int channel = channel0 + ty;
    // The whole filter is at most 64 KB, so an int counts its elements. Channels over the end have
    // no filter, and must read none.
    const T *filter =
        reinterpret_cast<const T *>(reinterpret_cast<const char *>(constant_filters) + offset) +
        (group * channels + min(channel, channels - 1)) * reduction;

    Sum sum;
    for (int i0 = 0; i0 < reduction; i0 += Depth) {
        // Loads run along the rows as they lie in memory.
        const int lane = Nchw ? ty : thread % Depth, column = Nchw ? tx : thread / Depth;
        const int64_t pixel = pixel0 + column;
        const int i = i0 + lane;
        us[lane][column] = Sum::operand(
            i < reduction && pixel < pixels
                ? cf::widen(unrolled[Nchw ? (int64_t(group) * reduction + i) * pixels + pixel
                                          : (pixel * groups + group) * int64_t(reduction) + i])
                : 0.0f);
        __syncthreads();
        if (i0 + Depth <= reduction) {
#pragma unroll
            for (int j = 0; j < Depth; ++j)
                sum.add(us[j][tx], Sum::operand(cf::widen(filter[i0 + j])));
        } else {
            // Behind the filter lies another, whose elements may be NaN.
            for (int j = 0; j < reduction - i0; ++j)
                sum.add(us[j][tx], Sum::operand(cf::widen(filter[i0 + j])));
        }
        __syncthreads();
    }

    if (Nchw) {
        if (pixel0 + tx < pixels && channel < channels)
            product[(int64_t(group) * channels + channel) * pixels + pixel0 + tx] = sum.get();
    } else {
        sums[ty][tx] = sum.get();
        __syncthreads();
        const int row = thread % Channels, column = thread / Channels;
        if (pixel0 + column < pixels && channel0 + row < channels)
            product[((pixel0 + column) * groups + group) * int64_t(channels) + channel0 + row] =
                sums[row][column];
    }
}

struct State {
    cf::Im2col im2col;
    cf::Kernel<const void *, int32_t, void *, int64_t, int32_t, int32_t, int32_t> kernel;
    const void *constant; // the address of constant_filters
};

int32_t constant_memory(void **address) { return cf::constant_address(constant_filters, address); }

// Operations of a multiprocessor in a clock, the idle ones of its tiles included: 5.5 to 33 in
// h200-reports-*.jsonl, where the channels of a group decide.
constexpr double Rate = 11;

double estimate(const cf_query &q, int pixels, int channels) {
    const double flops = cf::tiled_flops(q.problem, pixels, channels, channels);
    const double product_us =
        cf::busy_us(q.device, flops, Rate, cf::TileClocks * cf::reduction(q.problem));
    return cf::im2col_us(q, cf::gather_us(q, q.problem.storage), product_us);
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    if (!cf::plan_constant(p, plan, no))
        return false;
    cf::for_storage_and_math(p, [&](auto storage, auto math) {
        cf::for_value<16, 8>(query.config, [&](auto channels) {
            using T = typename cf::StorageType<decltype(storage)::value>::type;
            constexpr int Math = decltype(math)::value, Channels = decltype(channels)::value;
            state.kernel = cf::kernel_of(p.layout == CF_NCHW ? gemm<T, Math, true, Channels>
                                                             : gemm<T, Math, false, Channels>,
                                         dim3(), dim3(Threads / Channels, Channels));
            plan.us = estimate(query, Threads / Channels, Channels);
        });
    });
    state.im2col = cf::Im2col(p, p.storage);
    state.im2col.chunks.workspace(plan);
    return cf::im2col_fits(p, state.kernel.block, no);
}

int32_t prepare(State &state) {
    void *address = nullptr;
    if (const int32_t error = constant_memory(&address))
        return error;
    state.constant = address;
    return cf::prepare_im2col(state);
}

int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    return cf::pack_constant(state.im2col.problem, w, packed, stream);
}

int32_t launch(const State &state, const cf_args &args) {
    const int offset = cf::constant_offset(state.constant, args);
    return state.im2col.launch(args, [&](const cf::Product &m) {
        auto kernel = state.kernel;
        kernel.grid = cf::im2col_grid(m, kernel.block);
        return kernel.launch(args.stream, m.unrolled, offset, m.product, m.pixels, m.channels,
                             m.reduction, m.groups);
    });
}

} // namespace

extern "C" const cf_row CF_ROW(im2col_gemm, constant) = {
    "im2col_gemm_constant",
    "im2col_gemm",
    "im2col_gemm_shared with the filter in constant memory",
    "report A",
    cf::Im2colCaveat,
    CF_NEEDS_SM80,
    configs,
    cf::Row<State, plan, prepare, launch, pack>::functions(constant_memory),
};
