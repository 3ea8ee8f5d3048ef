#include "common/harness/report.h"

#include <benchmark/benchmark.h>

#include <iostream>
#include <memory>
#include <sstream>

#include "common/harness/baselines.h"

namespace harness {
namespace {

/// Passes runs on under clean names, without "/iterations:1/repeats:5/manual_time", to a reporter
/// for a person (or none) and to one for a file.
class CleanNames : public benchmark::BenchmarkReporter {
 public:
  CleanNames(std::unique_ptr<BenchmarkReporter> screen, std::ostream* json)
      : screen_(std::move(screen)), json_(json ? new benchmark::JSONReporter : nullptr) {
    if (json_) json_->SetOutputStream(json);
  }
  bool ReportContext(const Context& context) override {
    if (json_) json_->ReportContext(context);
    if (screen_) {
      screen_->SetOutputStream(&GetOutputStream());
      screen_->SetErrorStream(&GetErrorStream());
      return screen_->ReportContext(context);
    }
    return true;
  }
  void ReportRuns(const std::vector<Run>& runs) override {
    std::vector<Run> clean = runs;
    for (Run& run : clean) {
      run.run_name.iterations.clear();
      run.run_name.repetitions.clear();
      run.run_name.time_type.clear();
    }
    if (json_) json_->ReportRuns(clean);
    if (screen_) screen_->ReportRuns(clean);
  }
  void Finalize() override {
    if (json_) json_->Finalize();
    if (screen_) screen_->Finalize();
  }

 private:
  std::unique_ptr<BenchmarkReporter> screen_, json_;
};

/// The reporter for "console", "json" or "csv"; none for "".
std::unique_ptr<benchmark::BenchmarkReporter> reporter(const std::string& format) {
  if (format.empty()) return nullptr;
  if (format == "json") return std::make_unique<benchmark::JSONReporter>();
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // newer releases plan to drop it
  if (format == "csv") return std::make_unique<benchmark::CSVReporter>();
#pragma GCC diagnostic pop
  return std::make_unique<benchmark::ConsoleReporter>(benchmark::ConsoleReporter::OO_Tabular);
}

std::string flag_value(const Options& options, const std::string& name) {
  for (const std::string& flag : options.benchmark_flags)
    if (flag.rfind(name + "=", 0) == 0) return flag.substr(name.size() + 1);
  return "";
}

}  // namespace

Context make_context(const Options& options, const GpuInfo& gpu, const Nvml& nvml) {
  const double limit = nvml.power_limit();
  return {{"gpu", gpu.name},
          {"sm", std::to_string(gpu.sm)},
          {"sms", std::to_string(gpu.sms)},
          {"peak_tflops", fixed(peak_tflops(gpu), 1)},
          {"driver", nvml.driver()},
          {"cuda", gpu.cuda},
          {"cublas", Baselines::version()},
          {"power_limit_w", limit < 0 ? "unknown" : fixed(limit, 0)},
          {"commit", options.commit},
          {"dirty", options.dirty},
          {"method", std::to_string(kMethod)}};
}

void refuse_debug_build() {
#if defined(LADDER_DEBUG_BUILD)
  throw UsageError("this is a Debug build, which is never timed; build with "
                   "-DCMAKE_BUILD_TYPE=Release");
#endif
}

void write_report(const std::vector<Row>& rows, const Context& context, const Options& options,
                  const OutputFile& file) {
  if (rows.empty()) {  // all was left out; the library would call that an error
    std::string text;
    for (const auto& [key, value] : context)
      text += (text.empty() ? "" : ", ") + quoted(key) + ": " + quoted(value);
    return file.commit("{\"context\": {" + text + "}, \"benchmarks\": []}\n");
  }
  std::vector<std::string> flags = {"harness"};
  flags.insert(flags.end(), options.benchmark_flags.begin(), options.benchmark_flags.end());
  std::vector<char*> argv;
  for (std::string& flag : flags) argv.push_back(&flag[0]);
  int argc = int(argv.size());
  argv.push_back(nullptr);
  benchmark::Initialize(&argc, argv.data());
  for (const auto& [key, value] : context) benchmark::AddCustomContext(key, value);
  for (const Row& row : rows)
    benchmark::RegisterBenchmark(row.name.c_str(),
                                 [&row, round = size_t{0}](benchmark::State& state) mutable {
                                   const size_t i = round++ % row.seconds.size();
                                   for (auto _ : state) state.SetIterationTime(row.seconds[i]);
                                   for (const auto& [name, value] : row.counters[i])
                                     state.counters[name] = value;
                                 })
        ->UseManualTime()
        ->Iterations(1)
        ->Repetitions(int(row.seconds.size()))
        ->Unit(benchmark::kMicrosecond);
  std::ostringstream json;
  const std::string out = flag_value(options, "--benchmark_out");
  // A person sees the table only on request: the front door draws its own.
  const std::string format = flag_value(options, "--benchmark_format");
  const bool show = !options.benchmark_flags.empty();
  CleanNames screen(reporter(!show ? "" : format.empty() ? "console" : format), &json);
  if (out.empty()) {
    benchmark::RunSpecifiedBenchmarks(&screen);
  } else {  // the library opens the file, and takes a reporter for it only then
    const std::string kind = flag_value(options, "--benchmark_out_format");
    CleanNames second(reporter(kind.empty() ? "json" : kind), nullptr);
    benchmark::RunSpecifiedBenchmarks(&screen, &second);
  }
  benchmark::Shutdown();
  if (json.str().empty()) throw UsageError("--benchmark_filter matches none of the rows");
  file.commit(json.str());
}

}  // namespace harness
