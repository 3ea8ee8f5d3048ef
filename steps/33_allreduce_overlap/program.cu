// 33_allreduce_overlap: gradients are summed over the GPUs while the backward pass still computes.
// arch: 90a
// uses: 20_two_consumers, 21_persistent
// needs: nccl
// main: own
// A training iteration (forward, backward, sum, update) on every GPU, one process each. Started
// alone it starts a process per GPU; under mpirun or torchrun it is one of them.
#include <unistd.h>

#include <array>
#include <optional>

#include "common/harness/stats.h"
#include "steps/33_allreduce_overlap/training.h"

namespace {

constexpr int64_t MIB = (1 << 20) / sizeof(half);  // elements
constexpr int64_t BUCKET = 64 * MIB;               // half a layer
constexpr std::array<int, 4> CTAS = {4, 8, 16, 32};  // that the communication may be given
constexpr const char* PERSISTENT = "21_persistent";
constexpr const char* BY_TILE = "20_two_consumers";  // a CTA for each tile

/// What outlives a workload: the ranks, a communicator for each number of CTAs, two streams. Those
/// of a given number have no clusters, but for one to compare with.
struct World {
  harness::RankInfo info;
  harness::Ranks& ranks;
  std::map<int, std::unique_ptr<Communicator>> communicators;  // by CTAs, 0: NCCL's choice
  std::unique_ptr<Communicator> in_clusters;
  gpu::Stream urgent = nullptr, ordinary = nullptr;
  bool swept = false;  // the variants that take one thing away are measured at one workload

  World(const harness::RankInfo& who, harness::Ranks& all) : info(who), ranks(all) {
    communicators[0] = std::make_unique<Communicator>(ranks, info, 0, true);
    for (int ctas : CTAS)
      communicators[ctas] = std::make_unique<Communicator>(ranks, info, ctas, false);
    in_clusters = std::make_unique<Communicator>(ranks, info, 16, true);
    int least, greatest;
    GPU_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    GPU_CHECK(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, greatest));
    GPU_CHECK(cudaStreamCreateWithPriority(&ordinary, cudaStreamNonBlocking, least));
    ranks.watch([this] {
      for (const auto& [ctas, communicator] : communicators)
        if (std::string why = communicator->trouble(); !why.empty()) return why;
      return in_clusters->trouble();
    });
  }
};

/// One workload: memory, kernels, and what the last iterations were.
class Experiment {
 public:
  Experiment(World& world, int tokens)
      : world_(world), training_(tokens, world.info.rank),
        all_sms_(training_.gemms(PERSISTENT, 0)), by_tile_(training_.gemms(BY_TILE, 0)),
        kept_grads_(TOTAL_SIZE * sizeof(half)), kept_weights_(TOTAL_SIZE * sizeof(half)),
        magnitudes_(world.info.size > 2 ? TOTAL_SIZE * sizeof(half) : 0) {
    for (int ctas : CTAS) spared_[ctas] = training_.gemms(PERSISTENT, ctas);
    prove();
    none_seconds_ = time(none());
    sum_seconds_ = time(std::nullopt);
  }

  double share() const { return sum_seconds_ / none_seconds_; }

  std::vector<harness::Variant> variants() {
    std::vector<harness::Variant> made;
    const auto add = [&](const std::string& name, const Plan& plan, bool drawn = false) {
      made.push_back(variant(name, plan));
      made.back().drawn = drawn;
    };
    add("none", none(), true);
    Plan naive = overlapped(0);
    naive.bucket = LAYER_SIZE, naive.stream = world_.ordinary;
    add("naive", naive, true);
    const Plan best = fastest();
    const int ctas = best.communicator->ctas();
    add("bucketed", best, true);
    // What one would have without any communication, and the communication alone.
    made.push_back(variant("only_compute", Plan{false, 0, nullptr, nullptr, &all_sms_}));
    made.back().checked = false;
    harness::Variant sum = made.back();
    sum.name = "only_sum";
    sum.run = [this](const harness::Run& run) { sum_alone(run.stream); };
    made.push_back(sum);
    if (world_.swept || share() < 0.2 || share() > 0.4) return made;
    world_.swept = true;
    for (int64_t mib : {2, 8, 32, 128, 256, 512}) {
      Plan plan = best;
      plan.bucket = mib * MIB;
      add("bucket" + std::to_string(mib) + "m", plan);
    }
    for (int other : CTAS)
      if (other != ctas) add("ctas" + std::to_string(other), overlapped(other));
    Plan plan = overlapped(16);
    plan.communicator = world_.in_clusters.get();
    add("ctas16_clusters", plan);
    plan = best;
    plan.stream = world_.ordinary;
    add("no_priority", plan);
    plan = best, plan.backward = &all_sms_;
    add("no_spare_sms", plan);
    plan.backward = &by_tile_;
    add("by_tile", plan);
    plan.backward = &all_sms_;
    plan.communicator = world_.communicators.at(0).get();
    add("no_limit", plan);
    plan.backward = &by_tile_;
    add("no_limit_by_tile", plan);
    return made;
  }

