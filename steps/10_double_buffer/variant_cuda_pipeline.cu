// 10_double_buffer.cuda_pipeline: the same kernel, written with CUDA C++'s cuda::pipeline.
// gpu-only: it includes CUDA's own header
// base: 10_double_buffer
// arch: 80+
// unit: mma_sync
// New: commit and wait by name; with thread scope the pipeline is the same three instructions.
// Shapes: M and N multiples of 128, K of 32.
#include <cuda/pipeline>

#include "common/step.h"

namespace {

using Pipeline = cuda::pipeline<cuda::thread_scope_thread>;
using Chunk = cuda::aligned_size_t<16>;  // the promise of alignment is what makes it one cp.async

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
static_assert(WARP_N % (2 * MMA_N) == 0, "one ldmatrix.x4 reads B for two instructions");
static_assert(BLOCK_K % MMA_K == 0, "instructions must fill the tile along K");
static_assert(NUM_THREADS <= 1024, "a block has at most 1024 threads");

// Where element (row, col) of a tile with rows of COLS elements lies in shared memory.
template <int COLS>
__device__ int at(int row, int col) { return row * COLS + col; }

// Starts to copy ROWS x COLS elements to shared memory; rows of gmem are ld apart.
template <int ROWS, int COLS>
__device__ void load_tile_async(half* smem, const half* gmem, int64_t ld, Pipeline& pipeline) {
  constexpr int PER_THREAD = ROWS * COLS / 8 / NUM_THREADS, STRIDE = NUM_THREADS / (COLS / 8);
  static_assert(PER_THREAD * STRIDE == ROWS, "threads must share the tile evenly");
  const int row = threadIdx.x / (COLS / 8), col = threadIdx.x % (COLS / 8) * 8;
  smem += at<COLS>(row, col), gmem += row * ld + col;
#pragma unroll
  for (int i = 0; i < PER_THREAD; ++i)
    cuda::memcpy_async(smem + i * STRIDE * COLS, gmem + i * STRIDE * ld, Chunk(16), pipeline);
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
  __shared__ __align__(128) half smem_a[2][BLOCK_M * BLOCK_K];  // [BLOCK_M][BLOCK_K]
  __shared__ __align__(128) half smem_b[2][BLOCK_K * BLOCK_N];  // [BLOCK_K][BLOCK_N]
  const int block_m = blockIdx.y * BLOCK_M, block_n = blockIdx.x * BLOCK_N;
  const int warp_id = threadIdx.x / 32, lane_id = threadIdx.x % 32;
  const int warp_m = warp_id / (BLOCK_N / WARP_N) * WARP_M;
  const int warp_n = warp_id % (BLOCK_N / WARP_N) * WARP_N;
  A += int64_t(block_m) * K;
  B += block_n;

  const int num_k_tiles = K / BLOCK_K;
  Pipeline pipeline = cuda::make_pipeline();
  auto load_stage = [&](int stage, int k_tile) {
    pipeline.producer_acquire();
    if (k_tile < num_k_tiles) {
      load_tile_async<BLOCK_M, BLOCK_K>(smem_a[stage], A + k_tile * BLOCK_K, K, pipeline);
      load_tile_async<BLOCK_K, BLOCK_N>(smem_b[stage], B + int64_t(k_tile) * BLOCK_K * N, N,
                                        pipeline);
    }
    pipeline.producer_commit();  // past the end an empty group, so that the count stays right
  };

  float acc[MMA_ROWS][MMA_COLS][4] = {};
  load_stage(0, 0);
  for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
    const int stage = k_tile % 2;
    load_stage(stage ^ 1, k_tile + 1);
    cuda::pipeline_consumer_wait_prior<1>(pipeline);  // all but the newest batch have landed
    __syncthreads();                                  // of every thread
#pragma unroll
    for (int k_inner = 0; k_inner < BLOCK_K / MMA_K; ++k_inner) {
      uint32_t frag_a[MMA_ROWS][4], frag_b[MMA_COLS / 2][2][2];
      for (int i = 0; i < MMA_ROWS; ++i)
        load_fragment_a(frag_a[i], smem_a[stage], warp_m + i * MMA_M, k_inner * MMA_K);
      for (int j = 0; j < MMA_COLS; j += 2)
        load_fragments_b(frag_b[j / 2], smem_b[stage], k_inner * MMA_K, warp_n + j * MMA_N);
      for (int i = 0; i < MMA_ROWS; ++i)
        for (int j = 0; j < MMA_COLS; ++j)
          ptx::mma_m16n8k16_f16(acc[i][j], frag_a[i], frag_b[j / 2][j % 2]);
    }
    pipeline.consumer_release();
    __syncthreads();  // all have read this buffer: the next round may overwrite it
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
