// TMA ring, a producer and two consumer warpgroups with wgmma, TMA store, clusters: right and with
// one bug each. The two ring races that NVIDIA's racecheck does not see are kNoEmptyWait (a stage
// refilled while it is read) and kNoFullWait (read before it landed).
#include "tests/emulator_support.h"

namespace {

enum Bug {
  kRight, kNoFullWait, kWrongFullParity, kNoEmptyWait, kWrongEmptyParity, kReleasesBeforeWgmmaWait,
  kReadsAccumulatorInFlight, kWrongStoreSwizzle, kNoInitBarrier, kNoInitFence, kTooManyBytes,
  kTooFewBytes, kNoWgmmaFence, kNoEmptyArrive, kNoProxyFence, kNoStoreBarrier, kNoStoreWait,
  kNoStoreCommit, kOneGroupInFlight, kReleasesThisGroup, kLeavesClusterEarly, kArrivesAtOneBlock,
  kMisalignedCoordinate, kNegativeStore, kWrongStride
};

constexpr int BM = 128, BN = 128, BK = 64, STAGES = 3;

struct Ring {
  half a[STAGES][BM * BK], b[STAGES][BK * BN];
  half c[BM * BN];
  uint64_t full[STAGES], empty[STAGES];
};

__device__ uint64_t descriptor(const void* p, uint32_t leading, uint32_t stride) {
  return uint64_t(ptx::smem_addr(p) >> 4) | uint64_t(leading >> 4) << 16 |
         uint64_t(stride >> 4) << 32 | uint64_t{1} << 62;  // 128-byte swizzle
}

// A is [M][K], B is [K][N], both row-major; CLUSTER blocks along M share the tile of B.
template <int CLUSTER>
__global__ void __launch_bounds__(384)
    ring_kernel(const __grid_constant__ CUtensorMap tmap_a,
                const __grid_constant__ CUtensorMap tmap_b,
                const __grid_constant__ CUtensorMap tmap_c, int K, int bug) {
  auto& smem = *static_cast<Ring*>(ptx::dynamic_smem());
  for (int s = 0; s < STAGES; ++s) {
    ptx::label(smem.a[s], sizeof smem.a[s], "A", s);
    ptx::label(smem.b[s], sizeof smem.b[s], "B", s);
    ptx::label(&smem.full[s], 8, "full", s);
    ptx::label(&smem.empty[s], 8, "empty", s);
  }
  ptx::label(smem.c, sizeof smem.c, "C");
  const int tid = threadIdx.x, wg = tid / 128, steps = K / BK;
  const int m0 = blockIdx.x * BM, n0 = blockIdx.y * BN;
  const unsigned rank = CLUSTER > 1 ? ptx::cluster_ctarank() : 0;
  if (tid == 0) {
    ptx::prefetch_tensormap(&tmap_a);
    for (int s = 0; s < STAGES; ++s) {
      ptx::mbarrier_init(&smem.full[s], 1);
      ptx::mbarrier_init(&smem.empty[s], 2 * CLUSTER);
    }
    if (bug != kNoInitFence) ptx::fence_mbarrier_init();
  }
  if (CLUSTER > 1)
    ptx::cluster_sync();
  else if (bug != kNoInitBarrier)
    __syncthreads();
  if (wg == 0) {
    ptx::setmaxnreg_dec<40>();
    for (int i = 0; tid == 0 && i < steps; ++i) {
      const int s = i % STAGES, phase = i / STAGES & 1;
      if (bug != kNoEmptyWait)
        ptx::mbarrier_wait(&smem.empty[s], phase ^ (bug == kWrongEmptyParity ? 0 : 1));
      int bytes = sizeof smem.a[s] + sizeof smem.b[s];
      if (bug == kTooManyBytes) bytes += 128;
      if (bug == kTooFewBytes) bytes -= sizeof smem.a[s];
      ptx::mbarrier_arrive_expect_tx(&smem.full[s], bytes);
      ptx::tma_load_2d(smem.a[s], &tmap_a, i * BK + (bug == kMisalignedCoordinate), m0,
                       &smem.full[s]);
      if (CLUSTER > 1) {  // each block loads one half of B and sends it to both
        ptx::tma_load_2d_multicast(smem.b[s] + rank * (BK * 64), &tmap_b, n0 + rank * 64, i * BK,
                                   &smem.full[s], (1 << CLUSTER) - 1);
      } else {
        for (int h = 0; h < 2; ++h)
          ptx::tma_load_2d(smem.b[s] + h * (BK * 64), &tmap_b, n0 + h * 64, i * BK, &smem.full[s]);
      }
    }
  } else {
    ptx::setmaxnreg_inc<232>();
    float acc[64];
    for (int i = 0; i < 64; ++i) acc[i] = 0;
    for (int i = 0; i < steps; ++i) {
      int s = i % STAGES;
      const int phase = i / STAGES & 1;
      if (bug != kNoFullWait)
        ptx::mbarrier_wait(&smem.full[s], phase ^ (bug == kWrongFullParity ? 1 : 0));
      if (bug != kNoWgmmaFence) ptx::wgmma_fence();
      for (int kk = 0; kk < BK / 16; ++kk) {
        const uint64_t a = descriptor(smem.a[s] + (wg - 1) * 64 * BK + kk * 16, 16,
                                      bug == kWrongStride ? 512 : 1024);
        const uint64_t b = descriptor(smem.b[s] + kk * 16 * 64, 8192, 1024);
        ptx::wgmma_m64n128k16_f16<ptx::Major::k, ptx::Major::mn>(acc, a, b, i + kk > 0);
      }
      ptx::wgmma_commit_group();
      if (bug == kOneGroupInFlight || bug == kReleasesThisGroup) {
        if (i < steps - 1)
          ptx::wgmma_wait_group<1>(acc);
        else
          ptx::wgmma_wait_group<0>(acc);
        if (bug == kOneGroupInFlight) {
          if (i == 0) continue;
          s = (i - 1) % STAGES;
        }
      } else if (bug != kReleasesBeforeWgmmaWait || i == steps - 1) {
        ptx::wgmma_wait_group<0>();
      }
      if (bug == kNoEmptyArrive) continue;
      if (CLUSTER > 1 && bug == kArrivesAtOneBlock) {
        for (int c = 0; tid % 128 == 0 && c < CLUSTER; ++c) ptx::mbarrier_arrive(&smem.empty[s]);
      } else if (CLUSTER > 1) {
        if (tid % 128 < CLUSTER) ptx::mbarrier_arrive_remote(&smem.empty[s], tid % 128);
      } else if (tid % 128 == 0) {
        ptx::mbarrier_arrive(&smem.empty[s]);
      }
    }
    if (bug == kReadsAccumulatorInFlight) {
      ptx::wgmma_fence();
      ptx::wgmma_m64n128k16_f16<ptx::Major::k, ptx::Major::mn>(
          acc, descriptor(smem.a[0], 16, 1024), descriptor(smem.b[0], 8192, 1024), 1);
      ptx::wgmma_commit_group();
    }
    // Registers to shared memory in the layout of a 128-byte swizzle, 64 columns at a time.
    const int warp = tid % 128 / 32, lane = tid % 32;
    for (int h = 0; h < 2; ++h) {
      char* tile = reinterpret_cast<char*>(smem.c + ((wg - 1) * 2 + h) * 64 * 64);
      for (int j = 0; j < 4; ++j) {
        uint32_t r[4];
        for (int q = 0; q < 4; ++q) {
          const int reg = (h * 8 + j * 2 + q / 2) * 4 + q % 2 * 2;
          r[q] = ptx::cvt_f16x2(acc[reg], acc[reg + 1]);
        }
        const int row = warp * 16 + lane % 16, chunk = j * 2 + lane / 16;
        const int column = bug == kWrongStoreSwizzle ? chunk : chunk ^ (row & 7);
        ptx::stmatrix_x4(tile + row * 128 + column * 16, r);
      }
    }
    if (bug != kNoProxyFence) ptx::fence_proxy_async();
    if (bug != kNoStoreBarrier) ptx::bar_sync(wg, 128);
    if (tid % 128 == 0) {
      for (int h = 0; h < 2; ++h)
        ptx::tma_store_2d(&tmap_c, smem.c + ((wg - 1) * 2 + h) * 64 * 64,
                          n0 + h * 64 - (bug == kNegativeStore ? 1024 : 0), m0 + (wg - 1) * 64);
      if (bug != kNoStoreCommit) ptx::tma_store_commit_group();
      if (bug != kNoStoreWait) ptx::tma_store_wait_group_read<0>();
    }
  }
  if (CLUSTER > 1 && bug != kLeavesClusterEarly) ptx::cluster_sync();
}

template <int CLUSTER>
Findings ring(int bug, Gemm& g) {
  using gpu::Swizzle;
  const auto map_a = gpu::tensor_map_2d(g.A.get(), g.M, g.K, g.K, BM, BK, Swizzle::b128);
  const auto map_b = gpu::tensor_map_2d(g.B.get(), g.K, g.N, g.N, BK, 64, Swizzle::b128);
  const auto map_c = gpu::tensor_map_2d(g.C.get(), g.M, g.N, g.N, 64, 64, Swizzle::b128);
  gpu::allow_dynamic_smem(ring_kernel<CLUSTER>, sizeof(Ring));
  return run(shape(dim3(g.M / BM, g.N / BN), dim3(384), sizeof(Ring), dim3(CLUSTER)),
             ring_kernel<CLUSTER>, map_a, map_b, map_c, g.K, bug);
}

}  // namespace

