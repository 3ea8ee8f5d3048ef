// 05_vectorized: 16 bytes an access: 8 FP16 values from global memory, 4 FP32 values from shared.
// base: 04_thread_tile
// arch: 75+
// unit: ffma
// New: uint4 and float4, A transposed on its way to shared memory; so few loads that they can be
// issued a tile ahead.
// Shapes: M and N multiples of 128, K of 16; rows of 16 bytes follow from that.
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
static_assert(THREAD_M % 4 == 0 && THREAD_N % 8 == 0, "fragments and rows of C move 16 bytes");
static_assert(BLOCK_M * BLOCK_K == NUM_THREADS * 8 && BLOCK_K * BLOCK_N == NUM_THREADS * 8,
              "each thread moves one piece of 8 elements of each tile");

__global__ void __launch_bounds__(NUM_THREADS)
    gemm_kernel(const half* A, const half* B, half* C, int M, int N, int K) {
  __shared__ __align__(16) float smem_a[BLOCK_K][BLOCK_M];
  __shared__ __align__(16) float smem_b[BLOCK_K][BLOCK_N];
  const int tid = threadIdx.x;
  const int block_m = blockIdx.y * BLOCK_M, block_n = blockIdx.x * BLOCK_N;
  const int thread_m = tid / (BLOCK_N / THREAD_N) * THREAD_M;  // first row of this thread
  const int thread_n = tid % (BLOCK_N / THREAD_N) * THREAD_N;  // first column

  // The piece of A and the piece of B that this thread moves, 8 elements of a row each.
  const int a_m = tid / (BLOCK_K / 8), a_k = tid % (BLOCK_K / 8) * 8;
  const int b_k = tid / (BLOCK_N / 8), b_n = tid % (BLOCK_N / 8) * 8;
  const half* gmem_a = A + int64_t(block_m + a_m) * K + a_k;
  const half* gmem_b = B + int64_t(b_k) * N + block_n + b_n;
  __align__(16) half next_a[8], next_b[8];
  *reinterpret_cast<uint4*>(next_a) = *reinterpret_cast<const uint4*>(gmem_a);
  *reinterpret_cast<uint4*>(next_b) = *reinterpret_cast<const uint4*>(gmem_b);

  float acc[THREAD_M][THREAD_N] = {};
  for (int k_tile = 0; k_tile < K / BLOCK_K; ++k_tile) {
    for (int i = 0; i < 8; ++i) smem_a[a_k + i][a_m] = float(next_a[i]);
    for (int i = 0; i < 8; i += 4)
      *reinterpret_cast<float4*>(&smem_b[b_k][b_n + i]) =
          make_float4(next_b[i], next_b[i + 1], next_b[i + 2], next_b[i + 3]);
    __syncthreads();
    if (k_tile + 1 < K / BLOCK_K) {  // 8 registers hold the next tile while this one multiplies
      gmem_a += BLOCK_K, gmem_b += int64_t(BLOCK_K) * N;
      *reinterpret_cast<uint4*>(next_a) = *reinterpret_cast<const uint4*>(gmem_a);
      *reinterpret_cast<uint4*>(next_b) = *reinterpret_cast<const uint4*>(gmem_b);
    }
#pragma unroll
    for (int k = 0; k < BLOCK_K; ++k) {
      __align__(16) float frag_a[THREAD_M], frag_b[THREAD_N];
      for (int i = 0; i < THREAD_M; i += 4)
        *reinterpret_cast<float4*>(&frag_a[i]) =
            *reinterpret_cast<const float4*>(&smem_a[k][thread_m + i]);
      for (int j = 0; j < THREAD_N; j += 4)
        *reinterpret_cast<float4*>(&frag_b[j]) =
            *reinterpret_cast<const float4*>(&smem_b[k][thread_n + j]);
      for (int i = 0; i < THREAD_M; ++i)
        for (int j = 0; j < THREAD_N; ++j) acc[i][j] += frag_a[i] * frag_b[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < THREAD_M; ++i)
    for (int j = 0; j < THREAD_N; j += 8) {
      __align__(16) half2 pairs[4];
      for (int q = 0; q < 4; ++q)
        pairs[q] = __floats2half2_rn(acc[i][j + 2 * q], acc[i][j + 2 * q + 1]);
      const uint4 packed = *reinterpret_cast<const uint4*>(pairs);
      *reinterpret_cast<uint4*>(
          &C[int64_t(block_m + thread_m + i) * N + block_n + thread_n + j]) = packed;
    }
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
