// What the tests of gemm() share on both devices: a problem with its memory, and what is right.
#pragma once
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "steps/29_any_shape/gemm.h"

/// FP16 or BF16 as bits. Only values that both hold exactly are made: small integers and specials.
inline uint16_t bits_of(Type type, int small) {
  if (small == 0) return 0;
  const int magnitude = small < 0 ? -small : small, exponent = magnitude >= 4 ? 2 : magnitude >= 2;
  const int fraction = magnitude - (1 << exponent);  // below 8: three bits
  const int sign = small < 0 ? 0x8000 : 0;
  return type == Type::bf16 ? uint16_t(sign | (127 + exponent) << 7 | fraction << (7 - exponent))
                            : uint16_t(sign | (15 + exponent) << 10 | fraction << (10 - exponent));
}
inline uint16_t nan_of(Type) { return 0x7FFF; }
inline uint16_t inf_of(Type type) { return type == Type::bf16 ? 0x7F80 : 0x7C00; }

#if defined(LADDER_EMULATED)  // which need not look at what no kernel does, a second per case
#define NOT_WATCHED __attribute__((no_sanitize("thread")))
#else
#define NOT_WATCHED
#endif
NOT_WATCHED inline void add_products(float* want, int64_t ld, const int* x, const int* y, int64_t M,
                                     int64_t N, int64_t K, float alpha) {
  for (int64_t m = 0; m < M; ++m)
    for (int64_t k = 0; k < K; ++k)
      for (int64_t n = 0; n < N; ++n)
        want[m * ld + n] += alpha * float(x[m * K + k] * y[k * N + n]);
}

/// A problem of integers in -2..2, padding filled with NaN, FP32 out so that nothing is rounded.
struct GemmCase {
  GemmParams p;
  std::vector<uint16_t> a, b;
  std::vector<float> want;
  gpu::Buffer A, B, C;

  static GemmParams with_strides(GemmParams p) {
    const bool row_a = p.layout_a == Layout::row_major, row_b = p.layout_b == Layout::row_major;
    p.stride_a = (row_a ? p.M : p.K) * p.lda, p.stride_b = (row_b ? p.K : p.N) * p.ldb;
    p.stride_c = p.M * p.ldc, p.type_c = Type::f32;
    return p;
  }
  explicit GemmCase(GemmParams params, unsigned seed = 1)
      : p(with_strides(params)), a(size_t(p.batch * p.stride_a), nan_of(p.type_ab)),
        b(size_t(p.batch * p.stride_b), nan_of(p.type_ab)), want(size_t(p.batch * p.stride_c)),
        A(a.size() * 2, "A"), B(b.size() * 2, "B"), C(want.size() * 4, "C") {
    const auto small = [&] { return int((seed = seed * 1664525 + 1013904223) >> 24) % 5 - 2; };
    std::vector<int> x(size_t(p.M * p.K)), y(size_t(p.K * p.N));
    for (int64_t batch = 0; batch < p.batch; ++batch) {
      for (int64_t i = 0; i < p.M * p.K; ++i)
        a[size_t(at_a(batch, i / p.K, i % p.K))] = bits_of(p.type_ab, x[size_t(i)] = small());
      for (int64_t i = 0; i < p.K * p.N; ++i)
        b[size_t(at_b(batch, i / p.N, i % p.N))] = bits_of(p.type_ab, y[size_t(i)] = small());
      add_products(want.data() + batch * p.stride_c, p.ldc, x.data(), y.data(), p.M, p.N, p.K,
                   p.alpha);
    }
    p.A = A.get(), p.B = B.get(), p.C = C.get();
    upload();
  }
  int64_t at_a(int64_t batch, int64_t m, int64_t k) const {
    return batch * p.stride_a + (p.layout_a == Layout::row_major ? m * p.lda + k : k * p.lda + m);
  }
  int64_t at_b(int64_t batch, int64_t k, int64_t n) const {
    return batch * p.stride_b + (p.layout_b == Layout::row_major ? k * p.ldb + n : n * p.ldb + k);
  }
  void upload() {
    gpu::copy_to_device(A.get(), a.data(), A.bytes());
    gpu::copy_to_device(B.get(), b.data(), B.bytes());
    clear();
  }
  void clear() { gpu::fill(C.get(), 0xFF, C.bytes()); }  // NaN
  std::vector<float> result() const {
    std::vector<float> c(want.size());
    gpu::copy_to_host(c.data(), C.get(), C.bytes());
    return c;
  }
  /// Elements of C that are not `want`, and elements between rows that were written.
  int64_t wrong() const {
    const std::vector<float> c = result();
    int64_t n = 0;
    for (int64_t i = 0; i < int64_t(c.size()); ++i) {
      const bool inside = i % p.stride_c / p.ldc < p.M && i % p.stride_c % p.ldc < p.N;
      n += inside ? !(c[size_t(i)] == want[size_t(i)]) : c[size_t(i)] == c[size_t(i)];
    }
    return n;
  }
};

inline GemmParams gemm_params(int64_t M, int64_t N, int64_t K, Layout a = Layout::row_major,
                              Layout b = Layout::row_major, Type type = Type::f16, int pad = 0) {
  GemmParams p = make_problem(M, N, K);
  p.layout_a = a, p.layout_b = b, p.type_ab = type;
  p.lda = (a == Layout::row_major ? K : M) + pad, p.ldb = (b == Layout::row_major ? N : K) + pad;
  p.ldc = N + pad;
  return p;
}

/// A workspace as the call wants it: zeroed once.
struct Workspace : gpu::Buffer {
  explicit Workspace(size_t bytes) : gpu::Buffer(bytes, "workspace") {
    gpu::fill(get(), 0, this->bytes());
  }
};

/// LADDER_GEMM_CONFIG while it lives.
struct Forced {
  explicit Forced(const char* config) { setenv("LADDER_GEMM_CONFIG", config, 1); }
  ~Forced() { unsetenv("LADDER_GEMM_CONFIG"); }
};
