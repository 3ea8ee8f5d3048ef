// 15_warp_specialized_cp_async: four warps copy, eight multiply, mbarriers between them.
// base: 14_rasterization
// arch: 80+
// unit: mma_sync
// New: roles; full and empty mbarriers for every stage; no barrier of the whole block in the loop.
// Shapes: M, N, K multiples of 8 (rows of 16 bytes).
#include "common/step.h"

namespace {

constexpr int BLOCK_M = 192;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 64;
constexpr int WARP_M = 48;
constexpr int WARP_N = 64;
constexpr int GROUP_M = 16;  // rasterization: tiles along M before the next column
constexpr int MMA_M = 16, MMA_N = 8, MMA_K = 16;
constexpr int MMA_ROWS = WARP_M / MMA_M, MMA_COLS = WARP_N / MMA_N;  // in a warp's tile
constexpr int NUM_CONSUMERS = (BLOCK_M / WARP_M) * (BLOCK_N / WARP_N) * 32;  // threads
constexpr int NUM_PRODUCERS = 128;
constexpr int NUM_THREADS = NUM_CONSUMERS + NUM_PRODUCERS;
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "warps must fill the tile");
static_assert(WARP_M % MMA_M == 0 && WARP_N % MMA_N == 0, "instructions must fill the warp's tile");
static_assert(WARP_N % (2 * MMA_N) == 0, "one ldmatrix.x4 reads B for two instructions");
static_assert(BLOCK_K % (2 * MMA_K) == 0, "two sets of fragments take turns within a tile");
static_assert(NUM_THREADS <= 1024, "a block has at most 1024 threads");

template <int NUM_STAGES>
struct SharedStorage {
  alignas(128) half a[NUM_STAGES][BLOCK_M * BLOCK_K];  // [BLOCK_M][BLOCK_K]
  alignas(128) half b[NUM_STAGES][BLOCK_K * BLOCK_N];  // [BLOCK_K][BLOCK_N]
  alignas(8) uint64_t full[NUM_STAGES], empty[NUM_STAGES];
  int2 origin;  // of the tile: the main loop has no registers left for it
};
static_assert(sizeof(SharedStorage<2>) <= 101376, "must fit every GPU from sm_80 on");
static_assert(sizeof(SharedStorage<2>) >= BLOCK_M * BLOCK_N * 2, "the tile of C must fit too");

// Where element (row, col) of a tile with rows of COLS elements lies in shared memory: chunk c of
// 16 bytes goes to place c ^ row, so that 8 rows of one column of chunks lie in 8 different places
// of the 128 bytes that the banks serve at once. Rows of 64 bytes share them in pairs.
template <int COLS>
__device__ int at(int row, int col) {
  constexpr int CHUNKS = COLS / 8;
  static_assert(CHUNKS == 4 || CHUNKS % 8 == 0, "rows must be 64 bytes or whole lines of 128");
  const int key = CHUNKS == 4 ? row / 2 % 4 : row % 8;
  return row * COLS + (col / 8 ^ key) * 8 + col % 8;
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

// Starts to copy ROWS x COLS elements to shared memory; rows of gmem are ld apart, and only the
// first rows x cols elements are there. The others become zero. Does one part of `parts`.
template <int ROWS, int COLS>
__device__ void load_tile_async(half* smem, const half* gmem, int64_t ld, int rows, int cols,
                                int part, int parts) {
  constexpr int PER_THREAD = ROWS * COLS / 8 / NUM_PRODUCERS, STRIDE = NUM_PRODUCERS / (COLS / 8);
  static_assert(PER_THREAD * STRIDE == ROWS && STRIDE % 8 == 0, "a thread's rows must share a key");
  const int tid = threadIdx.x % NUM_PRODUCERS, row = tid / (COLS / 8), col = tid % (COLS / 8) * 8;
  smem += at<COLS>(row, col), gmem += row * ld + col;
#pragma unroll
  for (int i = ceil_div(PER_THREAD * part, parts); i * parts < PER_THREAD * (part + 1); ++i)
    ptx::cp_async_cg_16(smem + i * STRIDE * COLS, gmem + i * STRIDE * ld,
                        row + i * STRIDE < rows && col < cols);
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
  ptx::ldmatrix_x4_trans(r, &smem_b[at<BLOCK_N>(k + lane_id % 16, n + lane_id / 16 * 8)]);
  frag[0][0] = r[0], frag[0][1] = r[1];
  frag[1][0] = r[2], frag[1][1] = r[3];
}

template <int NUM_STAGES>
__global__ void __launch_bounds__(NUM_THREADS)
    gemm_kernel(const half* A, const half* B, half* C, int M, int N, int K) {
  auto& smem = *static_cast<SharedStorage<NUM_STAGES>*>(ptx::dynamic_smem());
  for (int stage = 0; stage < NUM_STAGES; ++stage) {
    ptx::label(smem.a[stage], sizeof(smem.a[stage]), "A", stage);
    ptx::label(smem.b[stage], sizeof(smem.b[stage]), "B", stage);
    ptx::label(&smem.full[stage], sizeof(uint64_t), "full", stage);
    ptx::label(&smem.empty[stage], sizeof(uint64_t), "empty", stage);
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(&smem.full[stage], NUM_PRODUCERS);
      ptx::mbarrier_init(&smem.empty[stage], NUM_CONSUMERS / 32);
    }
  }
  const int tiles_m = ceil_div(M, BLOCK_M), tiles_n = ceil_div(N, BLOCK_N);
  const int2 origin = tile_origin(blockIdx.x, tiles_m, tiles_n);
  int block_m = origin.x, block_n = origin.y;
  if (threadIdx.x == 0) smem.origin = origin;
  __syncthreads();  // the barriers are initialised
  const int warp_id = threadIdx.x / 32, lane_id = threadIdx.x % 32;
  const int warp_m = warp_id / (BLOCK_N / WARP_N) * WARP_M;
  const int warp_n = warp_id % (BLOCK_N / WARP_N) * WARP_N;
  A += int64_t(block_m) * K;
  B += block_n;

  const int num_k_tiles = ceil_div(K, BLOCK_K);
  auto load_stage = [&](int stage, int k_tile, int part, int parts) {  // past the end, zeros
    const int k = k_tile * BLOCK_K;
    load_tile_async<BLOCK_M, BLOCK_K>(smem.a[stage], A + k, K, M - block_m, K - k, part, parts);
    load_tile_async<BLOCK_K, BLOCK_N>(smem.b[stage], B + int64_t(k) * N, N, K - k, N - block_n,
                                      part, parts);
  };
  if (threadIdx.x >= NUM_CONSUMERS) {  // producers
    for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
      const int stage = k_tile % NUM_STAGES, phase = k_tile / NUM_STAGES % 2;
      ptx::mbarrier_wait(&smem.empty[stage], phase ^ 1);  // at once in the first round
      load_stage(stage, k_tile, 0, 1);
      ptx::cp_async_mbarrier_arrive_noinc(&smem.full[stage]);  // when this thread's have landed
    }
    return;
  }

  float acc[MMA_ROWS][MMA_COLS][4] = {};
  uint32_t frag_a[2][MMA_ROWS][4] = {}, frag_b[2][MMA_COLS / 2][2][2] = {};
  auto multiply = [&](int set, int i) {  // one row of mma; odd rows backwards, so that the
    for (int j = 0; j < MMA_COLS; ++j) {  // fragment of B at the turn is used twice running
      const int n = i % 2 ? MMA_COLS - 1 - j : j;
      ptx::mma_m16n8k16_f16(acc[i][n], frag_a[set][i], frag_b[set][n / 2][n % 2]);
    }
  };
  for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
    const int stage = k_tile % NUM_STAGES, phase = k_tile / NUM_STAGES % 2;
    ptx::mbarrier_wait(&smem.full[stage], phase);
