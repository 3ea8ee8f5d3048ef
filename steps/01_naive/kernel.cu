// 01_naive: one thread computes one element of C, straight from global memory.
// base: none
// arch: 75+
// unit: ffma
// New: the problem itself, C[M][N] = A[M][K] * B[K][N], row-major, FP16 in, FP32 accumulate.
// Shapes: any M, N, K >= 1.
#include "common/step.h"

namespace {

constexpr int BLOCK_M = 16;
constexpr int BLOCK_N = 16;

__global__ void gemm_kernel(const half* A, const half* B, half* C, int M, int N, int K) {
  // Neighbouring threads of a warp get neighbouring rows, the natural reading of "x comes first".
  const int m = blockIdx.x * BLOCK_M + threadIdx.x;
  const int n = blockIdx.y * BLOCK_N + threadIdx.y;
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
  config.grid = dim3(ceil_div(M, BLOCK_M), ceil_div(N, BLOCK_N));
  config.block = dim3(BLOCK_M, BLOCK_N);
  return [=](gpu::Stream stream) { gpu::launch(stream, config, gemm_kernel, A, B, C, M, N, K); };
}

}  // namespace

REGISTER_STEP(supports, prepare);
