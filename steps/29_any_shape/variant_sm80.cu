// 29_any_shape.sm80: 14's design for any problem, on every GPU from Ampere on.
// base: 14_rasterization
// arch: 80+
// unit: mma_sync
// New: four layouts, two types, three tiles; copies that end inside 16 bytes; C through FP32
//      staging with alpha and beta; batches. Rows that cp.async can't take are copied first, to
//      rows that it can.
// Shapes: any M, N, K, leading dimensions and batch; FP16 or BF16 in; FP16, BF16 or FP32 out.
#include "common/step.h"
#include "tuned.h"

namespace {

constexpr int BLOCK_K = 64;
constexpr int NUM_STAGES = 3;
constexpr int GROUP_M = 16;
constexpr int COPY_FROM = 1;  // the first k_inner of a tile with copies
constexpr int MMA_M = 16, MMA_N = 8, MMA_K = 16;
constexpr Layout ROW = Layout::row_major, COL = Layout::col_major;
static_assert(BLOCK_K % (2 * MMA_K) == 0 && COPY_FROM < 2, "two sets take turns; one k copies");

template <int BLOCK_M_, int BLOCK_N_, int WARP_M_, int WARP_N_>
struct Tile {
  static constexpr int BLOCK_M = BLOCK_M_, BLOCK_N = BLOCK_N_, WARP_M = WARP_M_, WARP_N = WARP_N_;
  static constexpr int MMA_ROWS = WARP_M / MMA_M, MMA_COLS = WARP_N / MMA_N;  // in a warp's tile
  static constexpr int NUM_THREADS = (BLOCK_M / WARP_M) * (BLOCK_N / WARP_N) * 32;
  static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "warps must fill the tile");
  static_assert(WARP_M % MMA_M == 0 && WARP_N % MMA_N == 0, "instructions must fill the warp's");
  static_assert(MMA_COLS % 2 == 0, "one ldmatrix.x4 reads B for two instructions");
};
using Wide = Tile<128, 256, 64, 64>;   // as step 14; 147 KB: A100, H100, H200
using Square = Tile<128, 128, 64, 64>;
using Small = Tile<64, 64, 32, 32>;    // for problems that would leave SMs idle

template <class Tile>
struct SharedStorage {  // a tile lies as its matrix does: rows or columns, one after another
  alignas(128) half a[NUM_STAGES][Tile::BLOCK_M * BLOCK_K];  // [BLOCK_M][BLOCK_K] or the reverse
  alignas(128) half b[NUM_STAGES][BLOCK_K * Tile::BLOCK_N];  // [BLOCK_K][BLOCK_N] or the reverse
};
static_assert(sizeof(SharedStorage<Square>) <= 101376, "must fit every GPU from sm_80 on");
static_assert(sizeof(SharedStorage<Small>) >= MMA_M * 64 * 2 * sizeof(float), "staging of C fits");

struct Params {  // A and B: 16 bits an element, FP16 or BF16; strides from batch to batch
  const half *A, *B;
  void* C;
  int M, N, K;
  int64_t lda, ldb, ldc, stride_a, stride_b, stride_c;
  float alpha, beta;
  Type type_c;
  bool vector_c;  // 8 elements of C at a time: N, ldc, stride and address allow it
};

// Where element (row, col) of a tile with rows of COLS elements lies in shared memory: chunk c of
// 16 bytes goes to place c ^ row, so that 8 rows of one column of chunks lie in 8 different places
// of the 128 bytes that the banks serve at once.
template <int COLS>
__device__ int at(int row, int col) {
  static_assert(COLS % 64 == 0, "rows must be whole lines of 128 bytes");
  return row * COLS + (col / 8 ^ row % 8) * 8 + col % 8;
}

// The same for a warp's FP32 staging of C, MMA_M rows of COLS. Pairs are written, 4 rows at once,
// and 8 elements a lane read: the key keeps apart the rows of the one, the halves of the other.
template <int COLS>
__device__ int staged_at(int row, int col) {
  const int chunk = col / 4;
  return row * COLS + (chunk ^ row % 4 * 2 ^ chunk / 8) * 4 + col % 4;
}

