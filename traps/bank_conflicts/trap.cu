// bank_conflicts: a column of a tile whose rows are 32 floats long.
// nvcc -std=c++17 -O3 -arch=native -I. -o trap traps/bank_conflicts/trap.cu
// ./trap wrong; ./trap right
#include "traps/trap.h"

#include "common/gpu/gpu.h"
#include "common/ptx/ptx.h"
#if defined(LADDER_EMULATED)
#include "common/emulator/device.h"
#endif

constexpr int ROUNDS = 32;

// Each warp reads columns: lane i takes row i. STRIDE 32 puts a whole column into one bank, which
// answers one lane at a time; with STRIDE 33 every row begins a bank further on.
template <int STRIDE>
__global__ void column_kernel(float* out, long long* cycles) {
  __shared__ float tile[32 * STRIDE];  // [32][32], rows STRIDE apart
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  tile[warp * STRIDE + lane] = float(warp * lane);
  __syncthreads();
  const long long start = clock64();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < ROUNDS; ++i) sum += tile[lane * STRIDE + (warp + i) % 32];
  out[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) *cycles = clock64() - start;
}

int main(int, char** argv) {
  gpu::Buffer out(1024 * sizeof(float), "out"), cycles(sizeof(long long), "cycles");
  gpu::LaunchConfig config;
  config.grid = dim3(1), config.block = dim3(1024);
  const auto kernel = is(argv, "wrong") ? column_kernel<32> : column_kernel<33>;
  for (int run = 0; run < 2; ++run)  // the first loads code
    gpu::launch(0, config, kernel, out.get<float>(), cycles.get<long long>());
  gpu::synchronize();
  long long measured = 0;
  gpu::copy_to_host(&measured, cycles.get(), sizeof(measured));
#if defined(LADDER_EMULATED)
  const auto& loads = emu::counters().shared_load;
  report("wavefronts", double(loads.wavefronts) / double(loads.requests),
         "for each load of a warp");
#else
  report("cycles", double(measured) / (32.0 * ROUNDS), "for each load of a warp");
#endif
}
