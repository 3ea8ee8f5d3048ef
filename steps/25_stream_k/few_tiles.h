// The other kernel of 25: so few tiles that each is cut along K into as many pieces as there are
// CTAs for it. Tiles of 128x128, one piece for a CTA, no cluster. Of n CTAs that share a tile, each
// adds up an n-th of its columns: those sums stay in its registers, the others it leaves in a
// workspace for their owners.
#pragma once
#include "common/step.h"

namespace few_tiles {
namespace {

constexpr int BLOCK_M = 128;
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 64;
constexpr int BOX_N = 64;  // columns of a TMA box: 128 bytes, the width of the swizzle
constexpr int WG_M = 64;
constexpr int WARP_M = 16;
constexpr int WGMMA_K = 16;
constexpr int NUM_CONSUMERS = 2;
constexpr int NUM_THREADS = NUM_CONSUMERS * 128 + 32;  // and one producer warp
constexpr int NUM_STAGES = 7;
constexpr int ALL_BAR = 1 + NUM_CONSUMERS;  // named barrier; 1 and 2 are the consumers'
constexpr int GROUPS = BLOCK_N / 8;  // of 8 columns: a float4 of sums for each thread
constexpr int MIN_SHARE = 8;         // k tiles of a piece at least
static_assert(BLOCK_M == NUM_CONSUMERS * WG_M, "each consumer takes 64 rows, the M of wgmma");
static_assert(BLOCK_N == 128, "the multiplication below is m64n128k16");
static_assert(BLOCK_K * sizeof(half) == 128, "a row of A in shared memory is one swizzle row");

struct SharedStorage {  // 1,024-byte aligned buffers first, as the swizzle needs
  half a[NUM_STAGES][BLOCK_M * BLOCK_K];                 // [BLOCK_M][64]
  half b[NUM_STAGES][BLOCK_N / BOX_N][BLOCK_K * BOX_N];  // [box][BLOCK_K][64]
  uint64_t full_bar[NUM_STAGES];
  uint64_t empty_bar[NUM_STAGES];

