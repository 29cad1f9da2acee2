// Tensor maps of a plan: encoded once but for the address, which a launch fills in.
#pragma once

#include "core/launch.cuh"

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace cf {

// A function of the driver, through the runtime: nothing links with the driver.
template <class Function>
int32_t driver_function(const char *name, Function *&function) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
#else
    const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
    if (error != cudaSuccess)
        return checked(error);
    if (result != cudaDriverEntryPointSuccess)
        return cudaErrorNotSupported;
    function = reinterpret_cast<Function *>(found);
    return 0;
}

// A map of a tensor of four dimensions, innermost first, but for its address. Kept as numbers: the
// driver asks for more alignment than a plan's state has.
class EncodedMap {
    uint64_t words[sizeof(CUtensorMap) / 8] = {};
    decltype(cuTensorMapReplaceAddress) *replace_address = nullptr;

  protected:
    // Keeps what `encode(address, map)` makes. Pitches are the bytes from one to the next, of all
    // dimensions but the innermost.
    template <class Encode>
    int32_t keep(const uint64_t (&tensor)[4], const uint64_t (&pitches)[3], Encode encode) {
        if (const int32_t error = driver_function("cuTensorMapReplaceAddress", replace_address))
            return error;
        int driver = 0;
        if (const int32_t error = checked(cudaDriverGetVersion(&driver)))
            return error;
        // Any aligned address: nothing is read through it.
        void *const nowhere = reinterpret_cast<void *>(uintptr_t(1) << 20);
        CUtensorMap map;
        if (encode(nowhere, map) != CUDA_SUCCESS)
            return cudaErrorInvalidValue;
        std::memcpy(words, &map, sizeof(map));
        // Drivers up to 13.1 set a bit that tensors of less than 128 KiB must not have.
        uint64_t bytes = 0;
        for (int i = 0; i < 3; ++i)
            bytes = std::max(bytes, pitches[i] * tensor[i + 1]);
        if (driver <= 13010 && bytes < 131072)
            words[1] &= ~(uint64_t(1) << 21);
        return 0;
    }

  public:
    // The map of the tensor at this address, which is a multiple of 16.
    int32_t at(const void *address, CUtensorMap &filled) const {
        std::memcpy(&filled, words, sizeof(filled));
        return replace_address(&filled, const_cast<void *>(address)) == CUDA_SUCCESS
                   ? 0
                   : int32_t(cudaErrorInvalidValue);
    }
};

// A tensor without gaps, the innermost dimension first, and what is copied of it together. Elements
// are so many bytes: 2, 4 or 8. An innermost side of either is a multiple of 16 bytes, no side of
// the box is longer than 256.
struct Box {
    int element;
    uint64_t tensor[4];
    uint32_t box[4];
};

class TensorMap : public EncodedMap {
  public:
    int32_t prepare(const Box &box, CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE,
                    CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_NONE) {
        decltype(cuTensorMapEncodeTiled) *encode = nullptr;
        if (const int32_t error = driver_function("cuTensorMapEncodeTiled", encode))
            return error;
        const CUtensorMapDataType type = box.element == 8   ? CU_TENSOR_MAP_DATA_TYPE_INT64
                                         : box.element == 4 ? CU_TENSOR_MAP_DATA_TYPE_INT32
                                                            : CU_TENSOR_MAP_DATA_TYPE_UINT16;
        uint64_t pitches[3], pitch = box.element;
        for (int i = 0; i < 3; ++i)
            pitches[i] = pitch *= box.tensor[i];
        const uint32_t steps[4] = {1, 1, 1, 1};
        return keep(box.tensor, pitches, [&](void *address, CUtensorMap &map) {
            return encode(&map, type, 4, address, box.tensor, pitches, box.box, steps,
                          CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion,
                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        });
    }
};

} // namespace cf
