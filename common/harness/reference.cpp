#include "common/harness/reference.h"

#include <cmath>
#include <cstdio>

#include "common/harness/operands.h"

namespace harness {

std::vector<double> reference_on_host(const uint16_t* A, const uint16_t* B, int64_t M, int64_t N,
                                      int64_t K) {
  std::vector<double> C(size_t(M * N)), b(size_t(K * N));
  for (size_t i = 0; i < b.size(); ++i) b[i] = half_to_double(B[i]);
  for (int64_t m = 0; m < M; ++m)
    for (int64_t k = 0; k < K; ++k) {
      const double a = half_to_double(A[m * K + k]);
      for (int64_t n = 0; n < N; ++n) C[size_t(m * N + n)] += a * b[size_t(k * N + n)];
    }
  return C;
}

Verdict compare_on_host(const uint16_t* C, const std::vector<double>& want, int64_t M, int64_t N,
                        int64_t K, Inputs inputs) {
  Verdict verdict;
  for (int64_t i = 0; i < M * N; ++i) {
    if (is_right(inputs, K, C[i], want[size_t(i)])) continue;
    if (verdict.wrong++ == 0) {
      verdict.row = i / N, verdict.col = i % N;
      verdict.got = half_to_double(C[i]), verdict.want = want[size_t(i)];
      verdict.allowed = bound(inputs, K, verdict.want);
    }
  }
  return verdict;
}

std::string explain(const Verdict& v, int64_t M, int64_t N) {
  if (v.wrong == 0) return v.guard;
  char text[160];
  snprintf(text, sizeof text, ", first C[%lld][%lld] = %.9g, should be %.9g", (long long)v.row,
           (long long)v.col, std::isnan(v.got) ? NAN : v.got, v.want);  // not "-nan"
  std::string line = std::to_string(v.wrong) + " of " + std::to_string(M * N) +
                     (v.wrong == 1 ? " elements is wrong" : " elements are wrong") + text;
  if (v.allowed > 0) {
    snprintf(text, sizeof text, " within %.2g", v.allowed);
    line += text;
  }
  return v.guard.empty() ? line : line + "; " + v.guard;
}

// ---- matrices ----------------------------------------------------------------------------------

Matrix::Matrix(int64_t rows, int64_t cols, size_t guard, const char* name)
    : rows_(rows), cols_(cols), guard_(guard), name_(name),
      buffer_(size_t(rows * cols) * 2 + 2 * guard, name) {
  poison();
}

uint16_t* Matrix::data() const { return buffer_.get<uint16_t>() + guard_ / 2; }

void Matrix::poison() { gpu::fill(buffer_.get(), 0xff, buffer_.bytes()); }

std::vector<uint16_t> Matrix::to_host() const {
  std::vector<uint16_t> host(static_cast<size_t>(count()));
  gpu::copy_to_host(host.data(), data(), host.size() * 2);
  return host;
}

std::string Matrix::damage() const {
  if (guard_ == 0) return "";
  std::vector<uint16_t> band(guard_ / 2);
  for (const bool after : {true, false}) {
    gpu::copy_to_host(band.data(), after ? data() + count() : data() - guard_ / 2, guard_);
    for (size_t i = 0; i < band.size(); ++i) {  // from the matrix outwards
      if (band[after ? i : band.size() - 1 - i] == 0xffff) continue;
      return "something was written " + std::to_string(i + 1) + " elements " +
             (after ? "past the end of " : "before the start of ") + name_;
    }
  }
  return "";
}

size_t guard_bytes(const Size& size) {
  const int64_t rows = 256 * size.N * 2, low = 64 << 10, high = 4 << 20;
  return size_t((rows < low ? low : rows > high ? high : rows) / 256 * 256);
}

Operands::Operands(const Size& size, Inputs kind, uint64_t seed, size_t guard)
    : A(size.M, size.K, guard, "A"), B(size.K, size.N, guard, "B"), C(size.M, size.N, guard, "C"),
      problem(make_problem(size.M, size.N, size.K, A.data(), B.data(), C.data())), inputs(kind) {
  fill(A.data(), A.count(), kind, 2 * seed, size.K);
  fill(B.data(), B.count(), kind, 2 * seed + 1, size.K);
}

double Operands::bytes(const Size& s, size_t guard) {
  return 2.0 * (double(s.M) * s.K + double(s.K) * s.N + double(s.M) * s.N) + 6.0 * double(guard);
}

Verdict Operands::verdict() const {
  gpu::synchronize();
  const int64_t M = problem.M, N = problem.N, K = problem.K;
  Verdict v;
  if (double(M) * N * K <= kHostLimit) {
    const auto want = reference_on_host(A.to_host().data(), B.to_host().data(), M, N, K);
    v = compare_on_host(C.to_host().data(), want, M, N, K, inputs);
  } else {
    v = compare_on_device(problem, inputs, fastest_exact_sum(inputs, K));
  }
  for (const Matrix* matrix : {&C, &A, &B})
    if (v.guard.empty()) v.guard = matrix->damage();
  return v;
}

}  // namespace harness
