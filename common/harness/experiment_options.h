// The command line of an experiment's program, and what of an experiment is only words: names,
// spans, the file of timelines. No CUDA in it, so that it is tested anywhere.
#pragma once
#include "common/harness/options.h"

namespace harness {

constexpr const char* kExperimentUsage =
    "usage: PROGRAM check [--workloads NAME,..] [--variants NAME,..]\n"
    "       PROGRAM bench --json FILE [--timelines FILE] [--workloads NAME,..]\n"
    "                     [--variants NAME,..] [--commit ID] [--dirty 0|1]\n"
    "                     [--benchmark_filter=.. and other flags]\n"
    "       PROGRAM once [--workloads NAME] [--variants NAME] [--iterations 10]\n"
    "       PROGRAM describe\n"
    "exit codes: 0 right or measured, 1 wrong, 2 usage or unsupported, 3 CUDA or memory";

struct ExperimentOptions {
  std::vector<std::string> workloads, variants;  // empty: all
  std::string timelines;                         // file
  int iterations = 10;                           // of `once`
  Options common;                                // command, json, commit, dirty, benchmark_flags
};

/// Throws UsageError on an unknown command, flag or value.
ExperimentOptions parse_experiment_options(const std::vector<std::string>& arguments);

/// Throws UsageError unless `name` may stand in the name of a row: letters, digits, _ . x -
void require_name(const std::string& name, const std::string& what);

/// Which of `known` were asked for, in the order of `known`. Throws UsageError on one that is not.
std::vector<size_t> chosen(const std::vector<std::string>& known,
                           const std::vector<std::string>& asked, const std::string& what);

/// Something that took time: on the host, on a stream, on an engine.
struct Span {
  std::string lane, name;
  double begin_us, end_us;  // since the host began the iteration
};

/// One iteration of one variant, to be drawn.
struct DrawnIteration {
  std::string workload, variant;
  double time_us;  // as timed, without the events that the picture needs
  std::vector<Span> spans;
};

/// JSON: {"context": {..}, "experiment": .., "timelines": [{.., "spans": [..]}]}
std::string timelines_json(const std::string& experiment,
                           const std::vector<std::pair<std::string, std::string>>& context,
                           const std::vector<DrawnIteration>& drawn);

}  // namespace harness
