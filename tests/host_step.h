// Steps whose "kernel" is a loop on the host, right or with one fault: device memory of the
// emulated device is host memory.
#pragma once
#include <cmath>
#include <memory>

#include "common/harness/compare.h"
#include "common/harness/registry.h"

enum class Fault {
  none, one_element, writes_nothing, last_row_missing, runs_once, remembers_pointers
};

template <Fault FAULT>
Launch prepare_host_step(const Problem& given) {
  static Problem first;  // what no step may have: state outside the launch
  if (!first.C || FAULT != Fault::remembers_pointers || first.M != given.M) first = given;
  const Problem p = FAULT == Fault::remembers_pointers ? first : given;
  const auto runs = std::make_shared<int>(0);
  return [p, runs](gpu::Stream) {
    if (FAULT == Fault::writes_nothing || (FAULT == Fault::runs_once && (*runs)++ > 0)) return;
    const auto* A = static_cast<const uint16_t*>(p.A);
    const auto* B = static_cast<const uint16_t*>(p.B);
    auto* C = static_cast<uint16_t*>(p.C);
    for (int64_t m = 0; m < p.M - (FAULT == Fault::last_row_missing); ++m)
      for (int64_t n = 0; n < p.N; ++n) {
        float sum = FAULT == Fault::one_element && m == p.M / 2 && n == p.N / 2;
        for (int64_t k = 0; k < p.K; ++k)
          sum += float(harness::half_to_double(A[m * p.K + k]) *
                       harness::half_to_double(B[k * p.N + n]));
        C[m * p.N + n] = harness::double_to_half(sum);
      }
  };
}

inline Step host_step(Fault fault) {
  static const Prepare prepares[] = {
      prepare_host_step<Fault::none>,           prepare_host_step<Fault::one_element>,
      prepare_host_step<Fault::writes_nothing>, prepare_host_step<Fault::last_row_missing>,
      prepare_host_step<Fault::runs_once>,      prepare_host_step<Fault::remembers_pointers>};
  const Supports supports = [](const Problem& p) { return needs_default(p); };
  return {"90_host", supports, prepares[int(fault)]};
}

// The same for a step that takes every kind of problem.
enum class KindFault {
  none, reads_old_c, ignores_alpha, ignores_beta, ignores_ldc, ignores_lda, swaps_layouts,
  layout_of_b_ignored, wrong_type_of_c, f16_for_bf16, multiplies_by_zero, writes_gap, one_batch,
  batch_stride_of_one_matrix, ignores_shared_b, rounds_twice, spreads_nan, ignores_bias,
  ignores_activation, activates_before_bias
};

template <KindFault FAULT>
Launch prepare_host_kinds(const Problem& p) {
  return [p](gpu::Stream) {
    const auto has = [](KindFault fault) { return FAULT == fault; };
    Problem q = p;
    if (has(KindFault::ignores_ldc)) q.ldc = p.N;
    if (has(KindFault::ignores_lda)) q.lda = p.layout_a == Layout::row_major ? p.K : p.M;
    if (has(KindFault::swaps_layouts)) std::swap(q.layout_a, q.layout_b), std::swap(q.lda, q.ldb);
    if (has(KindFault::layout_of_b_ignored)) q.layout_b = Layout::row_major, q.ldb = p.N;
    if (has(KindFault::wrong_type_of_c)) q.type_c = p.type_ab;
    if (has(KindFault::f16_for_bf16)) q.type_ab = Type::f16;
    if (has(KindFault::one_batch)) q.batch = 1;
    if (has(KindFault::ignores_alpha)) q.alpha = 1;
    if (has(KindFault::ignores_beta)) q.beta = 0;
    if (has(KindFault::ignores_bias)) q.bias = nullptr;
    if (has(KindFault::ignores_activation)) q.activation = Activation::none;
    if (has(KindFault::batch_stride_of_one_matrix)) q.stride_c = p.M * p.N;
    if (has(KindFault::ignores_shared_b) && p.stride_b == 0) q.stride_b = 1;
    const auto a = harness::storage_a(q), b = harness::storage_b(q), c = harness::storage_c(q);
    const auto inside = [](const harness::Storage& s, const harness::Storage& real, int64_t i) {
      return i >= 0 && i < real.count() && i < s.count();  // a fault is no crash of the test
    };
    const auto real_a = harness::storage_a(p), real_b = harness::storage_b(p);
    int64_t spread_to = -1;
    for (int64_t batch = 0; batch < q.batch; ++batch)
      for (int64_t m = 0; m < q.M; ++m)
        for (int64_t n = 0; n < q.N; ++n) {
          float sum = 0;
          const bool multiplies = q.alpha != 0 || has(KindFault::multiplies_by_zero);
          for (int64_t k = 0; k < q.K && multiplies; ++k) {
            const int64_t ia = a.index(batch, m, k), ib = b.index(batch, k, n);
            if (!inside(a, real_a, ia) || !inside(b, real_b, ib)) continue;
            sum += float(harness::load(a.type, q.A, ia) * harness::load(b.type, q.B, ib));
          }
          if (sum - sum != 0) spread_to = c.index(batch, (m + 1) % q.M, (n + 1) % q.N);
          if (has(KindFault::rounds_twice)) sum = float(harness::rounded(Type::bf16, sum));
          float result = q.alpha * sum;
          const int64_t ic = c.index(batch, m, n);
          if (ic >= harness::storage_c(p).count()) continue;
          if (q.beta != 0 || has(KindFault::reads_old_c))
            result += q.beta * float(harness::load(c.type, q.C, ic));
          if (has(KindFault::activates_before_bias))
            result = float(harness::activated(q.activation, result));
          if (q.bias) result += float(harness::load(c.type, q.bias, n));
          if (!has(KindFault::activates_before_bias))
            result = float(harness::activated(q.activation, result));
          harness::store(c.type, q.C, ic, result);
          if (has(KindFault::writes_gap) && n == q.N - 1 && q.ldc > q.N && m < q.M - 1)
            harness::store(c.type, q.C, ic + 1, 0);
        }
    if (has(KindFault::spreads_nan) && spread_to >= 0) harness::store(c.type, q.C, spread_to, NAN);
  };
}

inline Step host_kinds_step(KindFault fault) {
  using F = KindFault;
  static const Prepare prepares[] = {
      prepare_host_kinds<F::none>, prepare_host_kinds<F::reads_old_c>,
      prepare_host_kinds<F::ignores_alpha>, prepare_host_kinds<F::ignores_beta>,
      prepare_host_kinds<F::ignores_ldc>, prepare_host_kinds<F::ignores_lda>,
      prepare_host_kinds<F::swaps_layouts>, prepare_host_kinds<F::layout_of_b_ignored>,
      prepare_host_kinds<F::wrong_type_of_c>, prepare_host_kinds<F::f16_for_bf16>,
      prepare_host_kinds<F::multiplies_by_zero>, prepare_host_kinds<F::writes_gap>,
      prepare_host_kinds<F::one_batch>, prepare_host_kinds<F::batch_stride_of_one_matrix>,
      prepare_host_kinds<F::ignores_shared_b>, prepare_host_kinds<F::rounds_twice>,
      prepare_host_kinds<F::spreads_nan>, prepare_host_kinds<F::ignores_bias>,
      prepare_host_kinds<F::ignores_activation>, prepare_host_kinds<F::activates_before_bias>};
  return {"91_kinds", [](const Problem&) { return std::string(); }, prepares[int(fault)]};
}
