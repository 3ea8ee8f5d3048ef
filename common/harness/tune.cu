// `tune`: which of a step's candidates is the fastest for a problem on this GPU? Each must compute
// the right product before it is timed.
#include <cstdio>
#include <cstdlib>

#include "common/harness/check.h"
#include "common/harness/session.h"

namespace harness {
namespace {

/// Tells a step what to do, for as long as this lives.
struct Told {
  static constexpr char kVariable[] = "LADDER_GEMM_CONFIG";
  explicit Told(const std::string& config) { setenv(kVariable, config.c_str(), 1); }
  ~Told() { unsetenv(kVariable); }
};

__global__ void count_different(const uint16_t* a, const uint16_t* b, int64_t count,
                                unsigned long long* different) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    if (a[i] != b[i]) atomicAdd(different, 1ull);
}

/// Integers have one right answer, so that only the first must be compared with the reference, and
/// the others with it: at 16384 that is the difference between seconds and milliseconds.
class Judge {
 public:
  explicit Judge(const Size& size)
      : size_(size), operands_(size, Inputs::integers, 3, check_guard(size)),
        answer_(operands_.C.storage().bytes(), "right answer") {}

  /// "" if what `step` computes is right.
  std::string judge(const Step& step) {
    operands_.reset();
    const Launch launch = step.prepare(operands_.problem);
    launch(gpu::Stream{});
    gpu::synchronize();
    const size_t bytes = answer_.bytes();
    if (!known_) {
      const Verdict verdict = operands_.verdict();
      if (!verdict.right()) return explain(verdict, size_.M, size_.N, size_.kind.batch);
      GPU_CHECK(cudaMemcpy(answer_.get(), operands_.C.raw(), bytes, cudaMemcpyDeviceToDevice));
      known_ = true;
      return "";
    }
    const auto different = take_buffer(sizeof(unsigned long long), "count");
    gpu::fill(different->get(), 0, sizeof(unsigned long long));
    gpu::launch(nullptr, {dim3(unsigned(gpu::num_sms() * 8)), dim3(256)}, count_different,
                operands_.C.data(), answer_.get<uint16_t>(), int64_t(bytes / 2),
                different->get<unsigned long long>());
    unsigned long long count = 0;
    gpu::copy_to_host(&count, different->get(), sizeof count);
    if (count) return std::to_string(count) + " elements differ from the right answer";
    return operands_.C.damage();
  }

 private:
  Size size_;
  Operands operands_;
  gpu::Buffer answer_;
  bool known_ = false;
};

/// One JSON row per candidate, fastest first.
std::string tune_size(const Step& step, const Size& size, Regime regime, const Nvml& nvml,
                      const std::vector<std::string>& skipped) {
  const std::vector<std::string> candidates = step.candidates(make_problem(size));
  if (candidates.empty()) throw gpu::Error("no candidate for " + text(size));
  require_memory(InputSets::bytes(size) + 2 * Operands::bytes(size, check_guard(size)) + (64 << 20),
                 "to tune " + text(size));
  Judge judge(size);
  InputSets sets(size);
  Stopwatch stopwatch(int(sets.step.size()), nvml);
  std::vector<Contender> contenders;
  for (const std::string& config : candidates) {
    if (std::find(skipped.begin(), skipped.end(), config) != skipped.end()) continue;
    printf("trying %s %s\n", text(size).c_str(), config.c_str());  // if it hangs, this is known
    fflush(stdout);
    const Told told(config);
    std::string wrong;
    try {
      wrong = step.supports(make_problem(size));
      if (wrong.empty()) wrong = judge.judge(step);
    } catch (const gpu::Error& e) {
      wrong = e.what();
      gpu::synchronize();  // throws again if the device is lost
    }
    if (!wrong.empty()) {
      printf("rejected %s %s: %s\n", text(size).c_str(), config.c_str(), wrong.c_str());
      continue;
    }
    std::vector<Launch> launches;
    for (const Problem& problem : sets.step) launches.push_back(step.prepare(problem));
    gpu::synchronize();  // what `prepare` filled is there before the other stream reads it
    Contender contender;
    contender.name = config;
    contender.launch = [launches](int set, gpu::Stream stream) { launches[size_t(set)](stream); };
    stopwatch.calibrate(contender);
    contenders.push_back(contender);
  }
  if (contenders.empty()) throw gpu::Error("no candidate for " + text(size) + " is right");
  std::string rows;
  for (const auto& [which, seconds] : rank(stopwatch, regime, contenders))
    rows += std::string(rows.empty() ? "" : ",\n") + "    {\"name\": " + quoted(text(size)) +
            ", \"config\": " + quoted(contenders[which].name) +
            ", \"us\": " + fixed(seconds * 1e6, 3) +
            ", \"built_in\": " + (contenders[which].name == candidates[0] ? "1" : "0") + "}";
  return rows;
}

}  // namespace

int tune_command(const Program& program, const Options& options) {
  const OutputFile file(options.json);
  const Step step = find_step(program.step);
  if (!step.candidates) throw UsageError(program.step + " has nothing to choose among");
  const Regime regime = options.regimes[0] == "sustained" ? Regime::sustained : Regime::burst;
  for (const Size& size : options.sizes) require_support(step, size);
  require_device(program);
  const GpuInfo gpu = gpu_info();
  const Nvml nvml(gpu.pci);
  unsetenv("LADDER_GEMM_TUNED");  // or the built-in choice would be an earlier tuned one
  std::string rows;
  for (const Size& size : options.sizes)
    rows += (rows.empty() ? "" : ",\n") +
            at(size, [&] { return tune_size(step, size, regime, nvml, options.skip); });
  file.commit("{\n  \"context\": {\"step\": " + quoted(program.step) + ", \"device\": " +
              describe_device() + "},\n  \"benchmarks\": [\n" + rows + "\n  ]\n}\n");
  return 0;
}

}  // namespace harness
