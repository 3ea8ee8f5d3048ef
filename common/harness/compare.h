// When is an element of C right? One rule for the host and the device.
#pragma once
#include "common/harness/data.h"
#include "common/harness/kind.h"

#include <string>

namespace harness {

/// How far rounding may take an FP32-accumulated sum of K products of N(0,1) numbers from the
/// exact one. A partial sum is a random walk and stays below 8 sqrt(K) (8 standard deviations:
/// once in 10^15); each of K additions may lose 2^-23 of it, since Tensor Cores truncate.
LADDER_HD inline double accumulation_bound(int64_t K) {
  return double(K) * (1.0 / 8388608) * 8.0 * sqrt(double(K));
}

/// Are whole numbers still exact in FP32 after this factor? Quarters are: 2 bits of the 24.
LADDER_HD inline bool keeps_exact(float factor) {
  return fabsf(factor) <= 4 && factor * 4 == truncf(factor * 4);
}

/// What an operand pair was filled with: enough to know what C must be.
struct Data {
  Inputs inputs;
  uint64_t seed_c = 0;    // of old_value: C before, and the bias (seed_c + 1)
  bool planted = false;   // A or B hold an infinity or a NaN: it must reach its part of C
  LADDER_HD Data(Inputs kind, uint64_t seed = 0, bool has_planted = false)
      : inputs(kind), seed_c(seed), planted(has_planted) {}
};

/// The exact value of an element of C before its one rounding, from the exact sum of products.
struct Want {
  double value;
  double terms;  // of the magnitudes of what is added up: FP32 rounds each, and their sum
};

LADDER_HD inline double activated(Activation activation, double x) {
  if (activation == Activation::relu) return x < 0 ? 0 : x;  // a NaN stays one
  if (activation == Activation::gelu)  // x (1 + tanh(u)) / 2, without loss where tanh is near -1
    return x / (1 + exp(-2 * 0.7978845608028654 * (x + 0.044715 * x * x * x)));
  return x;
}

LADDER_HD inline Want wanted(const Problem& p, const Data& data, double sum, int64_t b,
                             int64_t row, int64_t col) {
  // A factor of 0 drops its term, whatever it holds.
  const double product = p.alpha == 0 ? 0 : double(p.alpha) * sum;
  const double old =
      p.beta == 0 ? 0
                  : double(p.beta) * old_value(data.seed_c, uint64_t((b * p.M + row) * p.N + col));
  const double bias = p.bias ? old_value(data.seed_c + 1, uint64_t(col)) : 0;
  return {activated(p.activation, product + old + bias),
          fabs(product) + fabs(old) + fabs(bias)};
}

/// Half an ulp of the type: of the value, and the least, among the subnormals.
LADDER_HD inline double half_ulp(Type type, double value) {
  const double relative = type == Type::f16 ? 1.0 / 2048 : type == Type::bf16 ? 1.0 / 256
                                                                             : 1.0 / 16777216;
  return fabs(value) * relative * 1.001 + (type == Type::f16 ? 1.0 / 33554432 : 1e-38);
}

/// Largest |got - want| that is right: what accumulating may lose, times alpha; 2^-23 of the terms
/// for the FP32 arithmetic with alpha, beta and the bias, which is exact for alpha = 1 alone; half
/// an ulp of C's type. 0 where every step is exact: then `want` must be given rounded. GELU is at
/// most 1.13 steep, and 2^-16 of it is allowed for the approximate functions of the hardware.
LADDER_HD inline double bound(const Problem& p, const Data& data, const Want& want) {
  const bool integers = data.inputs == Inputs::integers;
  const bool gelu = p.activation == Activation::gelu;
  if (integers && keeps_exact(p.alpha) && keeps_exact(p.beta) && !gelu) return 0;
  const bool plain = p.alpha == 1 && p.beta == 0 && !p.bias;
  const double before = (integers ? 0 : fabs(double(p.alpha)) * accumulation_bound(p.K)) +
                        (plain ? 0 : want.terms * (1.0 / 8388608));
  return before * (gelu ? 1.13 : 1) + (gelu ? fabs(want.value) * (1.0 / 65536) : 0) +
         half_ulp(p.type_c, want.value);
}

/// True if `got` is a right answer. A NaN never is, and an infinity only where an exact sum
/// overflows to it; unless one was planted: then both must be there, and there only.
LADDER_HD inline bool is_right(const Problem& p, const Data& data, double got, const Want& want) {
  const bool nan = want.value != want.value, finite = want.value - want.value == 0;
  if (data.planted && !finite) return nan ? got != got : got == want.value;
  const double allowed = bound(p, data, want);
  if (allowed == 0) return got == rounded(p.type_c, want.value);
  return fabs(got - want.value) <= allowed;
}

/// The same for the default problem of this K; `got` is a half.
LADDER_HD inline double bound(Inputs inputs, int64_t K, double want) {
  Problem p;
  p.K = K;
  return bound(p, inputs, {want, fabs(want)});
}
LADDER_HD inline bool is_right(Inputs inputs, int64_t K, uint16_t got, double want) {
  Problem p;
  p.K = K;
  return is_right(p, inputs, half_to_double(got), {want, fabs(want)});
}

/// What the comparison of a whole C found.
struct Verdict {
  int64_t wrong = 0;                    // elements
  int64_t batch = 0, row = 0, col = 0;  // the first of them
  double got = 0, want = 0;             // its value, and the exact one
  double allowed = 0;                   // the bound there
  std::string guard;                    // what was written outside the matrices, or ""
  bool right() const { return wrong == 0 && guard.empty(); }
};

/// "3 of 4096 elements are wrong, first C[1][2] = nan, should be 7" and the like; "" if right.
std::string explain(const Verdict& verdict, int64_t M, int64_t N, int64_t batch = 1);

}  // namespace harness
