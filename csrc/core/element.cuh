// Stored elements and the arithmetic of a sum: what `storage` and `math` of a problem mean in code.
#pragma once

#include "problem.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

namespace cf {

template <int Storage>
struct StorageType;
template <>
struct StorageType<CF_STORE_F32> {
    using type = float;
};
template <>
struct StorageType<CF_STORE_F16> {
    using type = __half;
};
template <>
struct StorageType<CF_STORE_BF16> {
    using type = __nv_bfloat16;
};

inline int element_bytes(const cf_problem &p) { return p.storage == CF_STORE_F32 ? 4 : 2; }

__device__ __forceinline__ float widen(float v) { return v; }
__device__ __forceinline__ float widen(__half v) { return __half2float(v); }
__device__ __forceinline__ float widen(__nv_bfloat16 v) { return __bfloat162float(v); }

template <class T>
__device__ __forceinline__ T narrow(float v);
template <>
__device__ __forceinline__ float narrow<float>(float v) {
    return v;
}
template <>
__device__ __forceinline__ __half narrow<__half>(float v) {
    return __float2half_rn(v);
}
template <>
__device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16>(float v) {
    return __float2bfloat16_rn(v);
}

// Two 16-bit elements in a register, the first in its lower half.
template <class T>
__device__ __forceinline__ uint32_t pack(float first, float second) {
    if constexpr (std::is_same_v<T, __half>) {
        const __half2 two = __floats2half2_rn(first, second);
        return reinterpret_cast<const uint32_t &>(two);
    } else {
        const __nv_bfloat162 two = __floats2bfloat162_rn(first, second);
        return reinterpret_cast<const uint32_t &>(two);
    }
}

// One running sum. Operands go through operand() first, once per value where a kernel keeps them,
// so that add() is the bare product and sum.
template <int Math>
struct Sum {
    using Operand = float;
    float value = 0;

    static __device__ __forceinline__ Operand operand(float v) {
        if constexpr (Math == CF_MATH_TF32) {
            uint32_t bits;
            asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
            return __uint_as_float(bits);
        } else if constexpr (Math == CF_MATH_F16) {
            return widen(narrow<__half>(v));
        } else if constexpr (Math == CF_MATH_BF16) {
            return widen(narrow<__nv_bfloat16>(v));
        } else {
            return v;
        }
    }
    __device__ __forceinline__ void add(Operand x, Operand w) { value = fmaf(x, w, value); }
    __device__ __forceinline__ float get() const { return value; }
};

template <>
struct Sum<CF_MATH_F16_ACC> {
    using Operand = __half;
    __half value = __ushort_as_half(0);

    static __device__ __forceinline__ Operand operand(float v) { return __float2half_rn(v); }
    __device__ __forceinline__ void add(Operand x, Operand w) { value = __hfma(x, w, value); }
    __device__ __forceinline__ float get() const { return __half2float(value); }
};

// The rest is how a plan finds the kernel of its types among the compiled ones.
template <int V>
using Constant = std::integral_constant<int, V>;

// Calls body(storage, math), both as compile-time constants, for the pairs that a problem may have.
template <class Body>
void for_storage_and_math(const cf_problem &p, Body body) {
    switch (p.storage) {
    case CF_STORE_F32: {
        constexpr Constant<CF_STORE_F32> s;
        switch (p.math) {
        case CF_MATH_FP32:
            return body(s, Constant<CF_MATH_FP32>{});
        case CF_MATH_TF32:
            return body(s, Constant<CF_MATH_TF32>{});
        case CF_MATH_F16:
            return body(s, Constant<CF_MATH_F16>{});
        case CF_MATH_BF16:
            return body(s, Constant<CF_MATH_BF16>{});
        case CF_MATH_F16_ACC:
            return body(s, Constant<CF_MATH_F16_ACC>{});
        }
        break;
    }
    case CF_STORE_F16: {
        constexpr Constant<CF_STORE_F16> s;
        // f16 operands are exact in fp32, so rounding them again would change nothing.
        return p.math == CF_MATH_F16_ACC ? body(s, Constant<CF_MATH_F16_ACC>{})
                                         : body(s, Constant<CF_MATH_FP32>{});
    }
    case CF_STORE_BF16:
        return body(Constant<CF_STORE_BF16>{}, Constant<CF_MATH_FP32>{});
    }
}

// A stored element as an operand of a sum, where math is known at run time: for kernels that round
// once, while staging, and have many configurations to compile. Sum is Sum<CF_MATH_FP32> or
// Sum<CF_MATH_F16_ACC>.
template <class Sum, class T>
__device__ __forceinline__ typename Sum::Operand operand(T v, int32_t math) {
    if constexpr (std::is_same_v<T, float> && std::is_same_v<typename Sum::Operand, float>) {
        switch (math) {
        case CF_MATH_TF32:
            return cf::Sum<CF_MATH_TF32>::operand(v);
        case CF_MATH_F16:
            return cf::Sum<CF_MATH_F16>::operand(v);
        case CF_MATH_BF16:
            return cf::Sum<CF_MATH_BF16>::operand(v);
        default:
            return v;
        }
    } else {
        return Sum::operand(widen(v)); // 16-bit elements are exact in every math they may have
    }
}

// Calls body(storage, sum), both as compile-time constants; sum is CF_MATH_FP32 or CF_MATH_F16_ACC,
// for kernels that use operand() above.
template <class Body>
void for_storage_and_sum(const cf_problem &p, Body body) {
    const bool f16_acc = p.math == CF_MATH_F16_ACC;
    constexpr Constant<CF_MATH_FP32> fp32;
    constexpr Constant<CF_MATH_F16_ACC> f16;
    switch (p.storage) {
    case CF_STORE_F32:
        return f16_acc ? body(Constant<CF_STORE_F32>{}, f16) : body(Constant<CF_STORE_F32>{}, fp32);
    case CF_STORE_F16:
        return f16_acc ? body(Constant<CF_STORE_F16>{}, f16) : body(Constant<CF_STORE_F16>{}, fp32);
    default:
        return body(Constant<CF_STORE_BF16>{}, fp32);
    }
}

// Calls body with value number `index` as a compile-time constant: the configurations of a row.
template <int First, int... Rest, class Body>
void for_value(int index, Body body) {
    if (index == 0)
        return body(Constant<First>{});
    if constexpr (sizeof...(Rest) > 0)
        for_value<Rest...>(index - 1, body);
}

} // namespace cf
