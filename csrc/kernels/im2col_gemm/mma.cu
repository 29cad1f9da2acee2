// im2col_gemm_mma: the product on tensor cores, by mma.sync with 16-bit or tf32 operands.
//
// One mma.sync of a warp is 2048 products of 16-bit operands; 64 FMA instructions of a warp do the
// same. So the product stops being the longest stage, and what remains is the memory traffic around
// it: the unrolled matrix is written and read once, in the operands' own type, which for f32
// storage and 16-bit math is half the size. The gathering pass rounds while it writes.
//
// The operand whose elements lie along the sum is A, in memory as the instruction wants it, and the
// product comes out contiguous along B's columns: A is the filter and B the unrolled matrix in
// NCHW, the other way round in NHWC. B lies along its columns in NCHW and is transposed on the way
// from shared memory to registers (ldmatrix.trans; tf32, which it cannot transpose, word by word).
// Copies into shared memory are 16 bytes each, three steps of 64 bytes ahead (cp.async). For that
// the rows of the unrolled matrix and of the filter are padded with zeros to 16 bytes: `pack` does
// it to the filter, once, and rounds it. The pitch of tiles in shared memory lets eight rows of 16
// bytes be read at once.
//
// Report D tried this and got wrong results. What is easily wrong is which element a lane holds:
// ptx/mma.cuh has the table.
//
// Sums are in fp32, truncated by every mma.sync, so math fp32 is refused: its products would
// be exact for 16-bit storage, but its sums not as good as fp32's. tf32 operands are rounded in the
// filter and truncated in the unrolled matrix. Under f16acc sums are in f16 as well.
//
// Configurations, output channels x pixels of a block's tile: few channels leave most of a large
// tile idle.
#include "core/element.cuh"
#include "kernels/im2col_gemm/im2col.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mma.cuh"

