// The trace backend: the functions of cuda.h, with time stamps around those that wait, copy,
// signal or store. Only the program NN_idea.trace is built with it (./ladder trace); kernels have
// no added line, and other builds none of this.
//
// Arrivals, single copies of threads and commits of wgmma are not stamped: there are many, they do
// not wait, and what they lead to is stamped.
// One SM is watched, all its blocks, in each warp lane 0 (blocks are one-dimensional). An event is
// 16 bytes: {begin, end, what, address}, times by %clock, which all blocks of an SM share. A warp
// writes into a region of its own in global memory; where it has got to stands in shared memory.
// Only a warp's first event branches: wgmma is not to be interrupted, unwatched SMs run almost as
// always, and a stamp must cost little beside what it measures.
#pragma once
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#define ptx ptx_raw  // the same instructions under another name
#include "common/ptx/cuda.h"
#undef ptx

#include "common/ptx/trace_format.h"

// Read by name in the assembly below.
extern "C" {
__constant__ ptx::trace::Config ladder_trace_config = {nullptr, nullptr, -1, 0};
}

namespace ptx {

using namespace ptx_raw;  // what is not declared again below is not stamped

namespace trace {

#define PTX_FN __device__ __forceinline__

/// Of each warp, in shared memory, which nobody clears: valid once `mark` is this launch and CTA.
struct alignas(8) State {
  uint32_t mark, slot;  // next event
};
PTX_FN uint32_t state() {
  __shared__ State states[32];
  return smem_addr(states) + threadIdx.x / 32 * uint32_t(sizeof(State));
}
PTX_FN uint32_t now() {
  uint32_t clock;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(clock)::"memory");
  return clock;
}
PTX_FN uint32_t watched() {
  int sm;
  asm("mov.u32 %0, %%smid;" : "=r"(sm));
  return sm == ladder_trace_config.sm && threadIdx.x % 32 == 0;
}
PTX_FN uint32_t block() { return blockIdx.y * gridDim.x + blockIdx.x; }

/// Appends one event. A warp's first claims a region and is preceded by who it is. Registers that
/// are written under a predicate are set before: else they would keep their values, and take
/// registers, from one call to the next.
PTX_FN void record(uint32_t begin, uint32_t end, uint32_t what, uint32_t address) {
  asm volatile(
      "{\n"
      "  .reg .pred on, yes; .reg .b32 slot, is, next; .reg .b64 to, base;\n"
      "  setp.ne.u32 on, %4, 0;\n"
      "  ld.const.u64 base, [ladder_trace_config];\n"
      "  mov.u32 is, 0; mov.u32 slot, 0;\n"
      "  @on ld.shared.v2.u32 {is, slot}, [%5];\n"
      "  setp.ne.and.u32 yes, is, %6, on;\n"
      "  @!yes bra KNOWN_%=;\n"
      "  ld.const.u64 to, [ladder_trace_config + 8];\n"
      "  atom.global.add.u32 slot, [to], %9;\n"
      "  setp.lt.u32 yes, slot, %8;\n"
      "  mad.wide.u32 to, slot, 16, base;\n"
      "  @yes st.global.v4.u32 [to], {%7, %10, 1, %0};\n"
      "  add.u32 slot, slot, 1;\n"
      "KNOWN_%=:\n"
      "  setp.lt.and.u32 yes, slot, %8, on;\n"
      "  mad.wide.u32 to, slot, 16, base;\n"
      "  @yes st.global.v4.u32 [to], {%0, %1, %2, %3};\n"
      "  add.u32 next, slot, 1; and.b32 is, next, %9 - 1;\n"
      "  setp.eq.u32 yes, is, 0;\n"  // full: the last place is written again and again
      "  @yes mov.u32 next, slot;\n"
      "  @on st.shared.v2.u32 [%5], {%6, next};\n}" ::"r"(begin),
      "r"(end), "r"(what), "r"(address), "r"(watched()), "r"(state()),
      "r"(ladder_trace_config.launch + block()), "r"(block()), "n"(kPlaces), "n"(kRegion),
      "r"(threadIdx.x / 32)
      : "memory");
}
/// `n` is that of a wait for groups.
PTX_FN uint32_t what(Kind kind, int line, int n = 0) {
  return uint32_t(kind) | uint32_t(n) << 8 | uint32_t(line) << 16;
}
PTX_FN void instant(Kind kind, int line, uint32_t address = 0) {
  const uint32_t t = now();
  record(t, t, what(kind, line), address);
}
/// The time after a barrier. BAR.SYNC does not hold a warp, the next access to memory does
/// (DEFER_BLOCKING): so one is made, and its value is needed before the clock is read.
PTX_FN uint32_t now_after_barrier() {
  asm volatile(
      "{\n"
      "  .reg .pred odd; .reg .b32 any;\n"
      "  ld.volatile.shared.u32 any, [%0];\n"
      "  setp.eq.u32 odd, any, 0x5a5a5a5a;\n"
      "  @!odd bra THERE_%=;\n"
      "  nanosleep.u32 1;\n"
      "THERE_%=:\n}" ::"r"(state())
      : "memory");
  return now();
}
/// Runs `wait` between two stamps.
template <class Wait>
PTX_FN void interval(Kind kind, int line, uint32_t address, int n, Wait wait) {
  const uint32_t begin = now();
  wait();
  record(begin, now(), what(kind, line, n), address);
}
/// Up to eight letters of a name, as two words.
PTX_FN void letters(const char* name, uint32_t& low, uint32_t& high) {
  low = high = 0;
  bool more = true;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    more = more && name[i];
    if (more) (i < 4 ? low : high) |= uint32_t(uint8_t(name[i])) << i % 4 * 8;
  }
}

}  // namespace trace