// Where this block's tile starts, and in which batch. Down GROUP_M tiles, then one column on.
template <class Tile>
__device__ int locate_tile(int& block_m, int& block_n, int M, int N) {
  const int tiles_m = ceil_div(M, Tile::BLOCK_M), tiles_n = ceil_div(N, Tile::BLOCK_N);
  const int tile = blockIdx.x % (tiles_m * tiles_n), group_size = GROUP_M * tiles_n;
  const int group = tile / group_size, in_group = tile % group_size;
  const int rows = min(GROUP_M, tiles_m - group * GROUP_M);  // the last group may be lower
  block_m = (group * GROUP_M + in_group % rows) * Tile::BLOCK_M;
  block_n = in_group / rows * Tile::BLOCK_N;
  return blockIdx.x / (tiles_m * tiles_n);
}

// The chunk of 16 bytes that this thread copies first of a tile with rows of COLS elements.
template <int COLS>
__device__ const half* first_chunk(const half* tile, int64_t ld) {
  return tile + threadIdx.x / (COLS / 8) * ld + threadIdx.x % (COLS / 8) * 8;
}

// Starts to copy the ROWS x COLS elements at gmem to shared memory; rows of gmem are ld apart, and
// only the first rows x cols elements are there. The others become zero. Does one part of `parts`;
// gmem, this thread's next chunk, moves on row by row and after the last part to the next k tile:
// that is where it stands already, unless k runs along the rows.
template <bool K_ALONG_ROWS, int THREADS, int ROWS, int COLS>
__device__ void load_tile_async(half* smem, const half*& gmem, int64_t ld, int rows, int cols,
                                int part, int parts) {
  constexpr int PER_THREAD = ROWS * COLS / 8 / THREADS, STRIDE = THREADS / (COLS / 8);
  static_assert(PER_THREAD * STRIDE == ROWS && STRIDE % 8 == 0, "a thread's rows must share a key");
  const int row = threadIdx.x / (COLS / 8), col = threadIdx.x % (COLS / 8) * 8;
  const int bytes = min(max(cols - col, 0), 8) * 2;  // a row may end inside these 16
  smem += at<COLS>(row, col);
#pragma unroll
  for (int i = ceil_div(PER_THREAD * part, parts); i * parts < PER_THREAD * (part + 1); ++i) {
    ptx::cp_async_cg_16_part(smem + i * STRIDE * COLS, gmem, i * STRIDE < rows - row ? bytes : 0);
    gmem += STRIDE * ld;
  }
  if (K_ALONG_ROWS && part == parts - 1) gmem += COLS - ROWS * ld;
}

// Rows m.. and columns k.. of A for one mma: four 8x8 matrices, two below two. Lane l gives the
// address of row l % 8 of matrix l / 8; a tile that lies [k][m] is transposed on the way.
template <Layout LAYOUT, int BLOCK_M>
__device__ void load_fragment_a(uint32_t (&frag)[4], const half* smem_a, int m, int k) {
  const int lane_id = threadIdx.x % 32, low = lane_id % 16, high = lane_id / 16 * 8;
  if constexpr (LAYOUT == ROW)
    ptx::ldmatrix_x4(frag, &smem_a[at<BLOCK_K>(m + low, k + high)]);
  else
    ptx::ldmatrix_x4_trans(frag, &smem_a[at<BLOCK_M>(k + high + low % 8, m + low / 8 * 8)]);
}