  void reset() {
    training_.reset();
    stale_ = false;
  }

  /// The same number of iterations again from the same weights, one thing after another with the
  /// host in between: gradients and weights must come out the same.
  std::string check() {
    const bool exact = world_.info.size <= 2;  // the sum of two has no order
    if (!exact) {
      reset();
      iterate(*last_);
    }
    const int iterations = training_.iterations();
    keep();
    reset();
    for (int i = 0; i < iterations; ++i) iterate(none());
    stale_ = true;
    // n - 1 roundings to FP16, each of at most half an ulp of what has been summed.
    const float bound = float(world_.info.size - 1) / 1024;
    const half* magnitudes = exact ? nullptr : magnitudes_.get<half>();
    unsigned long long wrong = differ(kept_grads_.get<half>(), training_.grads(), magnitudes, bound,
                                      TOTAL_SIZE);
    if (wrong) return told(wrong, TOTAL_SIZE, "gradients", iterations);
    for (int l = 0; exact && l < LAYERS; ++l) {
      wrong = differ(kept_weights_.get<half>() + l * LAYER_SIZE, training_.weights(l), nullptr, 0,
                     LAYER_SIZE);
      if (wrong)
        return told(wrong, LAYER_SIZE, "weights of layer " + std::to_string(l), iterations);
    }
    return "";
  }

 private:
  Plan none() const {
    return {false, TOTAL_SIZE, world_.communicators.at(0).get(), nullptr, &all_sms_};
  }
  /// Communication with so many CTAs, and GEMMs that leave it as many SMs.
  Plan overlapped(int ctas) const {
    return {true, BUCKET, world_.communicators.at(ctas).get(), world_.urgent,
            ctas > 0 ? &spared_.at(ctas) : &all_sms_};
  }

  Plan fastest() {
    Plan best;
    double least = 1e9;
    for (int ctas : CTAS) {
      const Plan plan = overlapped(ctas);
      if (const double seconds = time(plan); seconds < least) least = seconds, best = plan;
    }
    return best;
  }

  harness::Variant variant(const std::string& name, const Plan& plan) {
    harness::Variant made;
    made.name = name;
    made.run = [this, plan](const harness::Run& run) { iterate(run, plan); };
    made.measured = [this] {  // after each block; what it left is still to be checked
      stale_ = true;
      return harness::Counters{};
    };
    made.counters = {{"ranks", double(world_.info.size)},
                     {"sum_mib", double(TOTAL_SIZE / MIB)},
                     {"sum_pct_of_none", 100 * share()}};
    if (plan.communicator) {
      made.counters["bucket_mib"] = double(plan.bucket) / MIB;
      made.counters["ctas"] = plan.communicator->ctas();
      made.counters["spared_sms"] = plan.backward == &all_sms_ || plan.backward == &by_tile_
                                        ? 0 : plan.communicator->ctas();
    }
    return made;
  }

  void iterate(const harness::Run& run, const Plan& plan) {
    if (stale_) reset();  // weights may not wander off over thousands of iterations
    last_ = plan;
    training_.iterate(run, plan, all_sms_, world_.info.size);
  }
  void iterate(const Plan& plan) {
    training_.iterate({0, harness::main_stream(), nullptr}, plan, all_sms_, world_.info.size);
    gpu::synchronize();
  }

  void sum_alone(gpu::Stream stream) const {
    world_.communicators.at(0)->sum(training_.grads(), size_t(TOTAL_SIZE), stream);
  }

