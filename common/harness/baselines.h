// cuBLAS on the same problem: same layouts, types, batch and accumulator, 64 MiB of workspace. GPU
// builds only.
#pragma once
#include <vector>

#include "common/harness/measure.h"
#include "common/problem.h"

namespace harness {

/// Every problem is one input set of the same size; what is returned rotates among them.
class Baselines {
 public:
  /// Throws gpu::Error for types that cuBLAS does not combine (f16 in, bf16 out).
  Baselines(gpu::Stream stream, const std::vector<Problem>& problems);
  ~Baselines();
  Baselines(const Baselines&) = delete;

  /// From now on no sums in the type of C: with K split, cuBLAS may add up parts in BF16.
  void sum_in_fp32();
  /// cublasGemmEx with its default heuristic, or cublasGemmStridedBatchedEx; with a bias or an
  /// activation, which only cublasLt has in its epilogue, the first algorithm that that proposes.
  Contender default_gemm() const;
  /// The fastest in this regime of the algorithms that cublasLt proposes when asked for 16.
  Contender best_gemm(Stopwatch& stopwatch, Regime regime) const;
  /// FP32 SGEMM on FP32 copies of the inputs, which are made here.
  Contender fp32_gemm();
  static double fp32_bytes(const Problem& problem, size_t sets);  // what those copies take
  static std::string version();                                   // "13.1.0"
  static constexpr size_t kWorkspace = 64 << 20;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace harness
