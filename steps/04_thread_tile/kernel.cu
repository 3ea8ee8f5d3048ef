// 04_thread_tile: each thread computes 8x8 elements of C, from 8 + 8 values held in registers.
// base: 03_smem_tile
// arch: 75+
// unit: ffma
// New: accumulators and fragments in registers: 64 multiply-adds for 16 reads of shared memory.
// Shapes: M and N multiples of 128, K of 16.
#include "common/step.h"

namespace {

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 16;
constexpr int THREAD_M = 8;
constexpr int THREAD_N = 8;
constexpr int NUM_THREADS = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N);
static_assert(BLOCK_M % THREAD_M == 0 && BLOCK_N % THREAD_N == 0, "threads must fill the tile");
static_assert(NUM_THREADS <= 1024, "a block has at most 1024 threads");

__global__ void __launch_bounds__(NUM_THREADS)
    gemm_kernel(const half* A, const half* B, half* C, int M, int N, int K) {
  __shared__ float smem_a[BLOCK_M][BLOCK_K];
  __shared__ float smem_b[BLOCK_K][BLOCK_N];
  const int tid = threadIdx.x;
  const int block_m = blockIdx.y * BLOCK_M, block_n = blockIdx.x * BLOCK_N;
  const int thread_m = tid / (BLOCK_N / THREAD_N) * THREAD_M;  // first row of this thread
  const int thread_n = tid % (BLOCK_N / THREAD_N) * THREAD_N;  // first column

  float acc[THREAD_M][THREAD_N] = {};
  for (int k_tile = 0; k_tile < K / BLOCK_K; ++k_tile) {
    for (int i = tid; i < BLOCK_M * BLOCK_K; i += NUM_THREADS) {
      const int m = i / BLOCK_K, k = i % BLOCK_K;
      smem_a[m][k] = __half2float(A[int64_t(block_m + m) * K + k_tile * BLOCK_K + k]);
    }
    for (int i = tid; i < BLOCK_K * BLOCK_N; i += NUM_THREADS) {
      const int k = i / BLOCK_N, n = i % BLOCK_N;
      smem_b[k][n] = __half2float(B[int64_t(k_tile * BLOCK_K + k) * N + block_n + n]);
    }
    __syncthreads();
#pragma unroll 2  // more would take over 128 registers: one block per SM instead of two
    for (int k = 0; k < BLOCK_K; ++k) {
      float frag_a[THREAD_M], frag_b[THREAD_N];
      for (int i = 0; i < THREAD_M; ++i) frag_a[i] = smem_a[thread_m + i][k];
      for (int j = 0; j < THREAD_N; ++j) frag_b[j] = smem_b[k][thread_n + j];
      for (int i = 0; i < THREAD_M; ++i)
        for (int j = 0; j < THREAD_N; ++j) acc[i][j] += frag_a[i] * frag_b[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < THREAD_M; ++i)
    for (int j = 0; j < THREAD_N; ++j)
      C[int64_t(block_m + thread_m + i) * N + block_n + thread_n + j] = __float2half(acc[i][j]);
}

std::string supports(const Problem& p) { return needs_multiples(p, BLOCK_M, BLOCK_N, BLOCK_K); }

Launch prepare(const Problem& p) {
  const auto* A = static_cast<const half*>(p.A);
  const auto* B = static_cast<const half*>(p.B);
  auto* C = static_cast<half*>(p.C);
  const int M = int(p.M), N = int(p.N), K = int(p.K);
  gpu::LaunchConfig config;
  config.grid = dim3(N / BLOCK_N, M / BLOCK_M);
  config.block = dim3(NUM_THREADS);
  return [=](gpu::Stream stream) { gpu::launch(stream, config, gemm_kernel, A, B, C, M, N, K); };
}

}  // namespace

REGISTER_STEP(supports, prepare);
