// no_sync_timing: the host's clock around a launch that has only been enqueued.
// nvcc -std=c++17 -O3 -arch=native -o trap traps/no_sync_timing/trap.cu
// ./trap wrong; ./trap right
#include "../trap.h"

constexpr int64_t COUNT = int64_t{1} << 26;  // float4: 1 GiB
constexpr int LAUNCHES = 20;

__global__ void scale_kernel(float4* x) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  float4 v = x[i];
  v.x *= 0.5f, v.y *= 0.5f, v.z *= 0.5f, v.w *= 0.5f;
  x[i] = v;
}

int main(int, char** argv) {
  float4* x;
  CHECK(cudaMalloc(&x, COUNT * sizeof(float4)));
  CHECK(cudaMemset(x, 1, COUNT * sizeof(float4)));
  const auto launch = [&] {
    scale_kernel<<<COUNT / 1024, 1024>>>(x);
    CHECK(cudaGetLastError());
  };
  launch();  // warm-up
  CHECK(cudaDeviceSynchronize());
  double seconds;
  if (is(argv, "wrong")) {
    const double start = now();
    for (int i = 0; i < LAUNCHES; ++i) launch();
    seconds = (now() - start) / LAUNCHES;  // the time to ask, not the time to do
  } else {
    seconds = gpu_seconds([&] { for (int i = 0; i < LAUNCHES; ++i) launch(); }) / LAUNCHES;
  }
  CHECK(cudaDeviceSynchronize());
  report("launch", seconds * 1e6, "us");
  report("rate", 100 * 2.0 * COUNT * sizeof(float4) / seconds / memory_peak(),
         "% of the memory's bandwidth");
}
