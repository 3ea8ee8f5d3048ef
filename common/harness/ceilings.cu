#include "common/harness/ceilings.h"

#include "common/harness/data.h"
#include "common/harness/device.h"
#include "common/step.h"

namespace harness {
namespace {

// Every kernel repeats its work `rounds` times and makes its result reachable, or it is deleted.
using Kernel = void (*)(const void* data, int64_t bytes, int rounds, float* sink);

constexpr int THREADS = 256;

__global__ void random_halves(uint16_t* data, int64_t count) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    data[i] = element(Inputs::normal, 7, uint64_t(i), 1);
}

// ---- FFMA: an 8x8 outer product per thread, as in a register tile -------------------------------
__global__ __launch_bounds__(THREADS, 2) void ffma_kernel(const void* data, int64_t, int rounds,
                                                          float* sink) {
  // acc * a + b with the same a and b throughout: both come from the register reuse cache, so the
  // register file has one operand to deliver a clock. An outer product, where two or three are
  // fresh, stops at 89 % of this (step 06 is about that).
  const __half* random = static_cast<const __half*>(data) + threadIdx.x * 2;
  const float b = __half2float(random[0]);
  const float a = 1.0f / (1.0f + fabsf(__half2float(random[1])));  // below 1: acc stays finite
  float acc[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) acc[i] = b * i;
#pragma unroll 4
  for (int r = 0; r < rounds; ++r)
#pragma unroll
    for (int i = 0; i < 64; ++i) acc[i] = fmaf(acc[i], a, b);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 64; ++i) sum += acc[i];
  sink[blockIdx.x * THREADS + threadIdx.x] = sum;
}

// ---- mma.sync m16n8k16: a 64x32 tile per warp, both operands in registers -----------------------
__global__ __launch_bounds__(THREADS, 2) void mma_sync_kernel(const void* data, int64_t, int rounds,
                                                              float* sink) {
#if __CUDA_ARCH__ >= 800
  const uint32_t* random = static_cast<const uint32_t*>(data) + threadIdx.x * 24;
  uint32_t a[4][4], b[4][2];
  float acc[4][4][4] = {};
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) a[i][j] = random[4 * i + j];
    for (int j = 0; j < 2; ++j) b[i][j] = random[16 + 2 * i + j];
  }
#pragma unroll 2
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) ptx::mma_m16n8k16_f16(acc[i][j], a[i], b[j]);
  }
  float sum = 0;
  for (int i = 0; i < 64; ++i) sum += acc[i / 16][i / 4 % 4][i % 4];
  sink[blockIdx.x * THREADS + threadIdx.x] = sum;
#endif
}

// ---- wgmma m64n256k16: two warpgroups, A [64][64] each and B [256][64] in shared memory ---------
constexpr int WGMMA_SMEM = (2 * 64 + 256) * 64 * 2;

__global__ __launch_bounds__(THREADS, 1) void wgmma_kernel(const void* data, int64_t, int rounds,
                                                           float* sink) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  unsigned char* smem = static_cast<unsigned char*>(ptx::dynamic_smem());
  for (int i = threadIdx.x; i < WGMMA_SMEM / 16; i += THREADS)
    reinterpret_cast<uint4*>(smem)[i] = static_cast<const uint4*>(data)[i];
  ptx::fence_proxy_async();
  __syncthreads();
  // K-major, 128-byte swizzle (PTX "Matrix Descriptor"): rows of 128 bytes, 8 of them 1,024 apart.
  const auto descriptor = [](const void* p) {
    const uint64_t address = (ptx::smem_addr(p) & 0x3ffff) >> 4;
    return address | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
  };
  const uint64_t desc_a = descriptor(smem + threadIdx.x / 128 * (64 * 128));
  const uint64_t desc_b = descriptor(smem + 2 * 64 * 128);
  float acc[128] = {};
  for (int r = 0; r < rounds; ++r) {
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 16; ++i)  // the next 16 of k lie 32 bytes on, four times
      ptx::wgmma_m64n256k16_f16<ptx::Major::k, ptx::Major::k>(acc, desc_a + i % 4 * 2,
                                                              desc_b + i % 4 * 2, 1);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>(acc);
  }
  float sum = 0;
  for (int i = 0; i < 128; ++i) sum += acc[i];
  sink[blockIdx.x * THREADS + threadIdx.x] = sum;
#endif
}

// ---- reading: HBM (a buffer far larger than L2), L2 (a part of it), shared memory ---------------
__device__ void add(uint4& sum, const uint4& v) {
  sum.x ^= v.x, sum.y ^= v.y, sum.z ^= v.z, sum.w ^= v.w;
}

