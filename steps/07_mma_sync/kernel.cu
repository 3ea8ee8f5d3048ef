// 07_mma_sync: a warp multiplies 16x8x16 in one instruction, on the Tensor Cores.
// base: 06_warp_tile
// arch: 80+
// unit: mma_sync
// New: mma.sync, and fragments: which element of a matrix sits in which register of which lane.
// Shapes: M and N multiples of 128, K of 32.
#include "common/step.h"

namespace {

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 32;
constexpr int WARP_M = 64;
constexpr int WARP_N = 32;
constexpr int MMA_M = 16, MMA_N = 8, MMA_K = 16;
constexpr int MMA_ROWS = WARP_M / MMA_M, MMA_COLS = WARP_N / MMA_N;  // in a warp's tile
constexpr int NUM_THREADS = (BLOCK_M / WARP_M) * (BLOCK_N / WARP_N) * 32;
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "warps must fill the tile");
static_assert(WARP_M % MMA_M == 0 && WARP_N % MMA_N == 0, "instructions must fill the warp's tile");
static_assert(BLOCK_K % MMA_K == 0, "instructions must fill the tile along K");
static_assert(NUM_THREADS <= 1024, "a block has at most 1024 threads");

// Where element (row, col) of a tile with rows of COLS elements lies in shared memory.
template <int COLS>
__device__ int at(int row, int col) { return row * COLS + col; }

// Copies ROWS x COLS elements to shared memory, 16 bytes at a time; rows of gmem are ld apart.
template <int ROWS, int COLS>
__device__ void load_tile(half* smem, const half* gmem, int64_t ld) {
  constexpr int PER_THREAD = ROWS * COLS / 8 / NUM_THREADS, STRIDE = NUM_THREADS / (COLS / 8);
  static_assert(PER_THREAD * STRIDE == ROWS, "threads must share the tile evenly");
  const int row = threadIdx.x / (COLS / 8), col = threadIdx.x % (COLS / 8) * 8;
#pragma unroll
  for (int i = 0; i < PER_THREAD; ++i) {
    const uint4 packed = *reinterpret_cast<const uint4*>(&gmem[(row + i * STRIDE) * ld + col]);
    *reinterpret_cast<uint4*>(&smem[at<COLS>(row + i * STRIDE, col)]) = packed;
  }
}

// Rows m.. and columns k.. of A for one mma: two neighbours along k to a register.
__device__ void load_fragment_a(uint32_t (&frag)[4], const half* smem_a, int m, int k) {
  const int row = m + threadIdx.x % 32 / 4, col = k + threadIdx.x % 4 * 2;
#pragma unroll
  for (int r = 0; r < 4; ++r)  // registers 1 and 3 are 8 rows down, 2 and 3 are 8 columns on
    frag[r] = *reinterpret_cast<const uint32_t*>(
        &smem_a[at<BLOCK_K>(row + r % 2 * 8, col + r / 2 * 8)]);
}

// Rows k.. and columns n.. of B: the same two neighbours along k, which are a row apart here.
__device__ void load_fragment_b(uint32_t (&frag)[2], const half* smem_b, int k, int n) {
  const int row = k + threadIdx.x % 4 * 2, col = n + threadIdx.x % 32 / 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const half2 pair = __halves2half2(smem_b[at<BLOCK_N>(row + r * 8, col)],
                                      smem_b[at<BLOCK_N>(row + r * 8 + 1, col)]);
    frag[r] = *reinterpret_cast<const uint32_t*>(&pair);
  }
}

__global__ void __launch_bounds__(NUM_THREADS)
    gemm_kernel(const half* A, const half* B, half* C, int M, int N, int K) {
  __shared__ __align__(128) half smem_a[BLOCK_M * BLOCK_K];  // [BLOCK_M][BLOCK_K]
  __shared__ __align__(128) half smem_b[BLOCK_K * BLOCK_N];  // [BLOCK_K][BLOCK_N]
  const int tid = threadIdx.x;
  const int block_m = blockIdx.y * BLOCK_M, block_n = blockIdx.x * BLOCK_N;
  const int warp_id = tid / 32, lane_id = tid % 32;
  const int warp_m = warp_id / (BLOCK_N / WARP_N) * WARP_M;
  const int warp_n = warp_id % (BLOCK_N / WARP_N) * WARP_N;
  A += int64_t(block_m) * K;
  B += block_n;

  float acc[MMA_ROWS][MMA_COLS][4] = {};
  for (int k_tile = 0; k_tile < K / BLOCK_K; ++k_tile) {
    load_tile<BLOCK_M, BLOCK_K>(smem_a, A + k_tile * BLOCK_K, K);
    load_tile<BLOCK_K, BLOCK_N>(smem_b, B + int64_t(k_tile) * BLOCK_K * N, N);
    __syncthreads();
#pragma unroll
    for (int k_inner = 0; k_inner < BLOCK_K / MMA_K; ++k_inner) {
      uint32_t frag_a[MMA_ROWS][4], frag_b[MMA_COLS][2];
      for (int i = 0; i < MMA_ROWS; ++i)
        load_fragment_a(frag_a[i], smem_a, warp_m + i * MMA_M, k_inner * MMA_K);
      for (int j = 0; j < MMA_COLS; ++j)
        load_fragment_b(frag_b[j], smem_b, k_inner * MMA_K, warp_n + j * MMA_N);
      for (int i = 0; i < MMA_ROWS; ++i)
        for (int j = 0; j < MMA_COLS; ++j)
          ptx::mma_m16n8k16_f16(acc[i][j], frag_a[i], frag_b[j]);
    }
    __syncthreads();
  }

  // A lane holds two neighbours of a row, and two more 8 rows down, of every 16x8 result.
  const int row = block_m + warp_m + lane_id / 4, col = block_n + warp_n + lane_id % 4 * 2;
  for (int i = 0; i < MMA_ROWS; ++i)
    for (int j = 0; j < MMA_COLS; ++j)
      for (int r = 0; r < 4; r += 2) {
        const half2 pair = __floats2half2_rn(acc[i][j][r], acc[i][j][r + 1]);
        half* gmem = &C[int64_t(row + i * MMA_M + r * 4) * N + col + j * MMA_N];
        *reinterpret_cast<half2*>(gmem) = pair;
      }
}

std::string supports(const Problem& p) { return needs_multiples(p, BLOCK_M, BLOCK_N, BLOCK_K); }

Launch prepare(const Problem& p) {
  const auto* A = static_cast<const half*>(p.A);
  const auto* B = static_cast<const half*>(p.B);
  auto* C = static_cast<half*>(p.C);
  const int M = int(p.M), N = int(p.N), K = int(p.K);
  gpu::LaunchConfig config;
  config.grid = dim3(N / BLOCK_N, M / BLOCK_M);
  config.block = dim3(NUM_THREADS);
  return [=](gpu::Stream stream) { gpu::launch(stream, config, gemm_kernel, A, B, C, M, N, K); };
}

}  // namespace

REGISTER_STEP(supports, prepare);
