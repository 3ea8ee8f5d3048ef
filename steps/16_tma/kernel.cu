// 16_tma: one thread and the TMA unit fill the ring; mma.sync still multiplies.
// base: 14_rasterization
// arch: 90+
// unit: mma_sync
// New: tensor maps, bulk copies of whole boxes, mbarriers that count bytes. No addresses, no bounds
//      and no copy instructions in any other thread. TMA swizzles; ldmatrix applies the same XOR.
// Shapes: any M; N and K multiples of 8 (TMA rows of 16 bytes).
#include "common/step.h"

namespace {

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 256;
constexpr int BLOCK_K = 64;
constexpr int BOX_N = 64;  // columns of a TMA box: 128 bytes, the width of the swizzle
constexpr int WARP_M = 64;
constexpr int WARP_N = 64;
constexpr int MMA_M = 16, MMA_N = 8, MMA_K = 16;
constexpr int NUM_THREADS = (BLOCK_M / WARP_M) * (BLOCK_N / WARP_N) * 32;
constexpr int GROUP_M = 16;  // rasterization: tiles along M before the next column
static_assert(BLOCK_K * sizeof(half) == 128, "a row of A in shared memory is one swizzle row");
static_assert(WARP_N == BOX_N, "a warp reads one box of B");
static_assert(NUM_THREADS / 32 * MMA_M <= BLOCK_M, "16 rows of each warp fit where A was");

template <int NUM_STAGES>
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
constexpr int STAGE_BYTES = (BLOCK_M + BLOCK_N) * BLOCK_K * sizeof(half);

// Where chunk `chunk` (16 bytes) of a row lies in a box with the 128-byte swizzle.
__device__ int swizzled(int row, int chunk) { return row * BOX_N + (chunk ^ row % 8) * 8; }

// First row and column of `tile`. Tiles are walked in columns of GROUP_M, so that CTAs that run
// together share rows of A and columns of B in L2.
__device__ int2 tile_origin(int tile, int tiles_m, int tiles_n) {
  const int group_m = tile / (GROUP_M * tiles_n) * GROUP_M;
  const int in_group = tile % (GROUP_M * tiles_n);
  const int rows = min(GROUP_M, tiles_m - group_m);
  const int tile_m = group_m + in_group % rows, tile_n = in_group / rows;
  return make_int2(tile_m * BLOCK_M, tile_n * BLOCK_N);
}

template <int NUM_STAGES>
__global__ void __launch_bounds__(NUM_THREADS, 1)
    gemm_kernel(const __grid_constant__ CUtensorMap tmap_a,
                const __grid_constant__ CUtensorMap tmap_b, half* C, int M, int N, int K) {
  auto& smem = *static_cast<SharedStorage<NUM_STAGES>*>(ptx::dynamic_smem());
  const int tid = threadIdx.x, warp_id = tid / 32, lane_id = tid % 32;
  const int warp_m = warp_id / (BLOCK_N / WARP_N) * WARP_M, box = warp_id % (BLOCK_N / WARP_N);
  const int tiles_m = ceil_div(M, BLOCK_M), tiles_n = ceil_div(N, BLOCK_N);
  const int num_k_tiles = ceil_div(K, BLOCK_K);
  const int2 origin = tile_origin(blockIdx.x, tiles_m, tiles_n);
  const int block_m = origin.x, block_n = origin.y;

  // Starts the copy of one k tile into the ring; the barrier of its stage counts the bytes.
  const auto load_tile = [&](int k_tile) {
    const int stage = k_tile % NUM_STAGES;
    uint64_t* full_bar = &smem.full_bar[stage];
    ptx::mbarrier_arrive_expect_tx(full_bar, STAGE_BYTES);
    ptx::tma_load_2d(smem.a[stage], &tmap_a, k_tile * BLOCK_K, block_m, full_bar);
    for (int i = 0; i < BLOCK_N / BOX_N; ++i)
      ptx::tma_load_2d(smem.b[stage][i], &tmap_b, block_n + i * BOX_N, k_tile * BLOCK_K, full_bar);
  };

  if (tid == 0) {
    smem.label();
    for (int stage = 0; stage < NUM_STAGES; ++stage) ptx::mbarrier_init(&smem.full_bar[stage], 1);
    ptx::fence_mbarrier_init();
    for (int k_tile = 0; k_tile < min(NUM_STAGES, num_k_tiles); ++k_tile) load_tile(k_tile);
  }
  __syncthreads();

  float acc[WARP_M / MMA_M][WARP_N / MMA_N][4] = {};
  uint32_t frag_a[2][WARP_M / MMA_M][4], frag_b[2][WARP_N / MMA_N / 2][4];
  const auto load_fragments = [&](int set, int stage, int k_inner) {
    for (int i = 0; i < WARP_M / MMA_M; ++i) {
      const int row = warp_m + i * MMA_M + lane_id % 16, chunk = k_inner * 2 + lane_id / 16;
      ptx::ldmatrix_x4(frag_a[set][i], &smem.a[stage][swizzled(row, chunk)]);
    }
    for (int j = 0; j < WARP_N / MMA_N / 2; ++j) {
      const int row = k_inner * MMA_K + lane_id % 16, chunk = j * 2 + lane_id / 16;
      ptx::ldmatrix_x4_trans(frag_b[set][j], &smem.b[stage][box][swizzled(row, chunk)]);
    }
  };

  ptx::mbarrier_wait(&smem.full_bar[0], 0);
  load_fragments(0, 0, 0);
  for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
    const int stage = k_tile % NUM_STAGES;
#pragma unroll
    for (int k_inner = 0; k_inner < BLOCK_K / MMA_K; ++k_inner) {
      const int set = k_inner % 2;
      if (k_inner + 1 < BLOCK_K / MMA_K) {
        load_fragments(set ^ 1, stage, k_inner + 1);
      } else {
        __syncthreads();  // everybody has read this stage: refill it, go on to the next
        if (tid == 0 && k_tile + NUM_STAGES < num_k_tiles) load_tile(k_tile + NUM_STAGES);
        if (k_tile + 1 < num_k_tiles) {
          const int next = k_tile + 1;
          ptx::mbarrier_wait(&smem.full_bar[next % NUM_STAGES], next / NUM_STAGES & 1);
          load_fragments(set ^ 1, next % NUM_STAGES, 0);
        }
      }
      for (int i = 0; i < WARP_M / MMA_M; ++i)
        for (int j = 0; j < WARP_N / MMA_N; ++j) {
          const uint32_t(&pair)[4] = frag_b[set][j / 2];
          const uint32_t frag[2] = {pair[j % 2 * 2], pair[j % 2 * 2 + 1]};
          ptx::mma_m16n8k16_f16(acc[i][j], frag_a[set][i], frag);
        }
    }
  }

