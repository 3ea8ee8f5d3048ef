// 29_any_shape.epilogue: a layer in one kernel: C = activation(alpha * A * B + bias).
// base: 26_locality
// arch: 90a
// unit: wgmma
// New: bias and activation on the accumulators, before they are rounded; a box's bias is fetched
//      while the box before it, or the last multiplication, is under way. B may be column-major
//      (the weights of a layer, stored [N][K]); FP16 or BF16.
// Shapes: any M; N, K and leading dimensions multiples of 8 (TMA rows of 16 bytes).
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
constexpr int NUM_THREADS = (NUM_CONSUMERS + 1) * 128;  // and a producer: it gives registers away
constexpr int NUM_STAGES = 4;
constexpr int GROUP_M = 8;  // rasterization: clusters along M before the next column
constexpr uint16_t ALL_CTAS = (1 << CLUSTER_M) - 1;
static_assert(BLOCK_M == NUM_CONSUMERS * WG_M, "each consumer takes 64 rows, the M of wgmma");
static_assert(BLOCK_N == 256, "the multiplication below is m64n256k16");
static_assert(BLOCK_K * sizeof(half) == 128, "a row of A in shared memory is one swizzle row");
static_assert(BLOCK_N / BOX_N % CLUSTER_M == 0, "the CTAs of a cluster share the boxes of B");

static_assert(BLOCK_N / CLUSTER_M % 8 == 0, "a CTA's share of a column-major B is whole swizzles");

struct SharedStorage {  // 1,024-byte aligned buffers first, as the swizzle needs
  half a[NUM_STAGES][BLOCK_M * BLOCK_K];   // [BLOCK_M][64]
  half b[NUM_STAGES][BLOCK_N * BLOCK_K];   // [box][BLOCK_K][64], or [BLOCK_N][64]
  half c[NUM_CONSUMERS][2][WG_M * BOX_N];  // [consumer][even, odd box][64][64]
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
constexpr int BOX_BYTES = BLOCK_K * BOX_N * sizeof(half);  // of a row-major B
// 16 k further: along a row of A or of a column-major B, or 16 rows down a box of a row-major one.
template <ptx::Major MAJOR>
constexpr int K16_BYTES = (MAJOR == ptx::Major::k ? 1 : BOX_N) * WGMMA_K * sizeof(half);

// Matrix descriptor of a tile with the 128-byte swizzle. LBO and SBO are the bytes between
// the 64-wide boxes of B (unused for A) and between groups of 8 rows.
__device__ uint64_t matrix_desc(const void* tile, int lbo, int sbo) {
  return uint64_t(ptx::smem_addr(tile) & 0x3FFFF) >> 4 | uint64_t(lbo >> 4) << 16 |
         uint64_t(sbo >> 4) << 32 | uint64_t{1} << 62;
}

// The descriptor `bytes` further on in the same tile: only the start address differs.
__device__ uint64_t advance(uint64_t desc, int bytes) {
  return (desc & ~uint64_t{0xFFFFFFFF}) | (uint32_t(desc) + (bytes >> 4));
}

// Where chunk `chunk` (16 bytes) of a row lies in a box, with the same swizzle.
__device__ int swizzled(int row, int chunk) { return row * BOX_N + (chunk ^ row % 8) * 8; }

// First row and column of this CTA's half of `tile`. Tiles are walked in columns of GROUP_M, so
// that clusters that run together share rows of A and columns of B in L2. Every other group walks
// its columns backwards: it starts at those of B that the group before has just read.
__device__ int2 tile_origin(int tile, int cta_rank, int tiles_m, int tiles_n) {
  const int group = tile / (GROUP_M * tiles_n), group_m = group * GROUP_M;
  const int in_group = tile % (GROUP_M * tiles_n);
  const int rows = min(GROUP_M, tiles_m - group_m), column = in_group / rows;
  const int tile_m = group_m + in_group % rows;
  const int tile_n = group % 2 == 0 ? column : tiles_n - 1 - column;
  return make_int2((tile_m * CLUSTER_M + cta_rank) * BLOCK_M, tile_n * BLOCK_N);
}

template <Type TYPE, ptx::Major MAJOR_B>
__device__ void multiply(float (&acc)[BLOCK_N / 2], uint64_t desc_a, uint64_t desc_b, int scale_d) {
  if constexpr (TYPE == Type::f16)
    ptx::wgmma_m64n256k16_f16<ptx::Major::k, MAJOR_B>(acc, desc_a, desc_b, scale_d);
  else
    ptx::wgmma_m64n256k16_bf16<ptx::Major::k, MAJOR_B>(acc, desc_a, desc_b, scale_d);
}

// x * (1 + tanh(u)) / 2 with u = sqrt(2/pi) * (x + 0.044715 x^3), written as x / (1 + 2^t) with
// t = -2 log2(e) u: two special-function instructions and five others, and no cancellation where
// tanh comes near -1.
__device__ float gelu(float x) {
  const float t = x * (-2.3022082f - 0.10294324f * (x * x));
  return x * ptx::rcp_approx(1.0f + ptx::ex2_approx(t));
}

// This thread's columns of the bias of a box: pairs, 8 columns apart. Beyond N zeros.
__device__ void load_bias(uint32_t (&bias)[BOX_N / 8], const void* bias_n, int col, int N) {
  const auto* pairs = static_cast<const uint32_t*>(bias_n);
  col += threadIdx.x % 4 * 2;
#pragma unroll
  for (int j = 0; j < BOX_N / 8; ++j)
    bias[j] = bias_n && col + j * 8 < N ? __ldg(&pairs[col / 2 + j * 4]) : 0;
}

template <Type TYPE>
__device__ float2 unpack(uint32_t pair) {
  if constexpr (TYPE == Type::bf16)
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000));
  else
    return make_float2(__half2float(__ushort_as_half(uint16_t(pair))),
                       __half2float(__ushort_as_half(uint16_t(pair >> 16))));
}

