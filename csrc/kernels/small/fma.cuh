// Parameters and the packing of small_fma; its loads, stores and addresses, in the form in which
// the compiler has to leave them.
#pragma once

#include "core/element.cuh"
#include "kernels/small/fma_plan.cuh"

#include <cstdint>

namespace cf::small {

struct Filter {
    const float *packed; // [group][c][s][r][Maps]
    int floats;          // of a part
};

__global__ void pack_kernel(const float *__restrict__ w, float *__restrict__ packed, int k, int c,
                            int r, int s, int floats) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < floats; i += gridDim.x * blockDim.x) {
        const int map = i % Maps, ir = i / Maps % r, is = i / Maps / r % s,
                  ic = i / Maps / r / s % c;
        const int ik = i / Maps / r / s / c * Maps + map;
        packed[i] = ik < k ? w[((int64_t(ik) * c + ic) * r + ir) * s + is] : 0.0f;
    }
}

// The call for filters of r rows.
template <int R = 1, class Call>
int32_t with_height(int r, Call call) {
    if constexpr (R > MaxFilter)
        return cudaErrorInvalidValue;
    else
        return r == R ? call(cf::Constant<R>{}) : with_height<R + 1>(r, call);
}

#if __CUDA_ARCH__ >= 900
// A load whose place among other loads and barriers is kept, with an address that stays as it is
// written: register plus uniform register.
template <int Offset = 0>
__device__ __forceinline__ float load_shared(uint32_t at) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1 + %2];" : "=f"(v) : "r"(at), "n"(Offset));
    return v;
}

// A load that stays in front of the copies behind it.
__device__ __forceinline__ float4 load_global4(const float *at) {
    float4 v;
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(at)
                 : "memory");
    return v;
}

template <int Offset>
__device__ __forceinline__ float2 load_shared2(uint32_t at) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2 + %3];"
                 : "=f"(v.x), "=f"(v.y)
                 : "r"(at), "n"(Offset));
    return v;
}

template <int Offset = 0>
__device__ __forceinline__ float4 load_shared4(uint32_t at) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4 + %5];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(at), "n"(Offset));
    return v;
}

// A predicate instead of a branch: behind one, the compiler no longer takes a warp's lanes to run
// together.
__device__ __forceinline__ void store_shared_if(bool live, uint32_t at, float v) {
    asm volatile("{\n.reg .pred live;\n"
                 "setp.ne.s32 live, %2, 0;\n"
                 "@live st.shared.f32 [%0], %1;\n}" ::"r"(at),
                 "f"(v), "r"(int(live))
                 : "memory");
}

// Hides from the compiler how an address came about: it would add it up anew for every use.
__device__ __forceinline__ void keep(uint32_t &v) { asm volatile("" : "+r"(v)); }

__device__ __forceinline__ int clamp(int v, int least, int most) {
    return min(max(v, least), most);
}

__device__ __forceinline__ void store_global(uint64_t at, float v) {
    asm volatile("st.global.f32 [%0], %1;" ::"l"(at), "f"(v) : "memory");
}
__device__ __forceinline__ void store_global(uint64_t at, const float (&v)[1]) {
    store_global(at, v[0]);
}
__device__ __forceinline__ void store_global(uint64_t at, const float (&v)[2]) {
    asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(at), "f"(v[0]), "f"(v[1]) : "memory");
}

// Adds to the lower half of an address.
__device__ __forceinline__ void advance_low(uint64_t &at, uint32_t bytes) {
    asm("{\n.reg .b32 low, high;\n"
        "mov.b64 {low, high}, %0;\n"
        "add.u32 low, low, %1;\n"
        "mov.b64 %0, {low, high};\n}"
        : "+l"(at)
        : "r"(bytes));
}
#endif

} // namespace cf::small
