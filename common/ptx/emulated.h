// The instructions of cuda.h on the emulated device: the same names and signatures, and as a last
// argument the place of the call, for reports. What they do: common/emulator/*.cpp.
#pragma once
#include <cmath>
#include "common/ptx/emulated/language.h"

namespace ptx {

// ---- addresses ----------------------------------------------------------------------------------
inline void* dynamic_smem() { return emu::dynamic_smem(); }
inline uint32_t smem_addr(const void* p) { return emu::smem_addr(p); }
inline void label(const void* p, size_t bytes, const char* name, int index = -1) {
  emu::label(p, bytes, name, index);
}

// ---- cp.async -----------------------------------------------------------------------------------
template <int BYTES>
void cp_async_ca(void* smem, const void* gmem, bool valid = true, EMU_HERE) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
  emu::cp_async(smem, gmem, BYTES, valid ? BYTES : 0, here);
}
inline void cp_async_cg_16(void* smem, const void* gmem, bool valid = true, EMU_HERE) {
  emu::cp_async(smem, gmem, 16, valid ? 16 : 0, here);
}
inline void cp_async_cg_16_part(void* smem, const void* gmem, int bytes, EMU_HERE) {
  emu::cp_async(smem, gmem, 16, unsigned(bytes), here);
}
inline void cp_async_commit_group(EMU_HERE) { emu::cp_async_commit_group(here); }
template <int N>
void cp_async_wait_group(EMU_HERE) {
  emu::cp_async_wait_group(N, here);
}
inline void cp_async_mbarrier_arrive_noinc(uint64_t* bar, EMU_HERE) {
  emu::cp_async_mbarrier_arrive(bar, here);
}

// ---- ld.shared ----------------------------------------------------------------------------------
inline void ld_volatile_shared_v4(float (&r)[4], const void* smem) {
  const float4 v = *static_cast<const float4*>(smem);
  r[0] = v.x, r[1] = v.y, r[2] = v.z, r[3] = v.w;
}

// ---- ldmatrix, stmatrix, mma.sync ---------------------------------------------------------------
inline void ldmatrix_x4(uint32_t (&r)[4], const void* row, EMU_HERE) {
  emu::ldmatrix(r, row, 4, false, here);
}
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row, EMU_HERE) {
  emu::ldmatrix(r, row, 4, true, here);
}
inline void ldmatrix_x2(uint32_t (&r)[2], const void* row, EMU_HERE) {
  emu::ldmatrix(r, row, 2, false, here);
}
inline void ldmatrix_x2_trans(uint32_t (&r)[2], const void* row, EMU_HERE) {
  emu::ldmatrix(r, row, 2, true, here);
}
inline void stmatrix_x4(void* row, const uint32_t (&r)[4], EMU_HERE) {
  emu::stmatrix(row, r, 4, false, here);
}
inline void stmatrix_x4_trans(void* row, const uint32_t (&r)[4], EMU_HERE) {
  emu::stmatrix(row, r, 4, true, here);
}
inline void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                             EMU_HERE) {
  emu::mma_m16n8k16(d, a, b, false, here);
}
inline void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                              EMU_HERE) {
  emu::mma_m16n8k16(d, a, b, true, here);
}

// ---- conversion ---------------------------------------------------------------------------------
inline uint32_t cvt_f16x2(float lo, float hi) {
  return emu::float_to_half(lo) | uint32_t(emu::float_to_half(hi)) << 16;
}
inline uint32_t cvt_bf16x2(float lo, float hi) {
  return emu::float_to_bfloat16(lo) | uint32_t(emu::float_to_bfloat16(hi)) << 16;
}
inline float ex2_approx(float x) { return std::exp2(x); }
inline float rcp_approx(float x) { return 1.0f / x; }

// ---- barriers -----------------------------------------------------------------------------------
inline void bar_sync(int id, int threads, EMU_HERE) {
  emu::bar_sync(id, unsigned(threads), "bar_sync", here);
}
inline void bar_arrive(int id, int threads, EMU_HERE) {
  emu::bar_arrive(id, unsigned(threads), here);
}

// ---- mbarrier -----------------------------------------------------------------------------------
inline void mbarrier_init(uint64_t* bar, uint32_t arrivals, EMU_HERE) {
  emu::mbarrier_init(bar, arrivals, here);
}
inline void mbarrier_arrive(uint64_t* bar, EMU_HERE) {
  emu::mbarrier_arrive(bar, 0, emu::kThisCta, "mbarrier_arrive", here);
}
inline void mbarrier_arrive_expect_tx(uint64_t* bar, uint32_t bytes, EMU_HERE) {
  emu::mbarrier_arrive(bar, bytes, emu::kThisCta, "mbarrier_arrive_expect_tx", here);
}
inline void mbarrier_arrive_remote(uint64_t* bar, uint32_t cta, EMU_HERE) {
  emu::mbarrier_arrive(bar, 0, cta, "mbarrier_arrive_remote", here);
}
inline void mbarrier_arrive_remote_release_cluster(uint64_t* bar, uint32_t cta, EMU_HERE) {
  emu::mbarrier_arrive(bar, 0, cta, "mbarrier_arrive_remote_release_cluster", here);
}
inline bool mbarrier_test_wait(uint64_t* bar, uint32_t parity, EMU_HERE) {
  return emu::mbarrier_test_wait(bar, parity, here);
}
inline void mbarrier_wait(uint64_t* bar, uint32_t parity, EMU_HERE) {
  emu::mbarrier_wait(bar, parity, here);
}
inline bool elect_one() { return emu::lane() == 0; }
inline void fence_mbarrier_init(EMU_HERE) { emu::fence_mbarrier_init(here); }
inline void fence_proxy_async(EMU_HERE) { emu::fence_proxy_async(here); }

