// 06_warp_tile: the 32 threads of a warp share a compact 64x32 tile, each in pieces of 4x4.
// base: 05_vectorized
// arch: 75+
// unit: ffma
// New: a level between block and thread; lanes and multiply-adds in the order the hardware likes.
// Shapes: M and N multiples of 128, K of 16; rows of 16 bytes follow from that.
#include "common/step.h"

namespace {

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 16;
constexpr int WARP_M = 64;
constexpr int WARP_N = 32;
constexpr int THREAD_M = WARP_M / 8;  // lanes stand 8 x 4
constexpr int THREAD_N = WARP_N / 4;
constexpr int NUM_THREADS = (BLOCK_M / WARP_M) * (BLOCK_N / WARP_N) * 32;
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "warps must fill the tile");
static_assert(NUM_THREADS <= 1024, "a block has at most 1024 threads");
static_assert(THREAD_M % 4 == 0 && THREAD_N % 4 == 0, "fragments move 16 bytes");
static_assert(BLOCK_M * BLOCK_K == NUM_THREADS * 8 && BLOCK_K * BLOCK_N == NUM_THREADS * 8,
              "each thread moves one piece of 8 elements of each tile");

// 8 FP16 values as FP32.
__device__ void unpack(float (&values)[8], const uint4& packed) {
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
  // Lanes in Z order: a read of 16 bytes a lane takes half the wavefronts where each lane and its
  // neighbour (lane ^ 1, or lane ^ 2) want the same address.
  const int lane_m = lane_id / 2 % 2 + lane_id / 8 * 2;      // bits 4, 3, 1
  const int lane_n = lane_id % 2 + lane_id / 4 % 2 * 2;      // bits 2, 0
  // A thread's rows are 4 here, 4 more 32 further on, and so on; its columns likewise, 16 apart:
  // the 4-element pieces of the lanes lie side by side.
  const int thread_m = warp_id / (BLOCK_N / WARP_N) * WARP_M + lane_m * 4;
  const int thread_n = warp_id % (BLOCK_N / WARP_N) * WARP_N + lane_n * 4;

  // The piece of A and the piece of B that this thread moves, 8 elements of a row each.
  const int a_m = tid / (BLOCK_K / 8), a_k = tid % (BLOCK_K / 8) * 8;
  const int b_k = tid / (BLOCK_N / 8), b_n = tid % (BLOCK_N / 8) * 8;
  const half* gmem_a = A + int64_t(block_m + a_m) * K + a_k;
  const half* gmem_b = B + int64_t(b_k) * N + block_n + b_n;
  uint4 next_a = *reinterpret_cast<const uint4*>(gmem_a);
  uint4 next_b = *reinterpret_cast<const uint4*>(gmem_b);

  float acc[THREAD_M][THREAD_N] = {};
  for (int k_tile = 0; k_tile < K / BLOCK_K; ++k_tile) {
    float values[8];
    unpack(values, next_a);
    for (int i = 0; i < 8; ++i) smem_a[a_k + i][a_m] = values[i];
    unpack(values, next_b);
    for (int i = 0; i < 8; i += 4)
      *reinterpret_cast<float4*>(&smem_b[b_k][b_n + i]) =
          make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]);
    __syncthreads();
    if (k_tile + 1 < K / BLOCK_K) {  // 8 registers hold the next tile while this one multiplies
      gmem_a += BLOCK_K, gmem_b += int64_t(BLOCK_K) * N;
      next_a = *reinterpret_cast<const uint4*>(gmem_a);
      next_b = *reinterpret_cast<const uint4*>(gmem_b);
    }
#pragma unroll
    for (int k = 0; k < BLOCK_K; ++k) {
      __align__(16) float frag_a[THREAD_M], frag_b[THREAD_N];
      for (int i = 0; i < THREAD_M; i += 4)
        *reinterpret_cast<float4*>(&frag_a[i]) =
            *reinterpret_cast<const float4*>(&smem_a[k][thread_m + i * 8]);
      for (int j = 0; j < THREAD_N; j += 4)
        *reinterpret_cast<float4*>(&frag_b[j]) =
            *reinterpret_cast<const float4*>(&smem_b[k][thread_n + j * 4]);
      for (int i = 0; i < THREAD_M; ++i)
        for (int step = 0; step < THREAD_N; ++step) {
          // Serpentine: each multiply-add shares an operand with the one before, which the register
          // reuse cache then supplies; a fresh pair would cost the register file a second cycle.
          const int j = i % 2 ? THREAD_N - 1 - step : step;
          acc[i][j] += frag_a[i] * frag_b[j];
        }
    }
    __syncthreads();
  }

  for (int i = 0; i < THREAD_M; ++i)
    for (int j = 0; j < THREAD_N; j += 4) {
      const int m = thread_m + i / 4 * 32 + i % 4, n = thread_n + j * 4;
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