  __device__ void label() {
    for (int stage = 0; stage < NUM_STAGES; ++stage) {
      ptx::label(a[stage], sizeof(a[stage]), "A", stage);
      ptx::label(b[stage], sizeof(b[stage]), "B", stage);
      ptx::label(&full_bar[stage], sizeof(uint64_t), "full_bar", stage);
      ptx::label(&empty_bar[stage], sizeof(uint64_t), "empty_bar", stage);
    }
  }
};
constexpr int STAGE_BYTES = sizeof(SharedStorage::a[0]) + sizeof(SharedStorage::b[0]);
constexpr int A_K16_BYTES = WGMMA_K * sizeof(half);          // 16 k further in a row of A,
constexpr int B_K16_BYTES = WGMMA_K * BOX_N * sizeof(half);  // 16 rows of k further in a box of B

__device__ uint64_t matrix_desc(const void* tile, int lbo, int sbo) {
  return uint64_t(ptx::smem_addr(tile) & 0x3FFFF) >> 4 | uint64_t(lbo >> 4) << 16 |
         uint64_t(sbo >> 4) << 32 | uint64_t{1} << 62;
}

__device__ uint64_t advance(uint64_t desc, int bytes) {
  return (desc & ~uint64_t{0xFFFFFFFF}) | (uint32_t(desc) + (bytes >> 4));
}

// Where in the ring: counted, since iter % 7 took the loop 1.5 % longer.
struct Position {
  int stage = 0, phase = 0;
  __device__ void advance() {
    if (++stage == NUM_STAGES) stage = 0, phase ^= 1;
  }
};

// Which of the CTAs that share a tile adds up a group of 8 columns.
__device__ int owner(int group, int sharers) { return group * sharers / GROUPS; }

// What one thread leaves for others and finds from them.
struct Workspace {
  float4* sums;
  int tile, tiles, sharers;
  __device__ float4* operator()(int piece, int group) const {
    const int64_t block = int64_t(piece * tiles + tile) * GROUPS + group;
    return sums + block * (NUM_CONSUMERS * 128) + threadIdx.x;
  }
};

// Adds what the others have left to the sums of this CTA's columns, AT_ONCE groups by 16 / AT_ONCE
// pieces in flight; in an order that depends on nothing but who it is: same bits each run.
template <int AT_ONCE>
__device__ void add_others(float (&acc)[BLOCK_N / 2], int piece, const Workspace& from) {
  const int sharers = from.sharers;
#pragma unroll
  for (int j = 0; j < GROUPS; j += AT_ONCE) {
    if (piece < owner(j, sharers) || owner(j + AT_ONCE - 1, sharers) < piece) continue;
    for (int next = 1; next < sharers; next += 16 / AT_ONCE) {
      float4 loaded[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int group = j + i % AT_ONCE, other = piece + next + i / AT_ONCE;
        const bool there = next + i / AT_ONCE < sharers && owner(group, sharers) == piece;
        loaded[i] = there ? *from(other < sharers ? other : other - sharers, group)
                          : make_float4(0, 0, 0, 0);
      }
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        float* sum = &acc[(j + i % AT_ONCE) * 4];
        sum[0] += loaded[i].x, sum[1] += loaded[i].y, sum[2] += loaded[i].z, sum[3] += loaded[i].w;
      }
    }
  }
}

// Four lanes have two columns each of four groups of 8; now each has all 8 of one group.
__device__ void turn_round(uint32_t (&pair)[4], int lane_id) {
  const bool high = lane_id & 2, odd = lane_id & 1;
  const auto trade = [](uint32_t& a, uint32_t& b, bool first, int lane) {
    const uint32_t got = __shfl_xor_sync(~0u, first ? a : b, lane);
    (first ? a : b) = got;
  };
  trade(pair[0], pair[2], high, 2), trade(pair[1], pair[3], high, 2);
  trade(pair[0], pair[1], odd, 1), trade(pair[2], pair[3], odd, 1);
}

__global__ void __launch_bounds__(NUM_THREADS, 1)
    split_kernel(const __grid_constant__ CUtensorMap tmap_a,
                 const __grid_constant__ CUtensorMap tmap_b, half* C, int M, int N, int share,
                 int longer, float4* workspace, int* arrived) {
  auto& smem = *static_cast<SharedStorage*>(ptx::dynamic_smem());
  const int tid = threadIdx.x, lane_id = tid % 32;
  const int wg_id = __shfl_sync(~0u, tid / 128, 0);  // known to be uniform: descriptors stay scalar
  // Neighbouring CTAs have the same columns and the same k: they share what L2 delivers of B.
  const int tile = blockIdx.y * gridDim.x + blockIdx.x, piece = blockIdx.z, sharers = gridDim.z;
  const int block_m = blockIdx.x * BLOCK_M, block_n = blockIdx.y * BLOCK_N;
  const int first_k_tile = piece * share + min(piece, longer);
  const int num_k_tiles = share + (piece < longer);  // the first `longer` pieces have one more

  Position at;
  if (wg_id == NUM_CONSUMERS) {  // producer warp: one thread keeps the ring full
    if (lane_id == 0) {
      smem.label();
      for (int stage = 0; stage < NUM_STAGES; ++stage) {
        ptx::mbarrier_init(&smem.full_bar[stage], 1);
        ptx::mbarrier_init(&smem.empty_bar[stage], NUM_CONSUMERS);
      }
      ptx::fence_mbarrier_init();
    }
    __syncwarp();  // bar.arrive is for whole warps
    ptx::bar_arrive(ALL_BAR, NUM_THREADS);  // the barriers exist; loads wait for nobody
    if (lane_id == 0) {
      for (int i = 0; i < num_k_tiles; ++i, at.advance()) {
        const int k = (first_k_tile + i) * BLOCK_K;
        uint64_t* full_bar = &smem.full_bar[at.stage];
        ptx::mbarrier_wait(&smem.empty_bar[at.stage], at.phase ^ 1);
        ptx::mbarrier_arrive_expect_tx(full_bar, STAGE_BYTES);
        ptx::tma_load_2d(smem.a[at.stage], &tmap_a, k, block_m, full_bar);
        for (int box = 0; box < BLOCK_N / BOX_N; ++box)
          ptx::tma_load_2d(smem.b[at.stage][box], &tmap_b, block_n + box * BOX_N, k, full_bar);
      }
      for (int wg = 0; wg < NUM_CONSUMERS && sharers > 1 && piece == 0; ++wg) {
        int* flag = &arrived[tile * NUM_CONSUMERS + wg];
        ptx::wait_until(flag, 2 * sharers);  // all have seen it: new for the next launch
        *flag = 0;
      }
    }
  } else {  // consumer warpgroups: 64 rows each
    ptx::bar_sync(ALL_BAR, NUM_THREADS);
    float acc[BLOCK_N / 2] = {};  // never read; ptxas 12 wants a value (C7515)
    for (int i = 0, before = 0; i < num_k_tiles; ++i) {
      ptx::mbarrier_wait(&smem.full_bar[at.stage], at.phase);
      const uint64_t desc_a = matrix_desc(&smem.a[at.stage][wg_id * WG_M * BLOCK_K], 16, 1024);
      const uint64_t desc_b = matrix_desc(smem.b[at.stage], sizeof(smem.b[0][0]), 1024);
      ptx::wgmma_fence();
#pragma unroll
      for (int k16 = 0; k16 < BLOCK_K / WGMMA_K; ++k16)
        ptx::wgmma_m64n128k16_f16<ptx::Major::k, ptx::Major::mn>(
            acc, advance(desc_a, k16 * A_K16_BYTES), advance(desc_b, k16 * B_K16_BYTES),
            i > 0 || k16 > 0);
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<1>(acc);  // the group before has read its stage: release that
      if (i > 0 && tid % 128 == 0)
        ptx::mbarrier_arrive(&smem.empty_bar[before]);
      before = at.stage, at.advance();
    }
    ptx::wgmma_wait_group<0>(acc);

    if (sharers > 1) {
      const Workspace sums = {workspace, tile, int(gridDim.x * gridDim.y), sharers};
#pragma unroll
      for (int j = 0; j < GROUPS; ++j)
        if (owner(j, sharers) != piece)
          *sums(piece, j) = make_float4(acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]);
      ptx::bar_sync(1 + wg_id, 128);
      if (tid % 128 == 0) {
        int* flag = &arrived[tile * NUM_CONSUMERS + wg_id];
        ptx::red_add_release(flag, 1);
        ptx::wait_until(flag, sharers);
        ptx::red_add_relaxed(flag, 1);  // has seen it
      }
      ptx::bar_sync(1 + wg_id, 128);
      if (sharers <= 3)
        add_others<8>(acc, piece, sums);
      else
        add_others<4>(acc, piece, sums);
    }

    const int row = block_m + wg_id * WG_M + tid % 128 / 32 * WARP_M + lane_id / 4;
#pragma unroll
    for (int j = 0; j < GROUPS; j += 4)
#pragma unroll
      for (int half_m = 0; half_m < 2; ++half_m) {  // rows 0-7, 8-15 of a warp
        if (piece < owner(j, sharers) || owner(j + 3, sharers) < piece) continue;
        uint32_t pair[4];
        for (int i = 0; i < 4; ++i) {
          const int reg = (j + i) * 4 + half_m * 2;
          pair[i] = ptx::cvt_f16x2(acc[reg], acc[reg + 1]);
        }
        turn_round(pair, lane_id);
        const int group = j + lane_id % 4, m = row + half_m * 8, n = block_n + group * 8;
        if (owner(group, sharers) == piece && m < M && n < N)
          *reinterpret_cast<uint4*>(&C[int64_t(m) * N + n]) =
              make_uint4(pair[0], pair[1], pair[2], pair[3]);
      }
  }
}