__global__ __launch_bounds__(THREADS) void read_kernel(const void* data, int64_t bytes, int rounds,
                                                       float* sink) {
  const uint4* from = static_cast<const uint4*>(data);
  const int64_t count = bytes / 16, stride = int64_t(gridDim.x) * THREADS;
  uint4 sum = {};
  for (int r = 0; r < rounds; ++r) {
    int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    for (; i + 3 * stride < count; i += 4 * stride) {  // four loads in flight
      const uint4 v0 = __ldcg(from + i), v1 = __ldcg(from + i + stride);
      const uint4 v2 = __ldcg(from + i + 2 * stride), v3 = __ldcg(from + i + 3 * stride);
      add(sum, v0), add(sum, v1), add(sum, v2), add(sum, v3);
    }
    for (; i < count; i += stride) add(sum, __ldcg(from + i));
  }
  sink[blockIdx.x * THREADS + threadIdx.x] = float(sum.x ^ sum.y ^ sum.z ^ sum.w);
}

// ---- reading L2 by TMA: tiles of 128 rows and 64 k, two for a block, as a product with 128x128
// tiles would: neighbours read the same ones. Or, if not `together`, each at another k: then no two
// blocks read the same bytes at the same time.
constexpr int TILE = 128, TILE_K = 64, K_TILES = 16, TILE_COLUMNS = 16, STAGES = 3;
constexpr int TILE_BYTES = TILE * TILE_K * 2, TMA_SMEM = STAGES * 2 * TILE_BYTES;

__global__ __launch_bounds__(32) void tma_kernel(const __grid_constant__ CUtensorMap tmap,
                                                 bool together, int rounds) {
#if __CUDA_ARCH__ >= 900
  unsigned char* smem = static_cast<unsigned char*>(ptx::dynamic_smem());
  __shared__ uint64_t full_bar[STAGES];
  if (threadIdx.x > 0) return;
  for (int stage = 0; stage < STAGES; ++stage) ptx::mbarrier_init(&full_bar[stage], 1);
  ptx::fence_mbarrier_init();
  const int row = blockIdx.x / TILE_COLUMNS, column = blockIdx.x % TILE_COLUMNS;
  for (int i = 0; i < rounds * K_TILES + STAGES; ++i) {
    const int stage = i % STAGES, phase = i / STAGES & 1;
    if (i >= STAGES) ptx::mbarrier_wait(&full_bar[stage], phase ^ 1);
    if (i >= rounds * K_TILES) continue;
    const int k = (i + (together ? 0 : row + column)) % K_TILES * TILE_K;
    unsigned char* to = smem + stage * 2 * TILE_BYTES;
    ptx::mbarrier_arrive_expect_tx(&full_bar[stage], 2 * TILE_BYTES);
    ptx::tma_load_2d(to, &tmap, k, (TILE_COLUMNS + row) * TILE, &full_bar[stage]);
    ptx::tma_load_2d(to + TILE_BYTES, &tmap, k, column * TILE, &full_bar[stage]);
  }
#endif
}

__global__ __launch_bounds__(THREADS) void smem_kernel(const void* data, int64_t, int rounds,
                                                       float* sink) {
  __shared__ uint4 smem[8][THREADS];
  for (int i = 0; i < 8; ++i)
    smem[i][threadIdx.x] = static_cast<const uint4*>(data)[i * THREADS + threadIdx.x];
  __syncthreads();
  uint4 sum = {};
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < 8; ++i) add(sum, smem[i][(threadIdx.x + r) % THREADS]);
  }
  sink[blockIdx.x * THREADS + threadIdx.x] = float(sum.x ^ sum.y ^ sum.z ^ sum.w);
}

}  // namespace

struct Ceiling::Impl {
  std::string unit;
  Kernel kernel = nullptr;
  bool tma = false, together = false;
  CUtensorMap tmap;
  gpu::LaunchConfig config;
  double flop_per_round = 0, bytes_per_round = 0;  // of the whole grid
  int64_t bytes = 0;                               // of `data`
  std::unique_ptr<gpu::Buffer> data, sink;
  int rounds = 0;                                  // of one launch

  void launch(int n, gpu::Stream stream) const {
    if (tma)
      gpu::launch(stream, config, tma_kernel, tmap, together, n);
    else
      gpu::launch(stream, config, kernel, data->get(), bytes, n, sink->get<float>());
  }
};

bool Ceiling::has(const std::string& unit, const GpuInfo& gpu) {
  if (unit == "wgmma") return gpu.sm == 90;
  if (unit == "mma_sync") return gpu.sm >= 80;
  if (unit == "l2_tma" || unit == "l2_tiles") return gpu.sm >= 90;
  return true;
}

