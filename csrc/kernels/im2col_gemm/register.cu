// im2col_gemm_register: register tiling, 8x8 outputs per thread from a 64x64 tile.
//
// With one output per thread every product reads two words of shared memory, and those bound the
// product at a tenth of what the FMA units do. A thread with 8x8 outputs reads 16 values for 64
// products, each value serving 8 of them from a register: four reads of four words each, so that
// the FMA units become what bounds it. 64 threads cover 64 output channels x 64 pixels and take
// eight products per sum at a time from shared memory. While a slice is multiplied, the next one is
// on its way from global memory into registers, and goes into a second buffer: one barrier a slice.
//
// This is report D's scheme as a whole, not im2col_gemm_shared with one thing changed: beside the
// outputs of a thread the tile differs, the two buffers, the vectors and the padding for them. The
// unrolling is the same pass, which with padded rows stores whole words for any number of pixels.
//
// Report D had 0.70 and 0.57 of cuDNN's speed with this scheme (RTX 3090). Fewer than 64 output
// channels leave rows of the tile idle: with 4 channels 15 of 16 products are of zeros, and the
// unrolling dominates in any case.
//
// The dimension that is contiguous in the product (pixels in NCHW, channels in NHWC) is called
// wide, the other one high. A thread's outputs are four and four, half a tile apart, in both: eight
// threads then read 128 contiguous bytes of a wide row at once and meet no bank twice. Rows of the
// unrolled matrix and of the product are padded to whole vectors of four elements.
#include "core/element.cuh"
#include "kernels/im2col_gemm/im2col.cuh"

namespace {

constexpr int Tile = 64;  // output channels, and pixels
constexpr int Each = 8;   // outputs of a thread in both directions
constexpr int Depth = 8;  // products of a slice
constexpr int Vector = 4; // elements moved at once
constexpr int Side = Tile / Each;
constexpr int Threads = Side * Side;
constexpr int Pitch = Tile + Vector; // lanes that store down the columns meet different banks
static_assert(Each == 2 * Vector && Side * Vector * 2 == Tile, "two vectors, half a tile apart");
static_assert(Threads == Tile, "a thread stages two vectors of the matrix and eight weights");
static_assert(Depth == 2 * Vector && Threads % Depth == 0, "a slice of a row is two vectors");

template <class V>
struct alignas(Vector * sizeof(V)) Four {
    V v[Vector];
};

template <class V>
__device__ __forceinline__ Four<V> zeros() {
    return {{V(0.0f), V(0.0f), V(0.0f), V(0.0f)}};
}

// What one thread stages of a slice, on its way from global to shared memory.
template <class T, int Math, bool Nchw>
struct Slice {
    using Sum = cf::Sum<Math>;
    using Operand = typename Sum::Operand;
    using Buffer = Operand[Depth][Pitch]; // [reduction][pixel or channel]
    static constexpr int FilterStep = Threads / Depth;

    Four<T> unrolled[2];
    T filter[Tile / FilterStep];

    // `from` begins with this tile's first pixel and this group, `w` with the first channel.
    __device__ __forceinline__ void load(const T *__restrict__ from, const T *__restrict__ w,
                                         const cf::Product &m, int64_t pixel0, int channels,
                                         int i0) {
        const int thread = threadIdx.x;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            if (Nchw) {
                // A row of 16 vectors is one product of the sum; four rows at a time.
                const int i = i0 + thread / (Tile / Vector) + j * (Threads / (Tile / Vector));
                const int column = thread % (Tile / Vector) * Vector;
                unrolled[j] = i < m.reduction && pixel0 + column < m.pitch
                                  ? *reinterpret_cast<const Four<T> *>(from + i * m.pitch + column)
                                  : zeros<T>();
            } else {
                // Two vectors of a pixel, then the next pixel; 32 pixels at a time.
                const int pixel = thread / 2 + j * (Threads / 2), i = i0 + thread % 2 * Vector;
                unrolled[j] =
                    pixel0 + pixel < m.pixels && i < m.pitch
                        ? *reinterpret_cast<const Four<T> *>(from + pixel * m.groups * m.pitch + i)
                        : zeros<T>();
            }
        }
        // Filters may be aligned to an element only.
        const int i = i0 + thread % Depth;
#pragma unroll
        for (int j = 0; j < Tile / FilterStep; ++j) {
            const int channel = thread / Depth + j * FilterStep;
            filter[j] = i < m.reduction && channel < channels
                            ? w[int64_t(channel) * m.reduction + i]
                            : T(0.0f);
        }
    }

