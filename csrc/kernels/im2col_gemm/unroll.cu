// im2col_gemm_unroll: im2col_gemm_shared with unrolled loops, the filter's side known to the
// compiler.
//
// The unrolling pass has one thread per input channel and output pixel, which writes the r*s places
// of the matrix that belong to them. Where in the image the window lies, and where in the matrix
// its elements go, is worked out once for all of them instead of once for each, and with both loops
// unrolled a place costs a comparison, a load and a store. Neighbouring threads have neighbouring
// pixels in NCHW and neighbouring channels in NHWC, so that each of the r*s stores of a warp is
// contiguous, as are most of its loads, which the L1 serves r*s times. In NHWC with few channels
// per group the stores of a warp lie r*s*c apart and fill their sectors piece by piece.
//
// In the product, two tiles of the loop over them are unrolled into one pass.
//
// Report A's version took 257 + 547 ms against its baseline's 71.1 + 57.6, but not because of
// unrolling: each thread wrote a whole column while the launch still had one thread per element, so
// everything was written 64 and 208 times. Here the launch has one thread per column. The gathering
// pass of the other rows walks down columns as well, with loops that are not unrolled.
#include "core/strides.cuh"
#include "core/taps.cuh"
#include "kernels/im2col_gemm/tile_product.cuh"

namespace {

constexpr int Tile = 16;
constexpr int Ahead = 2;     // tiles of the product in one pass
constexpr int Threads = 256; // of the unrolling

// The unrolled matrix without padding; elements are copied as they are, and zero has no bit set in
// any storage.
template <class Bits, int Side, bool Nchw>
__global__ void __launch_bounds__(Threads)
    columns(const cf_problem p, const Bits *__restrict__ x, Bits *__restrict__ out, int64_t first,
            int64_t pixels, int64_t items) {
    const int channels = p.c / p.groups;
    const cf::Strides xs = cf::strides(Nchw ? CF_NCHW : CF_NHWC, p.c, p.h, p.w);
    const int64_t step = int64_t(gridDim.x) * Threads;
    for (int64_t e = int64_t(blockIdx.x) * Threads + threadIdx.x; e < items; e += step) {
        const int channel = int(Nchw ? e / pixels : e % p.c);
        const int64_t pixel = Nchw ? e % pixels : e / p.c;
        const cf::Pixel at = cf::pixel(p, pixel);
        const int top = at.p * p.stride_h - p.pad_top, left = at.q * p.stride_w - p.pad_left;
        const Bits *from = x + xs.at(first + at.n, channel, 0, 0);
        // Where the first tap goes, and how far the next ones are.
        const int group = channel / channels, inner = channel % channels;
        Bits *to = out + (Nchw ? int64_t(channel) * (Side * Side) * pixels + pixel
                               : (pixel * p.groups + group) * (Side * Side) * channels + inner);
        const int64_t next = Nchw ? pixels : channels;
#pragma unroll
        for (int r = 0; r < Side; ++r) {
            const int h = top + r * p.dilation_h;
#pragma unroll
            for (int s = 0; s < Side; ++s) {
                const int w = left + s * p.dilation_w;
                const bool inside = h >= 0 && h < p.h && w >= 0 && w < p.w;
                to[(r * Side + s) * next] = inside ? from[h * xs.row + w * xs.column] : Bits(0);
            }
        }
    }
}

// Calls body with the filter's side as a compile-time constant.
template <class Body>
int32_t for_side(int side, Body body) {
    switch (side) {
    case 1:
        return body(cf::Constant<1>{});
    case 3:
        return body(cf::Constant<3>{});
    case 5:
        return body(cf::Constant<5>{});
    case 7:
        return body(cf::Constant<7>{});
    case 11:
        return body(cf::Constant<11>{});
    }
    return cudaErrorInvalidValue; // `supports` refuses others
}

int32_t unroll(const cf_call *call, int64_t first, int64_t count, void *out) {
    const cf_problem &p = call->problem;
    const int64_t pixels = count * p.p * p.q, items = pixels * p.c;
    return for_side(p.r, [&](auto side) -> int32_t {
        const auto run = [&](auto kernel, auto bits) {
            using Bits = decltype(bits);
            kernel<<<cf::blocks(items, Threads), Threads, 0, cf::stream(call)>>>(
                p, static_cast<const Bits *>(call->x), static_cast<Bits *>(out), first, pixels,
                items);
        };
        constexpr int Side = decltype(side)::value;
        const bool wide = p.storage == CF_STORE_F32, nchw = p.layout == CF_NCHW;
        if (wide && nchw)
            run(columns<uint32_t, Side, true>, uint32_t());
        else if (wide)
            run(columns<uint32_t, Side, false>, uint32_t());
        else if (nchw)
            run(columns<uint16_t, Side, true>, uint16_t());
        else
            run(columns<uint16_t, Side, false>, uint16_t());
        return cudaGetLastError();
    });
}

int32_t supports(const cf_call *call, char *why, uint64_t bytes) {
    const cf_problem &p = call->problem;
    if (p.r != p.s || for_side(p.r, [](auto) { return 0; }) != 0)
        return cf::no(why, bytes,
                      "is compiled for square filters of 1, 3, 5, 7 and 11; this one is %dx%d", p.r,
                      p.s);
    return cf::im2col_supports(call, Tile, Tile, why, bytes);
}

// The unrolling is assumed to write at the rate of other passes over memory, and to spend the time
// of one gathered element on each column; the product is that of im2col_gemm_shared.
double rank(const cf_call *call) {
    const cf_problem &p = call->problem;
    const double elements = cf::unrolled_elements(p);
    const double unroll_us = elements * (p.storage == CF_STORE_F32 ? 4 : 2) / cf::BytesPerUs +
                             elements / (p.r * p.s) * 1.2e-5;
    return cf::im2col_us(p, unroll_us, cf::tiled_flops(p, Tile) / 5.9e6);
}

int32_t launch(const cf_call *call) {
    const auto columnwise = [&](int64_t first, int64_t count, void *out) {
        return unroll(call, first, count, out);
    };
    return cf::im2col_gemm(
        call, cf::Unrolled{call->problem.storage}, columnwise,
        [&](const cf::Product &m) { return cf::multiply_tiles<Tile, 1, Tile, Ahead>(call, m); });
}

} // namespace

extern "C" const cf_row im2col_gemm_unroll = {
    "im2col_gemm_unroll",
    "im2col_gemm",
    "one thread per column of the unrolled matrix, loops over taps unrolled; 16x16 product",
    "report A",
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
