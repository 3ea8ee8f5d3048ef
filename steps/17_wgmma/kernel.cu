// 17_wgmma: a warpgroup multiplies straight from shared memory, 64x128x16 an instruction.
// base: 16_tma
// arch: 90a
// unit: wgmma
// New: wgmma with its matrix descriptors; fence, commit, wait. C leaves through stmatrix.
// Shapes: any M; N and K multiples of 8 (TMA rows of 16 bytes).
#include "common/step.h"

namespace {

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 64;
constexpr int BOX_N = 64;  // columns of a TMA box: 128 bytes, the width of the swizzle
constexpr int WARP_M = 16;
constexpr int WGMMA_M = 64;
constexpr int WGMMA_K = 16;
constexpr int NUM_THREADS = 128;  // one warpgroup
constexpr int NUM_STAGES = 3;  // 96 KB and the staging of C: two CTAs fit an SM
constexpr int GROUP_M = 16;  // rasterization: tiles along M before the next column
static_assert(BLOCK_N == 128, "the multiplication below is m64n128k16");
static_assert(BLOCK_K * sizeof(half) == 128, "a row of A in shared memory is one swizzle row");

struct SharedStorage {  // 1,024-byte aligned buffers first, as the swizzle needs
  half a[NUM_STAGES][BLOCK_M * BLOCK_K];                 // [BLOCK_M][64]
  half b[NUM_STAGES][BLOCK_N / BOX_N][BLOCK_K * BOX_N];  // [box][BLOCK_K][64]
  half c[WGMMA_M * BOX_N];                               // [64][64]
  uint64_t full_bar[NUM_STAGES];

