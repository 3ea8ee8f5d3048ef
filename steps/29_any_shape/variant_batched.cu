// 29_any_shape.batched: many products in one launch; attention scores and a convolution are two.
// base: 26_locality
// arch: 90a
// unit: wgmma
// New: A, B and C are 4-D tensors, and a `Walk` says which box of each a tile and a k tile need.
//      The batch of a problem is a third coordinate; attention's heads lie between its rows; a
//      convolution moves A's box over the image, with TMA's zeros as padding: example_*.cu.
// Shapes: A row-major, B either; FP16 or BF16; any M and K; N, leading dimensions and strides from
//      matrix to matrix multiples of 8 (TMA rows of 16 bytes).
#include <array>
#include "common/step.h"

namespace {

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 256;
constexpr int BLOCK_K = 64;
constexpr int BOX_N = 64;  // columns of a TMA box: 128 bytes, the width of the swizzle
constexpr int WG_M = 64;
constexpr int WARP_M = 16;
constexpr int WGMMA_K = 16;
constexpr int MAX_CLUSTER_M = 2;
constexpr int NUM_CONSUMERS = 2;
constexpr int NUM_THREADS = NUM_CONSUMERS * 128 + 32;  // and one producer warp
constexpr int NUM_STAGES = 4;
constexpr int GROUP_M = 8;  // rasterization: clusters along M before the next column
static_assert(BLOCK_M == NUM_CONSUMERS * WG_M, "each consumer takes 64 rows, the M of wgmma");
static_assert(BLOCK_N == 256, "the multiplication below is m64n256k16");
static_assert(BLOCK_K * sizeof(half) == 128, "a row of A in shared memory is one swizzle row");
static_assert(BLOCK_N / BOX_N % MAX_CLUSTER_M == 0, "the CTAs of a cluster share the boxes of B");

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

// How tiles and k tiles become coordinates. A and C are tensors (x, y, z, w) with x innermost: K of
// A, N of C. A tile's BLOCK_M rows are a box in y, z and w; its K has `taps` parts.
//                 y               z                 w       taps            B at
//   batches       row             matrix of A, C    0       1               (k, n, z, w)
//   attention     token           head              batch   1               (k, n, z, w)
//   convolution   column          row               image   filter pixels   (channel, n, tap, 0)
struct Box { int y, z, w; };
struct Walk {
  int tiles_m, tiles_n, tiles;    // along M and N of a matrix; of all matrices (rows: of clusters)
  int tiles_y, tiles_z;           // boxes along y and z, if all are counted one after another
  Box box;                        // rows of a tile
  Box next;                       // from one consumer's 64 rows to the next one's
  int k_tiles, taps;              // of one tap; how many
  int filter_width, pad;          // taps in a row; where the first one lies before the box
  int moves_a, moves_b;           // 0: the same A, B for all z and w
  int cluster_m;                  // 1 or 2
  float alpha;
};

// Where this CTA's part of a tile begins. Clusters walk columns of GROUP_M as in step 26, matrix
// after matrix. A cluster's second CTA may lie outside the tensor: it reads zeros, stores nothing.
struct Origin { int n, y, z, w; };
__device__ Origin origin_of(int tile, int cta_rank, const Walk& walk) {
  const int tiles_m = ceil_div(walk.tiles_m, walk.cluster_m), tiles_n = walk.tiles_n;
  const int matrix = tile / (tiles_m * tiles_n), in_matrix = tile % (tiles_m * tiles_n);
  const int group = in_matrix / (GROUP_M * tiles_n), group_m = group * GROUP_M;
  const int in_group = in_matrix % (GROUP_M * tiles_n);
  const int rows = min(GROUP_M, tiles_m - group_m), column = in_group / rows;
  const int tile_n = group % 2 == 0 ? column : tiles_n - 1 - column;
  const int box = (matrix * tiles_m + group_m + in_group % rows) * walk.cluster_m + cta_rank;
  return {tile_n * BLOCK_N, box % walk.tiles_y * walk.box.y,
          box / walk.tiles_y % walk.tiles_z * walk.box.z,
          box / walk.tiles_y / walk.tiles_z * walk.box.w};
}

template <Type TYPE, ptx::Major MAJOR_B>
__device__ void multiply(float (&acc)[BLOCK_N / 2], uint64_t desc_a, uint64_t desc_b, int scale_d) {
  if constexpr (TYPE == Type::f16)
    ptx::wgmma_m64n256k16_f16<ptx::Major::k, MAJOR_B>(acc, desc_a, desc_b, scale_d);
  else
    ptx::wgmma_m64n256k16_bf16<ptx::Major::k, MAJOR_B>(acc, desc_a, desc_b, scale_d);
}

template <Type TYPE, ptx::Major MAJOR_B>
__global__ void __launch_bounds__(NUM_THREADS, 1)
    gemm_kernel(const __grid_constant__ CUtensorMap tmap_a,
                const __grid_constant__ CUtensorMap tmap_b,
                const __grid_constant__ CUtensorMap tmap_c, const __grid_constant__ Walk walk) {
  auto& smem = *static_cast<SharedStorage*>(ptx::dynamic_smem());
  const int tid = threadIdx.x, warp_id = tid / 32, lane_id = tid % 32;
  const int wg_id = __shfl_sync(~0u, tid / 128, 0);  // known to be uniform: descriptors stay scalar
  const int cta_rank = ptx::cluster_ctarank();
  const int num_k_tiles = walk.k_tiles * walk.taps, cluster_m = walk.cluster_m;
  const int first_tile = blockIdx.x / cluster_m, num_clusters = gridDim.x / cluster_m;

  if (tid == 0) {
    smem.label();
    for (int stage = 0; stage < NUM_STAGES; ++stage) {
      ptx::mbarrier_init(&smem.full_bar[stage], 1);
      ptx::mbarrier_init(&smem.empty_bar[stage], NUM_CONSUMERS * cluster_m);
    }
    ptx::fence_mbarrier_init();
  }
  ptx::cluster_sync();  // no CTA sends before the other's barriers exist

  uint32_t iter = 0;  // k tiles so far, over all output tiles: the ring never stops in between
  if (wg_id == NUM_CONSUMERS) {  // producer warp: one thread keeps the ring full
    if (lane_id == 0) {
      const uint16_t all_ctas = uint16_t((1 << cluster_m) - 1);
      for (int tile = first_tile; tile < walk.tiles; tile += num_clusters) {
        const Origin at = origin_of(tile, cta_rank, walk);
        const int z_a = at.z * walk.moves_a, w_a = at.w * walk.moves_a;
        const int z_b = at.z * walk.moves_b, w_b = at.w * walk.moves_b;
        const bool backwards = tile / num_clusters % 2;  // the consumers add in any order
        for (int i = 0; i < walk.taps; ++i) {
          const int tap = backwards ? walk.taps - 1 - i : i;
          const int y = at.y + tap % walk.filter_width - walk.pad;
          const int z = z_a + tap / walk.filter_width - walk.pad;
          for (int j = 0; j < walk.k_tiles; ++j, ++iter) {
            const int k = (backwards ? walk.k_tiles - 1 - j : j) * BLOCK_K;
            const int stage = iter % NUM_STAGES, phase = iter / NUM_STAGES & 1;
            uint64_t* full_bar = &smem.full_bar[stage];
            ptx::mbarrier_wait(&smem.empty_bar[stage], phase ^ 1);  // both CTAs have read it
            ptx::mbarrier_arrive_expect_tx(full_bar, STAGE_BYTES);
            ptx::tma_load_4d(smem.a[stage], &tmap_a, k, y, z, w_a, full_bar);
            if constexpr (MAJOR_B == ptx::Major::mn) {  // every other box, to both CTAs
              for (int box = cta_rank; box < BLOCK_N / BOX_N; box += cluster_m)
                ptx::tma_load_4d_multicast(&smem.b[stage][box * BLOCK_K * BOX_N], &tmap_b,
                                           at.n + box * BOX_N, k, z_b + tap, w_b, full_bar,
                                           all_ctas);
            } else {  // every other half
              const int row = BLOCK_N / cluster_m * cta_rank;
              ptx::tma_load_4d_multicast(&smem.b[stage][row * BLOCK_K], &tmap_b, k, at.n + row,
                                         z_b + tap, w_b, full_bar, all_ctas);
            }
          }
        }
      }
    }
    __syncwarp();  // the barrier at the end takes whole warps
  } else {  // consumer warpgroups: 64 rows each
    float acc[BLOCK_N / 2] = {};  // never read; ptxas 12 wants a value (C7515)
    for (int tile = first_tile; tile < walk.tiles; tile += num_clusters) {
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
        if (k_tile > 0 && tid % 128 < cluster_m)  // both CTAs (B came from both)
          ptx::mbarrier_arrive_remote(&smem.empty_bar[(iter - 1) % NUM_STAGES], tid % 128);
      }
      const Origin at = origin_of(tile, cta_rank, walk);
      ptx::wgmma_wait_group<0>(acc);
      if (tid % 128 < cluster_m)
        ptx::mbarrier_arrive_remote(&smem.empty_bar[(iter - 1) % NUM_STAGES], tid % 128);

      // Epilogue, 64 columns at a time: rmem -> smem -> gmem.
      const int warp_row = warp_id % 4 * WARP_M;
#pragma unroll
      for (int box = 0; box < BLOCK_N / BOX_N; ++box) {
        half* staging = smem.c[wg_id][box % 2];
        if (tid % 128 == 0) ptx::tma_store_wait_group_read<1>();  // the box before last has left
        ptx::bar_sync(1 + wg_id, 128);
#pragma unroll
        for (int j = 0; j < BOX_N / 16; ++j) {
          uint32_t frag_c[4];
          for (int i = 0; i < 4; ++i) {
            const int reg = (box * BOX_N + j * 16) / 2 + 2 * i;
            const float lo = walk.alpha * acc[reg], hi = walk.alpha * acc[reg + 1];
            frag_c[i] = TYPE == Type::f16 ? ptx::cvt_f16x2(lo, hi) : ptx::cvt_bf16x2(lo, hi);
          }
          const int row = warp_row + lane_id % 16, chunk = j * 2 + lane_id / 16;
          ptx::stmatrix_x4(&staging[swizzled(row, chunk)], frag_c);
        }
        ptx::fence_proxy_async();  // TMA reads what ordinary stores have written
        ptx::bar_sync(1 + wg_id, 128);
        if (tid % 128 == 0) {
          ptx::tma_store_4d(&tmap_c, staging, at.n + box * BOX_N, at.y + wg_id * walk.next.y,
                            at.z + wg_id * walk.next.z, at.w + wg_id * walk.next.w);
          ptx::tma_store_commit_group();
        }
      }
    }
    ptx::tma_store_wait_group_read<0>();  // shared memory must outlive the stores that read it
  }
  ptx::cluster_sync();  // and whatever the other CTA sends here
}

