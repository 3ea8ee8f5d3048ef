// FP16 and bfloat16 for a host compiler that has neither (g++ 11): storage and conversions.
// Nothing here touches memory, so the emulated device counts no access for it.
#pragma once
#include <cstdint>

namespace emu {

inline float bits_to_float(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint32_t float_to_bits(float f) { return __builtin_bit_cast(uint32_t, f); }

// Without branches: the compiler would duplicate the access that follows one, and the counters
// would see two requests for one.
inline float half_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16, rest = uint32_t(h & 0x7FFF);
  // The exponent is rebased by a multiplication, which also makes subnormals right.
  const uint32_t magnitude = float_to_bits(bits_to_float(rest << 13) * 0x1p112f);
  const uint32_t inf_or_nan = 0u - uint32_t(rest >= 0x7C00);
  return bits_to_float(sign | magnitude | (inf_or_nan & 0x7F800000u));
}

/// Rounds to nearest, ties to even. Not inlined, for the same reason.
__attribute__((noinline, no_sanitize("thread"))) inline uint16_t float_to_half(float f) {
  const uint32_t bits = float_to_bits(f), magnitude = bits & 0x7FFFFFFF;
  const uint16_t sign = uint16_t(bits >> 16 & 0x8000);
  if (magnitude > 0x7F800000) return 0x7FFF;  // the NaN that the hardware makes
  if (magnitude >= 0x477FF000) return uint16_t(sign | 0x7C00);  // rounds above 65504
  if (magnitude < 0x38800000) {  // subnormal: adding 0.5 leaves the rounded result in the low bits
    const float shifted = bits_to_float(magnitude) + 0.5f;
    return uint16_t(sign | (float_to_bits(shifted) - 0x3F000000));
  }
  return uint16_t(sign | ((magnitude + 0xFFF + (magnitude >> 13 & 1) - 0x38000000) >> 13));
}

inline float bfloat16_to_float(uint16_t b) { return bits_to_float(uint32_t(b) << 16); }
__attribute__((noinline, no_sanitize("thread"))) inline uint16_t float_to_bfloat16(float f) {
  const uint32_t bits = float_to_bits(f);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return 0x7FFF;
  return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

}  // namespace emu

// No constructors: an array of them in static shared memory would get a guard variable. Kernels
// convert by the named functions below.
struct __half {
  uint16_t bits;
  __half& operator=(float f) {
    bits = emu::float_to_half(f);
    return *this;
  }
  operator float() const { return emu::half_to_float(bits); }
};
struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16& operator=(float f) {
    bits = emu::float_to_bfloat16(f);
    return *this;
  }
  operator float() const { return emu::bfloat16_to_float(bits); }
};
struct alignas(4) __half2 {
  __half x, y;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
using half = __half;
using half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline float __half2float(__half h) { return h; }
inline __half __float2half(float f) { return {emu::float_to_half(f)}; }
inline __half __float2half_rn(float f) { return __float2half(f); }
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half(x), __float2half(y)}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline float __low2float(__half2 h) { return h.x; }
inline float __high2float(__half2 h) { return h.y; }
inline __half __low2half(__half2 h) { return h.x; }
inline __half __high2half(__half2 h) { return h.y; }
inline uint16_t __half_as_ushort(__half h) { return h.bits; }
inline __half __ushort_as_half(uint16_t bits) { return {bits}; }

inline float __bfloat162float(__nv_bfloat16 b) { return b; }
inline __nv_bfloat16 __float2bfloat16(float f) { return {emu::float_to_bfloat16(f)}; }
inline __nv_bfloat16 __float2bfloat16_rn(float f) { return __float2bfloat16(f); }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16(x), __float2bfloat16(y)};
}