// What the accumulators of a box become: activation(alpha * acc + bias), in FP32.
template <Type TYPE, Activation ACTIVATION>
__device__ void finish(float (&acc)[BLOCK_N / 2], int box, const uint32_t (&bias)[BOX_N / 8],
                       float alpha) {
#pragma unroll
  for (int j = 0; j < BOX_N / 8; ++j) {
    const float2 add = unpack<TYPE>(bias[j]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // two columns of this row, two of the row 8 below
      float& x = acc[box * BOX_N / 2 + j * 4 + i];
      x = alpha * x + (i % 2 ? add.y : add.x);
      if (ACTIVATION == Activation::relu) x = x < 0 ? 0.0f : x;  // NaN stays
      if (ACTIVATION == Activation::gelu) x = gelu(x);
    }
  }
}

template <Type TYPE, ptx::Major MAJOR_B>
__global__ void __launch_bounds__(NUM_THREADS, 1)
    gemm_kernel(const __grid_constant__ CUtensorMap tmap_a,
                const __grid_constant__ CUtensorMap tmap_b,
                const __grid_constant__ CUtensorMap tmap_c, int M, int N, int K, float alpha,
                const void* bias_n, Activation activation) {
  auto& smem = *static_cast<SharedStorage*>(ptx::dynamic_smem());
  const int tid = threadIdx.x, warp_id = tid / 32, lane_id = tid % 32;
  const int wg_id = __shfl_sync(~0u, tid / 128, 0);  // known to be uniform: descriptors stay scalar
  const int cta_rank = ptx::cluster_ctarank();
  const int tiles_m = ceil_div(M, BLOCK_M * CLUSTER_M), tiles_n = ceil_div(N, BLOCK_N);
  const int num_k_tiles = ceil_div(K, BLOCK_K);
  const int first_tile = blockIdx.x / CLUSTER_M, num_clusters = gridDim.x / CLUSTER_M;

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
  if (wg_id == NUM_CONSUMERS) {  // producer: one thread keeps the ring full
    ptx::setmaxnreg_dec<40>();
    if (tid == NUM_CONSUMERS * 128) {
      for (int tile = first_tile; tile < tiles_m * tiles_n; tile += num_clusters) {
        const auto [block_m, block_n] = tile_origin(tile, cta_rank, tiles_m, tiles_n);
        const bool backwards = tile / num_clusters % 2;  // the consumers add in any order
        for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile, ++iter) {
          const int stage = iter % NUM_STAGES, phase = iter / NUM_STAGES & 1;
          uint64_t* full_bar = &smem.full_bar[stage];
          const int k = (backwards ? num_k_tiles - 1 - k_tile : k_tile) * BLOCK_K;
          ptx::mbarrier_wait(&smem.empty_bar[stage], phase ^ 1);  // both CTAs have read it
          ptx::mbarrier_arrive_expect_tx(full_bar, STAGE_BYTES);
          ptx::tma_load_2d(smem.a[stage], &tmap_a, k, block_m, full_bar);
          if constexpr (MAJOR_B == ptx::Major::mn) {  // every other box, to both CTAs
            for (int box = cta_rank; box < BLOCK_N / BOX_N; box += CLUSTER_M)
              ptx::tma_load_2d_multicast(&smem.b[stage][box * BLOCK_K * BOX_N], &tmap_b,
                                         block_n + box * BOX_N, k, full_bar, ALL_CTAS);
          } else {  // every other half
            const int row = BLOCK_N / CLUSTER_M * cta_rank;
            ptx::tma_load_2d_multicast(&smem.b[stage][row * BLOCK_K], &tmap_b, k, block_n + row,
                                       full_bar, ALL_CTAS);
          }
        }
      }
    }
    __syncwarp();  // the barrier at the end takes whole warps
  } else {  // consumer warpgroups: 64 rows each
    ptx::setmaxnreg_inc<232>();
    float acc[BLOCK_N / 2] = {};  // never read; ptxas 12 wants a value (C7515)
    for (int tile = first_tile; tile < tiles_m * tiles_n; tile += num_clusters) {
      for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile, ++iter) {
        const int stage = iter % NUM_STAGES, phase = iter / NUM_STAGES & 1;
        ptx::mbarrier_wait(&smem.full_bar[stage], phase);
        const uint64_t desc_a = matrix_desc(&smem.a[stage][wg_id * WG_M * BLOCK_K], 16, 1024);
        const uint64_t desc_b = matrix_desc(smem.b[stage], BOX_BYTES, 1024);
        ptx::wgmma_fence();
#pragma unroll
        for (int k16 = 0; k16 < BLOCK_K / WGMMA_K; ++k16)
          multiply<TYPE, MAJOR_B>(acc, advance(desc_a, k16 * K16_BYTES<ptx::Major::k>),
                                  advance(desc_b, k16 * K16_BYTES<MAJOR_B>), k_tile > 0 || k16 > 0);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<1>(acc);  // the group before has read its stage: release that, in
        if (k_tile > 0 && tid % 128 < CLUSTER_M)  // both CTAs (B came from both)
          ptx::mbarrier_arrive_remote(&smem.empty_bar[(iter - 1) % NUM_STAGES], tid % 128);
      }
      const auto [block_m, block_n] = tile_origin(tile, cta_rank, tiles_m, tiles_n);
      uint32_t bias[2][BOX_N / 8];
      load_bias(bias[0], bias_n, block_n, N);  // arrives while the last k tile is multiplied
      ptx::wgmma_wait_group<0>(acc);
      if (tid % 128 < CLUSTER_M)
        ptx::mbarrier_arrive_remote(&smem.empty_bar[(iter - 1) % NUM_STAGES], tid % 128);

      // Epilogue, 64 columns at a time: rmem -> smem -> gmem.
      const int warp_row = warp_id % 4 * WARP_M;
#pragma unroll
      for (int box = 0; box < BLOCK_N / BOX_N; ++box) {
        const auto& add = bias[box % 2];
        if (box + 1 < BLOCK_N / BOX_N)
          load_bias(bias[(box + 1) % 2], bias_n, block_n + (box + 1) * BOX_N, N);
        if (activation == Activation::none)
          finish<TYPE, Activation::none>(acc, box, add, alpha);
        else if (activation == Activation::relu)
          finish<TYPE, Activation::relu>(acc, box, add, alpha);
        else
          finish<TYPE, Activation::gelu>(acc, box, add, alpha);
        half* staging = smem.c[wg_id][box % 2];
        if (tid % 128 == 0) ptx::tma_store_wait_group_read<1>();  // the box before last has left
        ptx::bar_sync(1 + wg_id, 128);
#pragma unroll
        for (int j = 0; j < BOX_N / 16; ++j) {
          uint32_t frag_c[4];
          for (int i = 0; i < 4; ++i) {
            const int reg = (box * BOX_N + j * 16) / 2 + 2 * i;
            frag_c[i] = TYPE == Type::f16 ? ptx::cvt_f16x2(acc[reg], acc[reg + 1])
                                          : ptx::cvt_bf16x2(acc[reg], acc[reg + 1]);
          }
          const int row = warp_row + lane_id % 16, chunk = j * 2 + lane_id / 16;
          ptx::stmatrix_x4(&staging[swizzled(row, chunk)], frag_c);
        }
        ptx::fence_proxy_async();  // TMA reads what ordinary stores have written
        ptx::bar_sync(1 + wg_id, 128);
        if (tid % 128 == 0) {
          ptx::tma_store_2d(&tmap_c, staging, block_n + box * BOX_N, block_m + wg_id * WG_M);
          ptx::tma_store_commit_group();
        }
      }
    }
    ptx::tma_store_wait_group_read<0>();  // shared memory must outlive the stores that read it
  }
  ptx::cluster_sync();  // and whatever the other CTA sends here
}

