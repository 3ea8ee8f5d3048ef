// The checker's own FP16 against arithmetic on paper.
#include <cmath>
#include <limits>

#include "common/harness/data.h"
#include "tests/catch.h"

using namespace harness;

TEST_CASE("every half survives the way to double and back") {
  for (int bits = 0; bits < 65536; ++bits) {
    const double value = half_to_double(uint16_t(bits));
    if (std::isnan(value))
      REQUIRE(std::isnan(half_to_double(double_to_half(value))));
    else
      REQUIRE(double_to_half(value) == bits);
  }
}

TEST_CASE("known halves") {
  CHECK(half_to_double(0x3c00) == 1.0);
  CHECK(half_to_double(0xc000) == -2.0);
  CHECK(half_to_double(0x7bff) == 65504.0);
  CHECK(half_to_double(0x0001) == std::ldexp(1.0, -24));
  CHECK(half_to_double(0x03ff) == std::ldexp(1023.0, -24));
  CHECK(std::isinf(half_to_double(0x7c00)));
  CHECK(std::isnan(half_to_double(0xffff)));
}

TEST_CASE("rounding is to nearest, ties to even, once") {
  for (int bits = 0; bits < 0x7bff; ++bits) {  // between every two neighbours
    const double low = half_to_double(uint16_t(bits)), high = half_to_double(uint16_t(bits + 1));
    const double middle = (low + high) / 2;
    REQUIRE(double_to_half(middle) == (bits % 2 ? bits + 1 : bits));
    REQUIRE(double_to_half(std::nextafter(middle, 0)) == bits);
    REQUIRE(double_to_half(std::nextafter(middle, 1e9)) == bits + 1);
    REQUIRE(double_to_half(-std::nextafter(middle, 1e9)) == (0x8000 | (bits + 1)));
  }
  CHECK(double_to_half(65519.99) == 0x7bff);
  CHECK(double_to_half(65520) == 0x7c00);
  CHECK(double_to_half(1e300) == 0x7c00);
  CHECK(double_to_half(-1e-300) == 0x8000);
}

TEST_CASE("integer inputs are small integers, normal ones are N(0,1), both repeatable") {
  int seen[5] = {};
  double sum = 0, squares = 0;
  const int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double whole = half_to_double(element(Inputs::integers, 5, uint64_t(i), 4096));
    REQUIRE(std::fabs(whole) <= 2);
    REQUIRE(whole == std::floor(whole));
    ++seen[int(whole) + 2];
    REQUIRE(std::fabs(half_to_double(element(Inputs::integers, 5, uint64_t(i), 1 << 20))) <= 1);
    const double x = half_to_double(element(Inputs::normal, 5, uint64_t(i), 4096));
    sum += x, squares += x * x;
  }
  for (int count : seen) CHECK(std::abs(count - n / 5) < n / 50);
  CHECK(std::fabs(sum / n) < 0.02);
  CHECK(squares / n == Approx(1).margin(0.02));
  CHECK(element(Inputs::normal, 5, 77, 64) == element(Inputs::normal, 5, 77, 64));
  CHECK(element(Inputs::normal, 5, 77, 64) != element(Inputs::normal, 6, 77, 64));
  // Past 2^32 elements nothing repeats.
  CHECK(mix(mix(5) + 1) != mix(mix(5) + (1ull << 32) + 1));
}

TEST_CASE("sums of integers stay below FP16's largest number") {
  for (int64_t K : {1, 4096, 16376}) {
    const int range = integer_range(K);
    CHECK(double(range) * range * double(K) <= 65504);
  }
  CHECK(integer_range(16377) == 1);
}
