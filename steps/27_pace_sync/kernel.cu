// 27_pace_sync: a cluster that runs ahead of the others waits for them: they share lines of L2.
// base: 26_locality
// arch: 90a
// unit: wgmma
// New: a count in global memory, raised and read without waiting for the answer; it ends at 0.
// Shapes: any M; N and K multiples of 8 (TMA rows of 16 bytes).
#include "common/step.h"

namespace {

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 256;
constexpr int BLOCK_K = 64;
constexpr int BOX_N = 64;  // columns of a TMA box: 128 bytes, the width of the swizzle
constexpr int WG_M = 64;
constexpr int WARP_M = 16;
constexpr int WGMMA_K = 16;
constexpr int CLUSTER_M = 2;
constexpr int NUM_CONSUMERS = 2;
constexpr int NUM_THREADS = NUM_CONSUMERS * 128 + 32;  // and one producer warp
constexpr int NUM_STAGES = 4;
constexpr int GROUP_M = 8;  // rasterization: clusters along M before the next column
constexpr uint16_t ALL_CTAS = (1 << CLUSTER_M) - 1;
constexpr int PACE = 4;        // k tiles between two looks at the others
constexpr int SLACK = 0;       // looks that a cluster may be ahead of the mean
constexpr int MAX_POLLS = 32;  // then it goes on: nothing but speed depends on the pace
static_assert(BLOCK_M == NUM_CONSUMERS * WG_M, "each consumer takes 64 rows, the M of wgmma");
static_assert(BLOCK_N == 256, "the multiplication below is m64n256k16");
static_assert(BLOCK_K * sizeof(half) == 128, "a row of A in shared memory is one swizzle row");
static_assert(BLOCK_N / BOX_N % CLUSTER_M == 0, "the CTAs of a cluster share the boxes of B");

struct SharedStorage {  // 1,024-byte aligned buffers first, as the swizzle needs
  half a[NUM_STAGES][BLOCK_M * BLOCK_K];                 // [BLOCK_M][64]
  half b[NUM_STAGES][BLOCK_N / BOX_N][BLOCK_K * BOX_N];  // [box][BLOCK_K][64]
  half c[NUM_CONSUMERS][2][WG_M * BOX_N];                // [consumer][even, odd box][64][64]
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
constexpr int STAGE_BYTES = (BLOCK_M + BLOCK_N) * BLOCK_K * sizeof(half);
using Accumulator = float[BLOCK_N / 2];  // a thread's part of C

// Where element (row, col) of a tile with rows of COLS elements lies in shared memory: chunk c of
// 16 bytes goes to place c ^ row, so that 8 rows of one column of chunks lie in 8 different places
// of the 128 bytes that the banks serve at once. TMA writes rows of 128 bytes in that very order.
template <int COLS>
__device__ int at(int row, int col) {
  static_assert(COLS % 64 == 0, "rows must be whole lines of 128 bytes");
  return row * COLS + (col / 8 ^ row % 8) * 8 + col % 8;
}

// First row and column of this CTA's half of `tile`. Tiles are walked in columns of GROUP_M, so
// that clusters that run together share rows of A and columns of B in L2. Every other group walks
// its columns backwards: it starts at those of B that the group before has just read.
__device__ int2 tile_origin(int tile, int cta_rank, int tiles_m, int tiles_n) {
  const int group = tile / (GROUP_M * tiles_n), group_m = group * GROUP_M;
  const int in_group = tile % (GROUP_M * tiles_n);
  const int rows = min(GROUP_M, tiles_m - group_m);  // the last group may be lower
  const int tile_m = group_m + in_group % rows, column = in_group / rows;
  const int tile_n = group % 2 == 0 ? column : tiles_n - 1 - column;
  return make_int2((tile_m * CLUSTER_M + cta_rank) * BLOCK_M, tile_n * BLOCK_N);
}

// Matrix descriptor of a tile with the 128-byte swizzle. LBO and SBO are the bytes between
// the 64-wide boxes of B (unused for A) and between groups of 8 rows.
__device__ uint64_t matrix_desc(const void* tile, int lbo, int sbo) {
  return uint64_t(ptx::smem_addr(tile) & 0x3FFFF) >> 4 | uint64_t(lbo >> 4) << 16 |
         uint64_t(sbo >> 4) << 32 | uint64_t{1} << 62;
}

// Starts to multiply a k tile, as one group. The first of an output tile does not add to acc.
__device__ void multiply_tile(Accumulator& acc, const half* smem_a, const half* smem_b,
                              bool first) {
  const uint64_t desc_a = matrix_desc(smem_a, 16, 1024);
  const uint64_t desc_b = matrix_desc(smem_b, BLOCK_K * BOX_N * sizeof(half), 1024);
  ptx::wgmma_fence();
#pragma unroll
  for (int k16 = 0; k16 < BLOCK_K / WGMMA_K; ++k16)
    ptx::wgmma_m64n256k16_f16<ptx::Major::k, ptx::Major::mn>(
        acc, desc_a + k16 * WGMMA_K / 8, desc_b + k16 * WGMMA_K * BOX_N / 8,  // units of 16 bytes
        !first || k16 > 0);
  ptx::wgmma_commit_group();
}

// Stores a warpgroup's part of a tile, 64x64 at a time: rmem -> smem -> gmem.
__device__ void store_tile(const Accumulator& acc, SharedStorage& smem, int wg_id,
                           const CUtensorMap* tmap_c, int first_m, int first_n) {
  const int tid = threadIdx.x % 128, lane_id = tid % 32, warp_row = tid / 32 * WARP_M;
#pragma unroll
  for (int box = 0; box < BLOCK_N / BOX_N; ++box) {
    half* staging = smem.c[wg_id][box % 2];
    if (tid == 0) ptx::tma_store_wait_group_read<1>();  // the box before last has left
    ptx::bar_sync(1 + wg_id, 128);
#pragma unroll
    for (int j = 0; j < BOX_N / 16; ++j) {
      const float* from = &acc[(box * BOX_N + j * 16) / 2];
      uint32_t frag_c[4];
      for (int i = 0; i < 4; ++i) frag_c[i] = ptx::cvt_f16x2(from[2 * i], from[2 * i + 1]);
      const int row = warp_row + lane_id % 16, chunk = j * 2 + lane_id / 16;
      ptx::stmatrix_x4(&staging[at<BOX_N>(row, chunk * 8)], frag_c);
    }
    ptx::fence_proxy_async();  // TMA reads what ordinary stores have written
    ptx::bar_sync(1 + wg_id, 128);
    if (tid == 0) {
      ptx::tma_store_2d(tmap_c, staging, first_n + box * BOX_N, first_m);
      ptx::tma_store_commit_group();
    }
  }
}

__global__ void __launch_bounds__(NUM_THREADS, 1)
    gemm_kernel(const __grid_constant__ CUtensorMap tmap_a,
                const __grid_constant__ CUtensorMap tmap_b,
                const __grid_constant__ CUtensorMap tmap_c, int M, int N, int K, int* count) {
  auto& smem = *static_cast<SharedStorage*>(ptx::dynamic_smem());
  const int tiles_m = ceil_div(M, BLOCK_M * CLUSTER_M), tiles_n = ceil_div(N, BLOCK_N);
  const int first_tile = blockIdx.x / CLUSTER_M, num_clusters = gridDim.x / CLUSTER_M;
  const int cta_rank = ptx::cluster_ctarank();
  const int tid = threadIdx.x;
  const int warp_id = __shfl_sync(~0u, tid / 32, 0);  // uniform, and known to be
  const int wg_id = warp_id / 4;

  const int num_k_tiles = ceil_div(K, BLOCK_K);
  // Starts the copy of one k tile into the ring; the barrier of its stage counts the bytes.
  const auto load_tile = [&](uint32_t iter, int block_m, int block_n, int k_tile) {
    const int stage = iter % NUM_STAGES, phase = iter / NUM_STAGES & 1;
    uint64_t* full_bar = &smem.full_bar[stage];
    ptx::mbarrier_wait(&smem.empty_bar[stage], phase ^ 1);  // both CTAs have read it
    ptx::mbarrier_arrive_expect_tx(full_bar, STAGE_BYTES);
    ptx::tma_load_2d(smem.a[stage], &tmap_a, k_tile * BLOCK_K, block_m, full_bar);
    for (int i = 0; i < BLOCK_N / BOX_N / CLUSTER_M; ++i) {  // every other box, to both CTAs
      const int box = i * CLUSTER_M + cta_rank;
      ptx::tma_load_2d_multicast(smem.b[stage][box], &tmap_b, block_n + box * BOX_N,
                                 k_tile * BLOCK_K, full_bar, ALL_CTAS);
    }
  };

  if (tid == 0) {
    smem.label();
    for (int stage = 0; stage < NUM_STAGES; ++stage) {
      ptx::mbarrier_init(&smem.full_bar[stage], 1);
      ptx::mbarrier_init(&smem.empty_bar[stage], NUM_CONSUMERS * CLUSTER_M);
    }
    ptx::fence_mbarrier_init();
  }
  ptx::cluster_sync();  // no CTA sends before the other's barriers exist

  uint32_t iter = 0;  // k tiles so far, over all output tiles: the ring never stops in between
  if (wg_id == NUM_CONSUMERS) {  // producer warp: one thread keeps the ring full
    if (ptx::elect_one()) {
      int seen = 0;  // what all clusters had counted when this one last looked
      for (int tile = first_tile; tile < tiles_m * tiles_n; tile += num_clusters) {
        const auto [block_m, block_n] = tile_origin(tile, cta_rank, tiles_m, tiles_n);
        const bool backwards = tile / num_clusters % 2;  // the consumers add in any order
        for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile, ++iter) {
          load_tile(iter, block_m, block_n, backwards ? num_k_tiles - 1 - k_tile : k_tile);
          if (cta_rank == 0 && iter % PACE == PACE - 1) {  // the other CTA follows: same ring of B
            ptx::red_add_relaxed(count, 1);
            const int counted = iter / PACE;  // by this cluster, when it last looked
            for (int i = 0; i < MAX_POLLS && seen < (counted - SLACK) * num_clusters; ++i)
              seen = ptx::ld_relaxed(count);
            seen = ptx::ld_relaxed(count);  // not needed, and so not waited for, before next time
          }
        }
      }
      if (cta_rank == 0) {  // done: count up to the end, and hold nobody back
        const int all = ceil_div(tiles_m * tiles_n, num_clusters) * num_k_tiles / PACE + 1;
        ptx::red_add_relaxed(count, all - int(iter) / PACE);
        if (first_tile == 0) {  // nobody looks any more: back to 0 for the next launch
          ptx::wait_until(count, all * num_clusters);
          ptx::red_add_relaxed(count, -all * num_clusters);
        }
      }
    }
    __syncwarp();  // the barrier at the end takes whole warps
  } else {  // consumer warpgroups
    Accumulator acc = {};  // never read; ptxas 12 wants a value (C7515)
    for (int tile = first_tile; tile < tiles_m * tiles_n; tile += num_clusters) {
      for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile, ++iter) {
        const int stage = iter % NUM_STAGES, phase = iter / NUM_STAGES & 1;
        ptx::mbarrier_wait(&smem.full_bar[stage], phase);
        multiply_tile(acc, &smem.a[stage][wg_id * WG_M * BLOCK_K], smem.b[stage][0], k_tile == 0);
        ptx::wgmma_wait_group<1>(acc);  // the group before has read its stage: release that
        if (k_tile > 0 && tid % 128 < CLUSTER_M)  // in both CTAs: B came from both
          ptx::mbarrier_arrive_remote(&smem.empty_bar[(iter - 1) % NUM_STAGES], tid % 128);
      }
      const auto [block_m, block_n] = tile_origin(tile, cta_rank, tiles_m, tiles_n);
      ptx::wgmma_wait_group<0>(acc);
      if (tid % 128 < CLUSTER_M)
        ptx::mbarrier_arrive_remote(&smem.empty_bar[(iter - 1) % NUM_STAGES], tid % 128);
      store_tile(acc, smem, wg_id, &tmap_c, block_m + wg_id * WG_M, block_n);
    }
    ptx::tma_store_wait_group_read<0>();  // shared memory must outlive the stores that read it
  }
  ptx::cluster_sync();  // and whatever the other CTA sends here
}

