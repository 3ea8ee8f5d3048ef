// 18_wgmma_pipeline: one group of multiplications stays in flight while the next is issued.
// base: 17_wgmma
// arch: 90a
// unit: wgmma
// New: wait_group<1>. The Tensor Core has the next group queued when it ends one; the elected
//      thread refills the stage of the group before.
// Shapes: any M; N and K multiples of 8 (TMA rows of 16 bytes).
#include "common/step.h"

namespace {

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 64;
constexpr int BOX_N = 64;  // columns of a TMA box: 128 bytes, the width of the swizzle
constexpr int WGMMA_M = 64;
constexpr int WGMMA_K = 16;
constexpr int NUM_THREADS = 128;  // one warpgroup
constexpr int NUM_STAGES = 3;     // 96 KB: two CTAs fit an SM
constexpr int GROUP_M = 16;  // rasterization: tiles along M before the next column
static_assert(BLOCK_N == 128, "the multiplication below is m64n128k16");
static_assert(BLOCK_K * sizeof(half) == 128, "a row of A in shared memory is one swizzle row");

struct SharedStorage {  // 1,024-byte aligned buffers first, as the swizzle needs
  half a[NUM_STAGES][BLOCK_M * BLOCK_K];                 // [BLOCK_M][64]
  half b[NUM_STAGES][BLOCK_N / BOX_N][BLOCK_K * BOX_N];  // [box][BLOCK_K][64]
  uint64_t full_bar[NUM_STAGES];

