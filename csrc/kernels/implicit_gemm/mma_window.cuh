// Where the pixels of a block of implicit_gemm_mma lie: windows of x under output pixels, and how
// far behind their beginnings the pieces of a step are.
#pragma once

#include "kernels/implicit_gemm/mma_plan.cuh"
#include "ptx/shared.cuh"

namespace cf::implicit_mma {

// What a block works on.
struct Place {
    int group, filter; // the first output channel, of the group
    int64_t pixel;     // the first, of all; the others follow, from image to image
    int64_t image;
    int first, left; // the first pixel, of its image; pixels that exist from there on

    __device__ __forceinline__ Place(const Tiling &t, int number, int channels, int pixels) {
        const int others = t.by_filter_tiles.quotient(number);
        filter = (number - others * t.filter_tiles) * channels;
        const int block = t.by_groups.quotient(others);
        group = others - block * t.groups;
        pixel = int64_t(block) * pixels;
        image = t.by_plane.quotient(pixel);
        first = int(pixel - image * t.plane);
        left = int(min(t.pixels - pixel, int64_t(pixels)));
    }
};

constexpr uint32_t NoTap = 1u << 31;

// The window of x under an output pixel: where it begins, perhaps outside of x, and which rows and
// columns of taps fall on x, a bit each. That of NoTap is never set.
struct Window {
    const char *from;
    uint32_t inside;

    __device__ __forceinline__ Window(const Tiling &t, const Place &place, const char *x,
                                      int pixel) {
        const int number = place.first + pixel, image = t.by_plane.fast.quotient(number);
        const int of_image = number - image * t.plane, p = t.by_q.quotient(of_image);
        const int top = p * t.stride_h - t.pad_top;
        const int left = (of_image - p * t.q) * t.stride_w - t.pad_left;
        from = x + (place.image + image) * t.image_x + top * t.row_x + left * t.column_x +
               int64_t(place.group) * t.order.c * t.channel_x;
        inside = 0;
#pragma unroll 1
        for (int r = 0; r < t.order.r; ++r)
            inside |= uint32_t(unsigned(top + r * t.dilation_h) < unsigned(t.h)) << r;
#pragma unroll 1
        for (int s = 0; s < t.order.s; ++s)
            inside |= uint32_t(unsigned(left + s * t.dilation_w) < unsigned(t.w))
                      << (t.order.r + s);
        if (pixel >= place.left)
            inside = 0;
    }
};

// Where a piece or an element lies behind a window's beginning, and the bits of its tap.
struct Reach {
    int64_t behind;
    uint32_t tap;

    Reach() = default;
    __device__ __forceinline__ Reach(const Tiling &t, int r, int s, int c)
        : behind(r * t.tap_row + s * t.tap_column + c * t.channel_x),
          tap(r < t.order.r && c < t.order.c ? 1u << r | 1u << (t.order.r + s) : NoTap) {}
    __device__ __forceinline__ bool falls_on(const Window &window) const {
        return (window.inside & tap) == tap;
    }
};

// The table of elements, for pieces that have several taps.
__device__ __forceinline__ void list_elements(const Tiling &t, uint32_t table) {
    for (int i = threadIdx.x; i < t.entries; i += blockDim.x) {
        const FilterPlace at = product_at(t.order, 0, 0, i);
        const Reach reach(t, at.r, at.s, at.c);
        store_shared2(table + i * EntryBytes, uint32_t(reach.behind), reach.tap);
    }
}

// The table of pieces: those of a block of channels, from its beginning on, then those of the last
// block, which may have fewer, then some of no tap for steps that are not.
__device__ __forceinline__ void list_pieces(const Tiling &t, uint32_t table) {
    const Order &of = t.order;
    const int all = of.block_steps * StepPieces, last = of.steps / of.block_steps - 1;
    const int last_channel = last * of.block_pieces * of.per;
    const uint32_t of_last = table + (last > 0 ? all * EntryBytes : 0);
    for (int i = threadIdx.x; i < all; i += blockDim.x) {
        const int tap = t.by_block.quotient(i), r = t.by_s.quotient(tap);
        const int c = (i - tap * of.block_pieces) * of.per;
        const Reach reach(t, r, tap - r * of.s, c);
        const auto behind = uint32_t(reach.behind / PieceBytes);
        if (last > 0)
            store_shared2(table + i * EntryBytes, behind, reach.tap);
        store_shared2(of_last + i * EntryBytes, behind,
                      last_channel + c < of.c ? reach.tap : NoTap);
    }
    const uint32_t behind_all = of_last + all * EntryBytes;
    for (int i = threadIdx.x; i < MostStages * StepPieces; i += blockDim.x)
        store_shared2(behind_all + i * EntryBytes, 0, NoTap);
}

} // namespace cf::implicit_mma
