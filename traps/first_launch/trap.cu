// first_launch: one launch timed, the first.
// nvcc -std=c++17 -O3 -arch=native -o trap traps/first_launch/trap.cu
// ./trap wrong; ./trap right
#include <algorithm>

#include "../trap.h"

constexpr int COUNT = 1 << 22;
constexpr int LAUNCHES = 11;

__global__ void scale_kernel(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] *= 0.5f; }

int main(int, char** argv) {
  const double begin = now();
  float* x;
  CHECK(cudaMalloc(&x, COUNT * sizeof(float)));  // the first call makes the context
  CHECK(cudaMemset(x, 0, COUNT * sizeof(float)));
  CHECK(cudaDeviceSynchronize());
  const double context = now() - begin;
  std::vector<double> seconds;
  for (int i = 0; i < LAUNCHES; ++i) {
    const double start = now();
    scale_kernel<<<COUNT / 1024, 1024>>>(x);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    seconds.push_back(now() - start);
  }
  std::vector<double> later(seconds.begin() + 1, seconds.end());
  std::sort(later.begin(), later.end());
  const double median = later[later.size() / 2];
  const double taken = is(argv, "wrong") ? seconds[0] : median;
  report("context", context * 1e3, "ms, before any kernel");
  report("launch", taken * 1e6, "us");
  report("vs_later", taken / median, "x the median of the ten that follow");
}