// Do the tiles leave more than half of the SMs idle?
bool suits(const Problem& p) {
  return ceil_div(p.M, BLOCK_M) * ceil_div(p.N, BLOCK_N) * 2 <= gpu::num_sms();
}

Launch prepare(const Problem& p) {
  using gpu::Swizzle;
  const int M = int(p.M), N = int(p.N), K = int(p.K);
  auto* C = static_cast<half*>(p.C);
  const CUtensorMap tmap_a = gpu::tensor_map_2d(p.A, M, K, K, BLOCK_M, BLOCK_K, Swizzle::b128);
  const CUtensorMap tmap_b = gpu::tensor_map_2d(p.B, K, N, N, BLOCK_K, BOX_N, Swizzle::b128);
  const int tiles_m = ceil_div(M, BLOCK_M), tiles_n = ceil_div(N, BLOCK_N);
  const int tiles = tiles_m * tiles_n, num_k_tiles = ceil_div(K, BLOCK_K);
  const int pieces = std::min({gpu::num_sms() / tiles, num_k_tiles / MIN_SHARE, GROUPS});
  const int sharers = std::max(pieces, 1);
  gpu::LaunchConfig config;
  config.grid = dim3(tiles_m, tiles_n, sharers);  // all resident: they wait for each other
  config.block = dim3(NUM_THREADS);
  config.dynamic_smem = sizeof(SharedStorage);
  gpu::allow_dynamic_smem(split_kernel, config.dynamic_smem);
  const auto workspace = std::make_shared<gpu::Buffer>(
      size_t(tiles) * sharers * BLOCK_M * BLOCK_N * sizeof(float), "workspace");
  const auto arrived =
      std::make_shared<gpu::Buffer>(tiles * NUM_CONSUMERS * sizeof(int), "arrived");
  gpu::fill(arrived->get(), 0, arrived->bytes());
  return [=](gpu::Stream stream) {
    gpu::launch(stream, config, split_kernel, tmap_a, tmap_b, C, M, N, num_k_tiles / sharers,
                num_k_tiles % sharers, workspace->get<float4>(), arrived->get<int>());
  };
}

}  // namespace
}  // namespace few_tiles
