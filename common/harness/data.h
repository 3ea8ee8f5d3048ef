// Input data: the same (kind, seed, index) gives the same element, on any device, in any order.
#pragma once
#include <cmath>

#include "common/harness/fp16.h"

namespace harness {

/// Small integers make every sum exact, so the result must agree bit for bit. Random normal data
/// has fractions to round and draws the power that real data draws.
enum class Inputs { integers, normal };

inline const char* name(Inputs inputs) {
  return inputs == Inputs::integers ? "integers" : "random normal";
}

/// Integers are drawn from -range..range: |sum| <= range^2 K stays below FP16's 65,504 up to
/// K = 16,376, and with {-1, 0, 1} beyond (where the sum is some sqrt(K), never near K).
LADDER_HD inline int integer_range(int64_t K) { return 4 * K <= 65504 ? 2 : 1; }

/// 64 well mixed bits (SplitMix64, Steele et al. 2014).
LADDER_HD inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

/// Element `index` of a matrix of a problem with this K, before it is rounded to its type. Normal
/// values may differ in the last bit between host and device (logf, cosf): compare with what is in
/// memory.
LADDER_HD inline double value(Inputs inputs, uint64_t seed, uint64_t index, int64_t K) {
  const uint64_t bits = mix(mix(seed) + index);
  if (inputs == Inputs::integers) {
    const int range = integer_range(K);
    return int(bits % uint64_t(2 * range + 1)) - range;
  }
  const float u = float((bits >> 40) + 1) * (1.0f / 16777216), v = float(bits & 0xffffff);
  return sqrtf(-2.0f * logf(u)) * cosf(v * (6.2831853f / 16777216));
}

/// The same as the bits of a half.
LADDER_HD inline uint16_t element(Inputs inputs, uint64_t seed, uint64_t index, int64_t K) {
  return double_to_half(value(inputs, seed, index, K));
}

/// What C (where beta is not 0) and the bias hold before the launch: -8..8, of every kind of
/// inputs, so that it need not be kept to know it afterwards.
LADDER_HD inline double old_value(uint64_t seed, uint64_t index) {
  return int(mix(mix(seed) + index) % 17) - 8;
}

}  // namespace harness
