// 06_warp_tile: the 32 threads of a warp share a compact 64x32 tile, each in pieces of 4x4.
// base: 05_vectorized
// arch: 75+
// unit: ffma
// New: a level between block and thread. Every shared-memory read is one wavefront, no conflicts.
// Shapes: M and N multiples of 128, K of 16; rows of 16 bytes follow from that.
#include "common/step.h"

namespace {

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 16;
constexpr int WARP_M = 64;
constexpr int WARP_N = 32;
constexpr int LANES_M = 8;  // lanes of a warp along M
constexpr int LANES_N = 4;
constexpr int THREAD_M = WARP_M / LANES_M;
constexpr int THREAD_N = WARP_N / LANES_N;
constexpr int NUM_THREADS = (BLOCK_M / WARP_M) * (BLOCK_N / WARP_N) * 32;
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "warps must fill the tile");
static_assert(LANES_M * LANES_N == 32, "a warp has 32 lanes");
static_assert(NUM_THREADS <= 1024, "a block has at most 1024 threads");
static_assert(THREAD_M % 4 == 0 && THREAD_N % 4 == 0, "fragments move 16 bytes");
static_assert(BLOCK_K % 8 == 0 && BLOCK_N % 8 == 0, "rows of a tile move 16 bytes at a time");

// 8 FP16 values, loaded at once, as FP32.
__device__ void load_8(float (&values)[8], const half* gmem) {
  const uint4 packed = *reinterpret_cast<const uint4*>(gmem);
  const half2* pairs = reinterpret_cast<const half2*>(&packed);
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __half22float2(pairs[i]);
    values[2 * i] = pair.x, values[2 * i + 1] = pair.y;
  }
}

__global__ void __launch_bounds__(NUM_THREADS)
    gemm_kernel(const half* A, const half* B, half* C, int M, int N, int K) {
  __shared__ __align__(16) float smem_a[BLOCK_K][BLOCK_M];
  __shared__ __align__(16) float smem_b[BLOCK_K][BLOCK_N];
  const int tid = threadIdx.x;
  const int block_m = blockIdx.y * BLOCK_M, block_n = blockIdx.x * BLOCK_N;
  const int warp_id = tid / 32, lane_id = tid % 32;
  // A thread's rows are 4 here, 4 more LANES_M * 4 further on, and so on; its columns likewise:
  // the 4-element pieces of neighbouring lanes lie side by side.
  const int thread_m = warp_id / (BLOCK_N / WARP_N) * WARP_M + lane_id / LANES_N * 4;
  const int thread_n = warp_id % (BLOCK_N / WARP_N) * WARP_N + lane_id % LANES_N * 4;

  float acc[THREAD_M][THREAD_N] = {};
  for (int k_tile = 0; k_tile < K / BLOCK_K; ++k_tile) {
    for (int i = tid; i < BLOCK_M * BLOCK_K / 8; i += NUM_THREADS) {
      const int m = i / (BLOCK_K / 8), k = i % (BLOCK_K / 8) * 8;
      float values[8];
      load_8(values, &A[int64_t(block_m + m) * K + k_tile * BLOCK_K + k]);
      for (int j = 0; j < 8; ++j) smem_a[k + j][m] = values[j];
    }
    for (int i = tid; i < BLOCK_K * BLOCK_N / 8; i += NUM_THREADS) {
      const int k = i / (BLOCK_N / 8), n = i % (BLOCK_N / 8) * 8;
      float values[8];
      load_8(values, &B[int64_t(k_tile * BLOCK_K + k) * N + block_n + n]);
      for (int j = 0; j < 8; j += 4) {
        const float4 four = make_float4(values[j], values[j + 1], values[j + 2], values[j + 3]);
        *reinterpret_cast<float4*>(&smem_b[k][n + j]) = four;
      }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BLOCK_K; ++k) {
      __align__(16) float frag_a[THREAD_M], frag_b[THREAD_N];
      for (int i = 0; i < THREAD_M; i += 4)
        *reinterpret_cast<float4*>(&frag_a[i]) =
            *reinterpret_cast<const float4*>(&smem_a[k][thread_m + i * LANES_M]);
      for (int j = 0; j < THREAD_N; j += 4)
        *reinterpret_cast<float4*>(&frag_b[j]) =
            *reinterpret_cast<const float4*>(&smem_b[k][thread_n + j * LANES_N]);
      for (int i = 0; i < THREAD_M; ++i)
        for (int j = 0; j < THREAD_N; ++j) acc[i][j] += frag_a[i] * frag_b[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < THREAD_M; ++i)
    for (int j = 0; j < THREAD_N; j += 4) {
      const int m = thread_m + i / 4 * 4 * LANES_M + i % 4, n = thread_n + j * LANES_N;
      __align__(8) half2 pairs[2];
      for (int q = 0; q < 2; ++q)
        pairs[q] = __floats2half2_rn(acc[i][j + 2 * q], acc[i][j + 2 * q + 1]);
      const uint2 packed = *reinterpret_cast<const uint2*>(pairs);
      *reinterpret_cast<uint2*>(&C[int64_t(block_m + m) * N + block_n + n]) = packed;
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
