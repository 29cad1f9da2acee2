// Matrix products on tensor cores by nvcuda::wmma: what a math multiplies and sums in, tiles in
// shared memory that the instructions can read, and how a block's sums become stored outputs.
//
// The product of a warp is sums[channel, pixel] += filter[channel, i] * x[i, pixel].
#pragma once

#include "core/taps.cuh"
#include "kernels/fused/grid.cuh"

#include <mma.h>

namespace cf {

// What a math keeps in shared memory, names as the element of a fragment and sums in, and how many
// products deep one instruction is.
template <int Math>
struct Wmma;
template <>
struct Wmma<CF_MATH_TF32> {
    using Operand = float;
    using Element = nvcuda::wmma::precision::tf32;
    using Total = float;
    static constexpr int Depth = 8;
};
template <>
struct Wmma<CF_MATH_F16> {
    using Operand = __half;
    using Element = __half;
    using Total = float;
    static constexpr int Depth = 16;
};
template <>
struct Wmma<CF_MATH_BF16> {
    using Operand = __nv_bfloat16;
    using Element = __nv_bfloat16;
    using Total = float;
    static constexpr int Depth = 16;
};
template <>
struct Wmma<CF_MATH_F16_ACC> {
    using Operand = __half;
    using Element = __half;
    using Total = __half;
    static constexpr int Depth = 16;
};

// A stored element, rounded as the math says.
template <int Math, class T>
__device__ __forceinline__ typename Wmma<Math>::Operand wmma_operand(T v) {
    using Operand = typename Wmma<Math>::Operand;
    if constexpr (Math == CF_MATH_TF32)
        return Sum<Math>::operand(v);
    else if constexpr (std::is_same_v<T, Operand>)
        return v;
    else
        return narrow<Operand>(widen(v));
}

// A matrix in shared memory. Lines are padded by 16 bytes: eight of them then begin in different
// banks, and every submatrix at a multiple of 16 rows and columns (8 in f32) keeps the 32 bytes of
// alignment that wmma asks for.
template <class T, bool RowMajor, int Rows, int Columns>
struct alignas(32) WmmaTile {
    static constexpr int Pitch = (RowMajor ? Columns : Rows) + 16 / int(sizeof(T));
    static_assert(Pitch * sizeof(T) % 16 == 0, "wmma takes a pitch of whole 16 bytes");
    T values[(RowMajor ? Rows : Columns) * Pitch];

    __device__ __forceinline__ T &at(int row, int column) {
        return values[RowMajor ? row * Pitch + column : column * Pitch + row];
    }
};

// Products of a step in a row, pixels in a column; neighbouring threads fill what is contiguous in
// the input: pixels in NCHW, channels in NHWC.
template <int Math, bool Nchw, int Step, int Pixels>
using WmmaInput = WmmaTile<typename Wmma<Math>::Operand, Nchw, Step, Pixels>;
template <int Math, int Channels, int Step>
using WmmaFilter = WmmaTile<typename Wmma<Math>::Operand, true, Channels, Step>;
// The same for outputs.
template <int Math, bool Nchw, int Channels, int Pixels>
using WmmaOutput = WmmaTile<typename Wmma<Math>::Total, Nchw, Channels, Pixels>;

// The sums of one warp: M channels x N pixels.
template <int Math, bool Nchw, int M, int N>
class WmmaSums {
    using Types = Wmma<Math>;
    using Layout =
        std::conditional_t<Nchw, nvcuda::wmma::row_major, nvcuda::wmma::col_major>; // of the input
    static constexpr int Depth = Types::Depth;
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, M, N, Depth, typename Types::Total> total;

  public:
    __device__ __forceinline__ WmmaSums() {
        nvcuda::wmma::fill_fragment(total, typename Types::Total(0.0f));
    }

    // Adds `Step` products: channels `channel` .. and columns `first` .. of the filter's tile, all
    // rows of the input's and its pixels `pixel` ... All lanes call it.
    template <int Step, class Filter, class Input>
    __device__ __forceinline__ void add(Filter &filter, int channel, int first, Input &input,
                                        int pixel) {
        using namespace nvcuda::wmma;
        static_assert(Step % Depth == 0, "a step is whole instructions");
#pragma unroll
        for (int i = 0; i < Step; i += Depth) {
            fragment<matrix_a, M, N, Depth, typename Types::Element, row_major> a;
            fragment<matrix_b, M, N, Depth, typename Types::Element, Layout> b;
            load_matrix_sync(a, &filter.at(channel, first + i), Filter::Pitch);
            load_matrix_sync(b, &input.at(i, pixel), Input::Pitch);
            mma_sync(total, a, b, total);
        }
    }

    template <class Output>
    __device__ __forceinline__ void store(Output &output, int channel, int pixel) const {
        using namespace nvcuda::wmma;
        store_matrix_sync(&output.at(channel, pixel), total, Output::Pitch,
                          Nchw ? mem_row_major : mem_col_major);
    }
};

// Output pixels, counted from the first of a block: one division in 64 bits, and 32 bits from
// there.
struct PixelRun {
    int64_t n;      // image of the first
    unsigned place; // of the first, in its image
    int count;      // how many exist

