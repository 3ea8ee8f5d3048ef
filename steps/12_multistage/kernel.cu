// 12_multistage: a ring of stages, so that copies have several tiles' time to arrive.
// base: 11_swizzle
// arch: 80+
// unit: mma_sync
// New: NUM_STAGES buffers in dynamic shared memory, filled NUM_STAGES - 1 tiles ahead; one barrier.
// Shapes: M, N, K multiples of 8 (rows of 16 bytes).
#include "common/step.h"

namespace {

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 32;
constexpr int WARP_M = 64;
constexpr int WARP_N = 32;
constexpr int NUM_STAGES = 4;
constexpr int MMA_M = 16, MMA_N = 8, MMA_K = 16;
constexpr int MMA_ROWS = WARP_M / MMA_M, MMA_COLS = WARP_N / MMA_N;  // in a warp's tile
constexpr int NUM_THREADS = (BLOCK_M / WARP_M) * (BLOCK_N / WARP_N) * 32;
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "warps must fill the tile");
static_assert(WARP_M % MMA_M == 0 && WARP_N % MMA_N == 0, "instructions must fill the warp's tile");
static_assert(WARP_N % (2 * MMA_N) == 0, "one ldmatrix.x4 reads B for two instructions");
static_assert(BLOCK_K % MMA_K == 0, "instructions must fill the tile along K");
static_assert(NUM_STAGES >= 2, "one stage is read while another is filled");
static_assert(NUM_THREADS <= 1024, "a block has at most 1024 threads");

struct SharedStorage {
  alignas(128) half a[NUM_STAGES][BLOCK_M * BLOCK_K];  // [BLOCK_M][BLOCK_K]
  alignas(128) half b[NUM_STAGES][BLOCK_K * BLOCK_N];  // [BLOCK_K][BLOCK_N]
};
static_assert(sizeof(SharedStorage) <= 101376, "must fit every GPU from sm_80 on");

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

// Starts to copy ROWS x COLS elements to shared memory; rows of gmem are ld apart, and only the
// first rows x cols elements are there. The others become zero.
template <int ROWS, int COLS>
__device__ void load_tile_async(half* smem, const half* gmem, int64_t ld, int rows, int cols) {
  constexpr int PER_THREAD = ROWS * COLS / 8 / NUM_THREADS, STRIDE = NUM_THREADS / (COLS / 8);
  static_assert(PER_THREAD * STRIDE == ROWS && STRIDE % 8 == 0, "a thread's rows must share a key");
  const int row = threadIdx.x / (COLS / 8), col = threadIdx.x % (COLS / 8) * 8;
  smem += at<COLS>(row, col), gmem += row * ld + col;
#pragma unroll
  for (int i = 0; i < PER_THREAD; ++i)
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

__global__ void __launch_bounds__(NUM_THREADS)
    gemm_kernel(const half* A, const half* B, half* C, int M, int N, int K) {
  auto& smem = *static_cast<SharedStorage*>(ptx::dynamic_smem());
  for (int stage = 0; stage < NUM_STAGES; ++stage) {
    ptx::label(smem.a[stage], sizeof(smem.a[stage]), "A", stage);
    ptx::label(smem.b[stage], sizeof(smem.b[stage]), "B", stage);
  }
  const int block_m = blockIdx.y * BLOCK_M, block_n = blockIdx.x * BLOCK_N;
  const int warp_id = threadIdx.x / 32, lane_id = threadIdx.x % 32;
  const int warp_m = warp_id / (BLOCK_N / WARP_N) * WARP_M;
  const int warp_n = warp_id % (BLOCK_N / WARP_N) * WARP_N;
  A += int64_t(block_m) * K;
  B += block_n;

  const int num_k_tiles = ceil_div(K, BLOCK_K);
  auto load_stage = [&](int stage, int k_tile) {
    const int k = k_tile * BLOCK_K;
    if (k < K) {
      load_tile_async<BLOCK_M, BLOCK_K>(smem.a[stage], A + k, K, M - block_m, K - k);
      load_tile_async<BLOCK_K, BLOCK_N>(smem.b[stage], B + int64_t(k) * N, N, K - k, N - block_n);
    }
  };

  float acc[MMA_ROWS][MMA_COLS][4] = {};
  for (int stage = 0; stage < NUM_STAGES - 1; ++stage) {
    load_stage(stage, stage);
    ptx::cp_async_commit_group();  // past the end an empty group, so that the count stays right
  }
  for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
    const int stage = k_tile % NUM_STAGES, ahead = k_tile + NUM_STAGES - 1;
    ptx::cp_async_wait_group<NUM_STAGES - 2>();  // this thread's part of this tile has landed,
    __syncthreads();  // and now everyone's; and all have read the tile whose buffer is refilled
    load_stage(ahead % NUM_STAGES, ahead);
    ptx::cp_async_commit_group();
#pragma unroll
    for (int k_inner = 0; k_inner < BLOCK_K / MMA_K; ++k_inner) {
      uint32_t frag_a[MMA_ROWS][4], frag_b[MMA_COLS / 2][2][2];
      for (int i = 0; i < MMA_ROWS; ++i)
        load_fragment_a(frag_a[i], smem.a[stage], warp_m + i * MMA_M, k_inner * MMA_K);
      for (int j = 0; j < MMA_COLS; j += 2)
        load_fragments_b(frag_b[j / 2], smem.b[stage], k_inner * MMA_K, warp_n + j * MMA_N);
      for (int i = 0; i < MMA_ROWS; ++i)
        for (int j = 0; j < MMA_COLS; ++j)
          ptx::mma_m16n8k16_f16(acc[i][j], frag_a[i], frag_b[j / 2][j % 2]);
    }
  }

  // A lane holds two neighbours of a row, and two more 8 rows down, of every 16x8 result.
  const int row = block_m + warp_m + lane_id / 4, col = block_n + warp_n + lane_id % 4 * 2;
  for (int i = 0; i < MMA_ROWS; ++i)
    for (int j = 0; j < MMA_COLS; ++j)
      for (int r = 0; r < 4; r += 2) {
        const int m = row + i * MMA_M + r * 4, n = col + j * MMA_N;
        const half2 pair = __floats2half2_rn(acc[i][j][r], acc[i][j][r + 1]);
        if (m < M && n < N) *reinterpret_cast<half2*>(&C[int64_t(m) * N + n]) = pair;
      }
}

std::string supports(const Problem& p) { return needs_multiples(p, 8, 8, 8); }

Launch prepare(const Problem& p) {
  const auto* A = static_cast<const half*>(p.A);
  const auto* B = static_cast<const half*>(p.B);
  auto* C = static_cast<half*>(p.C);
  const int M = int(p.M), N = int(p.N), K = int(p.K);
  gpu::LaunchConfig config;
  config.grid = dim3(ceil_div(N, BLOCK_N), ceil_div(M, BLOCK_M));
  config.block = dim3(NUM_THREADS);
  config.dynamic_smem = sizeof(SharedStorage);
  gpu::allow_dynamic_smem(gemm_kernel, config.dynamic_smem);
  return [=](gpu::Stream stream) { gpu::launch(stream, config, gemm_kernel, A, B, C, M, N, K); };
}

}  // namespace

REGISTER_STEP(supports, prepare);