    __device__ __forceinline__ void store(Buffer &us, Buffer &fs, int32_t math) const {
        const int thread = threadIdx.x;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            Four<Operand> four;
#pragma unroll
            for (int v = 0; v < Vector; ++v)
                four.v[v] = cf::operand<Sum>(unrolled[j].v[v], math);
            if (Nchw) {
                const int row = thread / (Tile / Vector) + j * (Threads / (Tile / Vector));
                const int column = thread % (Tile / Vector) * Vector;
                *reinterpret_cast<Four<Operand> *>(&us[row][column]) = four;
            } else {
#pragma unroll
                for (int v = 0; v < Vector; ++v)
                    us[thread % 2 * Vector + v][thread / 2 + j * (Threads / 2)] = four.v[v];
            }
        }
#pragma unroll
        for (int j = 0; j < Tile / FilterStep; ++j)
            fs[thread % Depth][thread / Depth + j * FilterStep] = cf::operand<Sum>(filter[j], math);
    }
};

// Eight values of a row: four, and four half a tile further.
template <class V>
__device__ __forceinline__ void read(V (&out)[Each], const V (&row)[Pitch], int at) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const auto four = *reinterpret_cast<const Four<V> *>(&row[half * (Tile / 2) + at * Vector]);
#pragma unroll
        for (int v = 0; v < Vector; ++v)
            out[half * Vector + v] = four.v[v];
    }
}

// Math is that of the sum; operands are rounded to `math` while they are staged.
template <class T, int Math, bool Nchw>
__global__ void __launch_bounds__(Threads, 6)
    gemm(const T *__restrict__ unrolled, const T *__restrict__ filter, float *__restrict__ product,
         const cf::Product m, int32_t math) {
    using Stage = Slice<T, Math, Nchw>;
    using Operand = typename Stage::Operand;
    __shared__ __align__(16) typename Stage::Buffer us[2], fs[2];
    const int group = blockIdx.z, tiles = (m.channels - 1) / Tile + 1;
    const int channel0 = int(blockIdx.x % tiles) * Tile;
    const int64_t pixel0 = int64_t(blockIdx.x / tiles) * Tile;
    const int x = threadIdx.x % Side, y = threadIdx.x / Side; // along wide, along high

    const T *from = unrolled + (Nchw ? int64_t(group) * m.reduction * m.pitch + pixel0
                                     : (pixel0 * m.groups + group) * m.pitch);
    const T *w = filter + (int64_t(group) * m.channels + channel0) * m.reduction;
    const int channels = m.channels - channel0; // left of the group

    Stage slice;
    slice.load(from, w, m, pixel0, channels, 0);
    slice.store(us[0], fs[0], math);
    __syncthreads();

    cf::Sum<Math> sums[Each][Each]; // [high][wide]
    int now = 0;
    for (int i0 = 0;;) {
        i0 += Depth;
        const bool more = i0 < m.reduction;
        if (more)
            slice.load(from, w, m, pixel0, channels, i0);
#pragma unroll
        for (int i = 0; i < Depth; ++i) {
            Operand wide[Each], high[Each];
            read(wide, Nchw ? us[now][i] : fs[now][i], x);
            read(high, Nchw ? fs[now][i] : us[now][i], y);
#pragma unroll
            for (int a = 0; a < Each; ++a)
#pragma unroll
                for (int b = 0; b < Each; ++b)
                    sums[a][b].add(wide[b], high[a]);
        }
        if (!more)
            break;
        // The other buffer was last read before the barrier that ended the pass before.
        now ^= 1;
        slice.store(us[now], fs[now], math);
        __syncthreads();
    }

    // In NHWC the next group's channels follow; only a vector that ends within the group is whole.
    const bool whole = Nchw || m.groups == 1 || m.channels % Vector == 0;
    const int64_t wide_end = Nchw ? m.pixels : m.channels;
    const int64_t high_end = Nchw ? m.channels : m.pixels;
    const int64_t wide0 = Nchw ? pixel0 : channel0, high0 = Nchw ? channel0 : pixel0;
    float *to =
        product + (Nchw ? int64_t(group) * m.channels * m.out_pitch : int64_t(group) * m.channels);
#pragma unroll
    for (int a = 0; a < Each; ++a) {
        const int64_t high = high0 + a / Vector * (Tile / 2) + y * Vector + a % Vector;
        if (high >= high_end)
            continue;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int64_t wide = wide0 + half * (Tile / 2) + x * Vector;
            float *at = to + high * m.out_pitch + wide;
            const auto &four = sums[a];
            if (whole && wide < wide_end) {
                *reinterpret_cast<float4 *>(at) =
                    make_float4(four[half * Vector].get(), four[half * Vector + 1].get(),
                                four[half * Vector + 2].get(), four[half * Vector + 3].get());
            } else {
#pragma unroll
                for (int v = 0; v < Vector; ++v)
                    if (wide + v < wide_end)
                        at[v] = four[half * Vector + v].get();
            }
        }
    }
}

