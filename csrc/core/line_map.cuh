// Tensor maps of what wgmma reads: channels of a pixel in a line of 128 bytes, 64 of 16 bits or 32
// of f32, swizzled by 128 bytes (ptx/wgmma_shared.cuh), lines of neighbouring pixels behind each
// other. The tensor is seen as four dimensions, channels innermost, with any pitches. Pixels come
// as a box, or (im2col) as a filter goes over images. An f32 becomes a tf32 on its way.
#pragma once

#include "core/tensor_map.cuh"

#include <algorithm>

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

class LineMap {
    uint64_t words[sizeof(CUtensorMap) / 8] = {};
    decltype(cuTensorMapReplaceAddress) *replace_address = nullptr;

    static CUtensorMapDataType type(const Lines &lines) {
        return lines.element == 4 ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
                                  : CU_TENSOR_MAP_DATA_TYPE_UINT16;
    }
    static uint32_t channels(const Lines &lines) { return uint32_t(LineBytes / lines.element); }
    static int32_t encode_box(const Lines &lines, void *address, CUtensorMap &map) {
        decltype(cuTensorMapEncodeTiled) *encode = nullptr;
        if (const int32_t error = driver_function("cuTensorMapEncodeTiled", encode))
            return error;
        const uint32_t box[4] = {channels(lines), lines.box[0], lines.box[1], lines.box[2]};
        const uint32_t steps[4] = {1, 1, 1, 1};
        return encode(&map, type(lines), 4, address, lines.tensor, lines.pitch, box, steps,
                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    }
    static int32_t encode_im2col(const Lines &lines, void *address, CUtensorMap &map) {
        decltype(cuTensorMapEncodeIm2col) *encode = nullptr;
        if (const int32_t error = driver_function("cuTensorMapEncodeIm2col", encode))
            return error;
        const uint32_t steps[4] = {1, lines.step[0], lines.step[1], 1};
        return encode(&map, type(lines), 4, address, lines.tensor, lines.pitch, lines.lower,
                      lines.upper, channels(lines), lines.pixels, steps,
                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    }

  public:
    int32_t prepare(const Lines &lines) {
        if (const int32_t error = driver_function("cuTensorMapReplaceAddress", replace_address))
            return error;
        // Any aligned address: nothing is read through it.
        void *const nowhere = reinterpret_cast<void *>(uintptr_t(1) << 20);
        CUtensorMap map;
        if (lines.im2col ? encode_im2col(lines, nowhere, map) : encode_box(lines, nowhere, map))
            return cudaErrorInvalidValue;
        std::memcpy(words, &map, sizeof(map));
        // Drivers up to 13.1 set a bit that small tensors must not have.
        int driver = 0;
        if (const int32_t error = checked(cudaDriverGetVersion(&driver)))
            return error;
        uint64_t bytes = 0;
        for (int i = 0; i < 3; ++i)
            bytes = std::max(bytes, lines.pitch[i] * lines.tensor[i + 1]);
        if (driver <= 13010 && bytes < 131072)
            words[1] &= ~(uint64_t(1) << 21);
        return 0;
    }

    // The map of the tensor at this address, which is a multiple of 16.
    int32_t at(const void *address, CUtensorMap &filled) const {
        std::memcpy(&filled, words, sizeof(filled));
        return replace_address(&filled, const_cast<void *>(address)) == CUDA_SUCCESS
                   ? 0
                   : int32_t(cudaErrorInvalidValue);
    }
};

} // namespace cf
