// The checker is checked: outputs that are wrong in the ways that slip through elsewhere.
#include <cmath>
#include <functional>

#include "common/harness/check.h"
#include "common/harness/operands.h"
#include "common/harness/reference.h"
#include "tests/catch.h"

using namespace harness;

namespace {

constexpr uint16_t kNaN = 0x7fff, kInfinity = 0x7c00;

// M, N, K pairwise different, primes and 1.
const Size kSizes[] = {{1, 1, 1}, {1, 7, 3},     {5, 1, 2},     {3, 2, 1},
                       {7, 5, 3}, {31, 37, 13},  {64, 96, 128}, {127, 61, 31}};

/// What a right kernel does, in FP32.
void multiply(const Problem& p) {
  const auto* A = static_cast<const uint16_t*>(p.A);
  const auto* B = static_cast<const uint16_t*>(p.B);
  auto* C = static_cast<uint16_t*>(p.C);
  for (int64_t m = 0; m < p.M; ++m)
    for (int64_t n = 0; n < p.N; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < p.K; ++k)
        sum += float(half_to_double(A[m * p.lda + k]) * half_to_double(B[k * p.ldb + n]));
      C[m * p.ldc + n] = double_to_half(sum);
    }
}

/// The verdict on a right C after `spoil` had it. Emulated memory is the host's.
Verdict after(const Size& size, Inputs inputs, const std::function<void(uint16_t*, Size)>& spoil) {
  Operands operands(size, inputs, 11, 64 << 10);
  multiply(operands.problem);
  spoil(operands.C.data(), size);
  return operands.verdict();
}

}  // namespace

TEST_CASE("right results pass") {
  for (const Size& size : kSizes)
    for (Inputs inputs : {Inputs::integers, Inputs::normal}) {
      INFO(text(size) << " " << name(inputs));
      const Verdict verdict = after(size, inputs, [](uint16_t*, Size) {});
      CHECK(explain(verdict, size.M, size.N) == "");
      CHECK(verdict.right());
    }
}

TEST_CASE("wrong results fail, and the first wrong element is named") {
  for (const Size& size : kSizes)
    for (Inputs inputs : {Inputs::integers, Inputs::normal}) {
      INFO(text(size) << " " << name(inputs));
      const int64_t last = size.M * size.N - 1;
      for (uint16_t bad : {kNaN, uint16_t(0xffff), kInfinity, uint16_t(0xfc00)}) {
        const Verdict verdict = after(size, inputs, [&](uint16_t* C, Size) { C[last] = bad; });
        CHECK(verdict.wrong == 1);
        CHECK(verdict.row == size.M - 1);
        CHECK(verdict.col == size.N - 1);
      }
      const Verdict nans = after(size, inputs, [](uint16_t* C, Size s) {
        for (int64_t i = 0; i < s.M * s.N; ++i) C[i] = kNaN;
      });
      CHECK(nans.wrong == size.M * size.N);
      // One element off by 1, or by the least that FP16 can show for an integer this small.
      const Verdict one = after(size, inputs, [&](uint16_t* C, Size) {
        C[last / 2] = double_to_half(half_to_double(C[last / 2]) + 1);
      });
      CHECK(one.wrong == 1);
      CHECK(one.row * size.N + one.col == last / 2);
      CHECK_FALSE(one.right());
    }
}

TEST_CASE("zeros, stale results and a missing last row fail") {
  for (const Size& size : {Size{7, 5, 3}, Size{31, 37, 13}, Size{127, 61, 31}}) {
    INFO(text(size));
    CHECK_FALSE(after(size, Inputs::integers, [](uint16_t* C, Size s) {
                  for (int64_t i = 0; i < s.M * s.N; ++i) C[i] = 0;
                }).right());
    // A C that nobody wrote: it is NaN, not what was there before.
    Operands untouched(size, Inputs::integers, 11, 0);
    CHECK(untouched.verdict().wrong == size.M * size.N);
    multiply(untouched.problem);
    CHECK(untouched.verdict().right());
    untouched.C.poison();
    CHECK(untouched.verdict().wrong == size.M * size.N);
    // The right C of other inputs.
    Operands other(size, Inputs::integers, 12, 0);
    multiply(other.problem);
    const std::vector<uint16_t> stale = other.C.to_host();
    CHECK_FALSE(after(size, Inputs::integers, [&](uint16_t* C, Size) {
                  std::copy(stale.begin(), stale.end(), C);
                }).right());
    const Verdict row = after(size, Inputs::normal, [](uint16_t* C, Size s) {
      for (int64_t n = 0; n < s.N; ++n) C[(s.M - 1) * s.N + n] = 0xffff;  // as poisoned
    });
    CHECK(row.wrong == size.N);
    CHECK(row.row == size.M - 1);
    CHECK(row.col == 0);
  }
}

