// A shared-memory tile and a cp.async ring, right and with one bug each: every bug is found, the
// right kernel is not accused.
#include "tests/emulator_support.h"

namespace {

// ---- one output per thread, tiles in static shared memory ---------------------------------------

enum TileBug { kNone, kNoBarrierBeforeReads, kNoBarrierAfterReads, kTransposed, kPastTheEnd };

constexpr int T = 16;
__global__ void tile_kernel(const half* A, const half* B, half* C, int N, int K, int bug) {
  __shared__ half smem_a[T][T];
  __shared__ half smem_b[T][T];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * T + y, col = blockIdx.x * T + x;
  float acc = 0;
  for (int k = 0; k < K; k += T) {
    smem_a[y][x] = A[row * K + k + x];
    smem_b[y][x] = B[(k + y) * N + col];
    if (bug != kNoBarrierBeforeReads) __syncthreads();
    for (int i = 0; i < T; ++i)
      acc += __half2float(smem_a[y][i]) * __half2float(bug == kTransposed ? smem_b[x][i]
                                                                          : smem_b[i][x]);
    if (bug != kNoBarrierAfterReads) __syncthreads();
  }
  C[row * N + col + (bug == kPastTheEnd)] = __float2half(acc);
}

Findings tile(int bug, Gemm& g) {
  return run(shape(dim3(g.N / T, g.M / T), dim3(T, T)), tile_kernel, g.A.get<const half>(),
             g.B.get<const half>(), g.C.get<half>(), g.N, g.K, bug);
}

}  // namespace

TEST_CASE("shared-memory tile") {
  Gemm g(48, 64, 80);
  for (unsigned seed = 0; seed < 4; ++seed) {
    emu::set_seed(seed);
    const Findings found = tile(kNone, g);
    CHECK(found.count == 0);
    CHECK(g.right());
    const Findings race = tile(kNoBarrierBeforeReads, g);
    CHECK((race.has({"never written", "smem_"}) || race.has({"race", "smem_"})));
    CHECK(tile(kNoBarrierAfterReads, g).has({"race", "smem_", "emulator_tile.cpp:"}));
    CHECK(tile(kPastTheEnd, g).has({"out of bounds", "buffer C"}));
  }
  emu::set_seed(0);
  CHECK(tile(kTransposed, g).count == 0);  // a wrong index is no hazard, it is a wrong result
  CHECK_FALSE(g.right());
}

// ---- two stages of cp.async, ldmatrix from swizzled shared memory, mma.sync ---------------------

