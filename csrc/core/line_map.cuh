// Tensor maps of what wgmma reads: channels of a pixel in a line of 128 bytes, 64 of 16 bits or 32
// of f32, swizzled by 128 bytes (ptx/wgmma_shared.cuh), lines of neighbouring pixels behind each
// other. The tensor is seen as four dimensions, channels innermost, with any pitches. Pixels come
// as a box, or (im2col) as a filter goes over images. An f32 becomes a tf32 on its way.
#pragma once

#include "core/tensor_map.cuh"

namespace cf {

constexpr int LineBytes = 128, LineAlign = 1024;
template <class Element>
constexpr int LineChannels = LineBytes / int(sizeof(Element));

struct Lines {
    int element;        // bytes: 2, or 4 of f32
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
    static CUtensorMapDataType type(const Lines &lines) {
        return lines.element == 4 ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
                                  : CU_TENSOR_MAP_DATA_TYPE_UINT16;
    }
    static uint32_t channels(const Lines &lines) { return uint32_t(LineBytes / lines.element); }
    int32_t prepare_box(const Lines &lines) {
        decltype(cuTensorMapEncodeTiled) *encode = nullptr;
        if (const int32_t error = driver_function("cuTensorMapEncodeTiled", encode))
            return error;
        const uint32_t box[4] = {channels(lines), lines.box[0], lines.box[1], lines.box[2]};
        const uint32_t steps[4] = {1, 1, 1, 1};
        return keep(lines.tensor, lines.pitch, [&](void *address, CUtensorMap &map) {
            return encode(&map, type(lines), 4, address, lines.tensor, lines.pitch, box, steps,
                          CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                          CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        });
    }
    int32_t prepare_im2col(const Lines &lines) {
        decltype(cuTensorMapEncodeIm2col) *encode = nullptr;
        if (const int32_t error = driver_function("cuTensorMapEncodeIm2col", encode))
            return error;
        const uint32_t steps[4] = {1, lines.step[0], lines.step[1], 1};
        return keep(lines.tensor, lines.pitch, [&](void *address, CUtensorMap &map) {
            return encode(&map, type(lines), 4, address, lines.tensor, lines.pitch, lines.lower,
                          lines.upper, channels(lines), lines.pixels, steps,
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
