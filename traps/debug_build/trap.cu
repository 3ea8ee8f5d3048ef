// debug_build: device code built with -G, timed.
// nvcc -std=c++17 -O3 -arch=native -o trap traps/debug_build/trap.cu
// wrong: nvcc -std=c++17 -G -arch=native -o trap traps/debug_build/trap.cu
// ./trap
#include "../trap.h"

constexpr int COUNT = 1 << 20;
constexpr int ROUNDS = 1024;

// Sixteen multiply-adds in flight, in registers; with -G every one of them goes through memory.
__global__ void fma_kernel(float* x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float acc[16];
  for (int j = 0; j < 16; ++j) acc[j] = x[i] + j;
  for (int round = 0; round < ROUNDS; ++round)
    for (int j = 0; j < 16; ++j) acc[j] = acc[j] * 0.5f + 1.0f;
  float sum = 0;
  for (int j = 0; j < 16; ++j) sum += acc[j];
  x[i] = sum;
}

int main() {
  float* x;
  CHECK(cudaMalloc(&x, COUNT * sizeof(float)));
  CHECK(cudaMemset(x, 0, COUNT * sizeof(float)));
  const auto launch = [&] {
    fma_kernel<<<COUNT / 256, 256>>>(x);
    CHECK(cudaGetLastError());
  };
  launch();  // warm-up
  const double seconds = gpu_seconds(launch);
  cudaFuncAttributes kernel;
  CHECK(cudaFuncGetAttributes(&kernel, fma_kernel));
  report("rate", 2.0 * COUNT * 16 * ROUNDS / seconds * 1e-12, "TFLOPS");
  report("local", double(kernel.localSizeBytes), "bytes of local memory for each thread");
}
