// Everything that one size needs to be timed: inputs, the step, and what it is compared with.
// GPU builds only.
#pragma once
#include <memory>
#include <vector>

#include "common/harness/baselines.h"
#include "common/harness/ceilings.h"
#include "common/harness/device.h"
#include "common/harness/operands.h"
#include "common/harness/registry.h"

namespace harness {

/// Input sets of one size, random normal, at least three and together at least 256 MiB, so that
/// the L2 cache is cold; each with two C, one for the step alone, so that it can be checked.
struct InputSets {
  std::unique_ptr<gpu::Buffer> inputs, outputs, bias;  // one bias for all sets, if any
  std::vector<Problem> step, other;  // same A and B, different C

  explicit InputSets(const Size& size);
  void poison(const std::vector<Problem>& problems, gpu::Stream stream);  // C of `step` or `other`
  static int count(const Size& size);
  static double bytes(const Size& size);
};

class Session {
 public:
  /// Checks the step at this size (integers, bit-exact), then makes the contenders. Throws
  /// gpu::Error if memory is short. `wrong()` says what the check found. `against`: which others
  /// are made: base, cublas, ceiling.
  Session(const Program& program, const Size& size, const Nvml& nvml,
          const std::vector<std::string>& against = {"base", "cublas", "ceiling"});

  const std::string& wrong() const { return wrong_; }
  /// Looks at the C of the step's last timed launch; "" if right.
  std::string check_last_output();
  Contender step_contender(const Step& step, const std::vector<Problem>& problems);

  Size size;
  double flop;               // of the problem: 2 M N K, times the batch
  double prepare_us = 0;     // median over the sets
  double first_seconds = 0;  // of the launch that was checked
  std::unique_ptr<Stopwatch> stopwatch;
  std::unique_ptr<InputSets> sets;
  std::unique_ptr<Baselines> baselines;
  std::unique_ptr<Ceiling> ceiling;
  Contender step, base, cublas_default, cublas_fp32, ceiling_contender;  // launch empty: not there

 private:
  void check_timed_size(const Step& step);
  std::string wrong_;
};

}  // namespace harness
