// Products of a warpgroup with rows in registers and many columns in shared memory, in f16, bf16 or
// tf32 with f32 sums: wgmma (PTX ISA, "wgmma", "register fragments"). Columns lie in lines, as
// WgmmaLines of ptx/wgmma_shared.cuh says.
#pragma once

#include "ptx/wgmma_shared.cuh"

namespace cf {

#if CF_SM90A
#define CF_SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define CF_SUMS_16(i) CF_SUMS_4(i), CF_SUMS_4(i + 4), CF_SUMS_4(i + 8), CF_SUMS_4(i + 12)
#define CF_SUMS_32(i) CF_SUMS_16(i), CF_SUMS_16(i + 16)
#define CF_SUMS_64(i) CF_SUMS_32(i), CF_SUMS_32(i + 32)
#define CF_WGMMA(Type, Depth, Order, Columns, D, A, B, Add, ...)                                   \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " Add ", 0;\n"                              \
                 "wgmma.mma_async.sync.aligned.m64n" Columns "k" Depth ".f32." Type "." Type       \
                 " {" D "}, {" A "}, " B ", add, 1, 1" Order ";\n}"                                \
                 : __VA_ARGS__                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(add)))
#define CF_PRODUCT(Columns, ...)                                                                   \
    if constexpr (N == Columns) {                                                                  \
        if constexpr (std::is_same_v<Element, __half>)                                             \
            CF_WGMMA("f16", "16", ", 0", #Columns, __VA_ARGS__);                                   \
        else if constexpr (std::is_same_v<Element, float>)                                         \
            CF_WGMMA("tf32", "8", "", #Columns, __VA_ARGS__);                                      \
        else                                                                                       \
            CF_WGMMA("bf16", "16", ", 0", #Columns, __VA_ARGS__);                                  \
    }
#define CF_FIRST_32                                                                                \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "   \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define CF_FIRST_64                                                                                \
    CF_FIRST_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "    \
                "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, " \
                "%63"
#define CF_FIRST_128                                                                               \
    CF_FIRST_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, "    \
                "%79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, " \
                "%95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, "  \
                "%109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, "   \
                "%122, %123, %124, %125, %126, %127"

// d += a b, or d = a b: 64 x 16 by 16 x N, of float 64 x 8 by 8 x N in tf32. Registers of a are
// those of mma.sync, sixteen rows to a warp: of lane 4 g + t rows g and g + 8 of the elements 2 t
// and 2 t + 1 (of tf32 t), then the same 8 (of tf32 4) elements behind. Sums are those of
// wgmma_shared. Runs on its own until wgmma_wait.
template <class Element, int N>
__device__ __forceinline__ void wgmma_rows(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b,
                                           bool add) {
    static_assert(N == 64 || N == 128 || N == 256, "as listed");
    CF_PRODUCT(64, CF_FIRST_32, "%32, %33, %34, %35", "%36", "%37", CF_SUMS_32(0))
    CF_PRODUCT(128, CF_FIRST_64, "%64, %65, %66, %67", "%68", "%69", CF_SUMS_64(0))
    CF_PRODUCT(256, CF_FIRST_128, "%128, %129, %130, %131", "%132", "%133", CF_SUMS_64(0),
               CF_SUMS_64(64))
}
#undef CF_FIRST_128
#undef CF_FIRST_64
#undef CF_FIRST_32
#undef CF_PRODUCT
#undef CF_WGMMA
#undef CF_SUMS_64
#undef CF_SUMS_32
#undef CF_SUMS_16
#undef CF_SUMS_4
#endif

} // namespace cf