#define LINE int line = __builtin_LINE()  // of the call in the kernel

/// Thread 0's labels tell which buffer and stage an address belongs to.
PTX_FN void label(const void* p, size_t bytes, const char* name, int stage = -1) {
  uint32_t low, high;
  trace::letters(name, low, high);
  if (threadIdx.x == 0)
    trace::record(smem_addr(p), low,
                  uint32_t(trace::Kind::label) | uint32_t(stage + 1) << 8 |
                      uint32_t(bytes / 8) << 16,
                  high);
}

// ---- copies of threads --------------------------------------------------------------------------
PTX_FN void cp_async_commit_group(LINE) {
  ptx_raw::cp_async_commit_group();
  trace::instant(trace::Kind::copy_commit, line);
}
/// Stamped where it had to wait: most find their copies there, and steps are short.
template <int N>
PTX_FN void cp_async_wait_group(LINE) {
  const uint32_t begin = trace::now();
  ptx_raw::cp_async_wait_group<N>();
  const uint32_t end = trace::now();
  if (end - begin > 40) trace::record(begin, end, trace::what(trace::Kind::copy_wait, line, N), 0);
}
PTX_FN void cp_async_mbarrier_arrive_noinc(uint64_t* bar, LINE) {
  ptx_raw::cp_async_mbarrier_arrive_noinc(bar);
  trace::instant(trace::Kind::copy_commit, line, smem_addr(bar));
}

// ---- barriers -----------------------------------------------------------------------------------
PTX_FN void syncthreads(LINE) {
  const uint32_t begin = trace::now();
  __syncthreads();
  trace::record(begin, trace::now_after_barrier(), trace::what(trace::Kind::barrier, line), 0);
}
PTX_FN void bar_sync(int id, int threads, LINE) {
  const uint32_t begin = trace::now();
  ptx_raw::bar_sync(id, threads);
  trace::record(begin, trace::now_after_barrier(), trace::what(trace::Kind::barrier, line, id), 0);
}
PTX_FN void griddepcontrol_wait(LINE) {  // for the launch before
  trace::interval(trace::Kind::flag_wait, line, 0, 0, [] { ptx_raw::griddepcontrol_wait(); });
}
PTX_FN void cluster_wait(LINE) {
  trace::interval(trace::Kind::cluster_barrier, line, 0, 0, [] { ptx_raw::cluster_wait(); });
}
PTX_FN void cluster_sync(LINE) {
  trace::interval(trace::Kind::cluster_barrier, line, 0, 0, [] { ptx_raw::cluster_sync(); });
}

// ---- mbarriers ----------------------------------------------------------------------------------
PTX_FN void mbarrier_wait(uint64_t* bar, uint32_t parity, LINE) {
  trace::interval(trace::Kind::mbarrier_wait, line, smem_addr(bar), 0,
                  [&] { ptx_raw::mbarrier_wait(bar, parity); });
}

