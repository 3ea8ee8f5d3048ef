// What the emulated device does for a kernel: one entry per instruction or family of them. Called
// by the shims of PTX (common/ptx/emulated.h) and of CUDA C++ (language.h).
#pragma once
#include <functional>

#include "common/emulator/device.h"

/// As large and aligned as the driver's opaque type; the contents are ours. Dimension 0 is the
/// innermost one; strides in bytes.
struct alignas(64) CUtensorMap {
  void* base;
  uint64_t stride[4];
  uint32_t size[5];
  uint16_t box[5];
  uint8_t rank, element, swizzle;  // swizzle: 0, 32, 64 or 128 bytes
  uint8_t unused[51];
};
static_assert(sizeof(CUtensorMap) == 128, "the driver's size");

namespace emu {

// barrier.cpp
unsigned lane();
void bar_sync(int id, unsigned threads, const char* what, Loc);  // threads 0: the whole block
void bar_arrive(int id, unsigned threads, Loc);
void warp_sync(Loc);
uint64_t warp_shuffle(uint64_t value, unsigned from_lane, Loc);
unsigned warp_ballot(bool predicate, Loc);
uint32_t cluster_ctarank();
void* mapa(const void* smem, uint32_t cta, Loc);
void cluster_arrive(Loc);
void cluster_arrive_relaxed(Loc);
void cluster_wait(Loc);
void cluster_sync(Loc);

// memory.cpp
void* dynamic_smem();
uint32_t smem_addr(const void*);
void label(const void*, size_t bytes, const char* name, int index);
[[noreturn]] void trap(Loc);

// flags.cpp: atomics, flags in global memory, and what is not needed there any more
void atomic_read(void* value, const void* p, size_t bytes, Loc);
void atomic_write(void* p, const void* value, size_t bytes, Loc);
void fence_gpu();
int flag_load(const int* flag, bool acquire, Loc);
void flag_add(int* flag, int value, bool release, Loc);
int flag_atomic(int* flag, const std::function<int(int)>& update, const char* what, Loc);
void flag_wait(const int* flag, int at_least, Loc);
void discard_l2(void* line, Loc);

// cp_async.cpp
/// Copies the first `from_gmem` of `bytes`; the others become zero.
void cp_async(void* smem, const void* gmem, unsigned bytes, unsigned from_gmem, Loc);
void cp_async_commit_group(Loc);
void cp_async_wait_group(unsigned n, Loc);
void cp_async_mbarrier_arrive(uint64_t* bar, Loc);

// matrix.cpp
void ldmatrix(uint32_t* r, const void* row, unsigned matrices, bool transposed, Loc);
void stmatrix(void* row, const uint32_t* r, unsigned matrices, bool transposed, Loc);
void mma_m16n8k16(float* d, const uint32_t* a, const uint32_t* b, bool bf16, Loc);

// mbarrier.cpp
constexpr uint32_t kThisCta = ~0u;
void mbarrier_init(uint64_t* bar, uint32_t arrivals, Loc);
void mbarrier_arrive(uint64_t* bar, uint32_t expect_tx, uint32_t cta, const char* what, Loc);
bool mbarrier_test_wait(uint64_t* bar, uint32_t parity, Loc);
void mbarrier_wait(uint64_t* bar, uint32_t parity, Loc);
void fence_mbarrier_init(Loc);
void fence_proxy_async(Loc);

// tma.cpp
CUtensorMap tensor_map(const void* base, unsigned rank, const int64_t* size,
                       const int64_t* stride_bytes, const int* box, unsigned element,
                       unsigned swizzle, std::string& error);
void tma_load(void* smem, const CUtensorMap*, const int* coords, unsigned rank, uint64_t* bar,
              uint16_t ctas, Loc);  // ctas 0: this one
void tma_store(const CUtensorMap*, const void* smem, const int* coords, unsigned rank, Loc);
void tma_store_commit_group(Loc);
void tma_store_wait_group(unsigned n, Loc);

// wgmma.cpp
void wgmma_fence(Loc);
/// A from shared memory (desc_a) or, where frag_a is given, from registers.
void wgmma(float* acc, unsigned n, const uint32_t* frag_a, uint64_t desc_a, uint64_t desc_b,
           bool scale_d, bool mn_major_a, bool mn_major_b, bool bf16, Loc);
void wgmma_commit_group(Loc);
void wgmma_wait_group(unsigned n, Loc);
void setmaxnreg(int registers, Loc);

}  // namespace emu
