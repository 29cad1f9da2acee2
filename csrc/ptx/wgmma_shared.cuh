// Products of a warpgroup with both operands in shared memory, in f16, bf16 or tf32 with f32 sums:
// wgmma (PTX ISA, "wgmma", "matrix descriptor").
//
// Operands lie as tensor copies with a swizzle of 128 bytes leave them: 64 elements of the sum, 32
// of tf32, in a line of 128 bytes, lines of neighbouring rows behind each other from a multiple of
// 1024 bytes on. The swizzle is of addresses: a descriptor may begin at any line, and groups of 8
// lines may be any number of lines apart.
#pragma once

#include "ptx/wgmma.cuh"

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace cf {

#if CF_SM90A
// Lines that begin at an address, groups of 8 so many bytes apart.
struct WgmmaLines {
    uint32_t low, high;

    __device__ __forceinline__ WgmmaLines(uint32_t first, uint32_t group_bytes)
        : low((first & 0x3ffff) >> 4 | 1u << 16), high(1u << 30 | group_bytes >> 4) {}
    // The descriptor of those that begin so many bytes behind: no address in shared memory carries
    // into the next field.
    __device__ __forceinline__ uint64_t behind(uint32_t bytes) const {
        return uint64_t(high) << 32 | (low + (bytes >> 4));
    }
};

// The same of columns in 16 bits that lie by pixels: 64 of them in a line, behind it the next
// elements of the sum, in blocks of so many bytes.
struct WgmmaPlanes {
    uint32_t low, high;

    __device__ __forceinline__ WgmmaPlanes(uint32_t first, uint32_t block_bytes)
        : low((first & 0x3ffff) >> 4 | block_bytes >> 4 << 16), high(1u << 30 | 1024 >> 4) {}
    __device__ __forceinline__ uint64_t behind(uint32_t bytes) const {
        return uint64_t(high) << 32 | (low + (bytes >> 4));
    }
};

#define CF_SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define CF_SUMS_8(i) CF_SUMS_4(i), CF_SUMS_4(i + 4)
#define CF_SUMS_16(i) CF_SUMS_8(i), CF_SUMS_8(i + 8)
#define CF_SUMS_32(i) CF_SUMS_16(i), CF_SUMS_16(i + 16)
#define CF_SUMS_64(i) CF_SUMS_32(i), CF_SUMS_32(i + 32)
#define CF_WGMMA(Type, Depth, Order, Columns, D, A, B, Add, ...)                                   \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " Add ", 0;\n"                              \
                 "wgmma.mma_async.sync.aligned.m64n" Columns "k" Depth ".f32." Type "." Type       \
                 " {" D "}, " A ", " B ", add, 1, 1" Order ";\n}"                                  \
                 : __VA_ARGS__                                                                     \
                 : "l"(a), "l"(b), "r"(int(add)))
