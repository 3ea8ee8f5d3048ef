// 28_wide_tile.transposed: 200x256 for a CTA, since wgmma computes C^T and n may be 200.
// base: 28_wide_tile
// arch: 90a
// unit: wgmma
// New: wgmma's A is a box of B, its B 200 rows of A: the height of a tile is free in steps of 8:
//      chosen so that the last wave is full. No cluster: three stages of 57 KB each.
// Shapes: any M; N and K multiples of 8 (TMA rows of 16 bytes).
#include "common/step.h"

namespace {

constexpr int BLOCK_M = 200;
constexpr int BLOCK_N = 256;
constexpr int BLOCK_K = 64;
constexpr int BOX_N = 64;  // columns of a TMA box: 128 bytes, the width of the swizzle
constexpr int BOX_M = 40;  // rows of C that are staged at a time
constexpr int WG_N = 128;
constexpr int WGMMA_M = 64;  // columns of C
constexpr int WGMMA_K = 16;
constexpr int WARP_N = 16;
constexpr int NUM_CONSUMERS = 2;
constexpr int NUM_THREADS = (NUM_CONSUMERS + 1) * 128;  // and a producer: it gives registers away
constexpr int NUM_STAGES = 3;
constexpr int GROUP_M = 12;    // rasterization: 12 rows of 11 columns are a wave of 132 tiles
constexpr int PACE = 4;        // k tiles between two looks at the others
constexpr int SLACK = 0;       // looks that a CTA may be ahead of the mean
constexpr int MAX_POLLS = 32;  // then it goes on: nothing but speed depends on the pace
static_assert(BLOCK_M == 200, "the multiplication below is m64n200k16");
static_assert(BLOCK_M % BOX_M == 0 && BOX_M % 8 == 0, "staging in whole repeats of the swizzle");
static_assert(BLOCK_N == NUM_CONSUMERS * WG_N, "each consumer takes 128 columns, two boxes of B");
static_assert(WGMMA_M == BOX_N, "a box of B is the M of wgmma");
static_assert(BLOCK_K * sizeof(half) == 128, "a row of A in shared memory is one swizzle row");

struct SharedStorage {  // 1,024-byte aligned buffers first, as the swizzle needs
  half a[NUM_STAGES][BLOCK_M * BLOCK_K];                    // [BLOCK_M][64]
  half b[NUM_STAGES][BLOCK_N / BOX_N][BLOCK_K * BOX_N];     // [box][BLOCK_K][64]
  half c[NUM_CONSUMERS][2][WG_N / BOX_N][BOX_M * BOX_N];    // [consumer][even, odd][box][40][64]
  uint64_t full_bar[NUM_STAGES];
  uint64_t empty_bar[NUM_STAGES];