// Rows k.. and columns n.. of B for two mma side by side; transposed, unless it lies [n][k].
template <Layout LAYOUT, int BLOCK_N>
__device__ void load_fragments_b(uint32_t (&frag)[2][2], const half* smem_b, int k, int n) {
  const int lane_id = threadIdx.x % 32, low = lane_id % 16, high = lane_id / 16 * 8;
  uint32_t r[4];
  if constexpr (LAYOUT == ROW)
    ptx::ldmatrix_x4_trans(r, &smem_b[at<BLOCK_N>(k + low, n + high)]);
  else
    ptx::ldmatrix_x4(r, &smem_b[at<BLOCK_K>(n + high + low % 8, k + low / 8 * 8)]);
  frag[0][0] = r[0], frag[0][1] = r[1];
  frag[1][0] = r[2], frag[1][1] = r[3];
}

// C = alpha * staged + beta * C for MMA_M x COLS elements at (m, n), VEC neighbours a lane.
template <class T, int VEC, int COLS>
__device__ void store_rows(const Params& p, T* C, const float* staging, int m, int n) {
  struct alignas(VEC * sizeof(T) < 16 ? VEC * sizeof(T) : 16) Pack { T v[VEC]; };
  constexpr int STAGED = VEC < 4 ? VEC : 4;  // elements that lie side by side in staging
  struct alignas(STAGED * sizeof(float)) Staged { float v[STAGED]; };
#pragma unroll (VEC == 1 ? 2 : 1)
  for (int i = threadIdx.x % 32; i < MMA_M * COLS / VEC; i += 32) {
    const int row = i / (COLS / VEC), col = i % (COLS / VEC) * VEC;
    const bool inside = m + row < p.M && n + col < p.N;
    auto* place = reinterpret_cast<Pack*>(&C[int64_t(m + row) * p.ldc + n + col]);
    Pack old = {}, out;
    if (inside && p.beta != 0) old = *place;  // otherwise C may hold anything
#pragma unroll
    for (int e = 0; e < VEC; e += STAGED) {
      const auto sum = *reinterpret_cast<const Staged*>(&staging[staged_at<COLS>(row, col + e)]);
#pragma unroll
      for (int i = 0; i < STAGED; ++i)
        out.v[e + i] = p.alpha * sum.v[i] + p.beta * float(old.v[e + i]);
    }
    if (inside) *place = out;
  }
}
template <class T, int COLS>
__device__ void store_rows(const Params& p, int batch, const float* staging, int m, int n) {
  T* C = static_cast<T*>(p.C) + batch * p.stride_c;
  if (p.vector_c)
    store_rows<T, 8, COLS>(p, C, staging, m, n);
  else
    store_rows<T, 1, COLS>(p, C, staging, m, n);
}

