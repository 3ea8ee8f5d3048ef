// The PTX instructions that kernels use, one function each, on a real GPU.
// "PTX" in a comment is the section of the PTX ISA. Every function that synchronises, copies or
// waits clobbers "memory", so the compiler moves no access across it.
#pragma once
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace ptx {

#define PTX_FN __device__ __forceinline__

// ---- addresses --------------------------------------------------------------------------------

/// Dynamic shared memory of the CTA, aligned to 1,024 bytes (what a 128-byte swizzle needs).
PTX_FN void* dynamic_smem() {
  extern __shared__ __align__(1024) unsigned char smem[];
  return smem;
}
/// 32-bit address in the shared window, as instructions take it.
PTX_FN uint32_t smem_addr(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }
/// Names a buffer or barrier for the emulated device's reports; nothing on a GPU.
PTX_FN void label(const void*, size_t, const char*, int = -1) {}

// ---- cp.async: global to shared, asynchronous (sm_80; PTX "cp.async") --------------------------

/// Copies BYTES = 4, 8 or 16, through L1; zeros where `valid` is false. Both aligned to BYTES.
template <int BYTES>
PTX_FN void cp_async_ca(void* smem, const void* gmem, bool valid = true) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(smem_addr(smem)), "l"(gmem),
               "n"(BYTES), "r"(valid ? BYTES : 0)
               : "memory");
}
/// Copies 16 bytes past L1 ("cg": cached in L2 only); writes zeros where `valid` is false.
PTX_FN void cp_async_cg_16(void* smem, const void* gmem, bool valid = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_addr(smem)), "l"(gmem),
               "r"(valid ? 16 : 0)
               : "memory");
}
/// The same where the matrix ends inside the 16 bytes: copies the first `bytes`, 0 to 16, and
/// writes zeros after them. Both addresses are aligned to 16 all the same.
PTX_FN void cp_async_cg_16_part(void* smem, const void* gmem, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_addr(smem)), "l"(gmem),
               "r"(bytes)
               : "memory");
}
PTX_FN void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most N of this thread's newest groups are in flight.
template <int N>
PTX_FN void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
/// Arrives on `bar` once all earlier cp.async of this thread have landed; the arrival is one of
/// those `bar` was initialised with (.noinc).
PTX_FN void cp_async_mbarrier_arrive_noinc(uint64_t* bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(smem_addr(bar)) : "memory");
}

// ---- ld.shared ----------------------------------------------------------------------------------

/// 16 bytes of shared memory. As an ordinary load, but ptxas keeps loads of this kind in the order
/// of the source.
PTX_FN void ld_volatile_shared_v4(float (&r)[4], const void* smem) {
  asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3])
               : "r"(smem_addr(smem))
               : "memory");
}

// ---- ldmatrix, stmatrix: 8x8 matrices of 16-bit elements (sm_75, sm_90; PTX "ldmatrix") --------

/// Four 8x8 matrices. Lane i gives the address of row i % 8 of matrix i / 8 (16 bytes, aligned);
/// register r of lane i gets elements 2 * (i % 4), +1 of row i / 4 of matrix r.
PTX_FN void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(smem_addr(row))
               : "memory");
}
/// As ldmatrix_x4, each matrix transposed on the way.
PTX_FN void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(smem_addr(row))
               : "memory");
}
/// Two matrices; lanes 0-15 give the addresses.
PTX_FN void ldmatrix_x2(uint32_t (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(smem_addr(row))
               : "memory");
}
PTX_FN void ldmatrix_x2_trans(uint32_t (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(smem_addr(row))
               : "memory");
}
/// The reverse of ldmatrix_x4 (sm_90).
PTX_FN void stmatrix_x4(void* row, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   smem_addr(row)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
/// The reverse of ldmatrix_x4_trans.
PTX_FN void stmatrix_x4_trans(void* row, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   smem_addr(row)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// ---- mma.sync (sm_80; PTX "mma.m16n8k16") ------------------------------------------------------

/// d[16][8] += a[16][16] * b[16][8], FP16 in, FP32 accumulate, over one warp. With g = lane / 4 and
/// t = lane % 4: d = {(g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)}; a = {(g, 2t..), (g+8, 2t..),
/// (g, 2t+8..), (g+8, 2t+8..)}, two k each; b = {(2t.., g), (2t+8.., g)}, two k each.
PTX_FN void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/// The same with bfloat16 inputs.
PTX_FN void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// ---- conversion (PTX "cvt") ---------------------------------------------------------------------

/// Two FP32 as a pair of FP16, rounded to nearest even; `lo` in the lower half.
PTX_FN uint32_t cvt_f16x2(float lo, float hi) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
  return pair;
}
/// The same as bfloat16.
PTX_FN uint32_t cvt_bf16x2(float lo, float hi) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
  return pair;
}
/// 2^x and 1/x within two units of the last place ("ex2", "rcp"); subnormal numbers count as 0.
PTX_FN float ex2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
PTX_FN float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- named barriers (PTX "barrier") ------------------------------------------------------------

