// The reference on the host against a computation that shares nothing with it.
#include "tests/catch.h"

#include "common/harness/operands.h"
#include "common/harness/reference.h"

using namespace harness;

TEST_CASE("2x3x4 by hand") {
  const auto h = [](double v) { return double_to_half(v); };
  // A [2][4], B [4][3]: C[m][n] = sum over k of A[m][k] B[k][n].
  const uint16_t A[] = {h(1), h(2), h(3), h(4), h(-1), h(0), h(0.5), h(2)};
  const uint16_t B[] = {h(1), h(0), h(2), h(0), h(1), h(2), h(1), h(1), h(0), h(2), h(0), h(-1)};
  const std::vector<double> C = reference_on_host(A, B, 2, 3, 4);
  CHECK(C == std::vector<double>{12, 5, 2, 3.5, 0.5, -4});
}

TEST_CASE("exact where FP32 is not") {
  // 2048 * 2048 + 1 * 1 + ...: the ones vanish in FP32 beyond 2^24.
  const int64_t K = 40;
  std::vector<uint16_t> A(size_t(K), double_to_half(1)), B(size_t(K), double_to_half(1));
  for (int k = 0; k < 8; ++k) A[size_t(k)] = B[size_t(k)] = double_to_half(2048);
  CHECK(reference_on_host(A.data(), B.data(), 1, 1, K)[0] == 8.0 * 2048 * 2048 + 32);
}

TEST_CASE("integer sums agree with 64-bit integers") {
  for (const Size& s : {Size{1, 1, 1}, Size{5, 3, 2}, Size{13, 17, 257}, Size{2, 3, 20000}}) {
    Operands operands(s, Inputs::integers, 21, 0);
    const auto A = operands.A.to_host(), B = operands.B.to_host();
    const std::vector<double> C = reference_on_host(A.data(), B.data(), s.M, s.N, s.K);
    for (int64_t n = 0; n < s.N; ++n)
      for (int64_t m = 0; m < s.M; ++m) {
        int64_t sum = 0;
        for (int64_t k = s.K; k-- > 0;)
          sum += int64_t(half_to_double(A[size_t(m * s.K + k)])) *
                 int64_t(half_to_double(B[size_t(k * s.N + n)]));
        REQUIRE(C[size_t(m * s.N + n)] == double(sum));
      }
  }
}

TEST_CASE("FP32 is chosen only where it is exact") {
  CHECK(fastest_exact_sum(Inputs::integers, 4096) == Sum::fp32);
  CHECK(fastest_exact_sum(Inputs::integers, (1 << 24) - 1) == Sum::fp32);
  CHECK(fastest_exact_sum(Inputs::integers, 1 << 24) == Sum::fp64);
  CHECK(fastest_exact_sum(Inputs::normal, 16) == Sum::fp64);
}