Ceiling::Ceiling(const std::string& unit, gpu::Stream stream) : impl_(new Impl) {
  Impl& c = *impl_;
  const GpuInfo gpu = gpu_info();
  if (!has(unit, gpu)) throw gpu::Error(gpu.name + " has no " + unit);
  c.unit = unit;
  c.bytes = 1 << 20;
  int blocks_per_sm = 2;
  const double warps = THREADS / 32;
  double flop = 0, bytes = 0;  // of a block and round
  if (unit == "ffma") c.kernel = ffma_kernel, flop = 2.0 * THREADS * 64;
  if (unit == "mma_sync") c.kernel = mma_sync_kernel, flop = warps * 16 * (2 * 16 * 8 * 16);
  if (unit == "wgmma") {
    c.kernel = wgmma_kernel, flop = 2.0 * 16 * (2 * 64 * 256 * 16);
    blocks_per_sm = 1;
    c.config.dynamic_smem = WGMMA_SMEM;
    gpu::allow_dynamic_smem(c.kernel, WGMMA_SMEM);
  }
  if (unit == "smem") c.kernel = smem_kernel, bytes = THREADS * 8 * 16, blocks_per_sm = 4;
  if (unit == "hbm" || unit == "l2") {
    c.kernel = read_kernel, blocks_per_sm = unit == "hbm" ? 8 : 4;
    // HBM: 16 times L2, so that at most 1/16 of the reads hit. L2: an eighth, which stays in both
    // of its halves. Whole rounds of the grid, four loads a thread.
    const double wanted = unit == "hbm" ? std::min(gpu.l2 * 16, free_memory() / 2) : gpu.l2 / 8;
    const int64_t grid_reads = int64_t(gpu.sms) * blocks_per_sm * THREADS * 64;
    c.bytes = std::max<int64_t>(1, int64_t(wanted) / grid_reads) * grid_reads;
  }
  const int tile_rows = ceil_div(gpu.sms * blocks_per_sm, TILE_COLUMNS);
  const int rows = (TILE_COLUMNS + tile_rows) * TILE, cols = K_TILES * TILE_K;
  if (unit == "l2_tma" || unit == "l2_tiles") {
    c.tma = true, c.together = unit == "l2_tiles";
    bytes = K_TILES * 2 * TILE_BYTES, c.bytes = int64_t(rows) * cols * 2;
    c.config.dynamic_smem = TMA_SMEM;
    gpu::allow_dynamic_smem(tma_kernel, TMA_SMEM);
  }
  if (!c.kernel && !c.tma) throw gpu::Error("there is no ceiling of \"" + unit + "\"");
  const int blocks = gpu.sms * blocks_per_sm;
  c.flop_per_round = flop * blocks;
  c.bytes_per_round = c.kernel == read_kernel ? double(c.bytes) : bytes * blocks;
  c.config.grid = dim3(unsigned(blocks)), c.config.block = dim3(c.tma ? 32 : THREADS);
  c.data = std::make_unique<gpu::Buffer>(size_t(c.bytes), "operands of a ceiling");
  c.sink = std::make_unique<gpu::Buffer>(size_t(blocks) * THREADS * 4, "results of a ceiling");
  if (c.tma)
    c.tmap = gpu::tensor_map_2d(c.data->get(), rows, cols, cols, TILE, TILE_K, gpu::Swizzle::b128);
  gpu::launch(stream, {dim3(unsigned(gpu.sms * 8)), dim3(256)}, random_halves,
              c.data->get<uint16_t>(), c.bytes / 2);
  // Rounds for some 3 ms, so that filling shared memory and ramping up are below 0.1 %.
  cudaEvent_t start, end;
  GPU_CHECK(cudaEventCreate(&start));
  GPU_CHECK(cudaEventCreate(&end));
  for (int rounds = 1;; rounds *= 4) {
    c.launch(rounds, stream);  // once to warm up
    GPU_CHECK(cudaEventRecord(start, stream));
    c.launch(rounds, stream);
    GPU_CHECK(cudaEventRecord(end, stream));
    GPU_CHECK(cudaEventSynchronize(end));
    float milliseconds;
    GPU_CHECK(cudaEventElapsedTime(&milliseconds, start, end));
    c.rounds = std::max(1, int(3 / milliseconds * rounds));
    if (milliseconds > 1 || rounds > (1 << 26)) break;
  }
  cudaEventDestroy(start);
  cudaEventDestroy(end);
}

Contender Ceiling::contender() const {
  Contender contender;
  contender.name = "ceiling_" + impl_->unit;
  contender.flop = impl_->flop_per_round * impl_->rounds;
  contender.bytes = impl_->bytes_per_round * impl_->rounds;
  contender.launch = [impl = impl_](int, gpu::Stream stream) {
    impl->launch(impl->rounds, stream);
  };
  return contender;
}

void Ceiling::run(double launches, gpu::Stream stream) const {
  impl_->launch(std::max(1, int(launches * impl_->rounds + 0.5)), stream);
}

}  // namespace harness
