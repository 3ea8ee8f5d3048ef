// 16_tma: one thread and the TMA unit fill the ring; mma.sync still multiplies.
// base: 14_rasterization
// arch: 90+
// unit: mma_sync
// New: tensor maps, bulk copies of whole boxes, mbarriers that count bytes. TMA swizzles as 11 does
//      and checks bounds. And the barrier of a tile stands where the warps have mma left to do.
// Shapes: any M; N and K multiples of 8 (TMA rows of 16 bytes).
#include "common/step.h"

namespace {

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 256;
constexpr int BLOCK_K = 64;
constexpr int BOX_N = 64;  // columns of a TMA box: 128 bytes, the width of the swizzle
constexpr int WARP_M = 64;
constexpr int WARP_N = 64;
constexpr int GROUP_M = 16;  // rasterization: tiles along M before the next column
constexpr int MMA_M = 16, MMA_N = 8, MMA_K = 16;
constexpr int MMA_ROWS = WARP_M / MMA_M, MMA_COLS = WARP_N / MMA_N;  // in a warp's tile
constexpr int NUM_THREADS = (BLOCK_M / WARP_M) * (BLOCK_N / WARP_N) * 32;
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "warps must fill the tile");
static_assert(WARP_M % MMA_M == 0 && WARP_N % MMA_N == 0, "instructions must fill the warp's tile");
static_assert(BLOCK_K * sizeof(half) == 128, "a row of A in shared memory is one swizzle row");
static_assert(WARP_N == BOX_N, "a warp reads one box of B");
static_assert(NUM_THREADS <= 1024, "a block has at most 1024 threads");

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
static_assert(sizeof(SharedStorage<2>) <= 101376, "must fit every GPU from sm_80 on");
static_assert(sizeof(SharedStorage<2>) >= BLOCK_M * BLOCK_N * 2, "the tile of C must fit too");

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

// Rows m.. and columns k.. of A for one mma: four 8x8 matrices, two below two.
__device__ void load_fragment_a(uint32_t (&frag)[4], const half* smem_a, int m, int k) {
  const int lane_id = threadIdx.x % 32;  // gives the address of row lane % 8 of matrix lane / 8
  ptx::ldmatrix_x4(frag, &smem_a[at<BLOCK_K>(m + lane_id % 16, k + lane_id / 16 * 8)]);
}

// Rows k.. and columns n.. of B for two mma side by side, transposed on the way.
__device__ void load_fragments_b(uint32_t (&frag)[2][2], const half* smem_b, int k, int n) {
  const int lane_id = threadIdx.x % 32;
  uint32_t r[4];
  ptx::ldmatrix_x4_trans(r, &smem_b[at<BOX_N>(k + lane_id % 16, n + lane_id / 16 * 8)]);
  frag[0][0] = r[0], frag[0][1] = r[1];
  frag[1][0] = r[2], frag[1][1] = r[3];
}

