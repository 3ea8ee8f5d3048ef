// 02_coalesced: the same work; the threads of a warp read and write neighbouring columns.
// base: 01_naive
// arch: 75+
// unit: ffma
// New: coalescing. A warp's 32 accesses to one row are served in 2 sectors of 32 bytes, not 32.
// Shapes: any M, N, K >= 1.
#include "common/step.h"

namespace {

constexpr int BLOCK_M = 8;
constexpr int BLOCK_N = 32;  // a warp is one row of the tile
static_assert(BLOCK_N % 32 == 0, "a warp must not straddle rows, or it reads two pieces of B");

__global__ void gemm_kernel(const half* A, const half* B, half* C, int M, int N, int K) {
  // Consecutive threads, consecutive columns: B and C are contiguous along n, A is broadcast.
  const int m = blockIdx.y * BLOCK_M + threadIdx.y;
  const int n = blockIdx.x * BLOCK_N + threadIdx.x;
  if (m >= M || n >= N) return;

  float acc = 0.0f;
  for (int k = 0; k < K; ++k)
    acc += __half2float(A[int64_t(m) * K + k]) * __half2float(B[int64_t(k) * N + n]);
  C[int64_t(m) * N + n] = __float2half(acc);
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
