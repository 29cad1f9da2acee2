// What a lane of implicit_gemm_planes reads of x under a row of taps: the columns of its two
// neighbouring pixels, from shared memory to registers of wgmma.
#pragma once

#include "kernels/implicit_gemm/planes_tiling.cuh"
#include "kernels/implicit_gemm/pointwise_task.cuh"

namespace cf::planes {

#if CF_SM90A
// Where the two pixels of a product lie in x, `Step` columns apart: of each row of taps a lane
// reads the columns from the one before the first pixel's to the one behind the other's.
template <int Step>
struct Window {
    int x_row;        // of the image, under the first row of taps
    int at;           // pixels from the first that is copied to the first pixel there
    bool left, right; // whether the outer columns are inside of x

    // Of product i of a warpgroup, whose first pixel of the image is `first`.
    template <int Products>
    static __device__ __forceinline__ Window of(const Tiling &t, int i, int first, int warp,
                                                int lane) {
        const int row = pointwise::Pixel::of<Products>(t, i, 0, warp, lane).pixel;
        const int in_piece = min(row, t.piece_pixels - 2);
        const int pixel = min(first + in_piece, t.pixels - 2);
        const int y_row = t.by_row_pixels.quotient(pixel), column = pixel - y_row * t.row_pixels;
        int at = t.boxes == 0 ? pixel : warp / 4 * t.piece_pixels + in_piece;
        if (Step > 1)
            at = Step * (at + t.by_row_pixels.quotient(at) * (t.width - t.row_pixels));
        return {y_row * Step - t.pad_top, at - t.run - t.pad_top * t.width, column > 0,
                Step > 1 || column + 2 < t.width};
    }
    // Whether a row of taps falls on x.
    __device__ __forceinline__ bool has(const Tiling &t, int r) const {
        return unsigned(x_row + r * t.row_step) < unsigned(t.height);
    }
    // Where the first pixel lies in a stage under a row of taps, in bytes; of a row outside of x
    // where others do.
    template <class Element>
    __device__ __forceinline__ int place(const Tiling &t, int r) const {
        const int in_row = at + r * t.row_step * t.width;
        if (t.boxes == 0)
            return Margin + (has(t, r) ? in_row : 0) * int(sizeof(Element));
        // The box is that which has the column before, too.
        const int box = t.by_box_step.quotient(in_row - 2);
        return box * t.box_bytes + (in_row - box * t.box_step) * int(sizeof(Element));
    }
};

// Words that have the columns of a channel; in 16 bits column 0 is the second half of the first.
template <class Element, int Step>
struct Words {
    static constexpr int Count = sizeof(Element) == 4 ? Columns + Step : 3;
    uint32_t word[Count];

    __device__ __forceinline__ Words(uint32_t at, bool there) {
        word[0] = load_shared(at - 4);
        if constexpr (Count == 5) {
            const uint4 four = load_shared4(at);
            word[1] = four.x, word[2] = four.y, word[3] = four.z, word[4] = four.w;
        } else if constexpr (Count == 4 || Step == 2) {
            const uint2 two = load_shared2(at);
            word[1] = two.x, word[2] = two.y;
        } else {
            word[1] = load_shared(at), word[2] = load_shared(at + 4);
        }
        if constexpr (Count == 4)
            word[3] = load_shared(at + 8);
#pragma unroll
        for (int i = 0; i < Count; ++i)
            word[i] = there ? word[i] : 0;
    }
};

// Registers of wgmma_rows for half a step, of the lane's channels behind `at`: all of a whole
// block's channels are there, of others those of so many `bytes` of x.
template <class Element, int Step, bool Whole>
__device__ __forceinline__ void load_columns(const Tiling &t, uint32_t at, int half_step, int bytes,
                                             uint32_t (&columns)[Columns + Step]) {
    constexpr int Own = sizeof(Element) == 4 ? 1 : 2;
    const auto of = [&](int i) {
        const int behind = t.channel_bytes[half_step * Own + i];
        return Words<Element, Step>(at + behind, Whole || behind < bytes);
    };
    const auto one = of(0);
    if constexpr (sizeof(Element) == 4) {
#pragma unroll
        for (int i = 0; i < Columns + Step; ++i)
            columns[i] = pointwise::nearest_tf32(one.word[i]);
    } else {
        const auto other = of(1);
#pragma unroll
        for (int i = 0; i < Columns + Step; ++i)
            columns[i] = __byte_perm(one.word[(i + 1) / 2], other.word[(i + 1) / 2],
                                     i % 2 ? 0x5410 : 0x7632);
    }
}
#endif

} // namespace cf::planes