struct State {
    cf::Im2col im2col;
    cf::Kernel<const void *, const void *, void *, cf::Product, int32_t> kernel;
};

// Operations of a multiprocessor in a clock, the idle ones of its tiles included: 70 to 138, and
// what a block takes by itself for each product of a sum: 222 to 292 clocks (h200-small-*.jsonl and
// h200-suites-*.jsonl).
constexpr double Rate = 104;
constexpr double Clocks = 255;

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    if (!cf::im2col_fits_flat(p, Tile, Tile, no))
        return false;
    cf::for_storage_and_sum(p, [&](auto storage, auto sum) {
        using T = typename cf::StorageType<decltype(storage)::value>::type;
        constexpr int Sum = decltype(sum)::value;
        state.kernel = cf::kernel_of(p.layout == CF_NCHW ? gemm<T, Sum, true> : gemm<T, Sum, false>,
                                     dim3(), Threads);
    });
    state.im2col = cf::Im2col(p, p.storage, Vector);
    state.im2col.chunks.workspace(plan);
    const double flops = cf::tiled_flops(p, Tile, Tile, Depth);
    plan.us = cf::im2col_us(query, cf::gather_us(query, p.storage),
                            cf::busy_us(query.device, flops, Rate, Clocks * cf::reduction(p)));
    return true;
}

int32_t launch(const State &state, const cf_args &args) {
    return state.im2col.launch(args, [&](const cf::Product &m) {
        auto kernel = state.kernel;
        kernel.grid = cf::im2col_flat_grid(m, Tile, Tile);
        return kernel.launch(args.stream, m.unrolled, args.w, m.product, m,
                             state.im2col.problem.math);
    });
}

} // namespace

extern "C" const cf_row CF_ROW(im2col_gemm, register) = {
    "im2col_gemm_register",
    "im2col_gemm",
    "register tiling: 64x64 tiles, 8x8 outputs per thread, slices of 8 products, double-buffered",
    "report D",
    cf::Im2colCaveat,
    CF_NEEDS_SM80,
    nullptr, // configs
    cf::Row<State, plan, cf::prepare_im2col<State>, launch>::functions(),
};
