// The kernels of 30: the product of one stretch of K, as FP32 sums, and what joins the sums.
// A tile of 128x128, one producer warp and two consumer warpgroups as in 20_two_consumers; new is
// only where K begins and ends. Shapes: any M; N and K multiples of 8.
#pragma once
#include "common/step.h"

namespace {

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 64;
constexpr int BOX_N = 64;  // columns of a TMA box: 128 bytes, the width of the swizzle
constexpr int WG_M = 64;
constexpr int WGMMA_K = 16;
constexpr int NUM_CONSUMERS = 2;
constexpr int NUM_THREADS = NUM_CONSUMERS * 128 + 32;  // and one producer warp
constexpr int NUM_STAGES = 6;
static_assert(BLOCK_M == NUM_CONSUMERS * WG_M, "each consumer takes 64 rows, the M of wgmma");
static_assert(BLOCK_N == 128, "the multiplication below is m64n128k16");

struct SharedStorage {  // 1,024-byte aligned buffers first, as the swizzle needs
  half a[NUM_STAGES][BLOCK_M * BLOCK_K];                 // [BLOCK_M][64]
  half b[NUM_STAGES][BLOCK_N / BOX_N][BLOCK_K * BOX_N];  // [box][BLOCK_K][64]
  uint64_t full_bar[NUM_STAGES];
  uint64_t empty_bar[NUM_STAGES];

