#include "common/harness/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "common/harness/device.h"
#include "common/harness/operands.h"

namespace harness {

std::vector<double> sums_on_host(const Problem& p, int64_t batch) {
  const Storage a = storage_a(p), b = storage_b(p);
  constexpr int64_t step = 16;  // rows of B that stay in a cache while all of A goes by
  std::vector<double> sums(size_t(p.M * p.N)), rows(size_t(step * p.N));
  for (int64_t first = 0; first < p.K; first += step) {
    const int64_t last = std::min(first + step, p.K);
    for (int64_t k = first; k < last; ++k)
      for (int64_t n = 0; n < p.N; ++n)
        rows[size_t((k - first) * p.N + n)] = load(b.type, p.B, b.index(batch, k, n));
    for (int64_t m = 0; m < p.M; ++m)
      for (int64_t k = first; k < last; ++k) {
        const double factor = load(a.type, p.A, a.index(batch, m, k));
        const double* row = rows.data() + (k - first) * p.N;
        double* sum = sums.data() + m * p.N;
        for (int64_t n = 0; n < p.N; ++n) sum[n] += factor * row[n];
      }
  }
  return sums;
}

std::vector<double> reference_on_host(const uint16_t* A, const uint16_t* B, int64_t M, int64_t N,
                                      int64_t K) {
  return sums_on_host(make_problem(M, N, K, A, B), 0);
}

Verdict compare_on_host(const Problem& p, const Data& data) {
  Verdict verdict;
  const Storage c = storage_c(p);
  for (int64_t b = 0; b < p.batch; ++b) {
    const std::vector<double> sums = sums_on_host(p, b);
    for (int64_t m = 0; m < p.M; ++m)
      for (int64_t n = 0; n < p.N; ++n) {
        const Want want = wanted(p, data, sums[size_t(m * p.N + n)], b, m, n);
        const double got = load(c.type, p.C, c.index(b, m, n));
        if (is_right(p, data, got, want) || verdict.wrong++ > 0) continue;
        verdict.batch = b, verdict.row = m, verdict.col = n;
        verdict.got = got, verdict.want = want.value;
        if (std::isfinite(want.value)) verdict.allowed = bound(p, data, want);
      }
  }
  return verdict;
}

std::string explain(const Verdict& v, int64_t M, int64_t N, int64_t batch) {
  if (v.wrong == 0) return v.guard;
  char text[160];
  const std::string of = batch > 1 ? " of batch " + std::to_string(v.batch) : "";
  const auto shown = [](double x) { return std::isnan(x) ? NAN : x; };  // not "-nan"
  snprintf(text, sizeof text, ", first C[%lld][%lld]%s = %.9g, should be %.9g", (long long)v.row,
           (long long)v.col, of.c_str(), shown(v.got), shown(v.want));
  std::string line = std::to_string(v.wrong) + " of " + std::to_string(M * N * batch) +
                     (v.wrong == 1 ? " elements is wrong" : " elements are wrong") + text;
  if (v.allowed > 0) {
    snprintf(text, sizeof text, " within %.2g", v.allowed);
    line += text;
  }
  return v.guard.empty() ? line : line + "; " + v.guard;
}

// ---- matrices ----------------------------------------------------------------------------------

Matrix::Matrix(const Storage& storage, size_t guard, int64_t off, const char* name)
    : storage_(storage), guard_(guard), start_(guard + size_t(off * bytes_of(storage.type))),
      name_(name), buffer_(take_buffer(start_ + storage.bytes() + guard, name)) {
  poison();
}

uint16_t* Matrix::data() const { return buffer_->get<uint16_t>() + start_ / 2; }

void Matrix::poison() { gpu::fill(buffer_->get(), 0xff, start_ + storage_.bytes() + guard_); }

std::vector<uint16_t> Matrix::to_host() const {
  std::vector<uint16_t> host(storage_.bytes() / 2);
  gpu::copy_to_host(host.data(), data(), host.size() * 2);
  return host;
}

std::string Matrix::damage() const {
  const Damage d = find_damage(storage_, raw(), guard_);
  const std::string written = "something was written ";
  if (d.after) return written + std::to_string(d.after) + " elements past the end of " + name_;
  if (d.before)
    return written + std::to_string(d.before) + " elements before the start of " + name_;
  if (d.gap < 0) return "";
  const Storage& s = storage_;
  const int64_t b = s.stride ? std::min(d.gap / s.stride, s.batch - 1) : 0;
  const int64_t rest = d.gap - b * s.stride;
  if (rest / s.ld >= s.outer - 1) return written + "between the matrices of the batch of " + name_;
  return written + "behind row " + std::to_string(rest / s.ld) + " of " + name_ + ", " +
         std::to_string(rest % s.ld - s.inner + 1) + " elements into the gap before the next row";
}

size_t guard_bytes(const Size& size) {
  const int64_t rows = 256 * size.N * bytes_of(size.kind.type_c), low = 64 << 10, high = 4 << 20;
  return size_t((rows < low ? low : rows > high ? high : rows) / 256 * 256);
}

Operands::Operands(const Size& size, Inputs kind, uint64_t s, size_t guard)
    : A(storage_a(make_problem(size)), guard, size.kind.off, "A"),
      B(storage_b(make_problem(size)), guard, size.kind.off, "B"),
      C(storage_c(make_problem(size)), guard, size.kind.off, "C"),
      problem(make_problem(size, A.raw(), B.raw(), C.raw())), inputs(kind), seed(s) {
  if (size.kind.bias) {
    const Storage row = {size.kind.type_c, true, 1, size.N, size.N, 1, 0};
    bias = std::make_unique<Matrix>(row, guard, size.kind.off, "bias");
    problem.bias = bias->raw();
    fill_old(row, bias->raw(), 2 * seed + 1);
  }
  if (problem.alpha != 0) {
    fill(A.storage(), A.raw(), kind, 2 * seed, size.K);
    fill(B.storage(), B.raw(), kind, 2 * seed + 1, size.K);
  }
  if (problem.beta != 0) fill_old(C.storage(), C.raw(), 2 * seed);
}

void Operands::reset() {
  C.poison();
  if (problem.alpha != 0) fill(A.storage(), A.raw(), inputs, 2 * seed + 2, problem.K);
  if (problem.beta != 0) fill_old(C.storage(), C.raw(), 2 * seed);
}

void Operands::plant(uint64_t choice) {
  Matrix& matrix = choice % 3 ? A : B;
  const Storage& s = matrix.storage();
  // Any element: its place in memory, gaps left out.
  const uint64_t bits = mix(choice);
  const int64_t batch = int64_t(bits % uint64_t(s.batch));
  const int64_t outer = int64_t((bits >> 8) % uint64_t(s.outer));
  const int64_t inner = int64_t((bits >> 32) % uint64_t(s.inner));
  uint32_t bits_of_it = 0;
  store(s.type, &bits_of_it, 0, choice % 2 ? INFINITY : NAN);
  gpu::copy_to_device(matrix.data() + batch * s.stride + outer * s.ld + inner, &bits_of_it, 2);
  planted = true;
}

double Operands::bytes(const Size& s, size_t guard) {
  const Problem p = make_problem(s);
  return double(storage_a(p).bytes()) + double(storage_b(p).bytes()) +
         double(storage_c(p).bytes()) + (s.kind.bias ? double(s.N) * bytes_of(p.type_c) : 0) +
         8.0 * double(guard + 16);
}

Verdict Operands::verdict(double host_limit) const {
  gpu::synchronize();
  const Problem& p = problem;
  const Data data(inputs, 2 * seed, planted);
  Verdict v;
  if (double(p.M) * double(p.N) * double(p.K) * double(p.batch) <= host_limit) {
    const auto a = A.to_host(), b = B.to_host(), c = C.to_host();
    Problem host = p;
    host.A = a.data(), host.B = b.data(), host.C = const_cast<uint16_t*>(c.data());
    v = compare_on_host(host, data);
  } else {
    v = compare_on_device(p, data, planted ? Sum::fp64 : fastest_exact_sum(inputs, p.K));
  }
  for (const Matrix* matrix : {&C, &A, &B, static_cast<const Matrix*>(bias.get())})
    if (matrix && v.guard.empty()) v.guard = matrix->damage();
  return v;
}

}  // namespace harness
