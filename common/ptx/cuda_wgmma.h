// wgmma on a real GPU: D[64][N] (+)= A[64][16] * B[16][N] over one warpgroup, FP32 accumulate.
#pragma once
#include "common/ptx/cuda.h"

namespace ptx {

enum class Major { k, mn };  // which index of an operand is contiguous in shared memory

// acc[REGS = N / 2]: register 4 * j + i of thread t holds row 16 * (t / 32) + t % 32 / 4 +
// 8 * (i / 2), column 8 * j + 2 * (t % 4) + i % 2. `scale_d` 0 overwrites acc, 1 adds to it.
// A and B by matrix descriptors in shared memory (PTX "Matrix Descriptor").
#define R8(i)                                                                                \
  "+f"(acc[i]), "+f"(acc[i + 1]), "+f"(acc[i + 2]), "+f"(acc[i + 3]), "+f"(acc[i + 4]),      \
      "+f"(acc[i + 5]), "+f"(acc[i + 6]), "+f"(acc[i + 7])
#define R4(i) "+f"(acc[i]), "+f"(acc[i + 1]), "+f"(acc[i + 2]), "+f"(acc[i + 3])
#define R32(i) R8(i), R8(i + 8), R8(i + 16), R8(i + 24)
#define P0 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, " \
  "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define P32 \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
  "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
  "%62, %63"
#define P64 \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, " \
  "%79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, " \
  "%94, %95"
#define P64_8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define P72_4 "%72, %73, %74, %75"
#define P72_8 "%72, %73, %74, %75, %76, %77, %78, %79"
#define P80_8 "%80, %81, %82, %83, %84, %85, %86, %87"
#define P80_4 "%80, %81, %82, %83"
#define P88_4 "%88, %89, %90, %91"
#define P96_4 "%96, %97, %98, %99"
#define P96 \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, " \
  "%109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, " \
  "%121, %122, %123, %124, %125, %126, %127"

// `a` to `major_b`: the numbers of the operands after the N / 2 registers of acc.
#define WGMMA_OF(N, type, regs, a, b, scale, major_a, major_b, ...)                               \
  template <Major MAJOR_A, Major MAJOR_B>                                                         \
  PTX_FN void wgmma_m64n##N##k16_##type(float (&acc)[N / 2], uint64_t desc_a, uint64_t desc_b,    \
                                        int scale_d) {                                            \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #scale ", 0;\n"                               \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #type "." #type " {" regs      \
                 "}, %" #a ", %" #b ", p, 1, 1, %" #major_a ", %" #major_b "; }"                  \
                 : __VA_ARGS__                                                                    \
                 : "l"(desc_a), "l"(desc_b), "r"(scale_d), "n"(int(MAJOR_A)), "n"(int(MAJOR_B))   \
                 : "memory");                                                                     \
  }
#define WGMMA(N, ...) WGMMA_OF(N, f16, __VA_ARGS__) WGMMA_OF(N, bf16, __VA_ARGS__)

WGMMA(64, P0, 32, 33, 34, 35, 36, R32(0))
WGMMA(128, P0 ", " P32, 64, 65, 66, 67, 68, R32(0), R32(32))
WGMMA(144, P0 ", " P32 ", " P64_8, 72, 73, 74, 75, 76, R32(0), R32(32), R8(64))
WGMMA(152, P0 ", " P32 ", " P64_8 ", " P72_4, 76, 77, 78, 79, 80, R32(0), R32(32), R8(64), R4(72))
WGMMA(160, P0 ", " P32 ", " P64_8 ", " P72_8, 80, 81, 82, 83, 84, R32(0), R32(32), R8(64), R8(72))
WGMMA(168, P0 ", " P32 ", " P64_8 ", " P72_8 ", " P80_4,
      84, 85, 86, 87, 88, R32(0), R32(32), R8(64), R8(72), R4(80))
WGMMA(176, P0 ", " P32 ", " P64_8 ", " P72_8 ", " P80_8,
      88, 89, 90, 91, 92, R32(0), R32(32), R8(64), R8(72), R8(80))
WGMMA(184, P0 ", " P32 ", " P64_8 ", " P72_8 ", " P80_8 ", " P88_4,
      92, 93, 94, 95, 96, R32(0), R32(32), R8(64), R8(72), R8(80), R4(88))
WGMMA(192, P0 ", " P32 ", " P64, 96, 97, 98, 99, 100, R32(0), R32(32), R32(64))
WGMMA(200, P0 ", " P32 ", " P64 ", " P96_4,
      100, 101, 102, 103, 104, R32(0), R32(32), R32(64), R4(96))
WGMMA(256, P0 ", " P32 ", " P64 ", " P96,
      128, 129, 130, 131, 132, R32(0), R32(32), R32(64), R32(96))

#undef WGMMA
#undef WGMMA_OF
#undef R32
#undef R8
#undef R4
#undef P0
#undef P32
#undef P64
#undef P64_8
#undef P72_4
#undef P72_8
#undef P80_8
#undef P80_4
#undef P88_4
#undef P96_4
#undef P96

}  // namespace ptx
