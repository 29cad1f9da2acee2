// Tensor maps of what wgmma reads: 64 channels of 16 bits of a pixel in a line of 128 bytes,
// swizzled by 128 bytes (ptx/wgmma_shared.cuh), lines of neighbouring pixels behind each other. The
// tensor is seen as four dimensions, channels innermost, with any pitches. Pixels come as a box, or
// (im2col) as a filter goes over images.
#pragma once

#include "core/tensor_map.cuh"

namespace cf {

constexpr int LineChannels = 64, LineBytes = 128, LineAlign = 1024;

struct Lines {
    uint64_t tensor[4]; // elements; of im2col: channels, columns, rows, images
    uint64_t pitch[3];  // bytes from one to the next, of all but the innermost dimension
    uint32_t box[3];    // lines, along all dimensions but the innermost
    // Of im2col: so many pixels, whose first and last columns and rows in an image are `lower`, and
    // `upper` from its last ones on, so many apart.
    bool im2col;
    uint32_t pixels;
    int32_t lower[2], upper[2];
    uint32_t step[2];
};

class LineMap : public EncodedMap {
    int32_t prepare_box(const Lines &lines) {
        decltype(cuTensorMapEncodeTiled) *encode = nullptr;
        if (const int32_t error = driver_function("cuTensorMapEncodeTiled", encode))
            return error;
        const uint32_t box[4] = {LineChannels, lines.box[0], lines.box[1], lines.box[2]};
        const uint32_t steps[4] = {1, 1, 1, 1};
        return keep(lines.tensor, lines.pitch, [&](void *address, CUtensorMap &map) {
            return encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, address, lines.tensor,
                          lines.pitch, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                          CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        });
    }
    int32_t prepare_im2col(const Lines &lines) {
        decltype(cuTensorMapEncodeIm2col) *encode = nullptr;
        if (const int32_t error = driver_function("cuTensorMapEncodeIm2col", encode))
            return error;
        const uint32_t steps[4] = {1, lines.step[0], lines.step[1], 1};
        return keep(lines.tensor, lines.pitch, [&](void *address, CUtensorMap &map) {
            return encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, address, lines.tensor,
                          lines.pitch, lines.lower, lines.upper, LineChannels, lines.pixels, steps,
                          CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                          CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        });
    }

  public:
    int32_t prepare(const Lines &lines) {
        return lines.im2col ? prepare_im2col(lines) : prepare_box(lines);
    }
};

} // namespace cf
