// 03_smem_tile: a block copies a tile of A and of B to shared memory and multiplies from there.
// base: 02_coalesced
// arch: 75+
// unit: ffma
// New: shared memory, __syncthreads. Each element fetched from global memory is used 32 times.
// Shapes: any M, N, K >= 1.
#include "common/step.h"

namespace {

constexpr int BLOCK_M = 32;
constexpr int BLOCK_N = 32;
constexpr int BLOCK_K = 32;
static_assert(BLOCK_M == BLOCK_N && BLOCK_N == BLOCK_K,
              "thread (y, x) fills element (y, x) of both tiles, so they are square");

__global__ void gemm_kernel(const half* A, const half* B, half* C, int M, int N, int K) {
  __shared__ float smem_a[BLOCK_M][BLOCK_K];
  __shared__ float smem_b[BLOCK_K][BLOCK_N];
  const int x = threadIdx.x, y = threadIdx.y;
  const int m = blockIdx.y * BLOCK_M + y;
  const int n = blockIdx.x * BLOCK_N + x;

  float acc = 0.0f;
  for (int k_tile = 0; k_tile < ceil_div(K, BLOCK_K); ++k_tile) {
    const int a_k = k_tile * BLOCK_K + x, b_k = k_tile * BLOCK_K + y;
    // Zeros past the edges add nothing. No thread may leave early: all meet at the barriers.
    smem_a[y][x] = m < M && a_k < K ? __half2float(A[int64_t(m) * K + a_k]) : 0.0f;
    smem_b[y][x] = b_k < K && n < N ? __half2float(B[int64_t(b_k) * N + n]) : 0.0f;
    __syncthreads();  // the tile is complete
    for (int k = 0; k < BLOCK_K; ++k) acc += smem_a[y][k] * smem_b[k][x];
    __syncthreads();  // the tile is used up
  }
  if (m < M && n < N) C[int64_t(m) * N + n] = __float2half(acc);
}

std::string supports(const Problem& p) { return needs_default(p); }

Launch prepare(const Problem& p) {
  const auto* A = static_cast<const half*>(p.A);
  const auto* B = static_cast<const half*>(p.B);
  auto* C = static_cast<half*>(p.C);
  const int M = int(p.M), N = int(p.N), K = int(p.K);
  gpu::LaunchConfig config;
  config.grid = dim3(ceil_div(N, BLOCK_N), ceil_div(M, BLOCK_M));
  config.block = dim3(BLOCK_N, BLOCK_M);
  return [=](gpu::Stream stream) { gpu::launch(stream, config, gemm_kernel, A, B, C, M, N, K); };
}

}  // namespace

REGISTER_STEP(supports, prepare);
