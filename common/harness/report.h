// Google Benchmark as the carrier of finished samples: its console, JSON, filter and comparison
// tools. The measuring itself is measure.h. GPU builds only.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "common/harness/gpu_info.h"
#include "common/harness/options.h"

namespace harness {

/// One row of the result: a repetition per round, then Google Benchmark's aggregates of them.
struct Row {
  std::string name;                                    // "06_warp_tile/4096x4096x4096/burst"
  std::vector<double> seconds;                         // of one launch, per round
  std::vector<std::map<std::string, double>> counters; // per round, same length
};

using Context = std::vector<std::pair<std::string, std::string>>;

/// What every result file says about where it comes from: gpu driver cuda cublas power_limit_w
/// commit dirty method. (Google Benchmark adds the date.)
Context make_context(const Options& options, const GpuInfo& gpu, const Nvml& nvml);

/// Throws where this is a Debug build: its times mean nothing.
void refuse_debug_build();

/// Writes Google Benchmark's JSON to `file`, and its console where a --benchmark_ flag asks.
void write_report(const std::vector<Row>& rows, const Context& context, const Options& options,
                  const OutputFile& file);

}  // namespace harness