  /// Seconds of an iteration, or of the sum alone: the median of seven, the slowest rank's.
  double time(std::optional<Plan> plan) {
    std::vector<double> seconds;
    for (int i = 0; i < 8; ++i) {
      gpu::synchronize();
      world_.ranks.barrier();
      const double start = harness::Timeline::now();
      if (plan) iterate(*plan);
      else sum_alone(harness::main_stream());
      gpu::synchronize();
      seconds.push_back(world_.ranks.max(harness::Timeline::now() - start));
    }
    reset();
    return harness::median({seconds.begin() + 1, seconds.end()});
  }

  /// Forward, backward and the sum, each against sums made another way.
  void prove() {
    const gpu::Stream stream = harness::main_stream();
    training_.own_gradients(all_sms_, stream);
    gpu::synchronize();
    std::string wrong = training_.spot_check();
    std::vector<double> own, magnitude, total;
    const auto sample = [&](int i) {
      half value;
      gpu::copy_to_host(&value, training_.grads() + i * (TOTAL_SIZE / 64) + i * 37, sizeof(half));
      return double(__half2float(value));
    };
    for (int i = 0; i < 64; ++i) own.push_back(sample(i));
    for (double value : own) {
      total.push_back(world_.ranks.sum(value));
      magnitude.push_back(world_.ranks.sum(std::fabs(value)));
    }
    if (magnitudes_.bytes() > 1) {
      GPU_CHECK(cudaMemcpy(magnitudes_.get(), training_.grads(), magnitudes_.bytes(),
                           cudaMemcpyDeviceToDevice));
      magnitude_kernel<<<unsigned(ceil_div(TOTAL_SIZE, 256)), 256, 0, stream>>>(
          magnitudes_.get<half>(), TOTAL_SIZE);
      GPU_CHECK(cudaGetLastError());
      world_.communicators.at(0)->sum(magnitudes_.get<half>(), size_t(TOTAL_SIZE), stream);
    }
    sum_alone(stream);
    gpu::synchronize();
    int zeros = 0;  // of units that no token reaches: some there are
    for (int i = 0; i < 64 && wrong.empty(); ++i) {
      const double bound = world_.info.size * magnitude[size_t(i)] / 2048 + 1e-7;
      if (!(std::fabs(sample(i) - total[size_t(i)]) <= bound))
        wrong = "the sum over all ranks of an element is " + std::to_string(sample(i)) +
                ", should be " + std::to_string(total[size_t(i)]);
      zeros += magnitude[size_t(i)] == 0;
    }
    if (wrong.empty() && zeros > 56) wrong = std::to_string(zeros) + " of 64 gradients are zero";
    if (!wrong.empty()) throw gpu::Error("wrong: " + wrong);
    reset();
  }

  void keep() {
    const auto copy = [](half* to, const half* from, int64_t count) {
      GPU_CHECK(cudaMemcpy(to, from, size_t(count) * sizeof(half), cudaMemcpyDeviceToDevice));
    };
    copy(kept_grads_.get<half>(), training_.grads(), TOTAL_SIZE);
    for (int l = 0; l < LAYERS; ++l)
      copy(kept_weights_.get<half>() + l * LAYER_SIZE, training_.weights(l), LAYER_SIZE);
  }

  static unsigned long long differ(const half* a, const half* b, const half* scale, float relative,
                                   int64_t count) {
    const gpu::Buffer found(sizeof(unsigned long long));
    gpu::fill(found.get(), 0, found.bytes());
    differences_kernel<<<unsigned(ceil_div(count, 256)), 256>>>(
        a, b, scale, relative, count, found.get<unsigned long long>());
    GPU_CHECK(cudaGetLastError());
    unsigned long long wrong = 0;
    gpu::copy_to_host(&wrong, found.get(), sizeof(wrong));
    return wrong;
  }

  static std::string told(unsigned long long wrong, int64_t of, const std::string& what,
                          int iterations) {
    return std::to_string(wrong) + " of " + std::to_string(of) + " " + what + " differ after " +
           std::to_string(iterations) + " iterations from those without overlap";
  }

  World& world_;
  Training training_;
  Gemms all_sms_, by_tile_;
  std::map<int, Gemms> spared_;  // by SMs that are left to the communication
  gpu::Buffer kept_grads_, kept_weights_, magnitudes_;
  std::optional<Plan> last_;
  bool stale_ = false;  // the weights are those of an earlier block
  double none_seconds_ = 1, sum_seconds_ = 0;
};

