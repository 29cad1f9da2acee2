// A product of four warps by wgmma: 64 rows in registers, columns in shared memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace cf::small_wgmma {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL // wgmma is not part of other chips
#define CF_FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define CF_WGMMA(Type, Columns, D, A, B, Add, ...)                                                 \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " Add ", 0;\n"                              \
                 "wgmma.mma_async.sync.aligned.m64n" Columns "k16.f32." Type "." Type " {" D       \
                 "}, {" A "}, " B ", add, 1, 1, 0;\n}"                                             \
                 : __VA_ARGS__                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)))
#define CF_FIRST_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define CF_FIRST_12 CF_FIRST_8 ", %8, %9, %10, %11"
#define CF_FIRST_16 CF_FIRST_12 ", %12, %13, %14, %15"
#define CF_FIRST_24 CF_FIRST_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define CF_PRODUCT(Type)                                                                           \
    if constexpr (N == 16)                                                                         \
        CF_WGMMA(Type, "16", CF_FIRST_8, "%8, %9, %10, %11", "%12", "%13", CF_FOUR(0),             \
                 CF_FOUR(4));                                                                      \
    else if constexpr (N == 24)                                                                    \
        CF_WGMMA(Type, "24", CF_FIRST_12, "%12, %13, %14, %15", "%16", "%17", CF_FOUR(0),          \
                 CF_FOUR(4), CF_FOUR(8));                                                          \
    else if constexpr (N == 32)                                                                    \
        CF_WGMMA(Type, "32", CF_FIRST_16, "%16, %17, %18, %19", "%20", "%21", CF_FOUR(0),          \
                 CF_FOUR(4), CF_FOUR(8), CF_FOUR(12));                                             \
    else                                                                                           \
        CF_WGMMA(Type, "48", CF_FIRST_24, "%24, %25, %26, %27", "%28", "%29", CF_FOUR(0),          \
                 CF_FOUR(4), CF_FOUR(8), CF_FOUR(12), CF_FOUR(16), CF_FOUR(20))

// d += a b, or d = a b, of 64 x 16 by 16 x N. Registers are those of mma.sync, sixteen rows to a
// warp; b lies where the descriptor says. Runs on its own until wait_for_products.
template <class Element, int N>
__device__ __forceinline__ void multiply(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b,
                                         bool add) {
    static_assert(N == 16 || N == 24 || N == 32 || N == 48, "written for these");
    if constexpr (std::is_same_v<Element, __half>) {
        CF_PRODUCT("f16");
    } else {
        CF_PRODUCT("bf16");
    }
}
#undef CF_PRODUCT
#undef CF_FIRST_24
#undef CF_FIRST_16
#undef CF_FIRST_12
#undef CF_FIRST_8
#undef CF_WGMMA
#undef CF_FOUR

// Before products read registers that other instructions wrote.
__device__ __forceinline__ void begin_products() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void end_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most `Left` groups of products are on the way.
template <int Left>
__device__ __forceinline__ void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
}

// Where a matrix of columns lies, as wgmma takes it: blocks of 8 columns by 8 elements, 128
// bytes each, those of the next columns right behind, those of the next elements `along` bytes on.
// Units of 16 bytes; no swizzle.
__device__ __forceinline__ uint64_t descriptor(uint32_t address, uint32_t along) {
    return (address & 0x3ffff) >> 4 | uint64_t(along >> 4) << 16 | uint64_t(128 >> 4) << 32;
}
#endif

} // namespace cf::small_wgmma
