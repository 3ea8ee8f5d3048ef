// warm_l2: the same small input again and again, which never leaves the L2 cache.
// nvcc -std=c++17 -O3 -arch=native -o trap traps/warm_l2/trap.cu
// ./trap wrong; ./trap right
#include "../trap.h"

constexpr int64_t COUNT = 1 << 20;  // float4: 16 MiB, a matrix of 2896 x 2896 halves
constexpr int BUFFERS = 32;         // 512 MiB together, several times any L2
constexpr int LAUNCHES = 320;

__global__ void sum_kernel(const float4* x, float* sum) {
  float4 v[4];
  for (int i = 0; i < 4; ++i) v[i] = x[(blockIdx.x * 4 + i) * blockDim.x + threadIdx.x];
  float s = 0;
  for (int i = 0; i < 4; ++i) s += v[i].x + v[i].y + v[i].z + v[i].w;
  if (s == 12345.0f) *sum = s;  // never: it keeps the loads alive
}

// Seconds of a launch that rotates among `buffers` inputs; as a graph, since it is a short one.
double rotating(float4* x, int buffers, float* sum) {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t all;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < LAUNCHES; ++i)
    sum_kernel<<<COUNT / 1024, 256, 0, stream>>>(x + i % buffers * COUNT, sum);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&all, graph, 0));
  CHECK(cudaGraphLaunch(all, 0));  // warm-up
  return gpu_seconds([&] { CHECK(cudaGraphLaunch(all, 0)); }) / LAUNCHES;
}

int main(int, char** argv) {
  float4* x;
  float* sum;
  CHECK(cudaMalloc(&x, BUFFERS * COUNT * sizeof(float4)));
  CHECK(cudaMemset(x, 1, BUFFERS * COUNT * sizeof(float4)));
  CHECK(cudaMalloc(&sum, sizeof(float)));
  const double cold = rotating(x, BUFFERS, sum);
  const double seconds = rotating(x, is(argv, "wrong") ? 1 : BUFFERS, sum);
  report("launch", seconds * 1e6, "us");
  report("rate", COUNT * sizeof(float4) / seconds * 1e-12, "TB/s");
  report("vs_cold", cold / seconds, "x the rate on inputs that rotate");
}
