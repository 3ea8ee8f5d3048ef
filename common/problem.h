// The problem every step solves: C = alpha * A * B + beta * C, and how a step says what it takes.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

enum class Type { f16, bf16, f32 };
enum class Layout { row_major, col_major };
enum class Activation { none, relu, gelu };  // gelu by its tanh form; applied after the bias

/// One GEMM on device memory: C = activation(alpha * A * B + beta * C + bias). A is [M][K], B is
/// [K][N], C is [M][N]; `ld*` is the distance in elements between consecutive rows (row_major) or
/// columns (col_major). The default, which every step takes, is FP16, row-major, contiguous,
/// alpha = 1, beta = 0, one batch, no bias, no activation.
struct Problem {
  int64_t M = 0, N = 0, K = 0;
  const void* A = nullptr;
  const void* B = nullptr;
  void* C = nullptr;
  int64_t lda = 0, ldb = 0, ldc = 0;
  Layout layout_a = Layout::row_major, layout_b = Layout::row_major;
  Type type_ab = Type::f16, type_c = Type::f16;
  float alpha = 1.0f, beta = 0.0f;
  const void* bias = nullptr;  // [N], type_c, or none
  Activation activation = Activation::none;
  int64_t batch = 1;           // stride_* are elements between the matrices of a batch
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
};

/// The default problem of this size on these pointers.
inline Problem make_problem(int64_t M, int64_t N, int64_t K, const void* A = nullptr,
                            const void* B = nullptr, void* C = nullptr) {
  Problem p;
  p.M = M, p.N = N, p.K = K;
  p.A = A, p.B = B, p.C = C;
  p.lda = K, p.ldb = N, p.ldc = N;
  return p;
}

/// "" if the step can run this problem; else one line: what is wrong and the nearest legal size.
using Supports = std::string (*)(const Problem&);

/// Why `p` is not a default problem of at least 1x1x1 with indices that fit an int, or "".
inline std::string needs_default(const Problem& p) {
  const int64_t limit = (int64_t{1} << 31) - 1024;  // M, N and K each; offsets are 64-bit
  if (p.M < 1 || p.N < 1 || p.K < 1) return "M, N and K must be at least 1";
  if (p.M > limit || p.N > limit || p.K > limit) return "M, N and K must be below 2^31 - 1024";
  if (p.layout_a != Layout::row_major || p.layout_b != Layout::row_major)
    return "takes row-major A and B only";
  if (p.type_ab != Type::f16 || p.type_c != Type::f16) return "takes FP16 in and out only";
  if (p.lda != p.K || p.ldb != p.N || p.ldc != p.N) return "takes contiguous rows only";
  if (p.alpha != 1.0f || p.beta != 0.0f) return "takes alpha = 1 and beta = 0 only";
  if (p.bias || p.batch != 1) return "takes no bias and no batch";
  if (p.activation != Activation::none) return "takes no activation";
  return "";
}

/// Why `p` is not a default problem whose M, N, K are multiples of these; names the nearest one.
inline std::string needs_multiples(const Problem& p, int64_t m, int64_t n, int64_t k) {
  if (std::string why = needs_default(p); !why.empty()) return why;
  if (p.M % m == 0 && p.N % n == 0 && p.K % k == 0) return "";
  auto nearest = [](int64_t size, int64_t unit) {
    const int64_t rounded = (size + unit / 2) / unit * unit;
    return std::to_string(rounded ? rounded : unit);
  };
  auto text = [](int64_t unit) { return std::to_string(unit); };
  return "needs M, N, K to be multiples of " + text(m) + ", " + text(n) + ", " + text(k) +
         "; the nearest legal size is " + nearest(p.M, m) + "x" + nearest(p.N, n) + "x" +
         nearest(p.K, k);
}