/// Waits until `threads` threads of the CTA (a multiple of 32) have arrived at barrier `id`, 0-15;
/// __syncthreads is id 0.
PTX_FN void bar_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/// Arrives without waiting.
PTX_FN void bar_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- mbarrier: arrivals and bytes in shared memory (sm_80, much of it sm_90; PTX "mbarrier") ----

/// One thread, before anyone uses it; `arrivals` complete a phase.
PTX_FN void mbarrier_init(uint64_t* bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(smem_addr(bar)), "r"(arrivals)
               : "memory");
}
/// One arrival; release at CTA scope.
PTX_FN void mbarrier_arrive(uint64_t* bar) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(smem_addr(bar))
               : "memory");
}
/// One arrival that also adds `bytes` to what the phase waits for; copies subtract what they land.
PTX_FN void mbarrier_arrive_expect_tx(uint64_t* bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(smem_addr(bar)),
               "r"(bytes)
               : "memory");
}
/// One arrival at the same barrier of another CTA of the cluster. Orders nothing at cluster scope
/// (unqualified: release at CTA scope), which is enough where only asynchronous copies follow.
PTX_FN void mbarrier_arrive_remote(uint64_t* bar, uint32_t cta) {
  asm volatile(
      "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1;\n"
      "  mbarrier.arrive.shared::cluster.b64 _, [remote]; }" ::"r"(smem_addr(bar)),
      "r"(cta)
      : "memory");
}
/// The same, releasing this thread's earlier accesses to the whole cluster; about 300 cycles.
PTX_FN void mbarrier_arrive_remote_release_cluster(uint64_t* bar, uint32_t cta) {
  asm volatile(
      "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1;\n"
      "  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote]; }" ::"r"(smem_addr(bar)),
      "r"(cta)
      : "memory");
}
/// True once the phase of this parity has completed. Does not wait.
PTX_FN bool mbarrier_test_wait(uint64_t* bar, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
      : "=r"(done)
      : "r"(smem_addr(bar)), "r"(parity)
      : "memory");
  return done;
}
/// Waits until the phase of this parity has completed; acquire at CTA scope. A fresh barrier is in
/// phase 0, so waiting for parity 1 returns at once. Sleeps in hardware on sm_90, spins on sm_80.
PTX_FN void mbarrier_wait(uint64_t* bar, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .pred p;\n"
      "WAIT_%=: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
      "  @!p bra WAIT_%=; }" ::"r"(smem_addr(bar)),
      "r"(parity)
      : "memory");
#else
  while (!mbarrier_test_wait(bar, parity)) {
  }
#endif
}
/// True in one thread of the warp; all its 32 threads call it. Unlike a comparison of threadIdx, it
/// tells ptxas that one thread runs what follows: else it puts a loop around each TMA instruction.
PTX_FN bool elect_one() {
  uint32_t one;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xFFFFFFFF; selp.u32 %0, 1, 0, p; }" : "=r"(one));
  return one;
}
/// Makes mbarrier_init visible to the async proxy and the other CTAs of the cluster.
PTX_FN void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/// Orders this thread's ordinary accesses to shared memory before those of TMA and wgmma.
PTX_FN void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- clusters (sm_90; PTX "barrier.cluster") ---------------------------------------------------

PTX_FN uint32_t cluster_ctarank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/// The same place in shared memory of another CTA of the cluster, for ordinary loads and stores.
template <class T>
PTX_FN T* mapa(T* smem, uint32_t cta) {
  uint64_t there;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(smem), "r"(cta));
  return reinterpret_cast<T*>(there);
}
PTX_FN void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
/// Orders nothing: where a CTA only must not end before the others have come this far.
PTX_FN void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
PTX_FN void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
/// All threads of all CTAs of the cluster.
PTX_FN void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

// ---- programmatic dependent launch (sm_90; PTX "griddepcontrol") -------------------------------

/// Waits until the grids that this one depends on have ended and their writes are visible; at once
/// where the launch did not ask to start early (gpu::LaunchConfig::early).
PTX_FN void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
/// From here on a dependent grid that may start early does, where there is room for it.
PTX_FN void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// ---- TMA (sm_90; PTX "cp.async.bulk.tensor") ---------------------------------------------------
// x is the column (innermost), y the row of the box's first element; x in multiples of 16 bytes.

