// `trust`: how far can the measurements be believed? The step against itself and against a copy
// that is slower by a known amount, many times over.
#include <cmath>
#include <cstdio>

#include "common/harness/check.h"
#include "common/harness/session.h"
#include "common/harness/stats.h"

namespace harness {
namespace {

struct Outcome {
  double worst_difference = 0;              // of the step and its identical copy
  int slower_seen = 0, identical_seen = 0;  // copies reported slower
};

double median_block(Session& s, Regime regime, Contender& contender) {
  std::vector<double> seconds;
  for (int i = 0; i < 3; ++i) seconds.push_back(s.stopwatch->block(regime, contender));
  return median(seconds);
}

/// `trials` times: the step, an identical copy and a slowed one, decided as `bench` does.
Outcome try_out(Session& s, Regime regime, Contender& copy, Contender& slowed, int trials) {
  const double noise = regime == Regime::burst ? kNoiseBurst : kNoiseSustained;
  Outcome outcome;
  for (int trial = 0; trial < trials; ++trial) {
    const auto samples = run_rounds(*s.stopwatch, regime, {&s.step, &copy, &slowed});
    const auto identical = speedups(samples[0], samples[1]);
    const auto slower = speedups(samples[0], samples[2]);
    const double difference = std::fabs(median(identical) - 1);
    outcome.worst_difference = std::max(outcome.worst_difference, difference);
    outcome.identical_seen += decide(identical, noise) == -1;
    outcome.slower_seen += decide(slower, noise) == -1;
    printf("%s trial %2d: identical copy %+.2f %%, slowed copy %+.2f %%\n", name(regime), trial + 1,
           100 * (1 / median(identical) - 1), 100 * (1 / median(slower) - 1));
    fflush(stdout);
  }
  return outcome;
}

}  // namespace

int trust_command(const Program& program, const Options& options) {
  const Step step = find_step(program.step);
  const Size size = options.sizes.empty() ? Size{4096, 4096, 4096} : options.sizes[0];
  require_support(step, size);
  require_device(program);
  const Nvml nvml(gpu_info().pci);
  Session s(program, size, nvml);
  if (!s.wrong().empty() || !s.step.launch)
    throw UsageError(program.step + " at " + text(size) + " is " +
                     (s.wrong().empty() ? "too slow for trials" : "wrong: " + s.wrong()));
  if (!s.ceiling) throw UsageError("this GPU has no " + program.unit + " to slow a copy with");
  bool good = true;
  for (const Regime regime : {Regime::burst, Regime::sustained}) {
    if (s.step.seconds > longest_launch(Regime::sustained)) break;
    const bool burst = regime == Regime::burst;
    const double slowdown = burst ? 0.02 : 0.04, limit = burst ? 0.01 : 0.03;
    Contender copy = s.step_contender(step, s.sets->other);
    Contender slowed = copy;
    // Work of the unit's ceiling, not a pause: resting would save power and buy back clock.
    if (!burst) s.stopwatch->load(s.step, kSustainedLoad);
    const double share = slowdown * median_block(s, regime, s.step) /
                         median_block(s, regime, s.ceiling_contender);
    slowed.extra = [&s, share](int launches, gpu::Stream stream) {
      s.ceiling->run(share * launches, stream);
    };
    const Outcome o = try_out(s, regime, copy, slowed, options.trials);
    const int n = options.trials, allowed = n / 20;
    const auto line = [&](bool ok, const std::string& words) {
      printf("%s %s: %s\n", ok ? "ok  " : "FAIL", name(regime), words.c_str());
      good = good && ok;
    };
    line(o.worst_difference < limit, "the same step twice differs by at most " +
                                         fixed(100 * o.worst_difference, 2) + " % (limit " +
                                         fixed(100 * limit, 0) + ")");
    line(o.slower_seen >= n - allowed, "a copy slowed by " + fixed(100 * slowdown, 0) +
                                           " % is reported slower in " +
                                           std::to_string(o.slower_seen) + " of " +
                                           std::to_string(n));
    line(o.identical_seen <= allowed, "an identical copy is reported slower in " +
                                          std::to_string(o.identical_seen) + " of " +
                                          std::to_string(n));
  }
  return good ? 0 : 1;
}

}  // namespace harness