// ---- clusters -----------------------------------------------------------------------------------
inline uint32_t cluster_ctarank() { return emu::cluster_ctarank(); }
template <class T>
inline T* mapa(T* smem, uint32_t cta, EMU_HERE) {
  return static_cast<T*>(emu::mapa(smem, cta, here));
}
inline void cluster_arrive(EMU_HERE) { emu::cluster_arrive(here); }
inline void cluster_arrive_relaxed(EMU_HERE) { emu::cluster_arrive_relaxed(here); }
inline void cluster_wait(EMU_HERE) { emu::cluster_wait(here); }
inline void cluster_sync(EMU_HERE) { emu::cluster_sync(here); }

inline void griddepcontrol_wait() {}  // launches run one after the other
inline void griddepcontrol_launch_dependents() {}

// ---- TMA ----------------------------------------------------------------------------------------
inline void tma_load_2d(void* smem, const CUtensorMap* map, int x, int y, uint64_t* bar, EMU_HERE) {
  const int coords[] = {x, y};
  emu::tma_load(smem, map, coords, 2, bar, 0, here);
}
inline void tma_load_2d_multicast(void* smem, const CUtensorMap* map, int x, int y, uint64_t* bar,
                                  uint16_t ctas, EMU_HERE) {
  const int coords[] = {x, y};
  emu::tma_load(smem, map, coords, 2, bar, ctas, here);
}
inline void tma_store_2d(const CUtensorMap* map, const void* smem, int x, int y, EMU_HERE) {
  const int coords[] = {x, y};
  emu::tma_store(map, smem, coords, 2, here);
}
inline void tma_load_3d(void* smem, const CUtensorMap* map, int x, int y, int z, uint64_t* bar,
                        EMU_HERE) {
  const int coords[] = {x, y, z};
  emu::tma_load(smem, map, coords, 3, bar, 0, here);
}
inline void tma_load_3d_multicast(void* smem, const CUtensorMap* map, int x, int y, int z,
                                  uint64_t* bar, uint16_t ctas, EMU_HERE) {
  const int coords[] = {x, y, z};
  emu::tma_load(smem, map, coords, 3, bar, ctas, here);
}
inline void tma_load_4d(void* smem, const CUtensorMap* map, int x, int y, int z, int w,
                        uint64_t* bar, EMU_HERE) {
  const int coords[] = {x, y, z, w};
  emu::tma_load(smem, map, coords, 4, bar, 0, here);
}
inline void tma_load_4d_multicast(void* smem, const CUtensorMap* map, int x, int y, int z, int w,
                                  uint64_t* bar, uint16_t ctas, EMU_HERE) {
  const int coords[] = {x, y, z, w};
  emu::tma_load(smem, map, coords, 4, bar, ctas, here);
}
inline void tma_store_4d(const CUtensorMap* map, const void* smem, int x, int y, int z, int w,
                         EMU_HERE) {
  const int coords[] = {x, y, z, w};
  emu::tma_store(map, smem, coords, 4, here);
}
inline void tma_store_3d(const CUtensorMap* map, const void* smem, int x, int y, int z, EMU_HERE) {
  const int coords[] = {x, y, z};
  emu::tma_store(map, smem, coords, 3, here);
}
inline void tma_store_commit_group(EMU_HERE) { emu::tma_store_commit_group(here); }
template <int N>
void tma_store_wait_group_read(EMU_HERE) {
  emu::tma_store_wait_group(N, here);
}
inline void prefetch_tensormap(const CUtensorMap*) {}

// ---- L2 -----------------------------------------------------------------------------------------
inline void discard_l2(void* line, EMU_HERE) { emu::discard_l2(line, here); }

// ---- flags --------------------------------------------------------------------------------------
inline int ld_acquire(const int* flag, EMU_HERE) { return emu::flag_load(flag, true, here); }
inline int ld_relaxed(const int* flag, EMU_HERE) { return emu::flag_load(flag, false, here); }
inline void red_add_release(int* flag, int value, EMU_HERE) {
  emu::flag_add(flag, value, true, here);
}
inline void red_add_relaxed(int* flag, int value, EMU_HERE) {
  emu::flag_add(flag, value, false, here);
}
inline int atom_add_acq_rel(int* flag, int value, EMU_HERE) {
  return emu::flag_atomic(flag, [&](int old) { return old + value; }, "atom_add_acq_rel", here);
}
inline int atom_or_acq_rel(int* flag, int bits, EMU_HERE) {
  return emu::flag_atomic(flag, [&](int old) { return old | bits; }, "atom_or_acq_rel", here);
}
inline void wait_until(const int* flag, int value, EMU_HERE) {
  emu::flag_wait(flag, value, here);
}

}  // namespace ptx

#include "common/ptx/emulated_wgmma.h"
