// What agreement.cu needs beyond the wrappers of common/ptx: tensor maps and copies of any rank,
// and wgmma with A from registers. Both devices.
#pragma once
#include "common/gpu/gpu.h"
#include "common/ptx/ptx.h"

namespace agreement {

#if defined(LADDER_EMULATED)

template <int RANK>
void tma_load(void* smem, const CUtensorMap* map, const int* at, uint64_t* bar) {
  emu::tma_load(smem, map, at, RANK, bar, 0, emu::Loc::current());
}
template <int RANK>
void tma_store(const CUtensorMap* map, const void* smem, const int* at) {
  emu::tma_store(map, smem, at, RANK, emu::Loc::current());
}
inline void wgmma_m64n64k16_registers(float (&acc)[32], const uint32_t (&a)[4], uint64_t desc_b) {
  emu::wgmma(acc, 64, a, 0, desc_b, false, false, false, false, emu::Loc::current());
}
inline CUtensorMap tensor_map(void* base, int rank, const int64_t* size, const int64_t* stride,
                              const int* box, int element, int swizzle) {
  std::string error;
  const CUtensorMap map = emu::tensor_map(base, unsigned(rank), size, stride, box,
                                          unsigned(element), swizzle < 32 ? 0 : unsigned(swizzle),
                                          error);
  if (!error.empty()) throw gpu::Error(error);
  return map;
}

#else

template <int RANK>
__device__ void tma_load(void* smem, const CUtensorMap* map, const int* at, uint64_t* bar) {
#define LOAD(rank, coords)                                                                      \
  if constexpr (RANK == rank)                                                                   \
  asm volatile("cp.async.bulk.tensor." #rank                                                    \
               "d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {" coords      \
               "}], [%2];" ::"r"(ptx::smem_addr(smem)),                                         \
               "l"(map), "r"(ptx::smem_addr(bar)), "r"(at[0]), "r"(at[1]), "r"(at[2]),          \
               "r"(at[3]), "r"(at[4])                                                           \
               : "memory")
  LOAD(2, "%3, %4");
  LOAD(3, "%3, %4, %5");
  LOAD(4, "%3, %4, %5, %6");
  LOAD(5, "%3, %4, %5, %6, %7");
#undef LOAD
}

template <int RANK>
__device__ void tma_store(const CUtensorMap* map, const void* smem, const int* at) {
#define STORE(rank, coords)                                                                     \
  if constexpr (RANK == rank)                                                                   \
  asm volatile("cp.async.bulk.tensor." #rank "d.global.shared::cta.bulk_group [%0, {" coords    \
               "}], [%1];" ::"l"(map),                                                          \
               "r"(ptx::smem_addr(smem)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),       \
               "r"(at[4])                                                                       \
               : "memory")
  STORE(2, "%2, %3");
  STORE(3, "%2, %3, %4");
  STORE(4, "%2, %3, %4, %5");
  STORE(5, "%2, %3, %4, %5, %6");
#undef STORE
}

__device__ inline void wgmma_m64n64k16_registers(float (&acc)[32], const uint32_t (&a)[4],
                                                 uint64_t desc_b) {
#define R8(i)                                                                               \
  "+f"(acc[i]), "+f"(acc[i + 1]), "+f"(acc[i + 2]), "+f"(acc[i + 3]), "+f"(acc[i + 4]),     \
      "+f"(acc[i + 5]), "+f"(acc[i + 6]), "+f"(acc[i + 7])
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
      "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
      : R8(0), R8(8), R8(16), R8(24)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc_b)
      : "memory");
#undef R8
}

inline CUtensorMap tensor_map(void* base, int rank, const int64_t* size, const int64_t* stride,
                              const int* box, int element, int swizzle) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                              const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                              const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  GPU_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                             cudaEnableDefault, &found));
  cuuint64_t sizes[5], strides[5];
  cuuint32_t boxes[5], ones[5];
  for (int d = 0; d < rank; ++d) {
    sizes[d] = cuuint64_t(size[d]), boxes[d] = cuuint32_t(box[d]), ones[d] = 1;
    if (d) strides[d - 1] = cuuint64_t(stride[d - 1]);
  }
  const CUtensorMapSwizzle mode = swizzle == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                  : swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                  : swizzle == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                                  : CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMap map;
  const CUresult status = reinterpret_cast<Encode>(entry)(
      &map, element == 4 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      cuuint32_t(rank), base, sizes, strides, boxes, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, mode,
      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) throw gpu::Error("cuTensorMapEncodeTiled refused a random box");
  return map;
}

#endif

}  // namespace agreement