namespace {

constexpr int Stages = 3;     // tiles of shared memory
constexpr int StepBytes = 64; // of a row along the sum, per tile
constexpr int Copy = 16;      // bytes moved at once
constexpr int Skew = 16;      // bytes behind a row in shared memory

template <int C, int P, int WarpC, int WarpP>
struct Tile {
    static constexpr int Channels = C, Pixels = P, WarpChannels = WarpC, WarpPixels = WarpP;
};

const char *const configs[] = {"tile=64x128", "tile=128x128", "tile=16x256", nullptr};

// Calls body with the tile of a configuration.
template <class Body>
void for_tile(int config, Body body) {
    switch (config) {
    case 1:
        return body(Tile<128, 128, 64, 32>{});
    case 2:
        return body(Tile<16, 256, 16, 64>{});
    default:
        return body(Tile<64, 128, 32, 64>{});
    }
}

// Sizes of a block: it computes M rows by N columns, a warp WarpM by WarpN of them.
template <class Tile, class Element, bool Nchw>
struct Shape {
    static constexpr int M = Nchw ? Tile::Channels : Tile::Pixels;
    static constexpr int N = Nchw ? Tile::Pixels : Tile::Channels;
    static constexpr int WarpM = Nchw ? Tile::WarpChannels : Tile::WarpPixels;
    static constexpr int WarpN = Nchw ? Tile::WarpPixels : Tile::WarpChannels;
    static constexpr int Threads = (M / WarpM) * (N / WarpN) * 32;
    static constexpr int Vector = Copy / sizeof(Element);
    static constexpr int Depth = StepBytes / sizeof(Element);
    // A, and B in NHWC, lie along the sum; B in NCHW along the columns. Words of tf32 are read from
    // four rows of eight at once, hence twice the skew.
    static constexpr int PitchA = StepBytes + Skew;
    static constexpr int RowsB = Nchw ? Depth : N;
    static constexpr int RowBytesB = Nchw ? N * int(sizeof(Element)) : StepBytes;
    static constexpr int PitchB = RowBytesB + (Nchw && sizeof(Element) == 4 ? 2 : 1) * Skew;
    static constexpr int BytesA = M * PitchA, Bytes = BytesA + RowsB * PitchB;
    static constexpr int SharedBytes = Stages * Bytes;
    static_assert(M % WarpM == 0 && N % WarpN == 0 && WarpM % 16 == 0 && WarpN % 16 == 0,
                  "a warp has whole 16x16 pieces");
    static_assert(RowBytesB % 128 == 0 || !Nchw, "the skew alone sets neighbouring rows apart");
};

// What the kernel reads and writes, in elements: row m of A is at m * lda, row n of B (NHWC) at
// n * ldb, row i (NCHW) at i * ldb, and product (m, n) at m * ldc + n.
struct Operands {
    const void *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
    int64_t group_a, group_b, group_c; // steps from group to group
    int64_t m, n;
    int64_t columns;       // of B's rows in memory, with padding (NCHW)
    int reduction, padded; // products of a sum; with the padding along it
    int tiles;             // of output channels
    bool pairs; // two neighbours of C may be stored together wherever the first is inside
};

// Copies `Rows` rows of `Chunks` 16-byte pieces; live(row, piece) says which are inside.
template <int Rows, int Chunks, int Threads, class Live>
__device__ __forceinline__ void copy_tile(uint32_t to, int pitch, const char *from,
                                          int64_t row_bytes, Live live) {
#pragma unroll
    for (int j = 0; j < Rows * Chunks; j += Threads) {
        const int chunk = j + int(threadIdx.x);
        const int row = chunk / Chunks, piece = chunk % Chunks;
        if (Rows * Chunks % Threads != 0 && chunk >= Rows * Chunks)
            break;
        const bool inside = live(row, piece);
        cf::copy16_async(to + row * pitch + piece * Copy,
                         inside ? from + row * row_bytes + piece * Copy : from, inside);
    }
}

template <class Tile, class Element, class Acc, bool Nchw>
__global__ void __launch_bounds__(Shape<Tile, Element, Nchw>::Threads) gemm(const Operands o) {
    using S = Shape<Tile, Element, Nchw>;
    extern __shared__ __align__(128) char tiles[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = blockIdx.z;
    const int64_t channel0 = int64_t(blockIdx.x % o.tiles) * Tile::Channels;
    const int64_t pixel0 = int64_t(blockIdx.x / o.tiles) * Tile::Pixels;
    const int64_t m0 = Nchw ? channel0 : pixel0, n0 = Nchw ? pixel0 : channel0;
    const auto *a = static_cast<const Element *>(o.a) + group * o.group_a + m0 * o.lda;
    const auto *b =
        static_cast<const Element *>(o.b) + group * o.group_b + (Nchw ? n0 : n0 * o.ldb);
    const uint32_t shared = cf::shared_address(tiles);

    const auto load = [&](int step) {
        const int i0 = step * S::Depth;
        const uint32_t to = shared + step % Stages * S::Bytes;
        copy_tile<S::M, StepBytes / Copy, S::Threads>(
            to, S::PitchA, reinterpret_cast<const char *>(a + i0), o.lda * int64_t(sizeof(Element)),
            [&](int row, int piece) {
                return m0 + row < o.m && i0 + piece * S::Vector < o.padded;
            });
        copy_tile<S::RowsB, S::RowBytesB / Copy, S::Threads>(
            to + S::BytesA, S::PitchB, reinterpret_cast<const char *>(b + (Nchw ? i0 * o.ldb : i0)),
            o.ldb * int64_t(sizeof(Element)), [&](int row, int piece) {
                return Nchw ? i0 + row < o.reduction && n0 + piece * S::Vector < o.columns
                            : n0 + row < o.n && i0 + piece * S::Vector < o.padded;
            });
    };

    constexpr int TilesM = S::WarpM / 16, TilesN = S::WarpN / 8;
    const int warp_m = warp / (S::N / S::WarpN) * S::WarpM;
    const int warp_n = warp % (S::N / S::WarpN) * S::WarpN;
    cf::Fragment<Element, Acc> sums[TilesM][TilesN];

    const auto multiply = [&](int step) {
        const uint32_t as = shared + step % Stages * S::Bytes, bs = as + S::BytesA;
        // 32 bytes along the sum at a time.
#pragma unroll
        for (int k = 0; k < StepBytes; k += 32) {
            uint32_t af[TilesM][4], bf[TilesN][2];
            // Matrices: rows 0 to 7, rows 8 to 15; the same, 16 bytes on.
#pragma unroll
            for (int i = 0; i < TilesM; ++i)
                cf::load_matrices(af[i], as + (warp_m + i * 16 + lane % 16) * S::PitchA + k +
                                             lane / 16 * 16);
#pragma unroll
            for (int j = 0; j < TilesN; j += 2) {
                uint32_t four[4];
                const int n = warp_n + j * 8;
                if constexpr (!Nchw) {
                    // Columns 0 to 7, the same 16 bytes on; columns 8 to 15.
                    cf::load_matrices(four, bs + (n + lane / 16 * 8 + lane % 8) * S::PitchB + k +
                                                lane / 8 % 2 * 16);
                } else if constexpr (sizeof(Element) == 2) {
                    // Rows 0 to 7, rows 8 to 15 along the sum; the same, 8 columns on.
                    cf::load_matrices_transposed(four, bs + (k / 2 + lane % 16) * S::PitchB +
                                                           (n + lane / 16 * 8) * 2);
                } else {
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        four[i] = cf::load_shared(bs + (k / 4 + lane % 4 + i % 2 * 4) * S::PitchB +
                                                  (n + lane / 4 + i / 2 * 8) * 4);
                }
                bf[j][0] = four[0], bf[j][1] = four[1];
                bf[j + 1][0] = four[2], bf[j + 1][1] = four[3];
            }
#pragma unroll
            for (int i = 0; i < TilesM; ++i)
#pragma unroll
                for (int j = 0; j < TilesN; ++j)
                    sums[i][j].add(af[i], bf[j]);
        }
    };

    // One group of copies per step, empty ones behind the last, so that waiting stays the same.
    const int steps = (o.reduction - 1) / S::Depth + 1;
    for (int step = 0; step < Stages - 1; ++step) {
        if (step < steps)
            load(step);
        cf::end_of_group();
    }
    for (int step = 0; step < steps; ++step) {
        cf::wait_for_groups<Stages - 2>();
        __syncthreads();
        // Into the tile that all threads have finished with before this barrier.
        if (step + Stages - 1 < steps)
            load(step + Stages - 1);
        cf::end_of_group();
        multiply(step);
    }

    float *c = o.c + group * o.group_c;
#pragma unroll
    for (int i = 0; i < TilesM; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int64_t m = m0 + warp_m + i * 16 + half * 8 + lane / 4;
            if (m >= o.m)
                continue;
#pragma unroll
            for (int j = 0; j < TilesN; ++j) {
                const int64_t n = n0 + warp_n + j * 8 + lane % 4 * 2;
                const float first = sums[i][j].get(half * 2), second = sums[i][j].get(half * 2 + 1);
                float *at = c + m * o.ldc + n;
                if (o.pairs && n < o.n) {
                    *reinterpret_cast<float2 *>(at) = make_float2(first, second);
                } else {
                    if (n < o.n)
                        at[0] = first;
                    if (n + 1 < o.n)
                        at[1] = second;
                }
            }
        }
    }
}

// The filter with its rows padded by zeros, rounded.
template <class From, class To>
__global__ void __launch_bounds__(256)
    pack_rows(const From *__restrict__ w, To *__restrict__ packed, int64_t rows, int reduction,
              int padded) {
    const int64_t step = int64_t(gridDim.x) * 256;
    for (int64_t e = int64_t(blockIdx.x) * 256 + threadIdx.x; e < rows * padded; e += step) {
        const int64_t row = e / padded;
        const int i = int(e % padded);
        const float v = i < reduction ? cf::widen(w[row * reduction + i]) : 0.0f;
        if constexpr (std::is_same_v<To, float>)
            packed[e] = cf::Sum<CF_MATH_TF32>::operand(v);
        else
            packed[e] = cf::narrow<To>(v);
    }
}

// How operands are stored for the tensor cores.
int32_t operand_storage(const cf_problem &p) {
    switch (p.math) {
    case CF_MATH_TF32:
        return CF_STORE_F32;
    case CF_MATH_BF16:
        return CF_STORE_BF16;
    default:
        return CF_STORE_F16;
    }
}

// Calls body(operand, accumulator), values of the two types; `plan` refuses math fp32.
template <class Body>
void for_math(const cf_problem &p, Body body) {
    switch (p.math) {
    case CF_MATH_TF32:
        return body(float(), float());
    case CF_MATH_BF16:
        return body(__nv_bfloat16(), float());
    case CF_MATH_F16_ACC:
        return body(__half(), __half());
    default:
        return body(__half(), float());
    }
}

struct State {
    cf::Im2col im2col;
    cf::Kernel<Operands> kernel;
    cf::Kernel<const void *, void *, int64_t, int32_t, int32_t> pack;
    int padded; // the filter's rows
    int pixel_tile, channel_tile;
};

// A filter in 16 bits stays as it is, but for the padding.
void choose_pack(const cf_problem &p, State &state) {
    const auto choose = [&](auto from, auto to) {
        state.pack = cf::kernel_of(pack_rows<decltype(from), decltype(to)>,
                                   cf::blocks(int64_t(p.k) * state.padded, 256), 256);
    };
    switch (p.storage) {
    case CF_STORE_F32:
        return for_math(p, [&](auto to, auto) { choose(float(), to); });
    case CF_STORE_F16:
        return choose(__half(), __half());
    default:
        return choose(__nv_bfloat16(), __nv_bfloat16());
    }
}

// Operations of a multiprocessor in a clock, the idle ones of its tiles included, where reading is
// no bound: up to 900, 490 in the middle; in tf32 up to 570. What a block takes by itself for each
// product of a sum: 23 to 30 clocks, in tf32 twice as many (h200-small-*.jsonl and
// h200-suites-*.jsonl).
constexpr double Rate = 600, RateTf32 = 390;
constexpr double Clocks = 24, ClocksTf32 = 48;

// The product takes that, until reading its operands at the rate of other passes takes longer.
double estimate(const cf_query &q, const State &state) {
    const cf_problem &p = q.problem;
    const bool tf32 = p.math == CF_MATH_TF32;
    const double flops = cf::tiled_flops(p, state.pixel_tile, state.channel_tile, tf32 ? 16 : 32);
    const double bytes = cf::unrolled_elements(p) * (tf32 ? 4 : 2) + cf::pixels(p) * p.k * 4;
    const double busy_us = cf::busy_us(q.device, flops, tf32 ? RateTf32 : Rate,
                                       (tf32 ? ClocksTf32 : Clocks) * cf::reduction(p));
    return cf::im2col_us(q, cf::gather_us(q, state.im2col.storage),
                         std::max(busy_us, cf::memory_us(q.device, bytes)));
}

bool plan(const cf_query &query, State &state, cf_plan &plan, const cf::Refusal &no) {
    const cf_problem &p = query.problem;
    if (p.math == CF_MATH_FP32)
        return no("runs on tensor cores, which truncate their sums; math fp32 wants fp32 sums");
    for_tile(query.config, [&](auto tile) {
        for_math(p, [&](auto element, auto acc) {
            using T = decltype(tile);
            using Element = decltype(element);
            using Acc = decltype(acc);
            const auto choose = [&](auto nchw) {
                using S = Shape<T, Element, decltype(nchw)::value>;
                state.kernel = cf::kernel_of(gemm<T, Element, Acc, decltype(nchw)::value>, dim3(),
                                             S::Threads, S::SharedBytes);
            };
            p.layout == CF_NCHW ? choose(std::true_type()) : choose(std::false_type());
            state.pixel_tile = T::Pixels, state.channel_tile = T::Channels;
        });
    });
    if (int(state.kernel.shared) > query.device.shared_per_block)
        return no("wants %u bytes of shared memory; a block has at most %d", state.kernel.shared,
                  query.device.shared_per_block);
    if (!cf::im2col_fits_flat(p, state.pixel_tile, state.channel_tile, no))
        return false;

    const int32_t storage = operand_storage(p);
    const int element_bytes = storage == CF_STORE_F32 ? 4 : 2;
    state.im2col = cf::Im2col(p, storage, Copy / element_bytes);
    state.im2col.chunks.workspace(plan);
    state.padded = int(cf::round_up(cf::reduction_of(p), state.im2col.pad));
    choose_pack(p, state);
    plan.packed_bytes = uint64_t(p.k) * state.padded * element_bytes;
    plan.filter_layout = storage; // rounded to this, whatever the tile
    plan.us = estimate(query, state);
    return true;
}

int32_t prepare(State &state) {
    const int32_t error = state.pack.prepare();
    return error ? error : cf::prepare_im2col(state);
}

int32_t pack(const State &state, const void *w, void *packed, void *stream) {
    const cf_problem &p = state.im2col.problem;
    return state.pack.launch(stream, w, packed, p.k, int(cf::reduction_of(p)), state.padded);
}

Operands operands(const State &state, const void *filter, const cf::Product &m) {
    const int64_t padded = state.padded;
    Operands o = {};
    o.reduction = m.reduction;
    o.padded = state.padded;
    o.c = m.product;
    o.ldc = m.out_pitch;
    o.tiles = int(cf::ceil_div(m.channels, state.channel_tile));
    if (m.nchw) {
        o.a = filter, o.b = m.unrolled;
        o.lda = padded, o.ldb = m.pitch;
        o.group_a = m.channels * padded;
        o.group_b = m.reduction * m.pitch;
        o.group_c = m.channels * m.out_pitch;
        o.m = m.channels, o.n = m.pixels, o.columns = m.pitch;
        o.pairs = true;
    } else {
        o.a = m.unrolled, o.b = filter;
        o.lda = m.groups * m.pitch, o.ldb = padded;
        o.group_a = m.pitch;
        o.group_b = m.channels * padded;
        o.group_c = m.channels;
        o.m = m.pixels, o.n = m.channels;
        // The next group's channels follow; a group's own must be whole pairs.
        o.pairs = m.groups == 1 || m.channels % 2 == 0;
    }
    return o;
}

int32_t launch(const State &state, const cf_args &args) {
    return state.im2col.launch(args, [&](const cf::Product &m) {
        auto kernel = state.kernel;
        kernel.grid = cf::im2col_flat_grid(m, state.pixel_tile, state.channel_tile);
        return kernel.launch(args.stream, operands(state, args.packed, m));
    });
}

} // namespace

extern "C" const cf_row CF_ROW(im2col_gemm, mma) = {
    "im2col_gemm_mma",
    "im2col_gemm",
    "the product on tensor cores by mma.sync m16n8k16 (tf32: m16n8k8), cp.async, three stages",
    "report D (tried)",
    "where the filter hangs over the edge zeros are multiplied: an infinite or NaN weight gives "
    "NaN; products are summed 8 or 16 at a time, so that numbers near the largest overflow "
    "elsewhere; tf32: a NaN with nothing above its lowest 13 bits counts as infinity",
    CF_NEEDS_SM80,
    configs,
    cf::Row<State, plan, prepare, launch, pack>::functions(),
};