namespace {

enum RingBug {
  kRight, kNoWait, kNoBarrierAfterWait, kNoBarrierBeforeRefill, kRefillsTheStageInUse,
  kWaitsForTooFew, kNoSwizzle, kSwapsRows
};

constexpr int BM = 64, BN = 64, BK = 32, STAGES = 2;

struct Ring {
  half a[STAGES][BM * BK], b[STAGES][BK * BN];
};

__global__ void __launch_bounds__(128)
    ring_kernel(const half* A, const half* B, half* C, int N, int K, int bug) {
  auto& smem = *static_cast<Ring*>(ptx::dynamic_smem());
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const int wm = warp / 2 * 32, wn = warp % 2 * 32;
  const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
  for (int s = 0; s < STAGES; ++s) {
    ptx::label(smem.a[s], sizeof smem.a[s], "A", s);
    ptx::label(smem.b[s], sizeof smem.b[s], "B", s);
  }
  const auto a_at = [&](int r, int c) {  // c counts chunks of 8 elements
    return r * BK + (c ^ ((bug == kNoSwizzle ? 0 : r >> 1) & 3)) * 8;
  };
  const auto b_at = [&](int r, int c) { return r * BN + (c ^ (r & 7)) * 8; };
  const auto load = [&](int s, int k) {
    for (int i = tid; i < BM * BK / 8; i += 128)
      ptx::cp_async_cg_16(&smem.a[s][a_at(i / 4, i % 4)],
                          A + int64_t(m0 + i / 4) * K + k + i % 4 * 8);
    for (int i = tid; i < BK * BN / 8; i += 128)
      ptx::cp_async_ca<16>(&smem.b[s][b_at(i / 8, i % 8)],
                           B + int64_t(k + i / 8) * N + n0 + i % 8 * 8);
    ptx::cp_async_commit_group();
  };
  float acc[2][4][4] = {};
  load(0, 0);
  for (int k = 0, s = 0; k < K; k += BK, s ^= 1) {
    if (k + BK < K)
      load(bug == kRefillsTheStageInUse ? s : s ^ 1, k + BK);
    else
      ptx::cp_async_commit_group();
    if (bug == kWaitsForTooFew)
      ptx::cp_async_wait_group<2>();
    else if (bug != kNoWait)
      ptx::cp_async_wait_group<1>();
    if (bug != kNoBarrierAfterWait) __syncthreads();
    for (int kk = 0; kk < BK; kk += 16) {
      uint32_t a[2][4], b[2][4];
      for (int i = 0; i < 2; ++i)
        ptx::ldmatrix_x4(a[i], &smem.a[s][a_at(wm + i * 16 + lane % 16, kk / 8 + lane / 16)]);
      for (int j = 0; j < 2; ++j)
        ptx::ldmatrix_x4_trans(b[j], &smem.b[s][b_at(kk + lane % 16, (wn + j * 16) / 8 +
                                                     (bug == kSwapsRows ? 0 : lane / 16))]);
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j) {
          const uint32_t pair[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
          ptx::mma_m16n8k16_f16(acc[i][j], a[i], pair);
        }
    }
    if (bug != kNoBarrierBeforeRefill) __syncthreads();
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j)
      for (int h = 0; h < 2; ++h) {
        half* to = C + int64_t(m0 + wm + i * 16 + lane / 4 + h * 8) * N + n0 + wn + j * 8 +
                   lane % 4 * 2;
        const half2 pair = __floats2half2_rn(acc[i][j][h * 2], acc[i][j][h * 2 + 1]);
        *reinterpret_cast<half2*>(to) = pair;
      }
}

Findings ring(int bug, Gemm& g) {
  return run(shape(dim3(g.N / BN, g.M / BM), dim3(128), sizeof(Ring)), ring_kernel,
             g.A.get<const half>(), g.B.get<const half>(), g.C.get<half>(), g.N, g.K, bug);
}

}  // namespace

TEST_CASE("cp.async ring") {
  Gemm g(128, 192, 160);
  for (unsigned seed = 0; seed < 4; ++seed) {
    emu::set_seed(seed);
    const Findings right = ring(kRight, g);
    CHECK(right.count == 0);
    CHECK(g.right());
    CHECK(emu::counters().ldmatrix.wavefronts == emu::counters().ldmatrix.ideal);
    // Of each of the 2 x 3 tiles of C, all of K of its rows of A and of its columns of B, 2 bytes.
    CHECK(emu::counters().cp_async.bytes == 2 * 3 * (BM + BN) * 160 * 2);
    CHECK(ring(kNoWait, g).has({"read before it landed", "stage[0]", "the cp.async of thread"}));
    CHECK(ring(kWaitsForTooFew, g).has({"read before it landed", "stage[0]"}));
    const Findings unordered = ring(kNoBarrierAfterWait, g);
    CHECK((unordered.has({"race", "stage[0]"}) || unordered.has("read before it landed") ||
           unordered.has("never written")));
    CHECK(ring(kNoBarrierBeforeRefill, g).has({"race", "cp.async to", "stage["}));
    const Findings refill = ring(kRefillsTheStageInUse, g);
    CHECK((refill.has("overwritten in flight") || refill.has("race") ||
           refill.has("never written") || refill.has("read before it landed")));
  }
  emu::set_seed(0);
  CHECK(ring(kNoSwizzle, g).count == 0);  // right, but slow:
  CHECK(g.right());
  CHECK(emu::counters().ldmatrix.wavefronts > emu::counters().ldmatrix.ideal);
  CHECK(ring(kSwapsRows, g).count == 0);
  CHECK_FALSE(g.right());
}