// ---- TMA ----------------------------------------------------------------------------------------
PTX_FN void tma_load_2d(void* smem, const CUtensorMap* map, int x, int y, uint64_t* bar, LINE) {
  ptx_raw::tma_load_2d(smem, map, x, y, bar);
  trace::instant(trace::Kind::tma_load, line, smem_addr(smem));
}
PTX_FN void tma_load_2d_multicast(void* smem, const CUtensorMap* map, int x, int y, uint64_t* bar,
                                  uint16_t ctas, LINE) {
  ptx_raw::tma_load_2d_multicast(smem, map, x, y, bar, ctas);
  trace::instant(trace::Kind::tma_load, line, smem_addr(smem));
}
PTX_FN void tma_load_3d(void* smem, const CUtensorMap* map, int x, int y, int z, uint64_t* bar,
                        LINE) {
  ptx_raw::tma_load_3d(smem, map, x, y, z, bar);
  trace::instant(trace::Kind::tma_load, line, smem_addr(smem));
}
PTX_FN void tma_load_3d_multicast(void* smem, const CUtensorMap* map, int x, int y, int z,
                                  uint64_t* bar, uint16_t ctas, LINE) {
  ptx_raw::tma_load_3d_multicast(smem, map, x, y, z, bar, ctas);
  trace::instant(trace::Kind::tma_load, line, smem_addr(smem));
}
PTX_FN void tma_load_4d(void* smem, const CUtensorMap* map, int x, int y, int z, int w,
                        uint64_t* bar, LINE) {
  ptx_raw::tma_load_4d(smem, map, x, y, z, w, bar);
  trace::instant(trace::Kind::tma_load, line, smem_addr(smem));
}
PTX_FN void tma_load_4d_multicast(void* smem, const CUtensorMap* map, int x, int y, int z, int w,
                                  uint64_t* bar, uint16_t ctas, LINE) {
  ptx_raw::tma_load_4d_multicast(smem, map, x, y, z, w, bar, ctas);
  trace::instant(trace::Kind::tma_load, line, smem_addr(smem));
}
PTX_FN void tma_store_2d(const CUtensorMap* map, const void* smem, int x, int y, LINE) {
  ptx_raw::tma_store_2d(map, smem, x, y);
  trace::instant(trace::Kind::tma_store, line, smem_addr(smem));
}
PTX_FN void tma_store_3d(const CUtensorMap* map, const void* smem, int x, int y, int z, LINE) {
  ptx_raw::tma_store_3d(map, smem, x, y, z);
  trace::instant(trace::Kind::tma_store, line, smem_addr(smem));
}
PTX_FN void tma_store_4d(const CUtensorMap* map, const void* smem, int x, int y, int z, int w,
                         LINE) {
  ptx_raw::tma_store_4d(map, smem, x, y, z, w);
  trace::instant(trace::Kind::tma_store, line, smem_addr(smem));
}
template <int N>
PTX_FN void tma_store_wait_group_read(LINE) {
  trace::interval(trace::Kind::store_wait, line, 0, N,
                  [] { ptx_raw::tma_store_wait_group_read<N>(); });
}

// ---- wgmma --------------------------------------------------------------------------------------
template <int N>
PTX_FN void wgmma_wait_group(LINE) {
  trace::interval(trace::Kind::wgmma_wait, line, 0, N, [] { ptx_raw::wgmma_wait_group<N>(); });
}
template <int N, int REGS>
PTX_FN void wgmma_wait_group(float (&acc)[REGS], LINE) {
  trace::interval(trace::Kind::wgmma_wait, line, 0, N, [&] { ptx_raw::wgmma_wait_group<N>(acc); });
}
template <int N, int TILES, int REGS>
PTX_FN void wgmma_wait_group(float (&acc)[TILES][REGS], LINE) {
  trace::interval(trace::Kind::wgmma_wait, line, 0, N, [&] { ptx_raw::wgmma_wait_group<N>(acc); });
}

// ---- flags in global memory ---------------------------------------------------------------------
PTX_FN void wait_until(const int* flag, int value, LINE) {
  trace::interval(trace::Kind::flag_wait, line, 0, 0, [&] { ptx_raw::wait_until(flag, value); });
}

#undef LINE
#undef PTX_FN

}  // namespace ptx

// The one barrier that a kernel calls by CUDA's own name.
#define __syncthreads() ::ptx::syncthreads()

// Time stamps take registers, and a block may no longer fit beside another: the build says how many
// shall (cmake/gpu.cmake).
#if defined(LADDER_TRACE_BLOCKS)
#undef __launch_bounds__
#define __launch_bounds__(threads, ...) __annotate__(launch_bounds(threads, LADDER_TRACE_BLOCKS))
#endif

// How the program reaches this file's configuration.
namespace ptx::trace {
static void configure(const Config& c) {
  GPU_CHECK(cudaMemcpyToSymbol(ladder_trace_config, &c, sizeof c));
}
[[maybe_unused]] static const bool registered = register_trace(configure);
}  // namespace ptx::trace