/// Copies the box at (y, x) to shared memory and completes its bytes on `bar`.
PTX_FN void tma_load_2d(void* smem, const CUtensorMap* map, int x, int y, uint64_t* bar) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(smem_addr(smem)),
      "l"(map), "r"(smem_addr(bar)), "r"(x), "r"(y)
      : "memory");
}
/// The same to the same offset in every CTA whose bit is set in `ctas`; each one's `bar` counts.
PTX_FN void tma_load_2d_multicast(void* smem, const CUtensorMap* map, int x, int y, uint64_t* bar,
                                  uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(smem_addr(smem)),
      "l"(map), "r"(smem_addr(bar)), "h"(ctas), "r"(x), "r"(y)
      : "memory");
}
/// The same for maps of three and four dimensions, innermost coordinate first.
PTX_FN void tma_load_3d(void* smem, const CUtensorMap* map, int x, int y, int z, uint64_t* bar) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(smem_addr(smem)),
      "l"(map), "r"(smem_addr(bar)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
PTX_FN void tma_load_3d_multicast(void* smem, const CUtensorMap* map, int x, int y, int z,
                                  uint64_t* bar, uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(smem_addr(smem)),
      "l"(map), "r"(smem_addr(bar)), "h"(ctas), "r"(x), "r"(y), "r"(z)
      : "memory");
}
PTX_FN void tma_load_4d(void* smem, const CUtensorMap* map, int x, int y, int z, int w,
                        uint64_t* bar) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(smem_addr(smem)),
      "l"(map), "r"(smem_addr(bar)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
PTX_FN void tma_load_4d_multicast(void* smem, const CUtensorMap* map, int x, int y, int z, int w,
                                  uint64_t* bar, uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(smem_addr(smem)),
      "l"(map), "r"(smem_addr(bar)), "h"(ctas), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
/// Copies a box from shared memory to (y, x); elements outside the matrix are not stored.
PTX_FN void tma_store_2d(const CUtensorMap* map, const void* smem, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
                   map),
               "r"(smem_addr(smem)), "r"(x), "r"(y)
               : "memory");
}
PTX_FN void tma_store_3d(const CUtensorMap* map, const void* smem, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
      "r"(smem_addr(smem)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
PTX_FN void tma_store_4d(const CUtensorMap* map, const void* smem, int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          map),
      "r"(smem_addr(smem)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
PTX_FN void tma_store_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until at most N of this thread's newest store groups still read shared memory.
template <int N>
PTX_FN void tma_store_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
PTX_FN void prefetch_tensormap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// ---- wgmma (sm_90a; PTX "wgmma") ---------------------------------------------------------------
// All 128 threads of a warpgroup. The multiplications: common/ptx/cuda_wgmma.h.

/// Before the first wgmma and whenever registers of an accumulator or of A were touched since.
PTX_FN void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
PTX_FN void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until at most N of the newest groups are in flight.
template <int N>
PTX_FN void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/// The same; the accumulator is an operand, so that the compiler reads none of it before the wait.
template <int N, int REGS>
PTX_FN void wgmma_wait_group(float (&acc)[REGS]) {
  wgmma_wait_group<N>();
#pragma unroll
  for (int i = 0; i < REGS; ++i) asm volatile("" : "+f"(acc[i])::"memory");
}
template <int N, int TILES, int REGS>
PTX_FN void wgmma_wait_group(float (&acc)[TILES][REGS]) {
  wgmma_wait_group<N>();
#pragma unroll
  for (int i = 0; i < TILES * REGS; ++i) asm volatile("" : "+f"(acc[i / REGS][i % REGS])::"memory");
}
/// Takes registers from the pool of the CTA, or gives them back; all the warpgroup. 24-256, in 8s.
template <int REGS>
PTX_FN void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGS));
}
template <int REGS>
PTX_FN void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGS));
}

// ---- L2 (sm_80; PTX "discard") -----------------------------------------------------------------

/// What lies in these 128 bytes of global memory (aligned) is not needed any more: undefined until
/// written again, and L2 need not write it back to memory.
PTX_FN void discard_l2(void* line) {
  asm volatile("discard.global.L2 [%0], 128;" ::"l"(line) : "memory");
}

// ---- flags in global memory, between CTAs (PTX "Memory Consistency Model") ----------------------

PTX_FN int ld_acquire(const int* flag) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
PTX_FN int ld_relaxed(const int* flag) {  // volatile: ptxas may drop a load that bounds polls only
  int value;
  asm volatile("ld.volatile.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
PTX_FN void red_add_release(int* flag, int value) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
PTX_FN void red_add_relaxed(int* flag, int value) {
  asm volatile("red.relaxed.gpu.global.add.s32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
/// Adds, or sets bits, and returns what was there; acquires and releases at GPU scope.
PTX_FN int atom_add_acq_rel(int* flag, int value) {
  int old;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(flag), "r"(value)
               : "memory");
  return old;
}
PTX_FN int atom_or_acq_rel(int* flag, int bits) {
  int old;
  asm volatile("atom.acq_rel.gpu.global.or.b32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(flag), "r"(bits)
               : "memory");
  return old;
}
/// Spins until *flag >= value; acquire at GPU scope.
PTX_FN void wait_until(const int* flag, int value) {
  while (ld_acquire(flag) < value) __nanosleep(20);
}

}  // namespace ptx

#include "common/ptx/cuda_wgmma.h"
#undef PTX_FN
