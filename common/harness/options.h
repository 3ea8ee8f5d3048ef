// The command line of a step's program (the front door `./ladder` writes it).
#pragma once
#include "common/harness/text.h"

namespace harness {

constexpr const char* kUsage =
    "usage: PROGRAM check [--sizes SIZE,.. | --random N] [--seed S] [--json FILE]\n"
    "                     [--buffers guarded|exact (for compute-sanitizer)]\n"
    "       PROGRAM bench --sizes SIZE,.. [--regimes burst,sustained] --json FILE\n"
    "                     [--against base,cublas,ceiling] [--commit ID] [--dirty 0|1]\n"
    "                     [--benchmark_filter=.. and other flags]\n"
    "       PROGRAM tune --sizes SIZE,.. [--regimes burst|sustained] [--skip CONFIG,..]\n"
    "                    --json FILE\n"
    "       PROGRAM ceilings --json FILE [--commit ID] [--dirty 0|1]\n"
    "       PROGRAM trust [--sizes MxNxK] [--trials N]\n"
    "       PROGRAM mutate [--sizes MxNxK,..] [--seed S]   (emulated device)\n"
    "       PROGRAM describe [--sizes SIZE,.. (what it chooses for these)] [--sms N (there)]\n"
    "SIZE: 4096, MxNxK, or with a kind, 4096x512x64/NT-bf16 (kind.h)\n"
    "exit codes: 0 right or measured, 1 wrong, 2 usage or unsupported, 3 CUDA or memory";

struct Options {
  std::string command;
  std::vector<Size> sizes;
  std::vector<std::string> regimes = {"burst", "sustained"};
  uint64_t seed = 1;
  int random = 0;  // check: so many random shapes
  int trials = 20;
  int sms = 0;     // describe: of the GPU for which it chooses, 0: this one
  std::string buffers = "guarded";
  std::vector<std::string> against = {"base", "cublas", "ceiling"};  // bench
  std::vector<std::string> skip;                                    // tune
  std::string json, commit = "unknown", dirty = "unknown";
  std::vector<std::string> benchmark_flags;  // passed on to Google Benchmark
};

/// Throws UsageError on an unknown command, flag or value, and on flags of Google Benchmark that
/// would change how is measured.
Options parse_options(const std::vector<std::string>& arguments);

}  // namespace harness