std::string supports(const Problem& p) { return needs_multiples(p, 1, 8, 8); }

Launch prepare(const Problem& p) {
  using gpu::Swizzle;
  const int M = int(p.M), N = int(p.N), K = int(p.K);
  const CUtensorMap tmap_a = gpu::tensor_map_2d(p.A, M, K, K, BLOCK_M, BLOCK_K, Swizzle::b128);
  const CUtensorMap tmap_b = gpu::tensor_map_2d(p.B, K, N, N, BLOCK_K, BOX_N, Swizzle::b128);
  const CUtensorMap tmap_c = gpu::tensor_map_2d(p.C, M, N, N, WG_M, BOX_N, Swizzle::b128);
  const int tiles = ceil_div(M, BLOCK_M * CLUSTER_M) * ceil_div(N, BLOCK_N);
  gpu::LaunchConfig config;
  config.block = dim3(NUM_THREADS);
  config.cluster = dim3(CLUSTER_M);
  config.dynamic_smem = sizeof(SharedStorage);
  gpu::allow_dynamic_smem(gemm_kernel, config.dynamic_smem);
  const int resident = gpu::max_active_clusters(gemm_kernel, config);  // who waits for each other
  config.grid = dim3(std::min(tiles, resident) * CLUSTER_M);
  const auto count = std::make_shared<gpu::Buffer>(sizeof(int), "count");
  gpu::fill(count->get(), 0, count->bytes());
  return [=](gpu::Stream stream) {
    gpu::launch(stream, config, gemm_kernel, tmap_a, tmap_b, tmap_c, M, N, K, count->get<int>());
  };
}

}  // namespace

REGISTER_STEP(supports, prepare);
