// `bench` and `ceilings`: from contenders to rows.
#include <chrono>
#include <cstdio>

#include "common/harness/check.h"
#include "common/harness/report.h"
#include "common/harness/session.h"
#include "common/harness/stats.h"

namespace harness {
namespace {

struct Timed {  // a contender's samples of one regime
  Contender* contender;
  std::vector<double> seconds;
};

double tflops(const Contender& c, double seconds) { return c.flop / seconds * 1e-12; }

void add_nvml(std::map<std::string, double>& counters, const Contender& contender) {
  const Sampler::Window& seen = contender.seen;
  const auto mean = [&](const char* name, double sum) {
    if (seen.count > 0 && sum >= 0) counters[name] = sum / seen.count;
  };
  mean("sm_clock_nvml_mhz", seen.sum.sm_mhz);
  mean("power_w", seen.sum.power_w);
  mean("gpu_util_nvml_pct", seen.sum.gpu_pct);
  mean("memory_util_nvml_pct", seen.sum.memory_pct);
}

/// One regime of one size: rounds, then the row of the step. `left_out` gets a line per contender
/// that is too slow for the regime.
void measure_regime(const Program& program, Session& s, Regime regime, double peak,
                    std::vector<Row>& rows, std::vector<std::string>& left_out) {
  const std::string where = text(s.size) + "/" + name(regime);
  const auto fits = [&](const Contender& c) {
    if (!c.launch) return false;
    if (c.seconds <= longest_launch(regime)) return true;
    left_out.push_back(where + ": " + c.name + ", one launch takes " + fixed(c.seconds * 1e3, 0) +
                       " ms, the limit is " + fixed(longest_launch(regime) * 1e3, 0));
    printf("left out: %s\n", left_out.back().c_str());
    return false;
  };
  if (!fits(s.step)) return;
  const auto start = std::chrono::steady_clock::now();
  Contender best;
  if (s.baselines) best = s.baselines->best_gemm(*s.stopwatch, regime);
  const std::chrono::duration<double> chosen_in = std::chrono::steady_clock::now() - start;
  if (regime == Regime::sustained)  // the choice, too, was under load
    s.stopwatch->load(s.baselines ? s.cublas_default : s.step, kSustainedLoad - chosen_in.count());
  best.flop = s.cublas_default.flop = s.cublas_fp32.flop = s.flop;
  std::vector<Contender*> contenders = {&s.step};
  for (Contender* c : {&s.base, &s.cublas_default, &best, &s.cublas_fp32, &s.ceiling_contender})
    if (fits(*c)) contenders.push_back(c);
  const auto samples = run_rounds(*s.stopwatch, regime, contenders, [&] {
    s.sets->poison(s.sets->step, s.stopwatch->stream());
  });
  const auto of = [&](const Contender& c) -> const std::vector<double>* {
    for (size_t i = 0; i < contenders.size(); ++i)
      if (contenders[i] == &c) return &samples[i];
    return nullptr;
  };
  const std::vector<double>& ours = samples[0];
  Row row{program.step + "/" + where, ours, {}};
  const double noise = regime == Regime::burst ? kNoiseBurst : kNoiseSustained;
  for (size_t round = 0; round < ours.size(); ++round) {
    std::map<std::string, double> counters;
    counters["tflops"] = tflops(s.step, ours[round]);
    counters["pct_peak"] = 100 * tflops(s.step, ours[round]) / peak;
    counters["prepare_us"] = s.prepare_us;
    const auto compare = [&](const Contender& c, const char* ratio, const char* rate) {
      const std::vector<double>* theirs = of(c);
      if (!theirs) return;
      if (ratio) counters[ratio] = (*theirs)[round] / ours[round];
      if (rate) counters[rate] = tflops(c, (*theirs)[round]);
    };
    compare(s.base, "vs_previous", nullptr);
    compare(s.cublas_default, "vs_cublas_default", "cublas_default_tflops");
    compare(best, "vs_cublas_best", "cublas_best_tflops");
    compare(s.cublas_fp32, "vs_cublas_fp32", "cublas_fp32_tflops");
    compare(s.ceiling_contender, nullptr, "ceiling_tflops");
    if (const auto* theirs = of(s.ceiling_contender))
      counters["pct_ceiling"] = 100 * tflops(s.step, ours[round]) /
                                tflops(s.ceiling_contender, (*theirs)[round]);
    if (const auto* theirs = of(s.base))
      counters["verdict_previous"] = decide(speedups(*theirs, ours), noise);
    add_nvml(counters, s.step);
    row.counters.push_back(counters);
  }
  rows.push_back(row);
  printf("%s %s %.3f ms %.1f TFLOPS\n", program.step.c_str(), where.c_str(), median(ours) * 1e3,
         tflops(s.step, median(ours)));
  fflush(stdout);
}

bool has_regime(const Options& options, const char* regime) {
  for (const std::string& wanted : options.regimes)
    if (wanted == regime) return true;
  return false;
}

/// All regimes of one size. "", or what was wrong: then nothing more is timed.
std::string bench_size(const Program& program, const Options& options, const Size& size,
                       const Nvml& nvml, std::vector<Row>& rows,
                       std::vector<std::string>& left_out) {
  Session session(program, size, nvml, options.against);
  std::string wrong = session.wrong();
  if (!wrong.empty()) return wrong;
  printf("%s %s checked\n", program.step.c_str(), text(size).c_str());
  fflush(stdout);
  if (!session.step.launch) {
    left_out.push_back(text(size) + ": one launch takes " + fixed(session.first_seconds * 1e3, 0) +
                       " ms");
    printf("left out: %s\n", left_out.back().c_str());
    return "";
  }
  for (const Regime regime : {Regime::burst, Regime::sustained}) {
    if (!has_regime(options, name(regime)) || !wrong.empty()) continue;
    const size_t before = rows.size();
    measure_regime(program, session, regime, peak_tflops(gpu_info()), rows, left_out);
    if (rows.size() > before) wrong = session.check_last_output();
  }
  return wrong;
}

}  // namespace

int bench_command(const Program& program, const Options& options) {
  refuse_debug_build();
  const OutputFile file(options.json);
  const Step step = find_step(program.step);
  for (const Size& size : options.sizes) require_support(step, size);
  require_device(program);
  const GpuInfo gpu = gpu_info();
  const Nvml nvml(gpu.pci);
  Context context = make_context(options, gpu, nvml);
  std::vector<Row> rows;
  std::vector<std::string> left_out;
  for (const Size& size : options.sizes) {
    const std::string wrong =
        at(size, [&] { return bench_size(program, options, size, nvml, rows, left_out); });
    if (!wrong.empty()) {
      fprintf(stderr, "error: %s: wrong at %s, %s\n", step.id, text(size).c_str(), wrong.c_str());
      return 1;
    }
  }
  if (!left_out.empty()) context.emplace_back("left_out", joined(left_out, "; "));
  write_report(rows, context, options, file);
  return 0;
}

int ceilings_command(const Program&, const Options& options) {
  refuse_debug_build();
  const OutputFile file(options.json);
  const GpuInfo gpu = gpu_info();
  require_device({"the set of ceilings", "", "75+", ""});
  const Nvml nvml(gpu.pci);
  Stopwatch stopwatch(1, nvml);
  std::vector<Row> rows;
  for (const Regime regime : {Regime::burst, Regime::sustained}) {
    if (!has_regime(options, name(regime))) continue;
    for (const char* unit :
         {"ffma", "mma_sync", "wgmma", "smem", "l2", "l2_tma", "l2_tiles", "hbm"}) {
      if (!Ceiling::has(unit, gpu)) continue;
      const Ceiling ceiling(unit, stopwatch.stream());
      Contender contender = ceiling.contender();
      stopwatch.calibrate(contender);
      if (regime == Regime::sustained) stopwatch.load(contender, 0.5);
      const auto seconds = run_rounds(stopwatch, regime, {&contender})[0];
      Row row{contender.name + "/" + name(regime), seconds, {}};
      for (double t : seconds) {
        std::map<std::string, double> counters;
        if (contender.flop > 0) {
          counters["tflops"] = tflops(contender, t);
          counters["pct_peak"] = 100 * tflops(contender, t) / peak_tflops(gpu);
        } else {
          counters["bytes_per_second"] = contender.bytes / t;
        }
        add_nvml(counters, contender);
        row.counters.push_back(counters);
      }
      rows.push_back(row);
      const double t = median(seconds);
      if (contender.flop > 0)
        printf("%s %.1f TFLOPS\n", row.name.c_str(), tflops(contender, t));
      else
        printf("%s %.2f TB/s\n", row.name.c_str(), contender.bytes / t * 1e-12);
      fflush(stdout);
    }
  }
  write_report(rows, make_context(options, gpu, nvml), options, file);
  return 0;
}

}  // namespace harness
