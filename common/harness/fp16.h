// FP16 and BF16 on the host and the device without CUDA's headers: the checker's own arithmetic, so
// that no conversion is shared with the kernels it judges. Both travel as their 16 bits.
#pragma once
#include <cstdint>
#include <cstring>

#include "common/problem.h"

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

/// Value of a bfloat16: the upper half of a float's bits.
LADDER_HD inline double bf16_to_double(uint16_t bf16) {
  const uint32_t bits = uint32_t(bf16) << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return double(value);
}

/// Nearest bfloat16, ties to even, in one rounding. What a float would hold as a subnormal becomes
/// zero: nothing here comes near 2^-126.
LADDER_HD inline uint16_t double_to_bf16(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = uint16_t(bits >> 48 & 0x8000);
  const int exponent = int(bits >> 52 & 0x7ff) - 1023;
  const uint64_t fraction = bits & ((1ull << 52) - 1);
  if (exponent == 1024) return uint16_t(sign | 0x7f80 | (fraction ? 0x40 : 0));
  if (exponent > 127) return uint16_t(sign | 0x7f80);
  if (exponent < -126) return sign;
  uint64_t kept = fraction >> 45;  // 7 bits
  const uint64_t rest = fraction & ((1ull << 45) - 1), tie = 1ull << 44;
  if (rest > tie || (rest == tie && (kept & 1))) ++kept;  // a carry goes into the exponent
  return uint16_t(sign | ((uint64_t(exponent + 127) << 7) + kept));
}

LADDER_HD inline int bytes_of(Type type) { return type == Type::f32 ? 4 : 2; }

/// Element `index` of an array of this type.
LADDER_HD inline double load(Type type, const void* data, int64_t index) {
  if (type == Type::f32) return double(static_cast<const float*>(data)[index]);
  const uint16_t bits = static_cast<const uint16_t*>(data)[index];
  return type == Type::f16 ? half_to_double(bits) : bf16_to_double(bits);
}

LADDER_HD inline void store(Type type, void* data, int64_t index, double value) {
  if (type == Type::f32)
    static_cast<float*>(data)[index] = float(value);
  else
    static_cast<uint16_t*>(data)[index] =
        type == Type::f16 ? double_to_half(value) : double_to_bf16(value);
}

/// What `value` becomes when it is stored: rounded once.
LADDER_HD inline double rounded(Type type, double value) {
  if (type == Type::f32) return double(float(value));
  return type == Type::f16 ? half_to_double(double_to_half(value))
                           : bf16_to_double(double_to_bf16(value));
}

}  // namespace harness