template <class Tile, Layout LAYOUT_A, Layout LAYOUT_B, Type TYPE>
__global__ void __launch_bounds__(Tile::NUM_THREADS)
    gemm_kernel(const __grid_constant__ Params p) {
  constexpr int BLOCK_M = Tile::BLOCK_M, BLOCK_N = Tile::BLOCK_N, THREADS = Tile::NUM_THREADS;
  constexpr int WARP_M = Tile::WARP_M, WARP_N = Tile::WARP_N;
  constexpr int MMA_ROWS = Tile::MMA_ROWS, MMA_COLS = Tile::MMA_COLS;
  auto& smem = *static_cast<SharedStorage<Tile>*>(ptx::dynamic_smem());
  for (int stage = 0; stage < NUM_STAGES; ++stage) {
    ptx::label(smem.a[stage], sizeof(smem.a[stage]), "A", stage);
    ptx::label(smem.b[stage], sizeof(smem.b[stage]), "B", stage);
  }
  int block_m, block_n;
  const int batch = locate_tile<Tile>(block_m, block_n, p.M, p.N);
  const int warp_id = threadIdx.x / 32, lane_id = threadIdx.x % 32;
  const int warp_m = warp_id / (BLOCK_N / WARP_N) * WARP_M;
  const int warp_n = warp_id % (BLOCK_N / WARP_N) * WARP_N;
  const half* A = first_chunk<LAYOUT_A == ROW ? BLOCK_K : BLOCK_M>(
      p.A + batch * p.stride_a + (LAYOUT_A == ROW ? block_m * p.lda : block_m), p.lda);
  const half* B = first_chunk<LAYOUT_B == ROW ? BLOCK_N : BLOCK_K>(
      p.B + batch * p.stride_b + (LAYOUT_B == ROW ? block_n : block_n * p.ldb), p.ldb);

  const int num_k_tiles = ceil_div(p.K, BLOCK_K);
  auto load_stage = [&](int stage, int k_tile, int part, int parts) {  // past the end, zeros
    const int m = p.M - block_m, n = p.N - block_n, k = p.K - k_tile * BLOCK_K;  // are left
    if constexpr (LAYOUT_A == ROW)
      load_tile_async<true, THREADS, BLOCK_M, BLOCK_K>(smem.a[stage], A, p.lda, m, k, part, parts);
    else
      load_tile_async<false, THREADS, BLOCK_K, BLOCK_M>(smem.a[stage], A, p.lda, k, m, part, parts);
    if constexpr (LAYOUT_B == ROW)
      load_tile_async<false, THREADS, BLOCK_K, BLOCK_N>(smem.b[stage], B, p.ldb, k, n, part, parts);
    else
      load_tile_async<true, THREADS, BLOCK_N, BLOCK_K>(smem.b[stage], B, p.ldb, n, k, part, parts);
  };

  float acc[MMA_ROWS][MMA_COLS][4] = {};
  uint32_t frag_a[2][MMA_ROWS][4] = {}, frag_b[2][MMA_COLS / 2][2][2] = {};
  auto multiply = [&](int set, int i) {  // one row of mma; odd rows backwards, so that the
    for (int j = 0; j < MMA_COLS; ++j) {  // fragment of B at the turn is used twice running
      const int n = i % 2 ? MMA_COLS - 1 - j : j;
      if constexpr (TYPE == Type::f16)
        ptx::mma_m16n8k16_f16(acc[i][n], frag_a[set][i], frag_b[set][n / 2][n % 2]);
      else
        ptx::mma_m16n8k16_bf16(acc[i][n], frag_a[set][i], frag_b[set][n / 2][n % 2]);
    }
  };
  for (int stage = 0; stage < NUM_STAGES - 1; ++stage) {
    load_stage(stage, stage, 0, 1);
    ptx::cp_async_commit_group();  // past the end an empty group, so that the count stays right
  }
  for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
    const int stage = k_tile % NUM_STAGES, ahead = k_tile + NUM_STAGES - 1;
    ptx::cp_async_wait_group<NUM_STAGES - 2>();  // this thread's part of this tile has landed,
    __syncthreads();  // and with this everyone's; also, all have read the tile before this one,
                      // whose buffer is filled anew
#pragma unroll
    for (int k_inner = 0; k_inner < BLOCK_K / MMA_K; ++k_inner) {
      const int set = k_inner % 2;  // is read, while the other one, a k_inner older, multiplies
      const int k = k_inner * MMA_K;
      for (int i = 0; i < MMA_ROWS; ++i)
        load_fragment_a<LAYOUT_A, BLOCK_M>(frag_a[set][i], smem.a[stage], warp_m + i * MMA_M, k);
      for (int j = 0; j < MMA_COLS; j += 2)
        load_fragments_b<LAYOUT_B, BLOCK_N>(frag_b[set][j / 2], smem.b[stage], k,
                                            warp_n + j * MMA_N);
#pragma unroll
      for (int i = 0; i < MMA_ROWS; ++i) {
        if (k_inner >= COPY_FROM)
          load_stage(ahead % NUM_STAGES, ahead, (k_inner - COPY_FROM) * MMA_ROWS + i,
                     (BLOCK_K / MMA_K - COPY_FROM) * MMA_ROWS);
        multiply(set ^ 1, i);  // zeros, the very first time
      }
    }
    ptx::cp_async_commit_group();
  }
  for (int i = 0; i < MMA_ROWS; ++i) multiply(1, i);
  ptx::cp_async_wait_group<0>();

  // Through shared memory, 16 rows of a warp at a time, so that C is read and written in whole
  // lines and rounded once.
  __syncthreads();  // the stages are no longer read or filled
  float* staging = reinterpret_cast<float*>(&smem) + warp_id * MMA_M * WARP_N;