template <int NUM_STAGES>
__global__ void __launch_bounds__(NUM_THREADS)
    gemm_kernel(const __grid_constant__ CUtensorMap tmap_a,
                const __grid_constant__ CUtensorMap tmap_b, half* C, int M, int N, int K) {
  auto& smem = *static_cast<SharedStorage<NUM_STAGES>*>(ptx::dynamic_smem());
  const int tiles_m = ceil_div(M, BLOCK_M), tiles_n = ceil_div(N, BLOCK_N);
  const int2 origin = tile_origin(blockIdx.x, tiles_m, tiles_n);
  const int block_m = origin.x, block_n = origin.y;
  const int tid = threadIdx.x;
  const int warp_id = __shfl_sync(~0u, tid / 32, 0);  // uniform, and known to be
  const int lane_id = tid % 32;
  const int warp_m = warp_id / (BLOCK_N / WARP_N) * WARP_M;
  const int warp_n = warp_id % (BLOCK_N / WARP_N) * WARP_N;

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

  float acc[MMA_ROWS][MMA_COLS][4] = {};
  uint32_t frag_a[2][MMA_ROWS][4] = {}, frag_b[2][MMA_COLS / 2][2][2] = {};
  auto multiply = [&](int set, int i) {  // one row of mma; odd rows backwards, so that the
    for (int j = 0; j < MMA_COLS; ++j) {  // fragment of B at the turn is used twice running
      const int n = i % 2 ? MMA_COLS - 1 - j : j;
      ptx::mma_m16n8k16_f16(acc[i][n], frag_a[set][i], frag_b[set][n / 2][n % 2]);
    }
  };
  for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
    const int stage = k_tile % NUM_STAGES, phase = k_tile / NUM_STAGES & 1;
    ptx::mbarrier_wait(&smem.full_bar[stage], phase);
#pragma unroll
    for (int k_inner = 0; k_inner < BLOCK_K / MMA_K; ++k_inner) {
      const int set = k_inner % 2;  // is read, while the other one, a k_inner older, multiplies
      for (int i = 0; i < MMA_ROWS; ++i)
        load_fragment_a(frag_a[set][i], smem.a[stage], warp_m + i * MMA_M, k_inner * MMA_K);
      for (int j = 0; j < MMA_COLS; j += 2)
        load_fragments_b(frag_b[set][j / 2], smem.b[stage][warp_n / BOX_N], k_inner * MMA_K,
                         j * MMA_N);
      for (int i = 0; i < MMA_ROWS; ++i) {
        if (k_inner == BLOCK_K / MMA_K - 1 && i == MMA_ROWS / 2)
          __syncthreads();  // all have read this tile. It stops a warp at its next access to smem
        multiply(set ^ 1, i);  // zeros, the very first time
      }
    }
    const int ahead = k_tile + NUM_STAGES;
    if (warp_id == 0 && ahead < num_k_tiles && ptx::elect_one()) load_tile(ahead);
  }
  for (int i = 0; i < MMA_ROWS; ++i) multiply(1, i);

  // Pairs fill half a sector of 32 bytes. Through shared memory C leaves in rows of 128 bytes.
  half* smem_c = reinterpret_cast<half*>(&smem);  // [BLOCK_M][BLOCK_N]; no stage is in use any more
  const int row = warp_m + lane_id / 4, col = warp_n + lane_id % 4 * 2;
  for (int i = 0; i < MMA_ROWS; ++i)
    for (int j = 0; j < MMA_COLS; ++j)
      for (int r = 0; r < 4; r += 2) {
        const int m = row + i * MMA_M + r * 4, n = col + j * MMA_N;
        const half2 pair = __floats2half2_rn(acc[i][j][r], acc[i][j][r + 1]);
        *reinterpret_cast<half2*>(&smem_c[at<BLOCK_N>(m, n)]) = pair;
      }
  __syncwarp();
#pragma unroll
  for (int chunk = lane_id; chunk < WARP_M * WARP_N / 8; chunk += 32) {
    const int m = warp_m + chunk / (WARP_N / 8), n = warp_n + chunk % (WARP_N / 8) * 8;
    const uint4 packed = *reinterpret_cast<const uint4*>(&smem_c[at<BLOCK_N>(m, n)]);
    if (block_m + m < M && block_n + n < N)
      *reinterpret_cast<uint4*>(&C[int64_t(block_m + m) * N + block_n + n]) = packed;
  }
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
  const bool roomy = gpu::max_smem_per_block() >= int(sizeof(SharedStorage<3>));
  const auto kernel = roomy ? gemm_kernel<3> : gemm_kernel<2>;
  config.dynamic_smem = roomy ? sizeof(SharedStorage<3>) : sizeof(SharedStorage<2>);
  gpu::allow_dynamic_smem(kernel, config.dynamic_smem);
  return [=](gpu::Stream stream) {
    gpu::launch(stream, config, kernel, tmap_a, tmap_b, C, M, N, K);
  };
}

}  // namespace

REGISTER_STEP(supports, prepare);