  __device__ void label() {
    for (int stage = 0; stage < NUM_STAGES; ++stage) {
      ptx::label(a[stage], sizeof(a[stage]), "A", stage);
      ptx::label(b[stage], sizeof(b[stage]), "B", stage);
      ptx::label(&full_bar[stage], sizeof(uint64_t), "full_bar", stage);
    }
    ptx::label(c, sizeof(c), "C");
  }
};
constexpr int STAGE_BYTES = (BLOCK_M + BLOCK_N) * BLOCK_K * sizeof(half);
using Accumulator = float[BLOCK_M / WGMMA_M][BLOCK_N / 2];  // a thread's part of C

// Where element (row, col) of a tile with rows of COLS elements lies in shared memory: chunk c of
// 16 bytes goes to place c ^ row, so that 8 rows of one column of chunks lie in 8 different places
// of the 128 bytes that the banks serve at once. TMA writes rows of 128 bytes in that very order.
template <int COLS>
__device__ int at(int row, int col) {
  static_assert(COLS % 64 == 0, "rows must be whole lines of 128 bytes");
  return row * COLS + (col / 8 ^ row % 8) * 8 + col % 8;
}

// First row and column of `tile`. Tiles are walked in columns of GROUP_M, so that CTAs that run
// together share rows of A and columns of B in L2.
__device__ int2 tile_origin(int tile, int tiles_m, int tiles_n) {
  const int group_m = tile / (GROUP_M * tiles_n) * GROUP_M;
  const int in_group = tile % (GROUP_M * tiles_n);
  const int rows = min(GROUP_M, tiles_m - group_m);  // the last group may be lower
  const int tile_m = group_m + in_group % rows, tile_n = in_group / rows;
  return make_int2(tile_m * BLOCK_M, tile_n * BLOCK_N);
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
#pragma unroll
    for (int m = 0; m < BLOCK_M / WGMMA_M; ++m)
      ptx::wgmma_m64n128k16_f16<ptx::Major::k, ptx::Major::mn>(
          acc[m], desc_a + (m * WGMMA_M * BLOCK_K + k16 * WGMMA_K) / 8,  // units of 16 bytes
          desc_b + k16 * WGMMA_K * BOX_N / 8, !first || k16 > 0);
  ptx::wgmma_commit_group();
}

// Stores a warpgroup's part of a tile, 64x64 at a time: rmem -> smem -> gmem.
__device__ void store_tile(const Accumulator& acc, half* staging, half* C, int first_m,
                           int first_n, int M, int N) {
  const int tid = threadIdx.x % 128, lane_id = tid % 32, warp_row = tid / 32 * WARP_M;
#pragma unroll
  for (int part = 0; part < BLOCK_M / WGMMA_M * (BLOCK_N / BOX_N); ++part) {
    const int m_wgmma = part / (BLOCK_N / BOX_N), box = part % (BLOCK_N / BOX_N);
    __syncwarp();  // each warp uses 16 rows, alone
#pragma unroll
    for (int j = 0; j < BOX_N / 16; ++j) {
      const float* from = &acc[m_wgmma][(box * BOX_N + j * 16) / 2];
      uint32_t frag_c[4];
      for (int i = 0; i < 4; ++i) frag_c[i] = ptx::cvt_f16x2(from[2 * i], from[2 * i + 1]);
      const int row = warp_row + lane_id % 16, chunk = j * 2 + lane_id / 16;
      ptx::stmatrix_x4(&staging[at<BOX_N>(row, chunk * 8)], frag_c);
    }
    __syncwarp();
    for (int i = 0; i < WARP_M; i += 4) {  // 4 rows of 128 bytes at once
      const int row = warp_row + i + lane_id / 8, chunk = lane_id % 8;
      const int m = first_m + m_wgmma * WGMMA_M + row, n = first_n + box * BOX_N + chunk * 8;
      const uint4 eight = *reinterpret_cast<const uint4*>(&staging[at<BOX_N>(row, chunk * 8)]);
      if (m < M && n < N) *reinterpret_cast<uint4*>(&C[int64_t(m) * N + n]) = eight;
    }
  }
}

__global__ void __launch_bounds__(NUM_THREADS)
    gemm_kernel(const __grid_constant__ CUtensorMap tmap_a,
                const __grid_constant__ CUtensorMap tmap_b, half* C, int M, int N, int K) {
  auto& smem = *static_cast<SharedStorage*>(ptx::dynamic_smem());
  const int tiles_m = ceil_div(M, BLOCK_M), tiles_n = ceil_div(N, BLOCK_N);
  const int2 origin = tile_origin(blockIdx.x, tiles_m, tiles_n);
  const int block_m = origin.x, block_n = origin.y;
  const int tid = threadIdx.x;
  const int warp_id = __shfl_sync(~0u, tid / 32, 0);  // uniform, and known to be

  const int num_k_tiles = ceil_div(K, BLOCK_K);
  // Starts the copy of one k tile into the ring; the barrier of its stage counts the bytes.
  const auto load_tile = [&](int k_tile) {
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
    for (int k_tile = 0; k_tile < min(NUM_STAGES, num_k_tiles); ++k_tile) load_tile(k_tile);
  }
  __syncthreads();

  Accumulator acc = {};  // never read; ptxas 12 wants a value (C7515)
  for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
    const int stage = k_tile % NUM_STAGES, phase = k_tile / NUM_STAGES & 1;
    ptx::mbarrier_wait(&smem.full_bar[stage], phase);
    multiply_tile(acc, smem.a[stage], smem.b[stage][0], k_tile == 0);
    ptx::wgmma_wait_group<0>(acc);  // and has read its stage: refill it
    const int ahead = k_tile + NUM_STAGES;
    if (warp_id == 0 && ahead < num_k_tiles && ptx::elect_one()) load_tile(ahead);
  }
  store_tile(acc, smem.c, C, block_m, block_n, M, N);
}

std::string supports(const Problem& p) { return needs_multiples(p, 1, 8, 8); }

Launch prepare(const Problem& p) {
  using gpu::Swizzle;
  const int M = int(p.M), N = int(p.N), K = int(p.K);
  auto* C = static_cast<half*>(p.C);
  const CUtensorMap tmap_a = gpu::tensor_map_2d(p.A, M, K, K, BLOCK_M, BLOCK_K, Swizzle::b128);
  const CUtensorMap tmap_b = gpu::tensor_map_2d(p.B, K, N, N, BLOCK_K, BOX_N, Swizzle::b128);
  gpu::LaunchConfig config;
  config.grid = dim3(ceil_div(N, BLOCK_N) * ceil_div(M, BLOCK_M));
  config.block = dim3(NUM_THREADS);
  config.dynamic_smem = sizeof(SharedStorage);
  gpu::allow_dynamic_smem(gemm_kernel, config.dynamic_smem);
  return [=](gpu::Stream stream) {
    gpu::launch(stream, config, gemm_kernel, tmap_a, tmap_b, C, M, N, K);
  };
}

}  // namespace

REGISTER_STEP(supports, prepare);
