// 94_wrong: has one wrong element.
// base: none
// arch: 75+
// unit: ffma
// For the tests of what happens when a step fails; not part of the ladder.
#include "common/step.h"

namespace {

constexpr int NUM_THREADS = 128;

__global__ void gemm_kernel(const half* A, const half* B, half* C, int M, int N, int K) {
  const int64_t i = int64_t(blockIdx.x) * NUM_THREADS + threadIdx.x;
  if (i >= int64_t(M) * N) return;
  const int64_t m = i / N, n = i % N;
  float acc = 0.0f;
  for (int k = 0; k < K; ++k)
    acc += __half2float(A[m * K + k]) * __half2float(B[int64_t(k) * N + n]);
  C[i] = __float2half(i == int64_t(M) * N / 2 ? acc + 1.0f : acc);
}

std::string supports(const Problem& p) { return needs_default(p); }

Launch prepare(const Problem& p) {
  const auto* A = static_cast<const half*>(p.A);
  const auto* B = static_cast<const half*>(p.B);
  auto* C = static_cast<half*>(p.C);
  const int M = int(p.M), N = int(p.N), K = int(p.K);
  gpu::LaunchConfig config;
  config.grid = dim3(unsigned(ceil_div(p.M * p.N, int64_t{NUM_THREADS})));
  config.block = dim3(NUM_THREADS);
  return [=](gpu::Stream stream) { gpu::launch(stream, config, gemm_kernel, A, B, C, M, N, K); };
}

}  // namespace

REGISTER_STEP(supports, prepare);
