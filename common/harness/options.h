// The command line of a step's program (the front door `./ladder` writes it).
#pragma once
#include "common/harness/text.h"

namespace harness {

constexpr const char* kUsage =
    "usage: PROGRAM check [--sizes MxNxK,.. | --random N] [--seed S] [--json FILE]\n"
    "       PROGRAM bench --sizes MxNxK,.. [--regimes burst,sustained] --json FILE\n"
    "                     [--commit ID] [--dirty 0|1] [--benchmark_filter=.. and other flags]\n"
    "       PROGRAM ceilings --json FILE [--commit ID] [--dirty 0|1]\n"
    "       PROGRAM trust [--sizes MxNxK] [--trials N]\n"
    "       PROGRAM mutate [--sizes MxNxK,..] [--seed S]   (emulated device)\n"
    "       PROGRAM describe\n"
    "exit codes: 0 right or measured, 1 wrong, 2 usage or unsupported, 3 CUDA or memory";

struct Options {
  std::string command;
  std::vector<Size> sizes;
  std::vector<std::string> regimes = {"burst", "sustained"};
  uint64_t seed = 1;
  int random = 0;  // check: so many random shapes
  int trials = 20;
  std::string json, commit = "unknown", dirty = "unknown";
  std::vector<std::string> benchmark_flags;  // passed on to Google Benchmark
};

/// Throws UsageError on an unknown command, flag or value, and on flags of Google Benchmark that
/// would change how is measured.
Options parse_options(const std::vector<std::string>& arguments);

}  // namespace harness