template <class... Params>
Launch launch_of(void (*kernel)(Params...), const Problem& p) {
  using gpu::Swizzle;
  const int M = int(p.M), N = int(p.N), K = int(p.K);
  const CUtensorMap tmap_a =
      gpu::tensor_map_2d(p.A, M, K, p.lda, BLOCK_M, BLOCK_K, Swizzle::b128, p.type_ab);
  const CUtensorMap tmap_b =
      p.layout_b == Layout::row_major
          ? gpu::tensor_map_2d(p.B, K, N, p.ldb, BLOCK_K, BOX_N, Swizzle::b128, p.type_ab)
          : gpu::tensor_map_2d(p.B, N, K, p.ldb, BLOCK_N / CLUSTER_M, BLOCK_K, Swizzle::b128,
                               p.type_ab);
  const CUtensorMap tmap_c =
      gpu::tensor_map_2d(p.C, M, N, p.ldc, WG_M, BOX_N, Swizzle::b128, p.type_c);
  const int tiles = ceil_div(M, BLOCK_M * CLUSTER_M) * ceil_div(N, BLOCK_N);
  gpu::LaunchConfig config;
  config.grid = dim3(std::min(tiles, gpu::num_sms() / CLUSTER_M) * CLUSTER_M);
  config.block = dim3(NUM_THREADS);
  config.cluster = dim3(CLUSTER_M);
  config.dynamic_smem = sizeof(SharedStorage);
  gpu::allow_dynamic_smem(kernel, config.dynamic_smem);
  return [=, alpha = p.alpha, bias = p.bias, activation = p.activation](gpu::Stream stream) {
    gpu::launch(stream, config, kernel, tmap_a, tmap_b, tmap_c, M, N, K, alpha, bias, activation);
  };
}