harness::Setup make(World* world, int ranks, int tokens) {
  if (!world)
    throw harness::Skip("needs 2 GPUs or more, one process for each; here is " +
                        std::to_string(ranks));
  const double bytes = 3.0 * LAYERS * tokens * HIDDEN * sizeof(half) + 14.0 * TOTAL_SIZE;
  if (world->ranks.max(bytes > harness::free_memory()) > 0)  // on any of them
    throw harness::Skip("needs " + harness::bytes_text(bytes) + " of GPU memory");
  auto experiment = std::make_shared<Experiment>(*world, tokens);
  if (experiment->share() < 0.05 || experiment->share() > 0.6)
    throw harness::Skip("the communication is " + harness::fixed(100 * experiment->share(), 0) +
                        " % of an iteration, outside 5 to 60");
  harness::Setup setup;
  setup.keep = experiment;
  setup.variants = experiment->variants();
  setup.poison = [experiment] { experiment->reset(); };
  setup.check = [experiment](int) { return experiment->check(); };
  setup.flop = 2.0 * (3 * LAYERS - 1) * tokens * double(LAYER_SIZE);
  setup.block_seconds = 0.050;
  return setup;
}

std::vector<harness::Workload> workloads(World* world, int ranks) {
  std::vector<harness::Workload> made;
  for (int tokens : {1024, 2048, 4096, 8192, 16384})
    made.push_back({"gpus" + std::to_string(std::max(ranks, 2)) + "-tokens" +
                        std::to_string(tokens),
                    [=] { return make(world, ranks, tokens); }});
  return made;
}

/// What would be wrong on every rank is said once, before there are any.
void refuse_mistakes(const harness::Program& program, const std::vector<std::string>& arguments,
                     int gpus) {
  const harness::ExperimentOptions options = harness::parse_experiment_options(arguments);
  std::vector<std::string> names;
  for (const harness::Workload& w : workloads(nullptr, gpus)) names.push_back(w.name);
  harness::chosen(names, options.workloads, "workload");
  harness::require_device(program);
}

/// A rank of several.
int run_rank(const harness::Program& program, const std::vector<std::string>& arguments,
             const harness::RankInfo& info) {
  harness::Ranks ranks(program.step, info);
  int gpus = 0;
  GPU_CHECK(cudaGetDeviceCount(&gpus));
  if (gpus > 1 && info.local >= gpus)  // with one each, a launcher has dealt them out
    throw harness::UsageError("rank " + std::to_string(info.rank) + " would be number " +
                              std::to_string(info.local + 1) + " of this host, which has " +
                              std::to_string(gpus) + " GPUs");
  GPU_CHECK(cudaSetDevice(info.local % gpus));
  auto world = std::make_unique<World>(info, ranks);
  harness::Peers peers;
  peers.rank = info.rank, peers.size = info.size;
  peers.barrier = [&] { ranks.barrier(); };
  peers.max = [&](double value) { return ranks.max(value); };
  const int code = harness::experiment_main(
      program, arguments, [&] { return workloads(world.get(), info.size); }, peers);
  fflush(nullptr);
  if (code != 0) _exit(code);  // without a word to NCCL: the others may be gone
  ranks.leave();
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  const harness::Program program = LADDER_PROGRAM;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool works = argc > 1 && (arguments[0] == "check" || arguments[0] == "bench");
  // NVLink multicast (NVLS) stays off unless asked for: on hosts that share a switch with others it
  // is not ours to take.
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  std::string why;
  int code = 3;
  try {
    const harness::RankInfo info = harness::rank_info();
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess) gpus = 0;
    if (works && info.told && info.size > 1) return run_rank(program, arguments, info);
    if (works && !info.told && gpus > 1) {
      refuse_mistakes(program, arguments, gpus);
      return harness::launch_ranks(program.step, gpus, argv, 900);
    }
    return harness::experiment_main(program, arguments, [=] { return workloads(nullptr, gpus); });
  } catch (const harness::UsageError& e) {
    why = e.what(), code = 2;
  } catch (const std::exception& e) {
    why = e.what();
  }
  fprintf(stderr, "error: %s: %s\n", program.step.c_str(), why.c_str());
  fflush(nullptr);
  _exit(code);
}
