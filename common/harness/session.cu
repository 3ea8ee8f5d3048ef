#include "common/harness/session.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "common/harness/reference.h"
#include "common/harness/stats.h"

namespace harness {
namespace {

int64_t aligned(int64_t bytes) { return ceil_div(bytes, int64_t{1024}) * 1024; }

/// Is C of the first input set right, by the reference?
bool first_output_right(const std::vector<Problem>& problems) {
  gpu::synchronize();
  return compare_on_device(problems[0], Inputs::normal, Sum::fp64).right();
}

}  // namespace

int InputSets::count(const Size& s) {
  const double inputs = 2.0 * (double(s.M) * s.K + double(s.K) * s.N);
  const double wanted = (256 << 20) / inputs;
  return int(std::min(256.0, std::max(3.0, std::ceil(wanted))));  // tiny inputs: enough is enough
}

double InputSets::bytes(const Size& s) {
  return double(count(s)) * (double(aligned(s.M * s.K * 2)) + double(aligned(s.K * s.N * 2)) +
                             2.0 * double(aligned(s.M * s.N * 2)));
}

InputSets::InputSets(const Size& s) {
  const int64_t a = aligned(s.M * s.K * 2), b = aligned(s.K * s.N * 2), c = aligned(s.M * s.N * 2);
  const int n = count(s);
  inputs = std::make_unique<gpu::Buffer>(size_t(n * (a + b)), "inputs");
  outputs = std::make_unique<gpu::Buffer>(size_t(n * 2 * c), "outputs");
  fill(inputs->get<uint16_t>(), n * (a + b) / 2, Inputs::normal, 99, s.K);
  gpu::fill(outputs->get(), 0xff, outputs->bytes());
  for (int i = 0; i < n; ++i) {
    char* in = inputs->get<char>() + i * (a + b);
    char* out = outputs->get<char>() + i * c;
    step.push_back(make_problem(s.M, s.N, s.K, in, in + a, out));
    other.push_back(make_problem(s.M, s.N, s.K, in, in + a, out + n * c));
  }
}

void InputSets::poison(const std::vector<Problem>& problems, gpu::Stream stream) {
  gpu::fill_async(problems.at(0).C, 0xff, outputs->bytes() / 2, stream);  // they lie side by side
}

void Session::check_timed_size(const Step& linked) {
  const size_t guard = check_guard(size);
  require_memory(Operands::bytes(size, guard), "to check " + text(size));
  Operands operands(size, Inputs::integers, 3, guard);
  const Launch launch = linked.prepare(operands.problem);
  gpu::synchronize();  // the stopwatch's stream does not wait for the default stream
  Contender once;
  once.launch = [&](int, gpu::Stream stream) { launch(stream); };
  once.seconds = 1;  // a block of one launch
  first_seconds = stopwatch->glance(once, 0, 0, 0);
  wrong_ = explain(operands.verdict(), size.M, size.N);
  if (!wrong_.empty()) wrong_ = "integers: " + wrong_;
}

Contender Session::step_contender(const Step& linked, const std::vector<Problem>& problems) {
  std::vector<Launch> launches;
  std::vector<double> microseconds;
  for (const Problem& problem : problems) {
    const auto start = std::chrono::steady_clock::now();
    launches.push_back(linked.prepare(problem));
    const std::chrono::duration<double, std::micro> took =
        std::chrono::steady_clock::now() - start;
    microseconds.push_back(took.count());
  }
  gpu::synchronize();  // what `prepare` filled is there before the other stream reads it
  prepare_us = median(microseconds);
  Contender contender;
  contender.name = linked.id;
  contender.flop = flop;
  contender.launch = [launches](int set, gpu::Stream stream) { launches[size_t(set)](stream); };
  stopwatch->calibrate(contender);
  return contender;
}

Session::Session(const Program& program, const Size& s, const Nvml& nvml)
    : size(s), flop(2.0 * double(s.M) * double(s.N) * double(s.K)) {
  stopwatch = std::make_unique<Stopwatch>(InputSets::count(size), nvml);
  const Step linked = find_step(program.step);
  check_timed_size(linked);
  if (!wrong_.empty() || first_seconds > longest_launch(Regime::burst)) return;

  const bool fp32 = program.unit == "ffma";
  double bytes = InputSets::bytes(size) + double(Baselines::kWorkspace) + (64 << 20);
  if (fp32) bytes += Baselines::fp32_bytes(make_problem(s.M, s.N, s.K), InputSets::count(size));
  require_memory(bytes, "to time " + text(size));
  sets = std::make_unique<InputSets>(size);
  gpu::synchronize();

  baselines = std::make_unique<Baselines>(stopwatch->stream(), sets->other);
  cublas_default = baselines->default_gemm();
  stopwatch->calibrate(cublas_default);
  if (!first_output_right(sets->other)) throw gpu::Error("cublas_default is wrong");
  if (fp32) {
    cublas_fp32 = baselines->fp32_gemm();
    stopwatch->calibrate(cublas_fp32);
  }
  if (Ceiling::has(program.unit, gpu_info())) {
    ceiling = std::make_unique<Ceiling>(program.unit, stopwatch->stream());
    ceiling_contender = ceiling->contender();
    stopwatch->calibrate(ceiling_contender);
  }
  for (const Step& other : steps()) {
    if (program.base != other.id || !other.supports(sets->other[0]).empty()) continue;
    sets->poison(sets->other, stopwatch->stream());
    base = step_contender(other, sets->other);
    if (!first_output_right(sets->other)) {
      printf("left out: the base %s, it is wrong\n", other.id);
      base = {};
    }
  }
  step = step_contender(linked, sets->step);  // last: prepare_us is the step's
}

std::string Session::check_last_output() {
  gpu::synchronize();
  const int sets_count = int(sets->step.size());
  // A graph ends with the last set; single launches stopped before `next_set`.
  const int last = step.graph ? sets_count - 1 : (step.next_set + sets_count - 1) % sets_count;
  const Verdict verdict =
      compare_on_device(sets->step[size_t(last)], Inputs::normal, Sum::fp64);
  const std::string found = explain(verdict, size.M, size.N);
  return found.empty() ? "" : "random normal, after the last timed block: " + found;
}

}  // namespace harness