#pragma unroll
  for (int i = 0; i < MMA_ROWS; ++i) {
    for (int j = 0; j < MMA_COLS; ++j)
      for (int r = 0; r < 4; r += 2)
        *reinterpret_cast<float2*>(
            &staging[staged_at<WARP_N>(r * 4 + lane_id / 4, j * MMA_N + lane_id % 4 * 2)]) =
            make_float2(acc[i][j][r], acc[i][j][r + 1]);
    __syncwarp();
    const int m = block_m + warp_m + i * MMA_M, n = block_n + warp_n;
    if (p.type_c == Type::f16) store_rows<half, WARP_N>(p, batch, staging, m, n);
    if (p.type_c == Type::bf16) store_rows<nv_bfloat16, WARP_N>(p, batch, staging, m, n);
    if (p.type_c == Type::f32) store_rows<float, WARP_N>(p, batch, staging, m, n);
    __syncwarp();  // before the next rows take its place
  }
}

#include "sm80_launch.h"

std::string supports(const Problem& p) {
  const int64_t limit = (int64_t{1} << 31) - 1024;
  if (p.M < 1 || p.N < 1 || p.K < 1 || p.batch < 1) return "M, N, K and batch must be at least 1";
  if (p.M > limit || p.N > limit || p.K > limit) return "M, N and K must be below 2^31 - 1024";
  if (ceil_div(p.M, 64) * ceil_div(p.N, 64) * p.batch > limit)
    return "takes at most 2^31 tiles of 64x64, all batches together";
  if (p.type_ab == Type::f32) return "takes FP16 or BF16 inputs";
  if (forced_tile() && !find(choices(p), forced_tile()))
    return std::string("LADDER_GEMM_CONFIG=") + forced_tile() + " is no tile that fits here";
  if (p.bias || p.activation != Activation::none) return "takes no bias and no activation";
  if (p.lda < (p.layout_a == ROW ? p.K : p.M) || p.ldb < (p.layout_b == ROW ? p.N : p.K) ||
      p.ldc < p.N)
    return "a leading dimension is shorter than a row (of a column-major matrix: than a column)";
  return "";
}

Launch prepare(const Problem& p) {
  Params k = {static_cast<const half*>(p.A), static_cast<const half*>(p.B), p.C, int(p.M),
              int(p.N), int(p.K), p.lda, p.ldb, p.ldc, p.stride_a, p.stride_b, p.stride_c,
              p.alpha, p.beta, p.type_c, false};
  k.vector_c = by_chunks(p.C, p.ldc, p.stride_c) && p.N % 8 == 0;
  if (p.alpha == 0) k.K = 0;  // A and B are not read
  const bool row_a = p.layout_a == ROW, row_b = p.layout_b == ROW;
  const Launch pad_a = pad(k.A, k.lda, k.stride_a, row_a ? p.M : p.K, row_a ? p.K : p.M, p.batch,
                           "padded A");
  const Launch pad_b = pad(k.B, k.ldb, k.stride_b, row_b ? p.K : p.N, row_b ? p.N : p.K, p.batch,
                           "padded B");
  const Choice tile = choose(p);
  gpu::LaunchConfig config;
  config.grid = dim3(unsigned(num_tiles(p, tile)));
  config.block = dim3(tile.threads);
  config.dynamic_smem = tile.smem;
  gpu::allow_dynamic_smem(tile.kernel, tile.smem);
  return [=](gpu::Stream stream) {
    pad_a(stream);
    pad_b(stream);
    gpu::launch(stream, config, tile.kernel, k);
  };
}

}  // namespace

REGISTER_STEP(supports, prepare, candidates);
