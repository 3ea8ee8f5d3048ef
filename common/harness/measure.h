// The method of measuring (notes/measuring.md): two regimes, contenders interleaved in random
// order, one sample per contender and round. GPU builds only.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/gpu/gpu.h"
#include "common/harness/gpu_info.h"

namespace harness {

/// Raised whenever how is measured changes; results of different methods are never compared.
constexpr int kMethod = 1;

enum class Regime { burst, sustained };
inline const char* name(Regime r) { return r == Regime::burst ? "burst" : "sustained"; }

constexpr int kRounds = 5;
constexpr double kSustainedLoad = 1.0;  // seconds under load before the first sustained block
/// Seconds. A contender whose launch takes longer is left out of the regime.
inline double longest_launch(Regime r) { return r == Regime::burst ? 0.5 : 0.1; }

/// Something that is timed: a step, a baseline, a ceiling.
struct Contender {
  std::string name;
  /// Enqueues one launch on inputs number `set`.
  std::function<void(int set, gpu::Stream)> launch;
  double flop = 0, bytes = 0;  // of one launch
  /// Enqueues extra work after a timed block of `launches` (`trust` slows copies so).
  std::function<void(int launches, gpu::Stream)> extra;

  // Set by Stopwatch::calibrate.
  double seconds = 0;  // of one launch, roughly
  int next_set = 0;
  std::shared_ptr<CUgraphExec_st> graph;  // of `graph_launches` launches over all sets, if short
  int graph_launches = 0;
  // Set by Stopwatch: what NVML saw during the timed parts since the last reset.
  Sampler::Window seen;
};

/// Times blocks of launches on a stream of its own by events. `sets`: number of input sets the
/// launches rotate among. `stream`: someone else's stream instead.
class Stopwatch {
 public:
  Stopwatch(int sets, const Nvml& nvml, gpu::Stream stream = nullptr);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  gpu::Stream stream() const { return stream_; }

  /// Estimates the time of a launch and, where it is under 50 us, captures a graph of them: the
  /// CPU could not keep up, and would be what is measured.
  void calibrate(Contender& contender);
  /// Seconds per launch over one block of the regime.
  double block(Regime regime, Contender& contender);
  /// A shorter block, to choose among algorithms: `rest` idle, then warm-up, then `timed` seconds.
  double glance(Contender& contender, double rest, double warm_up, double timed);
  /// Keeps the GPU busy for this long.
  void load(Contender& contender, double seconds);

 private:
  int enqueue(Contender& contender, double seconds);  // at least one; returns the launches
  gpu::Stream stream_ = nullptr;
  bool owns_stream_;
  cudaEvent_t start_ = nullptr, end_ = nullptr;
  int sets_;
  Sampler sampler_;
};

/// Looks at all contenders: a glance at each, then two longer ones at the three fastest and at the
/// first one, which is somebody's default. Returns, fastest first, {which, seconds of its best
/// glance}.
std::vector<std::pair<size_t, double>> rank(Stopwatch& stopwatch, Regime regime,
                                            std::vector<Contender>& contenders);

/// One sample (seconds per launch) per contender and round, [contender][round]. `last_round` is
/// called before the last round begins.
std::vector<std::vector<double>> run_rounds(Stopwatch& stopwatch, Regime regime,
                                            const std::vector<Contender*>& contenders,
                                            const std::function<void()>& last_round = [] {});

}  // namespace harness
