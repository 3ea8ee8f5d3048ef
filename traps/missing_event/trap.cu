// missing_event: a kernel reads what another stream is still writing.
// nvcc -std=c++17 -O3 -arch=native -o trap traps/missing_event/trap.cu
// ./trap wrong; ./trap right
#include "../trap.h"

constexpr int COUNT = 1 << 16;  // 64 blocks of a kernel: there is room for both
constexpr int RUNS = 20;

__global__ void producer_kernel(float* x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  busy_for(200000);
  x[i] = float(i);
}

__global__ void consumer_kernel(const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = 2 * x[i];
}

int main(int, char** argv) {
  float *x, *y;
  cudaStream_t first, second;
  cudaEvent_t produced;
  CHECK(cudaMalloc(&x, COUNT * sizeof(float)));
  CHECK(cudaMalloc(&y, COUNT * sizeof(float)));
  CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&produced, cudaEventDisableTiming));
  consumer_kernel<<<COUNT / 1024, 1024, 0, second>>>(x, y);  // its first launch, which loads code,
  producer_kernel<<<COUNT / 1024, 1024, 0, first>>>(x);      // would wait for the other kernel
  std::vector<float> result(COUNT);
  int wrong_runs = 0;
  double wrong_elements = 0;
  for (int run = 0; run < RUNS; ++run) {
    CHECK(cudaMemset(x, 0xff, COUNT * sizeof(float)));  // NaN: old data can't pass for new
    CHECK(cudaMemset(y, 0xff, COUNT * sizeof(float)));
    CHECK(cudaDeviceSynchronize());
    producer_kernel<<<COUNT / 1024, 1024, 0, first>>>(x);
    CHECK(cudaGetLastError());
    if (!is(argv, "wrong")) {
      CHECK(cudaEventRecord(produced, first));
      CHECK(cudaStreamWaitEvent(second, produced));  // the GPU waits, the host does not
    }
    consumer_kernel<<<COUNT / 1024, 1024, 0, second>>>(x, y);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(result.data(), y, COUNT * sizeof(float), cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int i = 0; i < COUNT; ++i) wrong += !(result[i] == 2.0f * i);  // true for NaN
    wrong_runs += wrong > 0;
    wrong_elements += wrong;
  }
  report("wrong_elements", 100 * wrong_elements / RUNS / COUNT, "% of the result");
  report("wrong_runs", wrong_runs, "of 20 runs");
}
