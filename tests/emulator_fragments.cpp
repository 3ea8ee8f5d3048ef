// The fragment map of mma.m16n8k16 as steps 07 and 08 draw it: which element of A, B and C sits in
// which register of which lane, and that ldmatrix deals fragments out in just that way.
#include <set>
#include <vector>

#include "tests/emulator_support.h"

namespace {

struct Element {
  int row, col;
};

// With g = lane / 4 and t = lane % 4; h is the half of the register.
Element in_a(int lane, int r, int h) {
  return {lane / 4 + r % 2 * 8, lane % 4 * 2 + r / 2 * 8 + h};
}
Element in_b(int lane, int r, int h) { return {lane % 4 * 2 + r * 8 + h, lane / 4}; }
Element in_c(int lane, int r) { return {lane / 4 + r / 2 * 8, lane % 4 * 2 + r % 2}; }

// A [16][16] and B [16][16], row-major; C [16][16] by two mma. `use_ldmatrix`: the way of step 08.
__global__ void multiply(const half* A, const half* B, float* C, bool use_ldmatrix) {
  __shared__ __align__(128) half smem_a[16 * 16];
  __shared__ __align__(128) half smem_b[16 * 16];
  const int lane = threadIdx.x;
  for (int i = lane; i < 256; i += 32) smem_a[i] = A[i], smem_b[i] = B[i];
  __syncwarp();
  uint32_t a[4], b[2][2];
  for (int r = 0; r < 4; ++r) {
    const Element low = in_a(lane, r, 0), high = in_a(lane, r, 1);
    const half2 pair =
        __halves2half2(smem_a[low.row * 16 + low.col], smem_a[high.row * 16 + high.col]);
    a[r] = *reinterpret_cast<const uint32_t*>(&pair);
  }
  for (int n = 0; n < 2; ++n)
    for (int r = 0; r < 2; ++r) {
      const Element low = in_b(lane, r, 0), high = in_b(lane, r, 1);
      const half2 pair = __halves2half2(smem_b[low.row * 16 + n * 8 + low.col],
                                        smem_b[high.row * 16 + n * 8 + high.col]);
      b[n][r] = *reinterpret_cast<const uint32_t*>(&pair);
    }
  if (use_ldmatrix) {
    uint32_t from_a[4], from_b[4];
    ptx::ldmatrix_x4(from_a, &smem_a[lane % 16 * 16 + lane / 16 * 8]);
    ptx::ldmatrix_x4_trans(from_b, &smem_b[lane % 16 * 16 + lane / 16 * 8]);
    bool same = true;
    for (int r = 0; r < 4; ++r) same &= from_a[r] == a[r] && from_b[r] == b[r / 2][r % 2];
    if (!same) return;  // C stays as it was, and the test fails
  }
  for (int n = 0; n < 2; ++n) {
    float c[4] = {};
    ptx::mma_m16n8k16_f16(c, a, b[n]);
    for (int r = 0; r < 4; ++r) {
      const Element e = in_c(lane, r);
      C[e.row * 16 + n * 8 + e.col] = c[r];
    }
  }
}

}  // namespace

TEST_CASE("every element of a fragment is in one register of one lane") {
  std::set<int> a, b, c;
  for (int lane = 0; lane < 32; ++lane) {
    for (int r = 0; r < 4; ++r) {
      for (int h = 0; h < 2; ++h) a.insert(in_a(lane, r, h).row * 16 + in_a(lane, r, h).col);
      c.insert(in_c(lane, r).row * 8 + in_c(lane, r).col);
    }
    for (int r = 0; r < 2; ++r)
      for (int h = 0; h < 2; ++h) b.insert(in_b(lane, r, h).row * 8 + in_b(lane, r, h).col);
  }
  CHECK(a.size() == 16 * 16);
  CHECK(b.size() == 16 * 8);
  CHECK(c.size() == 16 * 8);
}

TEST_CASE("the fragment map gives the right product, by ordinary loads and by ldmatrix") {
  std::vector<half> a(256), b(256);
  for (int i = 0; i < 256; ++i) {
    a[i] = __float2half(float(i * 7 % 11 - 5));
    b[i] = __float2half(float(i * 5 % 13 - 6));
  }
  gpu::Buffer A(512, "A"), B(512, "B"), C(1024, "C");
  gpu::copy_to_device(A.get(), a.data(), 512);
  gpu::copy_to_device(B.get(), b.data(), 512);
  for (bool use_ldmatrix : {false, true}) {
    gpu::fill(C.get(), 0xFF, 1024);  // NaN
    CHECK(run(shape(dim3(1), dim3(32)), multiply, A.get<const half>(), B.get<const half>(),
              C.get<float>(), use_ldmatrix)
              .count == 0);
    std::vector<float> c(256);
    gpu::copy_to_host(c.data(), C.get(), 1024);
    for (int m = 0; m < 16; ++m)
      for (int n = 0; n < 16; ++n) {
        float want = 0;
        for (int k = 0; k < 16; ++k)
          want += __half2float(a[m * 16 + k]) * __half2float(b[k * 16 + n]);
        REQUIRE(c[m * 16 + n] == want);
      }
  }
}
