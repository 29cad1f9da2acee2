// im2col_gemm_shared: unroll the input, multiply by the filters, permute the product.
//
// The oldest way to make convolution fast: copy every input element once per tap that reads it, so
// that all sums become one matrix product, for which a 16x16 tile in shared memory already reuses
// each element 16 times. What is gained in the product is paid in memory: the unrolled matrix is
// r*s times the input (49 times for a 7x7 filter), written once and read k/16 times. It goes
// through the images in chunks, so that the matrix fits the workspace it is given.
//
// Stages: unroll (csrc/unroll.cu), gemm (here), permute (csrc/finish.cu, with the epilogue). In
// NCHW the product comes out channel by channel over all images of the chunk, hence the permute; in
// NHWC it is in y's order, and the pass only narrows and applies the epilogue.
#include "device/element.cuh"
#include "device/im2col.cuh"

namespace {

constexpr int Tile = 16;

// product[pixel, k] = sum over i of unrolled[i, pixel] * filter[k, i], one thread per element.
// Threads run along the dimension that is contiguous in the product.
template <class T, int Math, bool Nchw>
__global__ void __launch_bounds__(Tile *Tile)
    gemm(const T *__restrict__ unrolled, const T *__restrict__ filter, float *__restrict__ product,
         int64_t pixels, int channels, int reduction, int groups) {
    using Sum = cf::Sum<Math>;
    __shared__ typename Sum::Operand us[Tile][Tile + 1]; // [reduction][pixel]
    __shared__ typename Sum::Operand fs[Tile][Tile + 1]; // [channel][reduction]
    const int tx = threadIdx.x, ty = threadIdx.y, group = blockIdx.z;
    const int64_t pixel0 = int64_t(blockIdx.x) * Tile;
    const int channel0 = blockIdx.y * Tile;
    const int64_t pixel = pixel0 + (Nchw ? tx : ty);
    const int channel = channel0 + (Nchw ? ty : tx);

    Sum sum;
    for (int i0 = 0; i0 < reduction; i0 += Tile) {
        // Both loads run along the rows as they lie in memory.
        if (Nchw) {
            const int i = i0 + ty;
            us[ty][tx] = Sum::operand(
                i < reduction && pixel0 + tx < pixels
                    ? cf::widen(unrolled[(int64_t(group) * reduction + i) * pixels + pixel0 + tx])
                    : 0.0f);
        } else {
            const int i = i0 + tx;
            us[tx][ty] = Sum::operand(
                i < reduction && pixel0 + ty < pixels
                    ? cf::widen(unrolled[((pixel0 + ty) * groups + group) * int64_t(reduction) + i])
                    : 0.0f);
        }
        fs[ty][tx] = Sum::operand(
            channel0 + ty < channels && i0 + tx < reduction
                ? cf::widen(
                      filter[(int64_t(group) * channels + channel0 + ty) * reduction + i0 + tx])
                : 0.0f);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < Tile; ++i)
            sum.add(us[i][Nchw ? tx : ty], fs[Nchw ? ty : tx][i]);
        __syncthreads();
    }
    if (pixel < pixels && channel < channels) {
        const int64_t k = int64_t(group) * channels + channel;
        product[Nchw ? k * pixels + pixel : pixel * channels * groups + k] = sum.get();
    }
}

int32_t supports(const cf_call *call, char *why, uint64_t bytes) {
    return cf::im2col_supports(call, Tile, why, bytes);
}

// Fitted to four measured layers, and within 5 % of them.
double rank(const cf_call *call) { return cf::im2col_us(call->problem, Tile, 5.9e6); }

int32_t launch(const cf_call *call) {
    const cf_problem &p = call->problem;
    return cf::im2col_gemm(call, [&](const cf::Product &m) {
        return cf::for_storage_and_math(p, [&](auto storage, auto math) -> int32_t {
            using T = typename cf::StorageType<decltype(storage)::value>::type;
            const auto run = [&](auto kernel) {
                kernel<<<cf::im2col_grid(m, Tile, Tile), dim3(Tile, Tile), 0, cf::stream(call)>>>(
                    static_cast<const T *>(m.unrolled), static_cast<const T *>(call->w), m.product,
                    m.pixels, m.channels, m.reduction, m.groups);
            };
            if (m.nchw)
                run(gemm<T, decltype(math)::value, true>);
            else
                run(gemm<T, decltype(math)::value, false>);
            return cudaGetLastError();
        });
    });
}

} // namespace

extern "C" const cf_row im2col_gemm_shared = {
    "im2col_gemm_shared",
    "im2col_gemm",
    "unroll the input, 16x16 shared-memory matrix product, permute; in chunks of images",
    "reports A (its baseline), B, C, D, E; Chellapilla et al. 2006",
    80,
    INT32_MAX,
    nullptr, // configs
    supports,
    cf::im2col_workspace,
    nullptr, // packed_bytes
    nullptr, // pack
    nullptr, // bind
    rank,
    launch,
};