TEST_CASE("a write outside C, A or B is seen, however near or far") {
  const Size size = {7, 5, 3};
  const auto beyond = [&](int64_t offset, uint16_t value) {
    return after(size, Inputs::integers, [&](uint16_t* C, Size) { C[offset] = value; });
  };
  const int64_t count = size.M * size.N;
  for (int64_t offset : {count, count + 1, count + 30000, int64_t{-1}, int64_t{-30000}})
    for (uint16_t value : {uint16_t(0), kNaN}) {
      const Verdict verdict = beyond(offset, value);
      INFO(offset << ": " << verdict.guard);
      CHECK(verdict.wrong == 0);
      CHECK_FALSE(verdict.right());
    }
  CHECK(beyond(count, 0).guard == "something was written 1 elements past the end of C");
  CHECK(beyond(-1, 0).guard == "something was written 1 elements before the start of C");
  Operands operands(size, Inputs::integers, 11, 64 << 10);
  multiply(operands.problem);
  operands.B.data()[size.K * size.N] = 0;
  CHECK(operands.verdict().guard == "something was written 1 elements past the end of B");
}

TEST_CASE("a read outside A poisons the result") {
  Operands operands({7, 5, 3}, Inputs::integers, 11, 64 << 10);
  Problem shifted = operands.problem;
  shifted.A = operands.A.data() + 1;  // the last row runs over the end
  multiply(shifted);
  const std::vector<uint16_t> C = operands.C.to_host();
  CHECK(std::isnan(half_to_double(C.back())));
}

TEST_CASE("the bound follows K and lets no FP16 accumulation pass") {
  CHECK(bound(Inputs::integers, 4096, 100) == 0);
  CHECK(accumulation_bound(4096) < 0.3);
  CHECK(accumulation_bound(8192) > 2 * accumulation_bound(4096));
  CHECK(is_right(Inputs::normal, 16, double_to_half(10.0), 10.0));
  CHECK_FALSE(is_right(Inputs::normal, 16, double_to_half(10.1), 10.0));
  CHECK_FALSE(is_right(Inputs::normal, 16, kNaN, std::nan("")));
  CHECK_FALSE(is_right(Inputs::integers, 16, kNaN, 1));
  // Rounded towards zero instead of to nearest: integers above 2,048 tell.
  CHECK(is_right(Inputs::integers, 4096, double_to_half(2052), 2051));
  CHECK_FALSE(is_right(Inputs::integers, 4096, double_to_half(2050), 2051));

  const Size size = {8, 8, 4096};
  Operands operands(size, Inputs::normal, 3, 0);
  const auto* A = operands.A.data();
  const auto* B = operands.B.data();
  for (int64_t m = 0; m < size.M; ++m)
    for (int64_t n = 0; n < size.N; ++n) {
      double sum = 0;  // rounded to FP16 after every addition
      for (int64_t k = 0; k < size.K; ++k)
        sum = half_to_double(double_to_half(sum + half_to_double(A[m * size.K + k]) *
                                                      half_to_double(B[k * size.N + n])));
      operands.C.data()[m * size.N + n] = double_to_half(sum);
    }
  CHECK_FALSE(operands.verdict().right());
}

TEST_CASE("the words of a verdict") {
  Verdict v;
  CHECK(explain(v, 4, 4) == "");
  v.wrong = 1, v.row = 2, v.col = 3, v.got = std::nan(""), v.want = 7;
  CHECK(explain(v, 4, 4) == "1 of 16 elements is wrong, first C[2][3] = nan, should be 7");
  v.wrong = 5, v.got = 6, v.allowed = 0.25;
  CHECK(explain(v, 4, 4) ==
        "5 of 16 elements are wrong, first C[2][3] = 6, should be 7 within 0.25");
}
