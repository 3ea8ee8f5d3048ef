// Steps whose "kernel" is a loop on the host, right or with one fault: device memory of the
// emulated device is host memory.
#pragma once
#include <memory>

#include "common/harness/fp16.h"
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
