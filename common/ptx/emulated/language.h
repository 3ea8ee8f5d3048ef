// CUDA C++ on a plain host compiler: keywords, built-in variables, small types and intrinsics.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "common/ptx/emulated/half.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
// The thread-local segment of the program is the static shared memory of a block: one contiguous
// range that the device finds, poisons and swaps (scheduler.cpp). There is only one real thread.
#define __shared__ static thread_local

#include "common/ptx/emulated/types.h"

inline float2 __half22float2(__half2 h) { return {h.x, h.y}; }
inline __half2 __float22half2_rn(float2 f) { return __floats2half2_rn(f.x, f.y); }

#include "common/ptx/emulated/instructions.h"

// Set by the scheduler whenever another thread of the kernel goes on.
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;
constexpr int warpSize = 32;

// Every function that meets other threads takes the place of its call as a last argument.
#define EMU_HERE emu::Loc here = emu::Loc::current()

inline void __syncthreads(EMU_HERE) { emu::bar_sync(0, 0, "__syncthreads", here); }
inline void __syncwarp(unsigned = ~0u, EMU_HERE) { emu::warp_sync(here); }
inline void __threadfence() { emu::fence_gpu(); }
inline void __threadfence_block() {}
inline void __nanosleep(unsigned) {}
inline long long clock64() { return 0; }
[[noreturn]] inline void __trap(EMU_HERE) { emu::trap(here); }

template <class T>
T __shfl_sync(unsigned, T value, int lane, int width = 32, EMU_HERE) {
  static_assert(sizeof(T) <= 8, "__shfl_sync moves 4 or 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  const int base = int(emu::lane()) / width * width;
  bits = emu::warp_shuffle(bits, unsigned(base + lane % width), here);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int x, int width = 32, EMU_HERE) {
  return __shfl_sync(mask, value, int(emu::lane() ^ unsigned(x)) % width, width, here);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, int delta, int width = 32, EMU_HERE) {
  const int lane = int(emu::lane()) % width;
  return __shfl_sync(mask, value, lane + delta < width ? lane + delta : lane, width, here);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int delta, int width = 32, EMU_HERE) {
  const int lane = int(emu::lane()) % width;
  return __shfl_sync(mask, value, lane >= delta ? lane - delta : lane, width, here);
}
inline unsigned __ballot_sync(unsigned, int predicate, EMU_HERE) {
  return emu::warp_ballot(predicate != 0, here);
}
inline int __any_sync(unsigned, int predicate, EMU_HERE) {
  return emu::warp_ballot(predicate != 0, here) != 0;
}
inline int __all_sync(unsigned, int predicate, EMU_HERE) {
  return emu::warp_ballot(predicate == 0, here) == 0;
}

// Fibers only switch inside the device, so a read and a write in a row are one atomic operation.
#define EMU_ATOMIC(name, update)                        \
  template <class T>                                    \
  T name(T* p, std::common_type_t<T> v, EMU_HERE) {     \
    T old;                                              \
    emu::atomic_read(&old, p, sizeof(T), here);         \
    const T fresh = update;                             \
    emu::atomic_write(p, &fresh, sizeof(T), here);      \
    return old;                                         \
  }
EMU_ATOMIC(atomicAdd, old + v)
EMU_ATOMIC(atomicExch, v)
EMU_ATOMIC(atomicMax, old < v ? v : old)
EMU_ATOMIC(atomicMin, v < old ? v : old)
#undef EMU_ATOMIC
template <class T>
T atomicCAS(T* p, std::common_type_t<T> expected, std::common_type_t<T> v, EMU_HERE) {
  T old;
  emu::atomic_read(&old, p, sizeof(T), here);
  if (old == expected) emu::atomic_write(p, &v, sizeof(T), here);
  return old;
}

// Cache hints change nothing here.
#define EMU_LOAD(name) \
  template <class T>   \
  __forceinline__ T name(const T* p) { return *p; }
EMU_LOAD(__ldg) EMU_LOAD(__ldcg) EMU_LOAD(__ldca) EMU_LOAD(__ldcs)
#undef EMU_LOAD
#define EMU_STORE(name) \
  template <class T>    \
  __forceinline__ void name(T* p, T value) { *p = value; }
EMU_STORE(__stcg) EMU_STORE(__stcs) EMU_STORE(__stwt) EMU_STORE(__stwb)
#undef EMU_STORE

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return T(b) < T(a) ? T(b) : T(a);
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return T(a) < T(b) ? T(b) : T(a);
}
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline unsigned __float_as_uint(float f) { return emu::float_to_bits(f); }
inline float __uint_as_float(unsigned bits) { return emu::bits_to_float(bits); }
inline int __float_as_int(float f) { return int(emu::float_to_bits(f)); }
inline float __int_as_float(int bits) { return emu::bits_to_float(unsigned(bits)); }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __clz(int v) { return v ? __builtin_clz(unsigned(v)) : 32; }
inline int __ffs(int v) { return __builtin_ffs(v); }