  __device__ void label() {
    for (int stage = 0; stage < NUM_STAGES; ++stage) {
      ptx::label(a[stage], sizeof(a[stage]), "A", stage);
      ptx::label(b[stage], sizeof(b[stage]), "B", stage);
      ptx::label(&full_bar[stage], sizeof(uint64_t), "full_bar", stage);
      ptx::label(&empty_bar[stage], sizeof(uint64_t), "empty_bar", stage);
    }
  }
};
constexpr int STAGE_BYTES = sizeof(SharedStorage::a[0]) + sizeof(SharedStorage::b[0]);
constexpr int A_K16_BYTES = WGMMA_K * sizeof(half);          // 16 k further in a row of A,
constexpr int B_K16_BYTES = WGMMA_K * BOX_N * sizeof(half);  // 16 rows of k further in a box of B

// Matrix descriptor of a tile with the 128-byte swizzle. LBO and SBO are the bytes between
// the 64-wide boxes of B (unused for A) and between groups of 8 rows.
__device__ uint64_t matrix_desc(const void* tile, int lbo, int sbo) {
  return uint64_t(ptx::smem_addr(tile) & 0x3FFFF) >> 4 | uint64_t(lbo >> 4) << 16 |
         uint64_t(sbo >> 4) << 32 | uint64_t{1} << 62;
}

// The descriptor `bytes` further on in the same tile: only the start address differs.
__device__ uint64_t advance(uint64_t desc, int bytes) {
  return (desc & ~uint64_t{0xFFFFFFFF}) | (uint32_t(desc) + (bytes >> 4));
}

// Sums of chunk `first_chunk + blockIdx.z` of `chunks` equal stretches of K, into its own slice of
// `partial` [chunks][M][N]. A stretch is at least one k tile: chunks <= k tiles.
__global__ void __launch_bounds__(NUM_THREADS, 1)
    chunk_kernel(const __grid_constant__ CUtensorMap tmap_a,
                 const __grid_constant__ CUtensorMap tmap_b, float* partial, int M, int N, int K,
                 int first_chunk, int chunks) {
  auto& smem = *static_cast<SharedStorage*>(ptx::dynamic_smem());
  const int tid = threadIdx.x, warp_id = tid / 32, lane_id = tid % 32;
  const int wg_id = __shfl_sync(~0u, tid / 128, 0);  // known to be uniform: descriptors stay scalar
  const int block_m = blockIdx.y * BLOCK_M, block_n = blockIdx.x * BLOCK_N;
  const int64_t num_k_tiles = ceil_div(K, BLOCK_K);
  const int chunk = first_chunk + blockIdx.z;
  const int k_begin = int(num_k_tiles * chunk / chunks);
  const int count = int(num_k_tiles * (chunk + 1) / chunks) - k_begin;

  if (tid == 0) {
    smem.label();
    for (int stage = 0; stage < NUM_STAGES; ++stage) {
      ptx::mbarrier_init(&smem.full_bar[stage], 1);
      ptx::mbarrier_init(&smem.empty_bar[stage], NUM_CONSUMERS);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();

  if (wg_id == NUM_CONSUMERS) {  // producer warp: one thread keeps the ring full
    if (lane_id == 0) {
      for (int i = 0; i < count; ++i) {
        const int stage = i % NUM_STAGES, phase = i / NUM_STAGES & 1, k = (k_begin + i) * BLOCK_K;
        uint64_t* full_bar = &smem.full_bar[stage];
        ptx::mbarrier_wait(&smem.empty_bar[stage], phase ^ 1);
        ptx::mbarrier_arrive_expect_tx(full_bar, STAGE_BYTES);
        ptx::tma_load_2d(smem.a[stage], &tmap_a, k, block_m, full_bar);
        for (int box = 0; box < BLOCK_N / BOX_N; ++box)
          ptx::tma_load_2d(smem.b[stage][box], &tmap_b, block_n + box * BOX_N, k, full_bar);
      }
    }
  } else {  // consumer warpgroups: 64 rows each
    float acc[BLOCK_N / 2] = {};  // never read; ptxas 12 wants a value (C7515)
    for (int i = 0; i < count; ++i) {
      const int stage = i % NUM_STAGES, phase = i / NUM_STAGES & 1;
      ptx::mbarrier_wait(&smem.full_bar[stage], phase);
      const uint64_t desc_a = matrix_desc(&smem.a[stage][wg_id * WG_M * BLOCK_K], 16, 1024);
      const uint64_t desc_b = matrix_desc(smem.b[stage], sizeof(smem.b[0][0]), 1024);
      ptx::wgmma_fence();
#pragma unroll
      for (int k16 = 0; k16 < BLOCK_K / WGMMA_K; ++k16)
        ptx::wgmma_m64n128k16_f16<ptx::Major::k, ptx::Major::mn>(
            acc, advance(desc_a, k16 * A_K16_BYTES), advance(desc_b, k16 * B_K16_BYTES),
            i > 0 || k16 > 0);
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<1>(acc);  // the group before has read its stage: release that
      if (i > 0 && tid % 128 == 0) ptx::mbarrier_arrive(&smem.empty_bar[(i - 1) % NUM_STAGES]);
    }
    ptx::wgmma_wait_group<0>(acc);

    // Epilogue: FP32 from the registers as they lie, 8 bytes a thread.
    const int row = block_m + wg_id * WG_M + warp_id % 4 * 16 + lane_id / 4;
    float* out = partial + int64_t(chunk) * M * N;
#pragma unroll
    for (int j = 0; j < BLOCK_N / 8; ++j) {
      const int col = block_n + j * 8 + lane_id % 4 * 2;
      for (int half_tile = 0; half_tile < 2; ++half_tile) {
        const int m = row + half_tile * 8, reg = j * 4 + half_tile * 2;
        if (m < M && col < N)
          *reinterpret_cast<float2*>(&out[int64_t(m) * N + col]) =
              make_float2(acc[reg], acc[reg + 1]);
      }
    }
  }
}

// C = the sum of all slices, in the order of K: same bits each run.
__global__ void join_kernel(const float* partial, half* C, int64_t count, int chunks) {
  const int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
  if (i >= count) return;
  float4 sum = *reinterpret_cast<const float4*>(&partial[i]);
  for (int chunk = 1; chunk < chunks; ++chunk) {
    const float4 next = *reinterpret_cast<const float4*>(&partial[chunk * count + i]);
    sum.x += next.x, sum.y += next.y, sum.z += next.z, sum.w += next.w;
  }
  *reinterpret_cast<uint2*>(&C[i]) =
      make_uint2(ptx::cvt_f16x2(sum.x, sum.y), ptx::cvt_f16x2(sum.z, sum.w));
}

// What of a problem every launch shares; `launch` multiplies `how_many` chunks from `first` on.
struct SplitK {
  CUtensorMap tmap_a, tmap_b;
  half* C;
  int M, N, K, chunks;
  float* partial;

  SplitK(const Problem& p, float* sums, int parts)
      : C(static_cast<half*>(p.C)), M(int(p.M)), N(int(p.N)), K(int(p.K)), chunks(parts),
        partial(sums) {
    using gpu::Swizzle;
    tmap_a = gpu::tensor_map_2d(p.A, M, K, K, BLOCK_M, BLOCK_K, Swizzle::b128);
    tmap_b = gpu::tensor_map_2d(p.B, K, N, N, BLOCK_K, BOX_N, Swizzle::b128);
    gpu::allow_dynamic_smem(chunk_kernel, sizeof(SharedStorage));
  }
  void launch(gpu::Stream stream, int first, int how_many) const {
    gpu::LaunchConfig config;
    config.grid = dim3(unsigned(ceil_div(N, BLOCK_N)), unsigned(ceil_div(M, BLOCK_M)),
                       unsigned(how_many));
    config.block = dim3(NUM_THREADS);
    config.dynamic_smem = sizeof(SharedStorage);
    gpu::launch(stream, config, chunk_kernel, tmap_a, tmap_b, partial, M, N, K, first, chunks);
  }
  void join(gpu::Stream stream) const {
    const int64_t count = int64_t(M) * N;
    gpu::LaunchConfig config;
    config.grid = dim3(unsigned(ceil_div(count, int64_t{4 * 128})));
    config.block = dim3(128);
    gpu::launch(stream, config, join_kernel, static_cast<const float*>(partial), C, count, chunks);
  }
};

}  // namespace