#pragma unroll
    for (int k_inner = 0; k_inner < BLOCK_K / MMA_K; ++k_inner) {
      const int set = k_inner % 2;  // is read, while the other one, a k_inner older, multiplies
      for (int i = 0; i < MMA_ROWS; ++i)
        load_fragment_a(frag_a[set][i], smem.a[stage], warp_m + i * MMA_M, k_inner * MMA_K);
      for (int j = 0; j < MMA_COLS; j += 2)
        load_fragments_b(frag_b[set][j / 2], smem.b[stage], k_inner * MMA_K, warp_n + j * MMA_N);
#pragma unroll
      for (int i = 0; i < MMA_ROWS; ++i) {
        multiply(set ^ 1, i);  // zeros, the very first time
      }
    }
    __syncwarp();  // all lanes have read this stage
    if (lane_id == 0) ptx::mbarrier_arrive(&smem.empty[stage]);
  }
  for (int i = 0; i < MMA_ROWS; ++i) multiply(1, i);

  // Pairs fill half a sector of 32 bytes. Through shared memory C leaves in rows of 128 bytes.
  ptx::bar_sync(1, NUM_CONSUMERS);  // all consumers have read the stages; nothing fills them
  block_m = smem.origin.x, block_n = smem.origin.y;
  half* smem_c = reinterpret_cast<half*>(&smem);  // [BLOCK_M][BLOCK_N]
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

std::string supports(const Problem& p) { return needs_multiples(p, 8, 8, 8); }

Launch prepare(const Problem& p) {
  const auto* A = static_cast<const half*>(p.A);
  const auto* B = static_cast<const half*>(p.B);
  auto* C = static_cast<half*>(p.C);
  const int M = int(p.M), N = int(p.N), K = int(p.K);
  gpu::LaunchConfig config;
  config.grid = dim3(ceil_div(N, BLOCK_N) * ceil_div(M, BLOCK_M));
  config.block = dim3(NUM_THREADS);
  const bool roomy = gpu::max_smem_per_block() >= int(sizeof(SharedStorage<3>));
  const auto kernel = roomy ? gemm_kernel<3> : gemm_kernel<2>;
  config.dynamic_smem = roomy ? sizeof(SharedStorage<3>) : sizeof(SharedStorage<2>);
  gpu::allow_dynamic_smem(kernel, config.dynamic_smem);
  return [=](gpu::Stream stream) { gpu::launch(stream, config, kernel, A, B, C, M, N, K); };
}

}  // namespace

REGISTER_STEP(supports, prepare);
