// smem_limit: more shared memory than a launch gets, and nobody looks at what it returned.
// nvcc -std=c++17 -O3 -arch=native -o trap traps/smem_limit/trap.cu
// ./trap wrong; ./trap right
#include "../trap.h"

constexpr int COUNT = 1 << 26;
constexpr int BLOCK = 1024;
constexpr int SMEM_BYTES = 64 << 10;  // above 48 KB only after cudaFuncSetAttribute

// Reverses blocks of BLOCK floats by way of shared memory.
__global__ void reverse_kernel(const float* in, float* out) {
  extern __shared__ float tile[];
  const int64_t block = int64_t(blockIdx.x) * BLOCK;
  tile[threadIdx.x] = in[block + threadIdx.x];
  __syncthreads();
  out[block + threadIdx.x] = tile[BLOCK - 1 - threadIdx.x];
}

int main(int, char** argv) {
  float *in, *out;
  CHECK(cudaMalloc(&in, COUNT * sizeof(float)));
  CHECK(cudaMalloc(&out, COUNT * sizeof(float)));
  std::vector<float> host(COUNT);
  for (int i = 0; i < COUNT; ++i) host[i] = float(i % 4096);
  CHECK(cudaMemcpy(in, host.data(), COUNT * sizeof(float), cudaMemcpyHostToDevice));
  CHECK(cudaMemset(out, 0xff, COUNT * sizeof(float)));  // NaN: what is not written shows
  if (!is(argv, "wrong")) {
    int limit = 0;
    CHECK(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    if (SMEM_BYTES > limit) {
      fprintf(stderr, "error: needs %d bytes of shared memory, this GPU has %d\n", SMEM_BYTES,
              limit);
      return 3;
    }
    CHECK(cudaFuncSetAttribute(reverse_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               SMEM_BYTES));
  }
  const auto launch = [&] { reverse_kernel<<<COUNT / BLOCK, BLOCK, SMEM_BYTES>>>(in, out); };
  launch();  // warm-up
  const double seconds = gpu_seconds(launch);
  const cudaError_t error = cudaGetLastError();  // the wrong program never asks
  CHECK(cudaMemcpy(host.data(), out, COUNT * sizeof(float), cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int i = 0; i < COUNT; ++i) {
    const int source = i / BLOCK * BLOCK + BLOCK - 1 - i % BLOCK;
    wrong += !(host[i] == float(source % 4096));
  }
  report("apparent_rate", 100 * 2.0 * COUNT * sizeof(float) / seconds / memory_peak(),
         "% of the memory's bandwidth");
  report("launch_error", error, (std::string("(") + cudaGetErrorString(error) + ")").c_str());
  report("wrong_elements", 100.0 * wrong / COUNT, "% of the result");
}