    __device__ __forceinline__ Pixel at(const cf_problem &p, int pixel) const {
        const unsigned i = place + pixel, row = i / unsigned(p.q);
        return {n + row / unsigned(p.p), int(row % unsigned(p.p)), int(i % unsigned(p.q))};
    }
};

// The `tile` pixels from number `first` on, of `pixels` that begin with image `image`.
__device__ __forceinline__ PixelRun pixel_run(const cf_problem &p, int64_t image, int64_t first,
                                              int64_t pixels, int tile) {
    const int64_t plane = int64_t(p.p) * p.q;
    return {image + first / plane, unsigned(first % plane),
            int(min(pixels - first, int64_t(tile)))};
}

// Stages Channels x Step of one group's filter, from (channel, i) on, by all `Threads` threads.
template <int Math, int Threads, int Channels, int Step, class T>
__device__ __forceinline__ void wmma_stage(WmmaFilter<Math, Channels, Step> &tile,
                                           const T *__restrict__ filter, int channels, int channel,
                                           unsigned reduction, unsigned i) {
#pragma unroll
    for (int e = threadIdx.x; e < Channels * Step; e += Threads) {
        const int row = e / Step, column = e % Step;
        const bool exists = channel + row < channels && i + column < reduction;
        tile.at(row, column) = wmma_operand<Math>(
            exists ? filter[int64_t(channel + row) * reduction + i + column] : T(0.0f));
    }
}

// Stores a tile of sums by `Threads` threads, in the order in which outputs lie in memory.
// `channel` is the tile's first in its group.
template <class T, int Threads, class Total, bool Nchw, int Channels, int Pixels>
__device__ __forceinline__ void
wmma_finish(const cf_problem &p, const Output &out, WmmaTile<Total, Nchw, Channels, Pixels> &sums,
            const PixelRun &run, int group, int channel, int thread) {
    const int channels = p.k / p.groups;
    const unsigned plane = p.p * p.q;
#pragma unroll 1
    for (int e = thread; e < Channels * Pixels; e += Threads) {
        const int row = Nchw ? e / Pixels : e % Channels;
        const int column = Nchw ? e % Pixels : e / Channels;
        if (channel + row >= channels || column >= run.count)
            continue;
        // The rows of an image follow one another in both layouts, so here it is one long row.
        const unsigned place = run.place + column;
        out.store<T>(p, run.n + place / plane, group * channels + channel + row, 0,
                     int(place % plane), widen(sums.at(row, column)));
    }
}

// Whether a plan may multiply by wmma: the math, and sizes that are counted in 32 bits.
inline bool fits_wmma(const cf_problem &p, const Refusal &no) {
    if (p.math == CF_MATH_FP32)
        return no("rounds operands for the tensor cores: ask for math=%s",
                  p.storage == CF_STORE_BF16 ? "bf16" : "f16");
    if (int64_t(p.p) * p.q > INT32_MAX)
        return no("counts the pixels of an image in 32 bits; %d x %d are more than %d", p.p, p.q,
                  INT32_MAX);
    return true;
}

// Calls body(storage, math), both as compile-time constants, for the pairs that tensor cores do;
// wmma has TF32 in 16x16 tiles only.
template <bool Tf32, class Body>
void for_wmma(const cf_problem &p, Body body) {
    constexpr Constant<CF_STORE_F32> f32;
    constexpr Constant<CF_STORE_F16> f16;
    switch (p.storage) {
    case CF_STORE_F32:
        switch (p.math) {
        case CF_MATH_TF32:
            if constexpr (Tf32)
                return body(f32, Constant<CF_MATH_TF32>{});
            break;
        case CF_MATH_F16:
            return body(f32, Constant<CF_MATH_F16>{});
        case CF_MATH_BF16:
            return body(f32, Constant<CF_MATH_BF16>{});
        case CF_MATH_F16_ACC:
            return body(f32, Constant<CF_MATH_F16_ACC>{});
        }
        break;
    case CF_STORE_F16:
        return p.math == CF_MATH_F16_ACC ? body(f16, Constant<CF_MATH_F16_ACC>{})
                                         : body(f16, Constant<CF_MATH_F16>{});
    case CF_STORE_BF16:
        return body(Constant<CF_STORE_BF16>{}, Constant<CF_MATH_BF16>{});
    }
}

// Elements that blocks of these tiles stage from the input, the idle ones included: each is
// gathered once per tile of channels.
inline double wmma_gathered(const cf_problem &p, int pixel_tile, int channel_tile, int step) {
    return padded(pixels(p), pixel_tile) * padded(reduction(p), step) *
           (padded(p.k / p.groups, channel_tile) / channel_tile) * p.groups;
}

// The estimate of a row that spends so many instructions of a thread on a gathered element, at a
// share of the issue rate: 128 lanes in a clock of a multiprocessor.
inline double wmma_us(const cf_query &q, double gathered, double instructions, double share = 0.5) {
    return fused_us(q, tensor_rows_alone_us(q),
                    busy_us(q.device, gathered * instructions, 128 * share * TensorClock));
}

} // namespace cf