// A 4-D tensor: sizes and strides in elements, innermost first; the innermost stride is 1.
struct Tensor {
  const void* data;
  std::array<int64_t, 4> size;
  std::array<int64_t, 3> stride;

  CUtensorMap map(Type type, int x, const Box& box) const {
    return gpu::tensor_map(data, {size[0], size[1], size[2], size[3]},
                           {stride[0], stride[1], stride[2]}, {x, box.y, box.z, box.w},
                           gpu::Swizzle::b128, type);
  }
};

// Common to all: maps, grid, kernel. `walk` knows its box, taps and tiles_m, _y, _z already.
Launch launch_walk(Walk walk, const Tensor& a, const Tensor& b, const Tensor& c, bool b_row_major,
                   Type type, int64_t matrices) {
  Box part = walk.box;  // a consumer's, of the outermost side that can be parted
  int& side = part.w > 1 ? part.w : part.z > 1 ? part.z : part.y;
  int& next = part.w > 1 ? walk.next.w : part.z > 1 ? walk.next.z : walk.next.y;
  next = side /= NUM_CONSUMERS;
  walk.tiles_n = int(ceil_div(c.size[0], BLOCK_N));
  walk.tiles = int(matrices * ceil_div(walk.tiles_m, walk.cluster_m) * walk.tiles_n);
  const CUtensorMap tmap_a = a.map(type, BLOCK_K, walk.box);
  const CUtensorMap tmap_b = b_row_major ? b.map(type, BOX_N, {BLOCK_K, 1, 1})
                                         : b.map(type, BLOCK_K, {BLOCK_N / walk.cluster_m, 1, 1});
  const CUtensorMap tmap_c = c.map(type, BOX_N, part);
  constexpr ptx::Major K_MAJOR = ptx::Major::k, N_MAJOR = ptx::Major::mn;
  const auto kernel = type == Type::f16
                          ? b_row_major ? gemm_kernel<Type::f16, N_MAJOR>
                                        : gemm_kernel<Type::f16, K_MAJOR>
                          : b_row_major ? gemm_kernel<Type::bf16, N_MAJOR>
                                        : gemm_kernel<Type::bf16, K_MAJOR>;
  gpu::LaunchConfig config;
  config.grid = dim3(std::min(walk.tiles, gpu::num_sms() / walk.cluster_m) * walk.cluster_m);
  config.block = dim3(NUM_THREADS);
  config.cluster = dim3(walk.cluster_m);
  config.dynamic_smem = sizeof(SharedStorage);
  gpu::allow_dynamic_smem(kernel, config.dynamic_smem);
  return [=](gpu::Stream stream) {
    gpu::launch(stream, config, kernel, tmap_a, tmap_b, tmap_c, walk);
  };
}