  __device__ void label() {
    for (int stage = 0; stage < NUM_STAGES; ++stage) {
      ptx::label(a[stage], sizeof(a[stage]), "A", stage);
      ptx::label(b[stage], sizeof(b[stage]), "B", stage);
      ptx::label(&full_bar[stage], sizeof(uint64_t), "full_bar", stage);
    }
  }
};
constexpr int STAGE_BYTES = sizeof(SharedStorage::a[0]) + sizeof(SharedStorage::b[0]);

// Matrix descriptor of a tile with the 128-byte swizzle. LBO and SBO are bytes between
// the 64-wide boxes of B (unused for A) and between groups of 8 rows.
__device__ uint64_t matrix_desc(const void* tile, int lbo, int sbo) {
  return uint64_t(ptx::smem_addr(tile) & 0x3FFFF) >> 4 | uint64_t(lbo >> 4) << 16 |
         uint64_t(sbo >> 4) << 32 | uint64_t{1} << 62;
}

// First row and column of `tile`. Tiles are walked in columns of GROUP_M, so that CTAs that run
// together share rows of A and columns of B in L2.
__device__ int2 tile_origin(int tile, int tiles_m, int tiles_n) {
  const int group_m = tile / (GROUP_M * tiles_n) * GROUP_M;
  const int in_group = tile % (GROUP_M * tiles_n);
  const int rows = min(GROUP_M, tiles_m - group_m);
  const int tile_m = group_m + in_group % rows, tile_n = in_group / rows;
  return make_int2(tile_m * BLOCK_M, tile_n * BLOCK_N);
}

__global__ void __launch_bounds__(NUM_THREADS, 2)
    gemm_kernel(const __grid_constant__ CUtensorMap tmap_a,
                const __grid_constant__ CUtensorMap tmap_b, half* C, int M, int N, int K) {
  auto& smem = *static_cast<SharedStorage*>(ptx::dynamic_smem());
  const int tid = threadIdx.x, warp_id = tid / 32, lane_id = tid % 32;
  const int tiles_m = ceil_div(M, BLOCK_M), tiles_n = ceil_div(N, BLOCK_N);
  const int k_tiles = ceil_div(K, BLOCK_K);
  const int2 origin = tile_origin(blockIdx.x, tiles_m, tiles_n);
  const int block_m = origin.x, block_n = origin.y;

  // Starts the copy of one k tile into the ring; the barrier of its stage counts the bytes.
  auto load_tile = [&](int k_tile) {
    const int stage = k_tile % NUM_STAGES;
    uint64_t* full_bar = &smem.full_bar[stage];
    ptx::mbarrier_arrive_expect_tx(full_bar, STAGE_BYTES);
    ptx::tma_load_2d(smem.a[stage], &tmap_a, k_tile * BLOCK_K, block_m, full_bar);
    for (int box = 0; box < BLOCK_N / BOX_N; ++box)
      ptx::tma_load_2d(smem.b[stage][box], &tmap_b, block_n + box * BOX_N, k_tile * BLOCK_K,
                       full_bar);
  };

  if (tid == 0) {
    smem.label();
    for (int stage = 0; stage < NUM_STAGES; ++stage) ptx::mbarrier_init(&smem.full_bar[stage], 1);
    ptx::fence_mbarrier_init();
    for (int k_tile = 0; k_tile < NUM_STAGES - 1 && k_tile < k_tiles; ++k_tile) load_tile(k_tile);
  }
  __syncthreads();

  float acc[BLOCK_M / WGMMA_M][BLOCK_N / 2];
  for (int k_tile = 0; k_tile < k_tiles; ++k_tile) {
    const int stage = k_tile % NUM_STAGES, phase = k_tile / NUM_STAGES & 1;
    ptx::mbarrier_wait(&smem.full_bar[stage], phase);
    ptx::wgmma_fence();
#pragma unroll
    for (int k_inner = 0; k_inner < BLOCK_K; k_inner += WGMMA_K)
#pragma unroll
      for (int m = 0; m < BLOCK_M / WGMMA_M; ++m)
        ptx::wgmma_m64n128k16_f16<ptx::Major::k, ptx::Major::mn>(
            acc[m], matrix_desc(smem.a[stage] + m * WGMMA_M * BLOCK_K + k_inner, 16, 1024),
            matrix_desc(smem.b[stage][0] + k_inner * BOX_N, sizeof(smem.b[0][0]), 1024),
            k_tile + k_inner > 0);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<1>(acc);  // the group before has read its stage: refill that
    if (tid == 0 && k_tile + NUM_STAGES - 1 < k_tiles) load_tile(k_tile + NUM_STAGES - 1);
  }
  ptx::wgmma_wait_group<0>(acc);

  // Epilogue: rmem -> gmem. The four lanes of a row write 16 bytes: half a sector.
  const int row = block_m + warp_id * 16 + lane_id / 4;
  const int col = block_n + lane_id % 4 * 2;
#pragma unroll
  for (int m = 0; m < BLOCK_M / WGMMA_M; ++m)
#pragma unroll
    for (int j = 0; j < BLOCK_N / 8; ++j)
      for (int i = 0; i < 2; ++i) {
        const uint32_t pair = ptx::cvt_f16x2(acc[m][4 * j + 2 * i], acc[m][4 * j + 2 * i + 1]);
        const int r = row + m * WGMMA_M + 8 * i, c = col + 8 * j;
        if (r < M && c < N) *reinterpret_cast<uint32_t*>(&C[int64_t(r) * N + c]) = pair;
      }
}

std::string supports(const Problem& p) { return needs_multiples(p, 1, 8, 8); }

Launch prepare(const Problem& p) {
  using gpu::Swizzle;
  const int M = int(p.M), N = int(p.N), K = int(p.K);
  auto* C = static_cast<half*>(p.C);
  const CUtensorMap tmap_a = gpu::tensor_map_2d(p.A, M, K, K, BLOCK_M, BLOCK_K, Swizzle::b128);
  const CUtensorMap tmap_b = gpu::tensor_map_2d(p.B, K, N, N, BLOCK_K, BOX_N, Swizzle::b128);
  const int tiles = ceil_div(M, BLOCK_M) * ceil_div(N, BLOCK_N);
  gpu::LaunchConfig config;
  config.grid = dim3(tiles);
  config.block = dim3(NUM_THREADS);
  config.dynamic_smem = sizeof(SharedStorage);
  gpu::allow_dynamic_smem(gemm_kernel, config.dynamic_smem);
  return [=](gpu::Stream stream) {
    gpu::launch(stream, config, gemm_kernel, tmap_a, tmap_b, C, M, N, K);
  };
}

}  // namespace

REGISTER_STEP(supports, prepare);
