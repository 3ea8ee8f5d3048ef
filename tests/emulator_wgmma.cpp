// Every multiplication of a warpgroup that there is a wrapper for: sizes, types, majors. And the
// smaller instructions that 29 uses.
#include "tests/emulator_support.h"

namespace {

using ptx::Major;

constexpr int BOX_BYTES = 64 * 128;  // 64 rows of 64 elements, 128-byte swizzle

template <int N, bool BF16, Major A, Major B>
void multiply(float (&acc)[N / 2], uint64_t a, uint64_t b) {
  if constexpr (N == 64 && !BF16) ptx::wgmma_m64n64k16_f16<A, B>(acc, a, b, 0);
  if constexpr (N == 64 && BF16) ptx::wgmma_m64n64k16_bf16<A, B>(acc, a, b, 0);
  if constexpr (N == 128 && !BF16) ptx::wgmma_m64n128k16_f16<A, B>(acc, a, b, 0);
  if constexpr (N == 128 && BF16) ptx::wgmma_m64n128k16_bf16<A, B>(acc, a, b, 0);
  if constexpr (N == 144 && !BF16) ptx::wgmma_m64n144k16_f16<A, B>(acc, a, b, 0);
  if constexpr (N == 144 && BF16) ptx::wgmma_m64n144k16_bf16<A, B>(acc, a, b, 0);
  if constexpr (N == 152 && !BF16) ptx::wgmma_m64n152k16_f16<A, B>(acc, a, b, 0);
  if constexpr (N == 152 && BF16) ptx::wgmma_m64n152k16_bf16<A, B>(acc, a, b, 0);
  if constexpr (N == 160 && !BF16) ptx::wgmma_m64n160k16_f16<A, B>(acc, a, b, 0);
  if constexpr (N == 160 && BF16) ptx::wgmma_m64n160k16_bf16<A, B>(acc, a, b, 0);
  if constexpr (N == 168 && !BF16) ptx::wgmma_m64n168k16_f16<A, B>(acc, a, b, 0);
  if constexpr (N == 168 && BF16) ptx::wgmma_m64n168k16_bf16<A, B>(acc, a, b, 0);
  if constexpr (N == 176 && !BF16) ptx::wgmma_m64n176k16_f16<A, B>(acc, a, b, 0);
  if constexpr (N == 176 && BF16) ptx::wgmma_m64n176k16_bf16<A, B>(acc, a, b, 0);
  if constexpr (N == 184 && !BF16) ptx::wgmma_m64n184k16_f16<A, B>(acc, a, b, 0);
  if constexpr (N == 184 && BF16) ptx::wgmma_m64n184k16_bf16<A, B>(acc, a, b, 0);
  if constexpr (N == 192 && !BF16) ptx::wgmma_m64n192k16_f16<A, B>(acc, a, b, 0);
  if constexpr (N == 192 && BF16) ptx::wgmma_m64n192k16_bf16<A, B>(acc, a, b, 0);
  if constexpr (N == 200 && !BF16) ptx::wgmma_m64n200k16_f16<A, B>(acc, a, b, 0);
  if constexpr (N == 200 && BF16) ptx::wgmma_m64n200k16_bf16<A, B>(acc, a, b, 0);
  if constexpr (N == 256 && !BF16) ptx::wgmma_m64n256k16_f16<A, B>(acc, a, b, 0);
  if constexpr (N == 256 && BF16) ptx::wgmma_m64n256k16_bf16<A, B>(acc, a, b, 0);
}

// Where element (i, k) of an operand lies, in elements: K-major rows of 64 k, or boxes of 64 i.
__device__ int place(Major major, int i, int k) {
  const int row = major == Major::k ? i : i / 64 * 64 + k, column = major == Major::k ? k : i % 64;
  return row * 64 + (column / 8 ^ row % 8) * 8 + column % 8;
}

// Element (m, k) of A is m % 7 - k % 3, element (k, n) of B is n % 5 - k % 4.
__device__ float element_a(int m, int k) { return float(m % 7 - k % 3); }
__device__ float element_b(int k, int n) { return float(n % 5 - k % 4); }

template <int N, bool BF16, Major A, Major B>
__global__ void multiply_kernel(float* out) {
  auto* a = static_cast<uint16_t*>(ptx::dynamic_smem());
  auto* b = a + BOX_BYTES / 2;
  const int tid = threadIdx.x;
  const auto bits = [](float f) {
    return BF16 ? emu::float_to_bfloat16(f) : emu::float_to_half(f);
  };
  for (int i = tid; i < 64 * 16; i += 128)
    a[place(A, i / 16, i % 16)] = bits(element_a(i / 16, i % 16));
  for (int i = tid; i < N * 16; i += 128)
    b[place(B, i / 16, i % 16)] = bits(element_b(i % 16, i / 16));
  ptx::fence_proxy_async();
  __syncthreads();
  const auto desc = [](const void* p) {
    return uint64_t(ptx::smem_addr(p) >> 4) | uint64_t(BOX_BYTES >> 4) << 16 |
           uint64_t(1024 >> 4) << 32 | uint64_t{1} << 62;
  };
  float acc[N / 2];
  for (float& x : acc) x = -1.0f;
  ptx::wgmma_fence();
  multiply<N, BF16, A, B>(acc, desc(a), desc(b));
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>(acc);
  for (int r = 0; r < N / 2; ++r) {
    const int m = tid / 32 * 16 + tid % 32 / 4 + r / 2 % 2 * 8, n = r / 4 * 8 + tid % 4 * 2 + r % 2;
    out[m * N + n] = acc[r];
  }
}

template <int N, bool BF16, Major A, Major B>
void check() {
  gpu::Buffer out(64 * N * 4, "out");
  const Findings found = run(shape(dim3(1), dim3(128), BOX_BYTES * 5),
                             multiply_kernel<N, BF16, A, B>, out.get<float>());
  CHECK(found.all() == "");
  std::vector<float> got(64 * N);
  gpu::copy_to_host(got.data(), out.get(), out.bytes());
  int wrong = 0;
  for (int m = 0; m < 64; ++m)
    for (int n = 0; n < N; ++n) {
      float want = 0;
      for (int k = 0; k < 16; ++k) want += element_a(m, k) * element_b(k, n);
      wrong += got[size_t(m * N + n)] != want;
    }
  INFO(N << (BF16 ? " bf16" : " f16") << (A == Major::k ? " k" : " mn")
         << (B == Major::k ? " k" : " mn"));
  CHECK(wrong == 0);
}
template <int N>
void check_all() {
  check<N, false, Major::k, Major::k>(), check<N, false, Major::k, Major::mn>();
  check<N, false, Major::mn, Major::k>(), check<N, false, Major::mn, Major::mn>();
  check<N, true, Major::k, Major::k>(), check<N, true, Major::k, Major::mn>();
  check<N, true, Major::mn, Major::k>(), check<N, true, Major::mn, Major::mn>();
}

enum Bug { kNone, kRelaxed };

// Each block writes a number; the one that comes last adds them up.
__global__ void last_adds_up(int* numbers, int* counter, int* sum, int bug) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  ptx::atom_or_acq_rel(counter + 1, 1 << blockIdx.x);
  numbers[blockIdx.x] = int(blockIdx.x) + 1;
  const int before = bug == kRelaxed ? atomicAdd(counter, 1) : ptx::atom_add_acq_rel(counter, 1);
  if (before + 1 < int(gridDim.x)) return;
  for (unsigned i = 0; i < gridDim.x; ++i) *sum += numbers[i];
}

