// What the traps share: checked calls, the host's clock, a busy kernel, a line for each number.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

/// The variant that was asked for: `./trap wrong`, `./trap right`.
inline bool is(char** argv, const char* variant) { return argv[1] && !strcmp(argv[1], variant); }

/// One line `name: value unit`, which ./ladder learn trap reads.
inline void report(const char* name, double value, const char* unit) {
  printf("%s: %.6g %s\n", name, value, unit);
}

/// Seconds on the host's clock.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

#if defined(__CUDACC__)
#include <cuda_runtime.h>

#define CHECK(call) check_call((call), #call)
inline void check_call(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  fprintf(stderr, "error: %s: %s\n", call, cudaGetErrorString(status));
  exit(3);
}

/// Nanoseconds on the GPU's clock.
__device__ inline uint64_t globaltimer() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
  return ns;
}

/// Works for `ns` nanoseconds, whatever the GPU's clock.
static __device__ void busy_for(uint64_t ns) {
  for (const uint64_t end = globaltimer() + ns; globaltimer() < end;) {}
}

/// Seconds between two events around `work`, which enqueues on the default stream.
template <class Work>
double gpu_seconds(Work work) {
  cudaEvent_t start, end;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaEventRecord(start));
  work();
  CHECK(cudaEventRecord(end));
  CHECK(cudaEventSynchronize(end));
  float ms = 0;
  CHECK(cudaEventElapsedTime(&ms, start, end));
  CHECK(cudaEventDestroy(start));
  CHECK(cudaEventDestroy(end));
  return ms * 1e-3;
}

/// Bytes per second of the memory's pins, from its clock and width: nothing is faster.
inline double memory_peak() {
  int device = 0, khz = 0, bits = 0;
  CHECK(cudaGetDevice(&device));
  CHECK(cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, device));
  CHECK(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device));
  return 2.0 * khz * 1e3 * bits / 8;  // two transfers per clock
}
#endif