#define CF_PRODUCT(Columns, D, A, B, Add, ...)                                                     \
    if constexpr (N == Columns) {                                                                  \
        if constexpr (std::is_same_v<Element, __half> && Planar)                                   \
            CF_WGMMA("f16", "16", ", 0, 1", #Columns, D, A, B, Add, __VA_ARGS__);                  \
        else if constexpr (std::is_same_v<Element, __half>)                                        \
            CF_WGMMA("f16", "16", ", 0, 0", #Columns, D, A, B, Add, __VA_ARGS__);                  \
        else if constexpr (std::is_same_v<Element, float>)                                         \
            CF_WGMMA("tf32", "8", "", #Columns, D, A, B, Add, __VA_ARGS__);                        \
        else if constexpr (Planar)                                                                 \
            CF_WGMMA("bf16", "16", ", 0, 1", #Columns, D, A, B, Add, __VA_ARGS__);                 \
        else                                                                                       \
            CF_WGMMA("bf16", "16", ", 0, 0", #Columns, D, A, B, Add, __VA_ARGS__);                 \
    }
#define CF_FIRST_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define CF_FIRST_16 CF_FIRST_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define CF_FIRST_24 CF_FIRST_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define CF_FIRST_32 CF_FIRST_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define CF_FIRST_40 CF_FIRST_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define CF_FIRST_48 CF_FIRST_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define CF_FIRST_52 CF_FIRST_48 ", %48, %49, %50, %51"
#define CF_FIRST_56 CF_FIRST_52 ", %52, %53, %54, %55"
#define CF_FIRST_60 CF_FIRST_56 ", %56, %57, %58, %59"
#define CF_FIRST_64 CF_FIRST_60 ", %60, %61, %62, %63"
#define CF_FIRST_72 CF_FIRST_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define CF_FIRST_80 CF_FIRST_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define CF_FIRST_88 CF_FIRST_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define CF_FIRST_96 CF_FIRST_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define CF_FIRST_100 CF_FIRST_96 ", %96, %97, %98, %99"
#define CF_FIRST_104 CF_FIRST_100 ", %100, %101, %102, %103"
#define CF_FIRST_108 CF_FIRST_104 ", %104, %105, %106, %107"
#define CF_FIRST_112 CF_FIRST_108 ", %108, %109, %110, %111"
#define CF_FIRST_116 CF_FIRST_112 ", %112, %113, %114, %115"
#define CF_FIRST_120 CF_FIRST_116 ", %116, %117, %118, %119"
#define CF_FIRST_124 CF_FIRST_120 ", %120, %121, %122, %123"
#define CF_FIRST_128 CF_FIRST_124 ", %124, %125, %126, %127"

// d += a b, or d = a b: 64 x 16 by 16 x N, of float 64 x 8 by 8 x N in tf32, rows and columns
// where the descriptors say: 32 bytes of each line. Bits below a tf32 do not count. Of 8
// columns, number j, lane 4 g + t of warp w has sums 4 j to 4 j + 3: [16 w + g][8 j + 2 t], the
// column behind, and both of row 16 w + g + 8. Runs on its own until wgmma_wait. `Planar` columns
// lie by pixels (WgmmaPlanes), in 16 bits.
template <class Element, int N, bool Planar = false>
__device__ __forceinline__ void wgmma_shared(float (&d)[N / 2], uint64_t a, uint64_t b, bool add) {
    static_assert(N == 104 || N == 120 || (N <= 192 && N % 16 == 0) || (N > 192 && N % 8 == 0),
                  "as listed");
    CF_PRODUCT(16, CF_FIRST_8, "%8", "%9", "%10", CF_SUMS_8(0))
    CF_PRODUCT(32, CF_FIRST_16, "%16", "%17", "%18", CF_SUMS_16(0))
    CF_PRODUCT(48, CF_FIRST_24, "%24", "%25", "%26", CF_SUMS_16(0), CF_SUMS_8(16))
    CF_PRODUCT(64, CF_FIRST_32, "%32", "%33", "%34", CF_SUMS_32(0))
    CF_PRODUCT(80, CF_FIRST_40, "%40", "%41", "%42", CF_SUMS_32(0), CF_SUMS_8(32))
    CF_PRODUCT(96, CF_FIRST_48, "%48", "%49", "%50", CF_SUMS_32(0), CF_SUMS_16(32))
    CF_PRODUCT(104, CF_FIRST_52, "%52", "%53", "%54", CF_SUMS_32(0), CF_SUMS_16(32), CF_SUMS_4(48))
    CF_PRODUCT(112, CF_FIRST_56, "%56", "%57", "%58", CF_SUMS_32(0), CF_SUMS_16(32), CF_SUMS_8(48))
    CF_PRODUCT(120, CF_FIRST_60, "%60", "%61", "%62", CF_SUMS_32(0), CF_SUMS_16(32), CF_SUMS_8(48),
               CF_SUMS_4(56))
    CF_PRODUCT(128, CF_FIRST_64, "%64", "%65", "%66", CF_SUMS_64(0))
    CF_PRODUCT(144, CF_FIRST_72, "%72", "%73", "%74", CF_SUMS_64(0), CF_SUMS_8(64))
    CF_PRODUCT(160, CF_FIRST_80, "%80", "%81", "%82", CF_SUMS_64(0), CF_SUMS_16(64))
    CF_PRODUCT(176, CF_FIRST_88, "%88", "%89", "%90", CF_SUMS_64(0), CF_SUMS_16(64), CF_SUMS_8(80))
    CF_PRODUCT(192, CF_FIRST_96, "%96", "%97", "%98", CF_SUMS_64(0), CF_SUMS_32(64))
    CF_PRODUCT(200, CF_FIRST_100, "%100", "%101", "%102", CF_SUMS_64(0), CF_SUMS_32(64),
               CF_SUMS_4(96))
    CF_PRODUCT(208, CF_FIRST_104, "%104", "%105", "%106", CF_SUMS_64(0), CF_SUMS_32(64),
               CF_SUMS_8(96))
    CF_PRODUCT(216, CF_FIRST_108, "%108", "%109", "%110", CF_SUMS_64(0), CF_SUMS_32(64),
               CF_SUMS_8(96), CF_SUMS_4(104))
    CF_PRODUCT(224, CF_FIRST_112, "%112", "%113", "%114", CF_SUMS_64(0), CF_SUMS_32(64),
               CF_SUMS_16(96))
    CF_PRODUCT(232, CF_FIRST_116, "%116", "%117", "%118", CF_SUMS_64(0), CF_SUMS_32(64),
               CF_SUMS_16(96), CF_SUMS_4(112))
    CF_PRODUCT(240, CF_FIRST_120, "%120", "%121", "%122", CF_SUMS_64(0), CF_SUMS_32(64),
               CF_SUMS_16(96), CF_SUMS_8(112))
    CF_PRODUCT(248, CF_FIRST_124, "%124", "%125", "%126", CF_SUMS_64(0), CF_SUMS_32(64),
               CF_SUMS_16(96), CF_SUMS_8(112), CF_SUMS_4(120))
    CF_PRODUCT(256, CF_FIRST_128, "%128", "%129", "%130", CF_SUMS_64(0), CF_SUMS_64(64))
}
#undef CF_FIRST_8
#undef CF_FIRST_16
#undef CF_FIRST_24
#undef CF_FIRST_32
#undef CF_FIRST_40
#undef CF_FIRST_48
#undef CF_FIRST_52
#undef CF_FIRST_56
#undef CF_FIRST_60
#undef CF_FIRST_64
#undef CF_FIRST_72
#undef CF_FIRST_80
#undef CF_FIRST_88
#undef CF_FIRST_96
#undef CF_FIRST_100
#undef CF_FIRST_104
#undef CF_FIRST_108
#undef CF_FIRST_112
#undef CF_FIRST_116
#undef CF_FIRST_120
#undef CF_FIRST_124
#undef CF_FIRST_128
#undef CF_PRODUCT
#undef CF_WGMMA
#undef CF_SUMS_4
#undef CF_SUMS_8
#undef CF_SUMS_16
#undef CF_SUMS_32
#undef CF_SUMS_64
#endif

} // namespace cf
