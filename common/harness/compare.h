// When is an element of C right? One rule for the host and the device.
#pragma once
#include "common/harness/data.h"

#include <string>

namespace harness {

/// How far rounding may take an FP32-accumulated sum of K products of N(0,1) numbers from the
/// exact one. A partial sum is a random walk and stays below 8 sqrt(K) (8 standard deviations:
/// once in 10^15); each of K additions may lose 2^-23 of it, since Tensor Cores truncate.
LADDER_HD inline double accumulation_bound(int64_t K) {
  return double(K) * (1.0 / 8388608) * 8.0 * sqrt(double(K));
}

/// Largest |got - want| that is right, `want` being the exact sum; then half an ulp of FP16 for
/// the final rounding: 2^-11 of the value, 2^-25 among the subnormals. 0 for integers, where
/// `want` must be given rounded.
LADDER_HD inline double bound(Inputs inputs, int64_t K, double want) {
  if (inputs == Inputs::integers) return 0;
  return accumulation_bound(K) + fabs(want) * (1.001 / 2048) + 1.0 / 33554432;
}

/// True if the half `got` is a right answer where the exact sum is `want`. False for NaN, and for
/// an infinity unless the integers' exact sum overflows to it.
LADDER_HD inline bool is_right(Inputs inputs, int64_t K, uint16_t got, double want) {
  const double value = half_to_double(got);
  if (inputs == Inputs::integers) return value == half_to_double(double_to_half(want));
  return fabs(value - want) <= bound(inputs, K, want);
}

/// What the comparison of a whole C found.
struct Verdict {
  int64_t wrong = 0;           // elements
  int64_t row = 0, col = 0;    // the first of them
  double got = 0, want = 0;    // its value, and the exact one
  double allowed = 0;          // the bound there
  std::string guard;           // what was written outside the matrices, or ""
  bool right() const { return wrong == 0 && guard.empty(); }
};

/// "3 of 4096 elements are wrong, first C[1][2] = nan, should be 7" and the like; "" if right.
std::string explain(const Verdict& verdict, int64_t M, int64_t N);

}  // namespace harness