__global__ void count_elected(int* count) {
  if (ptx::elect_one()) atomicAdd(count, 1);
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
}

}  // namespace

TEST_CASE("elect_one: one thread of each warp") {
  gpu::Buffer count(4, "count");
  gpu::fill(count.get(), 0, 4);
  CHECK(run(shape(dim3(3), dim3(64)), count_elected, count.get<int>()).all() == "");
  int got;
  gpu::copy_to_host(&got, count.get(), 4);
  CHECK(got == 6);
}

TEST_CASE("wgmma: every size, type and major") {
  check_all<64>(), check_all<128>(), check_all<144>(), check_all<152>(), check_all<160>();
  check_all<168>(), check_all<176>(), check_all<184>(), check_all<192>(), check_all<200>();
  check_all<256>();
}

TEST_CASE("atomics that acquire and release, and bfloat16 pairs") {
  for (int bug : {kNone, kRelaxed}) {
    gpu::Buffer numbers(8 * 4, "numbers"), counter(8, "counter"), sum(4, "sum");
    gpu::fill(counter.get(), 0, 8), gpu::fill(sum.get(), 0, 4);
    const Findings found = run(shape(dim3(8), dim3(1)), last_adds_up, numbers.get<int>(),
                               counter.get<int>(), sum.get<int>(), bug);
    if (bug == kRelaxed) {
      CHECK(found.has({"race", "global numbers"}));
      continue;
    }
    CHECK(found.all() == "");
    int got[2], total;
    gpu::copy_to_host(got, counter.get(), 8), gpu::copy_to_host(&total, sum.get(), 4);
    CHECK(got[0] == 8);
    CHECK(got[1] == 255);
    CHECK(total == 36);
  }
  CHECK(ptx::cvt_bf16x2(1.0f, -2.0f) == 0xC0003F80u);
  CHECK((ptx::ex2_approx(-3.0f) == 0.125f && ptx::rcp_approx(-0.25f) == -4.0f));
}
