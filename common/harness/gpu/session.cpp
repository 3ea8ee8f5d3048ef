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

/// A copy that `./ladder without` made: a part of the step is left out, its result means nothing.
bool leaves_something_out(const std::string& id) {
  return id.find("-without-") != std::string::npos;
}

/// Bytes of A, B and C of one set, each up to the next multiple of 1,024.
struct SetBytes {
  int64_t a, b, c;
};
SetBytes set_bytes(const Size& s) {
  const Problem p = make_problem(s);
  const auto of = [](const Storage& matrix) { return aligned(int64_t(matrix.bytes())); };
  return {of(storage_a(p)), of(storage_b(p)), of(storage_c(p))};
}

}  // namespace

int InputSets::count(const Size& s) {
  const Problem p = make_problem(s);
  const double wanted =
      (256 << 20) / (double(storage_a(p).bytes()) + double(storage_b(p).bytes()));
  return int(std::min(256.0, std::max(3.0, std::ceil(wanted))));  // tiny inputs: enough is enough
}

double InputSets::bytes(const Size& s) {
  const auto [a, b, c] = set_bytes(s);
  return double(count(s)) * (double(a) + double(b) + 2.0 * double(c));
}

InputSets::InputSets(const Size& s) {
  const auto [a, b, c] = set_bytes(s);
  const int n = count(s);
  inputs = std::make_unique<gpu::Buffer>(size_t(n * (a + b)), "inputs");
  outputs = std::make_unique<gpu::Buffer>(size_t(n * 2 * c), "outputs");
  fill(inputs->get(), n * (a + b) / 2, Inputs::normal, 99, s.K, s.kind.type_ab);
  gpu::fill(outputs->get(), 0xff, outputs->bytes());
  if (s.kind.bias) {
    const Storage row = storage(s.kind.type_c, Layout::row_major, 1, s.N, s.N, 1, 0);
    bias = std::make_unique<gpu::Buffer>(row.bytes(), "bias");
    fill_old(row, bias->get(), 1);  // compare_on_device, asked with seed 0, expects it
  }
  const void* row = bias ? bias->get() : nullptr;
  for (int i = 0; i < n; ++i) {
    char* in = inputs->get<char>() + i * (a + b);
    char* out = outputs->get<char>() + i * c;
    step.push_back(make_problem(s, in, in + a, out, row));
    other.push_back(make_problem(s, in, in + a, out + n * c, row));
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
  if (leaves_something_out(linked.id)) return;
  wrong_ = explain(operands.verdict(), size.M, size.N, size.kind.batch);
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

Session::Session(const Program& program, const Size& s, const Nvml& nvml,
                 const std::vector<std::string>& against)
    : size(s), flop(2.0 * double(s.M) * double(s.N) * double(s.K) * double(s.kind.batch)) {
  const auto has = [&](const char* what) {
    return std::find(against.begin(), against.end(), what) != against.end();
  };
  if (s.kind.beta != 0 || s.kind.off)  // C would grow from launch to launch
    throw UsageError(text(s) + ": timed are problems with beta = 0 and aligned pointers");
  stopwatch = std::make_unique<Stopwatch>(InputSets::count(size), nvml);
  const Step linked = find_step(program.step);
  check_timed_size(linked);
  if (!wrong_.empty() || first_seconds > longest_launch(Regime::burst)) return;

  const bool fp32 = program.unit == "ffma" && s.kind == Kind{} && has("cublas");
  double bytes = InputSets::bytes(size) + double(Baselines::kWorkspace) + (64 << 20);
  if (fp32) bytes += Baselines::fp32_bytes(make_problem(s.M, s.N, s.K), InputSets::count(size));
  require_memory(bytes, "to time " + text(size));
  sets = std::make_unique<InputSets>(size);
  gpu::synchronize();

  if (has("cublas")) {
    baselines = std::make_unique<Baselines>(stopwatch->stream(), sets->other);
    cublas_default = baselines->default_gemm();
    stopwatch->calibrate(cublas_default);
    if (!first_output_right(sets->other)) {
      printf("cublas_default is outside the bound for FP32 sums: told to add up in FP32\n");
      baselines->sum_in_fp32();
      cublas_default = baselines->default_gemm();
      stopwatch->calibrate(cublas_default);
      if (!first_output_right(sets->other)) throw gpu::Error("cublas_default is wrong");
    }
  }
  if (fp32) {
    cublas_fp32 = baselines->fp32_gemm();
    stopwatch->calibrate(cublas_fp32);
  }
  if (has("ceiling") && Ceiling::has(program.unit, gpu_info())) {
    ceiling = std::make_unique<Ceiling>(program.unit, stopwatch->stream());
    ceiling_contender = ceiling->contender();
    stopwatch->calibrate(ceiling_contender);
  }
  for (const Step& other : steps()) {
    if (!has("base") || program.base != other.id) continue;
    if (!other.supports(sets->other[0]).empty()) continue;
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
  if (leaves_something_out(step.name)) return "";
  const int sets_count = int(sets->step.size());
  // A graph ends with the last set; single launches stopped before `next_set`.
  const int last = step.graph ? sets_count - 1 : (step.next_set + sets_count - 1) % sets_count;
  const Verdict verdict =
      compare_on_device(sets->step[size_t(last)], Inputs::normal, Sum::fp64);
  const std::string found = explain(verdict, size.M, size.N, size.kind.batch);
  return found.empty() ? "" : "random normal, after the last timed block: " + found;
}

}  // namespace harness