// All products A[z, w] (M x K) times B[z, w]: sizes and strides of z and w are those of `c`.
Launch prepare_products(const Tensor& a, const Tensor& b, const Tensor& c, bool b_row_major,
                        Type type, float alpha) {
  Walk walk{};
  walk.tiles_m = int(ceil_div(c.size[1], BLOCK_M));
  walk.cluster_m = walk.tiles_m > 1 ? MAX_CLUSTER_M : 1;
  walk.tiles_y = ceil_div(walk.tiles_m, walk.cluster_m) * walk.cluster_m;
  walk.tiles_z = int(c.size[2]);
  walk.box = {BLOCK_M, 1, 1}, walk.alpha = alpha;
  walk.k_tiles = int(ceil_div(a.size[0], BLOCK_K)), walk.taps = walk.filter_width = 1;
  walk.moves_a = a.size[2] * a.size[3] > 1, walk.moves_b = b.size[2] * b.size[3] > 1;
  return launch_walk(walk, a, b, c, b_row_major, type, c.size[2] * c.size[3]);
}

std::string supports(const Problem& p) {
  if (p.batch < 1) return "needs a batch of at least 1";
  if (std::string why = needs_multiples(make_problem(p.M, p.N, p.K), 1, 8, 1); !why.empty())
    return why;
  if (p.layout_a != Layout::row_major) return "takes row-major A only";
  if (p.type_ab == Type::f32 || p.type_c != p.type_ab)
    return "takes FP16 or BF16, in and out alike";
  if (p.lda % 8 || p.ldb % 8 || p.ldc % 8) return "takes leading dimensions of multiples of 8 only";
  if (p.lda < p.K || p.ldb < (p.layout_b == Layout::row_major ? p.N : p.K) || p.ldc < p.N)
    return "a leading dimension is shorter than a row (of a column-major B: than a column)";
  if (p.batch > 1 && (p.stride_a % 8 || p.stride_b % 8 || p.stride_c % 8 || p.stride_c == 0))
    return "takes strides from matrix to matrix of multiples of 8 only";
  for (const void* base : {p.A, p.B, static_cast<const void*>(p.C)})
    if (reinterpret_cast<uintptr_t>(base) % 16)
      return "takes matrices at multiples of 16 bytes only";
  if (p.beta != 0 || p.alpha == 0 || p.bias || p.activation != Activation::none)
    return "takes beta = 0 only, no alpha of 0, no bias and no activation";
  if (ceil_div(p.M, BLOCK_M) * ceil_div(p.N, BLOCK_N) * p.batch > 1 << 30)
    return "takes at most 2^30 tiles of 128x256, all batches together";
  return "";
}

Launch prepare(const Problem& p) {
  const bool row_b = p.layout_b == Layout::row_major;
  const auto tensor = [&](const void* data, int64_t inner, int64_t outer, int64_t ld,
                          int64_t stride) {
    const bool shared = p.batch == 1 || stride == 0;
    if (shared) stride = outer * ld;  // one matrix; TMA wants a stride all the same
    return Tensor{data, {inner, outer, shared ? 1 : p.batch, 1}, {ld, stride, p.batch * stride}};
  };
  return prepare_products(tensor(p.A, p.K, p.M, p.lda, p.stride_a),
                          tensor(p.B, row_b ? p.N : p.K, row_b ? p.K : p.N, p.ldb, p.stride_b),
                          tensor(p.C, p.N, p.M, p.ldc, p.stride_c), row_b, p.type_ab, p.alpha);
}

}  // namespace

REGISTER_STEP(supports, prepare);