TEST_CASE("TMA ring with wgmma: right kernels are not accused") {
  Gemm g(256, 384, 512), small(256, 128, 64);
  for (unsigned seed = 0; seed < 6; ++seed) {
    emu::set_seed(seed);
    for (int bug : {kRight, kOneGroupInFlight}) {
      CHECK(ring<1>(bug, g).all() == "");
      CHECK(g.right());
      CHECK(ring<2>(bug, g).all() == "");
      CHECK(g.right());
    }
    CHECK(ring<2>(kRight, small).all() == "");
    CHECK(small.right());
  }
  emu::set_seed(0);
}

TEST_CASE("TMA ring with wgmma: the two races that racecheck misses") {
  Gemm g(256, 128, 512);
  for (unsigned seed = 0; seed < 6; ++seed) {
    emu::set_seed(seed);
    const Findings early = ring<1>(kNoFullWait, g);
    CHECK((early.has({"read before it landed", "A stage[", "emulator_hopper.cpp:"}) ||
           early.has({"never written", "A stage["})));
    const Findings refilled = ring<1>(kReleasesBeforeWgmmaWait, g);
    CHECK(refilled.has({"overwritten while read", "TMA load to A stage[0]", "read by wgmma of"}));
  }
  emu::set_seed(0);
}

TEST_CASE("TMA ring with wgmma: one bug each") {
  Gemm g(256, 128, 512);
  const auto finds = [&](int bug, std::initializer_list<const char*> parts) {
    const Findings found = ring<1>(bug, g);
    INFO(found.all());
    return found.has(parts);
  };
  CHECK(finds(kWrongFullParity, {"A stage[0]"}));
  CHECK((finds(kNoEmptyWait, {"overwritten"}) || finds(kNoEmptyWait, {"full[0]"})));
  CHECK(finds(kWrongEmptyParity, {"deadlock", "empty[0]", "0 of 1"}) == false);
  CHECK(finds(kWrongEmptyParity, {"deadlock", "empty[0], parity 0", "2 of 2 arrivals"}));
  CHECK(finds(kReadsAccumulatorInFlight, {"accumulator in flight", "warpgroup"}));
  CHECK(finds(kNoInitBarrier, {"race", "full[0]", "mbarrier_init"}));
  CHECK(finds(kNoInitFence, {"missing fence", "full[0]"}));
  CHECK(finds(kTooManyBytes, {"deadlock", "full[0]", "128 bytes of copies missing"}));
  CHECK(finds(kTooFewBytes, {"read before it landed", "stage[0]"}));
  CHECK(finds(kNoWgmmaFence, {"missing wgmma_fence"}));
  CHECK(finds(kNoEmptyArrive, {"deadlock", "empty[0]"}));
  CHECK(finds(kNoProxyFence, {"missing proxy fence", "reads C"}));
  CHECK(finds(kNoStoreBarrier, {"race", "reads C"}));
  CHECK(finds(kNoStoreWait, {"store never waited for", "C"}));
  CHECK(finds(kNoStoreCommit, {"store never committed"}));
  CHECK(finds(kReleasesThisGroup, {"overwritten while read", "stage[0]"}));
  CHECK(finds(kMisalignedCoordinate, {"illegal TMA", "multiple of 16 bytes"}));
  CHECK(finds(kNegativeStore, {"illegal TMA", "negative"}));
  for (int bug : {kWrongStoreSwizzle, kWrongStride}) {  // wrong addresses: wrong results
    CHECK(ring<1>(bug, g).count == 0);
    CHECK_FALSE(g.right());
  }
}

TEST_CASE("clusters") {
  Gemm g(256, 128, 512);
  const Findings gone = ring<2>(kLeavesClusterEarly, g);
  CHECK(gone.has({"block has ended", "empty["}));
  const Findings one = ring<2>(kArrivesAtOneBlock, g);
  CHECK((one.has("race") || one.has("overwritten") || one.has("deadlock")));
}
