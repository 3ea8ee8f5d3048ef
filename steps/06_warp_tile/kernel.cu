// 06_warp_tile: the 32 threads of a warp share a compact 64x32 tile, each in pieces of 4x4.
// base: 05_vectorized
// arch: 75+
// unit: ffma
// New: a level between block and thread; all in the order the hardware likes; barriers overlapped.
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

__global__ void __launch_bounds__(NUM_THREADS)
    gemm_kernel(const half* A, const half* B, half* C, int M, int N, int K) {
  __shared__ __align__(16) float smem_a[BLOCK_K][BLOCK_M];
  __shared__ __align__(16) float smem_b[BLOCK_K][BLOCK_N];
  const int tid = threadIdx.x;
  const int block_m = blockIdx.y * BLOCK_M, block_n = blockIdx.x * BLOCK_N;
  const int warp_id = tid / 32, lane_id = tid % 32;
  // Z order: a read takes half the wavefronts where lane and lane ^ 1 (or ^ 2) want the same bytes.
  const int lane_m = lane_id / 2 % 2 + lane_id / 8 * 2;      // bits 4, 3, 1
  const int lane_n = lane_id % 2 + lane_id / 4 % 2 * 2;      // bits 2, 0
  // Of every 32 rows 4 are this thread's, of every 16 columns 4: pieces of lanes lie side by side.
  const int thread_m = warp_id / (BLOCK_N / WARP_N) * WARP_M + lane_m * 4;
  const int thread_n = warp_id % (BLOCK_N / WARP_N) * WARP_N + lane_n * 4;

  // What this thread moves, 8 elements of a row each. Neighbours: of A, neighbouring rows (banks).
  const int a_m = tid % BLOCK_M, a_k = tid / BLOCK_M * 8;
  const int b_k = tid / (BLOCK_N / 8), b_n = tid % (BLOCK_N / 8) * 8;
  const half* gmem_a = A + int64_t(block_m + a_m) * K + a_k;
  const half* gmem_b = B + int64_t(b_k) * N + block_n + b_n;
  __align__(16) half next_a[8], next_b[8];
  *reinterpret_cast<uint4*>(next_a) = *reinterpret_cast<const uint4*>(gmem_a);
  *reinterpret_cast<uint4*>(next_b) = *reinterpret_cast<const uint4*>(gmem_b);
  auto store_tile = [&] {
    __syncthreads();  // all have read the tile before
    for (int i = 0; i < 8; ++i) smem_a[a_k + i][a_m] = float(next_a[i]);
    for (int i = 0; i < 8; i += 4)
      *reinterpret_cast<float4*>(&smem_b[b_k][b_n + i]) =
          make_float4(next_b[i], next_b[i + 1], next_b[i + 2], next_b[i + 3]);
    __syncthreads();
  };
  // One set is read while the other multiplies; volatile, so that ptxas keeps the order: B, then A.
  float frag_a[2][THREAD_M / 4][4], frag_b[2][THREAD_N / 4][4];
  auto load_fragments = [&](int set, int k) {
    for (int j = 0; j < THREAD_N / 4; ++j)
      ptx::ld_volatile_shared_v4(frag_b[set][j], &smem_b[k][thread_n + j * 16]);
    for (int i = 0; i < THREAD_M / 4; ++i)
      ptx::ld_volatile_shared_v4(frag_a[set][i], &smem_a[k][thread_m + i * 32]);
  };

  float acc[THREAD_M][THREAD_N] = {};
  store_tile();
  load_fragments(0, 0);
  for (int k_tile = 0; k_tile < K / BLOCK_K; ++k_tile) {
    if (k_tile + 1 < K / BLOCK_K) {  // 8 registers hold the next tile while this one multiplies
      gmem_a += BLOCK_K, gmem_b += int64_t(BLOCK_K) * N;
      *reinterpret_cast<uint4*>(next_a) = *reinterpret_cast<const uint4*>(gmem_a);
      *reinterpret_cast<uint4*>(next_b) = *reinterpret_cast<const uint4*>(gmem_b);
    }
#pragma unroll
    for (int k = 0; k < BLOCK_K; ++k) {
      if (k == BLOCK_K - 1) store_tile();  // the next one; after the last it is not used
      load_fragments((k + 1) % 2, (k + 1) % BLOCK_K);
      for (int i = THREAD_M - 1; i >= 0; --i)
        for (int step = 0; step < THREAD_N; ++step) {
          // Serpentine: the register reuse cache supplies the operand shared with the one before.
          const int j = i % 2 ? THREAD_N - 1 - step : step;
          acc[i][j] += frag_a[k % 2][i / 4][i % 4] * frag_b[k % 2][j / 4][j % 4];
        }
    }
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
