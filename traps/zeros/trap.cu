// zeros: a GEMM timed on matrices that were only allocated and cleared.
// nvcc -std=c++17 -O3 -arch=native -o trap traps/zeros/trap.cu -lcublas
// ./trap wrong; ./trap right
#include <cublas_v2.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <random>

#include "../trap.h"

constexpr int SIZE = 8192;
constexpr int LAUNCHES = 100, ROUNDS = 5;
constexpr size_t COUNT = size_t(SIZE) * SIZE;

// N(0,1) numbers, as weights and activations are.
std::vector<half> normal() {
  std::mt19937 random(1);
  std::normal_distribution<float> draw;
  std::vector<half> some(1 << 20), all(COUNT);
  for (half& x : some) x = __float2half(draw(random));
  for (size_t i = 0; i < COUNT; ++i) all[i] = some[i % (some.size() - 3)];
  return all;
}

int main(int, char** argv) {
  half *data[2], *c;  // [0]: what is timed, [1]: normal data to compare with
  for (half*& x : data) CHECK(cudaMalloc(&x, COUNT * sizeof(half)));
  CHECK(cudaMalloc(&c, COUNT * sizeof(half)));
  const std::vector<half> host = normal();
  CHECK(cudaMemcpy(data[1], host.data(), COUNT * sizeof(half), cudaMemcpyHostToDevice));
  if (is(argv, "wrong"))
    CHECK(cudaMemset(data[0], 0, COUNT * sizeof(half)));
  else
    CHECK(cudaMemcpy(data[0], host.data(), COUNT * sizeof(half), cudaMemcpyHostToDevice));
  cublasHandle_t cublas;
  if (cublasCreate(&cublas) != CUBLAS_STATUS_SUCCESS) return 3;
  const auto gemm = [&](const half* x) {
    const float one = 1, zero = 0;
    if (cublasGemmEx(cublas, CUBLAS_OP_N, CUBLAS_OP_N, SIZE, SIZE, SIZE, &one, x, CUDA_R_16F, SIZE,
                     x, CUDA_R_16F, SIZE, &zero, c, CUDA_R_16F, SIZE, CUBLAS_COMPUTE_32F,
                     CUBLAS_GEMM_DEFAULT) != CUBLAS_STATUS_SUCCESS)
      exit(3);
  };
  std::vector<double> rate[2];
  for (int round = 0; round <= ROUNDS; ++round)  // both in turn: the same clock, the same heat
    for (int i = 0; i < 2; ++i) {
      const double t = gpu_seconds([&] { for (int n = 0; n < LAUNCHES; ++n) gemm(data[i]); });
      if (round > 0) rate[i].push_back(2.0 * COUNT * SIZE * LAUNCHES / t * 1e-12);
    }
  for (auto& r : rate) std::sort(r.begin(), r.end());
  report("rate", rate[0][ROUNDS / 2], "TFLOPS");
  report("vs_normal", rate[0][ROUNDS / 2] / rate[1][ROUNDS / 2], "x the rate on normal data");
}
