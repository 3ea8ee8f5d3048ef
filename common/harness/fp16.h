// FP16 on the host and the device without CUDA's headers: the checker's own arithmetic, so that
// no conversion is shared with the kernels it judges. Halves travel as their 16 bits.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define LADDER_HD __host__ __device__
#else
#define LADDER_HD
#endif

namespace harness {

/// Value of a half. Exact; NaN and infinity stay what they are.
LADDER_HD inline double half_to_double(uint16_t half) {
  const uint64_t sign = uint64_t(half >> 15) << 63;
  const int exponent = half >> 10 & 31;
  const uint64_t fraction = half & 1023;
  uint64_t bits;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
    const double magnitude = double(fraction) * (1.0 / 16777216);
    return sign ? -magnitude : magnitude;
  }
  bits = exponent == 31 ? sign | 0x7ffull << 52 | fraction << 42
                        : sign | uint64_t(exponent - 15 + 1023) << 52 | fraction << 42;
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/// Nearest half, ties to even, in one rounding (through float it would be two).
LADDER_HD inline uint16_t double_to_half(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = uint16_t(bits >> 48 & 0x8000);
  const int exponent = int(bits >> 52 & 0x7ff) - 1023;
  const uint64_t fraction = bits & ((1ull << 52) - 1);
  if (exponent == 1024) return uint16_t(sign | 0x7c00 | (fraction ? 0x200 : 0));
  if (exponent > 15) return uint16_t(sign | 0x7c00);
  if (exponent < -25) return sign;  // below half of the smallest subnormal, 2^-24
  const uint64_t significand = fraction | 1ull << 52;
  const int shift = exponent >= -14 ? 42 : 42 - 14 - exponent;  // bits that do not fit
  uint64_t kept = significand >> shift;
  const uint64_t rest = significand & ((1ull << shift) - 1), tie = 1ull << (shift - 1);
  if (rest > tie || (rest == tie && (kept & 1))) ++kept;
  // `kept` of a normal number holds its leading 1 at bit 10, which adds 1 to the exponent field.
  return uint16_t(sign | ((exponent >= -14 ? uint64_t(exponent + 14) << 10 : 0) + kept));
}

}  // namespace harness