  // Epilogue, 16 rows of 64 columns at a time: rmem -> smem, where A was -> gmem in whole lines.
  half* staging = &smem.a[0][warp_id * MMA_M * BOX_N];
#pragma unroll
  for (int i = 0; i < WARP_M / MMA_M; ++i) {
    __syncwarp();
    for (int j = 0; j < WARP_N / MMA_N; j += 2) {
      uint32_t frag_c[4];
      for (int r = 0; r < 4; ++r)
        frag_c[r] = ptx::cvt_f16x2(acc[i][j + r / 2][r % 2 * 2], acc[i][j + r / 2][r % 2 * 2 + 1]);
      ptx::stmatrix_x4(&staging[swizzled(lane_id % 16, j + lane_id / 16)], frag_c);
    }
    __syncwarp();
    for (int r = 0; r < MMA_M; r += 4) {  // 4 rows of 128 bytes at once
      const int row = r + lane_id / 8, chunk = lane_id % 8;
      const int m = block_m + warp_m + i * MMA_M + row, n = block_n + box * BOX_N + chunk * 8;
      const uint4 eight = *reinterpret_cast<const uint4*>(&staging[swizzled(row, chunk)]);
      if (m < M && n < N) *reinterpret_cast<uint4*>(&C[int64_t(m) * N + n]) = eight;
    }
  }
}

std::string supports(const Problem& p) { return needs_multiples(p, 1, 8, 8); }

// The ring is as deep as shared memory allows: 4 stages on Hopper, 2 where a block has 99 KB.
template <int NUM_STAGES>
Launch prepare_stages(const Problem& p) {
  using gpu::Swizzle;
  const int M = int(p.M), N = int(p.N), K = int(p.K);
  auto* C = static_cast<half*>(p.C);
  const CUtensorMap tmap_a = gpu::tensor_map_2d(p.A, M, K, K, BLOCK_M, BLOCK_K, Swizzle::b128);
  const CUtensorMap tmap_b = gpu::tensor_map_2d(p.B, K, N, N, BLOCK_K, BOX_N, Swizzle::b128);
  gpu::LaunchConfig config;
  config.grid = dim3(ceil_div(M, BLOCK_M) * ceil_div(N, BLOCK_N));
  config.block = dim3(NUM_THREADS);
  config.dynamic_smem = sizeof(SharedStorage<NUM_STAGES>);
  gpu::allow_dynamic_smem(gemm_kernel<NUM_STAGES>, config.dynamic_smem);
  return [=](gpu::Stream stream) {
    gpu::launch(stream, config, gemm_kernel<NUM_STAGES>, tmap_a, tmap_b, C, M, N, K);
  };
}

Launch prepare(const Problem& p) {
  if (sizeof(SharedStorage<4>) <= size_t(gpu::max_smem_per_block())) return prepare_stages<4>(p);
  return prepare_stages<2>(p);
}

}  // namespace

REGISTER_STEP(supports, prepare);