std::string supports(const Problem& p) {
  Problem plain = make_problem(p.M, p.N, p.K);
  if (std::string why = needs_multiples(plain, 1, 8, 8); !why.empty()) return why;
  if (p.layout_a != Layout::row_major) return "takes row-major A only";
  if (p.type_ab == Type::f32 || p.type_c != p.type_ab)
    return "takes FP16 or BF16, in and out alike";
  if (p.lda % 8 || p.ldb % 8 || p.ldc % 8) return "takes leading dimensions of multiples of 8 only";
  if (p.lda < p.K || p.ldb < (p.layout_b == Layout::row_major ? p.N : p.K) || p.ldc < p.N)
    return "a leading dimension is shorter than a row (of a column-major B: than a column)";
  if (reinterpret_cast<uintptr_t>(p.A) % 16 || reinterpret_cast<uintptr_t>(p.B) % 16 ||
      reinterpret_cast<uintptr_t>(p.C) % 16 || reinterpret_cast<uintptr_t>(p.bias) % 4)
    return "takes matrices at multiples of 16 bytes and a bias at one of 4 only";
  if (p.alpha == 0 || p.beta != 0 || p.batch != 1)
    return "takes beta = 0 and one batch only, and no alpha of 0";
  return "";
}

Launch prepare(const Problem& p) {
  constexpr ptx::Major K_MAJOR = ptx::Major::k, N_MAJOR = ptx::Major::mn;
  const bool row = p.layout_b == Layout::row_major;
  if (p.type_ab == Type::f16)
    return row ? launch_of(gemm_kernel<Type::f16, N_MAJOR>, p)
               : launch_of(gemm_kernel<Type::f16, K_MAJOR>, p);
  return row ? launch_of(gemm_kernel<Type::bf16, N_MAJOR>, p)
             : launch_of(gemm_kernel<Type::bf16, K_MAJOR>, p);
}

}  // namespace

REGISTER_STEP(supports, prepare);