  __device__ void label() {
    for (int stage = 0; stage < NUM_STAGES; ++stage) {
      ptx::label(a[stage], sizeof(a[stage]), "A", stage);
      ptx::label(b[stage], sizeof(b[stage]), "B", stage);
      ptx::label(&full_bar[stage], sizeof(uint64_t), "full_bar", stage);
      ptx::label(&empty_bar[stage], sizeof(uint64_t), "empty_bar", stage);
    }
    ptx::label(c, sizeof(c), "C");
  }
};
constexpr int STAGE_BYTES = sizeof(SharedStorage::a[0]) + sizeof(SharedStorage::b[0]);
constexpr int BOX_BYTES = BLOCK_K * BOX_N * sizeof(half);
constexpr int A_K16_BYTES = WGMMA_K * sizeof(half);          // 16 k further in a row of A,
constexpr int B_K16_BYTES = WGMMA_K * BOX_N * sizeof(half);  // 16 rows of k further in a box of B

// Matrix descriptor of a tile with the 128-byte swizzle, one swizzle row wide: 1,024 bytes between
// groups of 8 rows, of A or of k.
__device__ uint64_t matrix_desc(const void* tile) {
  return uint64_t(ptx::smem_addr(tile) & 0x3FFFF) >> 4 | uint64_t{1} << 16 |
         uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

// The descriptor `bytes` further on in the same tile: only the start address differs.
__device__ uint64_t advance(uint64_t desc, int bytes) {
  return (desc & ~uint64_t{0xFFFFFFFF}) | (uint32_t(desc) + (bytes >> 4));
}

// Where chunk `chunk` (16 bytes) of a row lies in a box, with the same swizzle.
__device__ int swizzled(int row, int chunk) { return row * BOX_N + (chunk ^ row % 8) * 8; }

// First row and column of `tile`: in columns of GROUP_M, every other group backwards, as 26.
__device__ int2 tile_origin(int tile, int tiles_m, int tiles_n) {
  const int group = tile / (GROUP_M * tiles_n), group_m = group * GROUP_M;
  const int in_group = tile % (GROUP_M * tiles_n);
  const int rows = min(GROUP_M, tiles_m - group_m), column = in_group / rows;
  const int tile_m = group_m + in_group % rows;
  const int tile_n = group % 2 == 0 ? column : tiles_n - 1 - column;
  return make_int2(tile_m * BLOCK_M, tile_n * BLOCK_N);
}

__global__ void __launch_bounds__(NUM_THREADS, 1)
    gemm_kernel(const __grid_constant__ CUtensorMap tmap_a,
                const __grid_constant__ CUtensorMap tmap_b,
                const __grid_constant__ CUtensorMap tmap_c, int M, int N, int K, int* count) {
  auto& smem = *static_cast<SharedStorage*>(ptx::dynamic_smem());
  const int tid = threadIdx.x, warp_id = tid / 32, lane_id = tid % 32;
  const int wg_id = __shfl_sync(~0u, tid / 128, 0);  // known to be uniform: descriptors stay scalar
  const int tiles_m = ceil_div(M, BLOCK_M), tiles_n = ceil_div(N, BLOCK_N);
  const int num_k_tiles = ceil_div(K, BLOCK_K);
  const int first_tile = blockIdx.x, num_ctas = gridDim.x;

  if (tid == 0) {
    smem.label();
    for (int stage = 0; stage < NUM_STAGES; ++stage) {
      ptx::mbarrier_init(&smem.full_bar[stage], 1);
      ptx::mbarrier_init(&smem.empty_bar[stage], NUM_CONSUMERS);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();

  int stage = 0, phase = 0;  // of the ring, which never stops between tiles
  if (wg_id == NUM_CONSUMERS) {  // producer warpgroup: one thread keeps the ring full
    ptx::setmaxnreg_dec<40>();
    if (tid == NUM_CONSUMERS * 128) {
      uint32_t iter = 0;  // k tiles so far
      int seen = 0;       // what all CTAs had counted when this one last looked
      for (int tile = first_tile; tile < tiles_m * tiles_n; tile += num_ctas) {
        const auto [block_m, block_n] = tile_origin(tile, tiles_m, tiles_n);
        const bool backwards = tile / num_ctas % 2;  // the consumers add in any order
        for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile, ++iter) {
          uint64_t* full_bar = &smem.full_bar[stage];
          const int k = (backwards ? num_k_tiles - 1 - k_tile : k_tile) * BLOCK_K;
          ptx::mbarrier_wait(&smem.empty_bar[stage], phase ^ 1);
          ptx::mbarrier_arrive_expect_tx(full_bar, STAGE_BYTES);
          ptx::tma_load_2d(smem.a[stage], &tmap_a, k, block_m, full_bar);
          for (int box = 0; box < BLOCK_N / BOX_N; ++box)
            ptx::tma_load_2d(smem.b[stage][box], &tmap_b, block_n + box * BOX_N, k, full_bar);
          if (++stage == NUM_STAGES) stage = 0, phase ^= 1;
          if (iter % PACE == PACE - 1) {  // as 27
            ptx::red_add_relaxed(count, 1);
            const int counted = iter / PACE;  // by this CTA, when it last looked
            for (int i = 0; i < MAX_POLLS && seen < (counted - SLACK) * num_ctas; ++i)
              seen = ptx::ld_relaxed(count);
            seen = ptx::ld_relaxed(count);  // not needed, and so not waited for, before next time
          }
        }
      }
      const int all = ceil_div(tiles_m * tiles_n, num_ctas) * num_k_tiles / PACE + 1;
      ptx::red_add_relaxed(count, all - int(iter) / PACE);  // up to the end: hold nobody back
      if (first_tile == 0) {  // nobody looks any more: back to 0 for the next launch
        ptx::wait_until(count, all * num_ctas);
        ptx::red_add_relaxed(count, -all * num_ctas);
      }
    }
  } else {  // consumer warpgroups: 128 columns each
    ptx::setmaxnreg_inc<232>();
    float acc[WG_N / WGMMA_M][BLOCK_M / 2] = {};  // never read; ptxas 12 wants a value (C7515)
    for (int tile = first_tile; tile < tiles_m * tiles_n; tile += num_ctas) {
      int before = 0;  // the stage that the last group but one reads
      for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
        ptx::mbarrier_wait(&smem.full_bar[stage], phase);
        const uint64_t desc_a = matrix_desc(smem.a[stage]);
        const uint64_t desc_b = matrix_desc(smem.b[stage][wg_id * WG_N / BOX_N]);
        ptx::wgmma_fence();
#pragma unroll
        for (int k16 = 0; k16 < BLOCK_K / WGMMA_K; ++k16)
#pragma unroll
          for (int box = 0; box < WG_N / BOX_N; ++box)
            ptx::wgmma_m64n200k16_f16<ptx::Major::mn, ptx::Major::k>(
                acc[box], advance(desc_b, box * BOX_BYTES + k16 * B_K16_BYTES),
                advance(desc_a, k16 * A_K16_BYTES), k_tile > 0 || k16 > 0);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<1>(acc);  // the group before has read its stage: release that
        if (k_tile > 0 && tid % 128 == 0) ptx::mbarrier_arrive(&smem.empty_bar[before]);
        before = stage;
        if (++stage == NUM_STAGES) stage = 0, phase ^= 1;
      }
      const auto [block_m, block_n] = tile_origin(tile, tiles_m, tiles_n);
      if (tid % 128 == 0) ptx::tma_store_wait_group_read<0>();  // the tile before has left staging
      ptx::wgmma_wait_group<0>(acc);
      if (tid % 128 == 0) ptx::mbarrier_arrive(&smem.empty_bar[before]);

      // Epilogue, 40 rows at a time: rmem -> smem, turned round on the way -> gmem.
#pragma unroll
      for (int part = 0; part < BLOCK_M / BOX_M; ++part) {
        auto& staging = smem.c[wg_id][part % 2];
        if (part > 1 && tid % 128 == 0)
          ptx::tma_store_wait_group_read<1>();  // the part before last has left
        ptx::bar_sync(1 + wg_id, 128);
#pragma unroll
        for (int j = 0; j < BOX_M / 8; ++j) {  // 8 rows of C, 16 columns of either box for a warp
          uint32_t frag_c[4];
          for (int i = 0; i < 4; ++i) {
            const int reg = (part * BOX_M / 8 + j) * 4 + i % 2 * 2;
            frag_c[i] = ptx::cvt_f16x2(acc[i / 2][reg], acc[i / 2][reg + 1]);
          }
          const int row = j * 8 + lane_id % 8;
          const int chunk = warp_id % 4 * (WARP_N / 8) + lane_id / 8 % 2;
          ptx::stmatrix_x4_trans(&staging[lane_id / 16][swizzled(row, chunk)], frag_c);
        }
        ptx::fence_proxy_async();  // TMA reads what ordinary stores have written
        ptx::bar_sync(1 + wg_id, 128);
        if (tid % 128 == 0) {
          for (int box = 0; box < WG_N / BOX_N; ++box)
            ptx::tma_store_2d(&tmap_c, staging[box], block_n + wg_id * WG_N + box * BOX_N,
                              block_m + part * BOX_M);
          ptx::tma_store_commit_group();
        }
      }
    }
    ptx::tma_store_wait_group_read<0>();  // shared memory must outlive the stores that read it
  }
}

std::string supports(const Problem& p) { return needs_multiples(p, 1, 8, 8); }

Launch prepare(const Problem& p) {
  using gpu::Swizzle;
  const int M = int(p.M), N = int(p.N), K = int(p.K);
  const CUtensorMap tmap_a = gpu::tensor_map_2d(p.A, M, K, K, BLOCK_M, BLOCK_K, Swizzle::b128);
  const CUtensorMap tmap_b = gpu::tensor_map_2d(p.B, K, N, N, BLOCK_K, BOX_N, Swizzle::b128);
  const CUtensorMap tmap_c = gpu::tensor_map_2d(p.C, M, N, N, BOX_M, BOX_N, Swizzle::b128);
  const int tiles = ceil_div(M, BLOCK_M) * ceil_div(N, BLOCK_N);
  gpu::LaunchConfig config;
  config.block = dim3(NUM_THREADS);
  config.dynamic_smem = sizeof(SharedStorage);
  gpu::allow_dynamic_smem(gemm_kernel, config.dynamic_smem);
  config.grid = dim3(std::min(tiles, gpu::num_sms()));  // all resident: they wait for each other
  const auto count = std::make_shared<gpu::Buffer>(sizeof(int), "count");
  gpu::fill(count->get(), 0, count->bytes());
  return [=](gpu::Stream stream) {
    gpu::launch(stream, config, gemm_kernel, tmap_a, tmap_b, tmap_c, M, N, K, count->get<int>());
  };
}

}  // namespace

REGISTER_STEP(supports, prepare);
