// Roles transposed: wgmma multiplies a box of B, MN-major, by rows of A, K-major, and gets 64
// columns of C as its rows; stmatrix turns them round on the way to shared memory.
#include "tests/emulator_support.h"

namespace {

constexpr int N = 64, K = 64;

template <int M>
struct Shared {
  half a[M * K], b[K * N], c[M * N];
  uint64_t bar;
};

uint64_t descriptor(const void* p) {
  return uint64_t(ptx::smem_addr(p)) >> 4 | uint64_t{1} << 16 | uint64_t{64} << 32 |
         uint64_t{1} << 62;
}

template <int M, bool BF16>
void step(float (&acc)[M / 2], uint64_t b, uint64_t a, int add) {
  using ptx::Major;
  static_assert(M == 200, "the n of the wgmma below");
  if constexpr (BF16)
    ptx::wgmma_m64n200k16_bf16<Major::mn, Major::k>(acc, b, a, add);
  else
    ptx::wgmma_m64n200k16_f16<Major::mn, Major::k>(acc, b, a, add);
}

template <int M, bool BF16>
__global__ void transposed(const __grid_constant__ CUtensorMap tmap_a,
                           const __grid_constant__ CUtensorMap tmap_b, half* C) {
  auto& smem = *static_cast<Shared<M>*>(ptx::dynamic_smem());
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&smem.bar, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(&smem.bar, sizeof(smem.a) + sizeof(smem.b));
    ptx::tma_load_2d(smem.a, &tmap_a, 0, 0, &smem.bar);
    ptx::tma_load_2d(smem.b, &tmap_b, 0, 0, &smem.bar);
  }
  __syncthreads();
  ptx::mbarrier_wait(&smem.bar, 0);
  float acc[M / 2] = {};
  ptx::wgmma_fence();
  for (int k = 0; k < K; k += 16) {
    const uint64_t b = descriptor(smem.b + k * N), a = descriptor(smem.a + k);
    step<M, BF16>(acc, b, a, k > 0);
  }
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>(acc);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int j = 0; j < M / 8; j += 2) {  // two groups of 8 rows of C, the last one by itself
    const bool both = j + 1 < M / 8;
    uint32_t frag[4];
    for (int i = 0; i < 4; ++i) {
      const int reg = (j + (both ? i / 2 : 0)) * 4 + i % 2 * 2;
      frag[i] = ptx::cvt_f16x2(acc[reg], acc[reg + 1]);
    }
    half* row = &smem.c[((j + lane / 16) * 8 + lane % 8) * N + warp * 16 + lane / 8 % 2 * 8];
    half* nowhere = &smem.a[(warp * 16 + lane % 16) * 8];
    ptx::stmatrix_x4_trans(both || lane < 16 ? row : nowhere, frag);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < M * N; i += 128) C[i] = smem.c[i];
}

template <int M, bool BF16>
Findings multiply(Gemm& g) {
  using gpu::Swizzle;
  const auto map_a = gpu::tensor_map_2d(g.A.get(), M, K, K, M, K, Swizzle::b128);
  const auto map_b = gpu::tensor_map_2d(g.B.get(), K, N, N, K, N, Swizzle::b128);
  return run(shape(dim3(1), dim3(128), sizeof(Shared<M>)), transposed<M, BF16>, map_a, map_b,
             g.C.get<half>());
}

template <int M>
void check_rows() {
  Gemm g(M, N, K);
  CHECK(multiply<M, false>(g).all() == "");
  CHECK(g.right());

  const std::vector<uint16_t> ones(K * size_t{M}, 0x3F80);  // in bfloat16
  gpu::copy_to_device(g.A.get(), ones.data(), g.A.bytes());
  gpu::copy_to_device(g.B.get(), ones.data(), g.B.bytes());
  CHECK(multiply<M, true>(g).all() == "");
  std::vector<half> c(N * size_t{M});
  gpu::copy_to_host(c.data(), g.C.get(), g.C.bytes());
  bool right = true;
  for (half v : c) right &= float(v) == float(K);
  CHECK(right);
}

}  // namespace

TEST_CASE("C transposed, 200 columns of wgmma", "[wgmma]") { check_rows<200>(); }
