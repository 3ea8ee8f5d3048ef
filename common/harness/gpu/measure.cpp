#include "common/harness/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>

namespace harness {
namespace {

constexpr double kIdle = 0.080, kBurstWarmUp = 0.010, kBurst = 0.012;
constexpr double kSustainedWarmUp = 0.030, kSustained = 0.120;
constexpr double kGraphBelow = 50e-6, kGraphLength = 1e-3;

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace

Stopwatch::Stopwatch(int sets, const Nvml& nvml, gpu::Stream stream)
    : stream_(stream), owns_stream_(!stream), sets_(sets), sampler_(nvml) {
  if (owns_stream_) GPU_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  GPU_CHECK(cudaEventCreate(&start_));
  GPU_CHECK(cudaEventCreate(&end_));
}

Stopwatch::~Stopwatch() {
  cudaEventDestroy(start_);
  cudaEventDestroy(end_);
  if (owns_stream_) cudaStreamDestroy(stream_);
}

int Stopwatch::enqueue(Contender& c, double seconds) {
  const auto rounds_of = [&](double launch) { return std::max(1, int(seconds / launch + 0.5)); };
  if (c.graph) {
    const int graphs = rounds_of(c.seconds * c.graph_launches);
    for (int i = 0; i < graphs; ++i) GPU_CHECK(cudaGraphLaunch(c.graph.get(), stream_));
    return graphs * c.graph_launches;
  }
  const int launches = rounds_of(c.seconds);
  for (int i = 0; i < launches; ++i) {
    c.launch(c.next_set, stream_);
    c.next_set = (c.next_set + 1) % sets_;
  }
  return launches;
}

double Stopwatch::glance(Contender& c, double rest, double warm_up, double timed) {
  if (rest > 0) {
    GPU_CHECK(cudaStreamSynchronize(stream_));
    sleep_for(rest);
  }
  if (warm_up > 0) enqueue(c, warm_up);
  GPU_CHECK(cudaEventRecord(start_, stream_));
  const int launches = enqueue(c, timed);
  if (c.extra) c.extra(launches, stream_);
  GPU_CHECK(cudaEventRecord(end_, stream_));
  GPU_CHECK(cudaEventSynchronize(start_));
  sampler_.open(&c.seen);
  const cudaError_t status = cudaEventSynchronize(end_);
  sampler_.close();
  gpu::check(status, "cudaEventSynchronize");
  float milliseconds;
  GPU_CHECK(cudaEventElapsedTime(&milliseconds, start_, end_));
  return milliseconds * 1e-3 / launches;
}

double Stopwatch::block(Regime regime, Contender& c) {
  if (regime == Regime::sustained) return glance(c, 0, kSustainedWarmUp, kSustained);
  return glance(c, kIdle, std::min(kBurstWarmUp, 3 * c.seconds), kBurst);
}

void Stopwatch::calibrate(Contender& c) {
  c.graph = nullptr;
  c.seconds = 1;  // so that every block is one launch
  c.seconds = glance(c, 0, 0, 0);
  // The first launch may have loaded code, or met a busy host: what follows is timed again, twice.
  for (int i = 0; i < 2; ++i) c.seconds = std::min(c.seconds, glance(c, 0, 0, 0.004));
  if (c.seconds < kGraphBelow) {
    const int rounds = std::max(1, int(std::ceil(kGraphLength / (c.seconds * sets_))));
    cudaGraph_t graph;
    GPU_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < rounds * sets_; ++i) c.launch(i % sets_, stream_);
    GPU_CHECK(cudaStreamEndCapture(stream_, &graph));
    cudaGraphExec_t executable;
    const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    gpu::check(status, "cudaGraphInstantiate");
    c.graph = std::shared_ptr<CUgraphExec_st>(executable, cudaGraphExecDestroy);
    c.graph_launches = rounds * sets_;
    for (int i = 0; i < 2; ++i) c.seconds = glance(c, 0, 0, 0.004);
  }
  c.seen = {};
}

void Stopwatch::load(Contender& c, double seconds) {
  const auto now = std::chrono::steady_clock::now;
  const auto end = now() + std::chrono::duration<double>(seconds);
  while (now() < end) glance(c, 0, 0, 0.05);
}

std::vector<std::pair<size_t, double>> rank(Stopwatch& stopwatch, Regime regime,
                                            std::vector<Contender>& contenders) {
  const bool burst = regime == Regime::burst;
  std::vector<std::pair<size_t, double>> seen;
  for (size_t i = 0; i < contenders.size(); ++i) seen.emplace_back(i, 1e30);
  const auto look = [&](size_t few, double rest, double warm_up, double timed) {
    for (size_t i = 0; i < std::min(few, seen.size()); ++i)
      seen[i].second = std::min(seen[i].second, stopwatch.glance(contenders[seen[i].first],
                                                                 burst ? rest : 0, warm_up, timed));
  };
  const auto sort = [&](size_t few) {
    std::sort(seen.begin(), seen.begin() + std::ptrdiff_t(std::min(few, seen.size())),
              [](const auto& x, const auto& y) { return x.second < y.second; });
  };
  // A few ms of rest are not enough: what follows a long launch looks slower than it is.
  look(seen.size(), 0.030, burst ? 0.0005 : 0.005, burst ? 0.004 : 0.020);
  sort(seen.size());
  size_t finalists = std::min<size_t>(3, seen.size());
  const auto first = std::find_if(seen.begin() + std::ptrdiff_t(finalists), seen.end(),
                                  [](const auto& x) { return x.first == 0; });
  if (first != seen.end())
    std::rotate(seen.begin() + std::ptrdiff_t(finalists++), first, first + 1);
  for (size_t i = 0; i < finalists; ++i) seen[i].second = 1e30;
  for (int i = 0; i < 2; ++i) look(finalists, 0.050, burst ? 0.0005 : 0.020, burst ? 0.012 : 0.060);
  sort(finalists);
  return seen;
}

std::vector<std::vector<double>> run_rounds(Stopwatch& stopwatch, Regime regime,
                                            const std::vector<Contender*>& contenders,
                                            const std::function<void()>& last_round) {
  static std::mt19937 random(std::random_device{}());
  std::vector<std::vector<double>> samples(contenders.size());
  std::vector<size_t> order(contenders.size());
  std::iota(order.begin(), order.end(), 0);
  for (Contender* c : contenders) c->seen = {};
  for (int round = 0; round < kRounds; ++round) {
    if (round == kRounds - 1) last_round();
    std::shuffle(order.begin(), order.end(), random);
    for (size_t i : order) samples[i].push_back(stopwatch.block(regime, *contenders[i]));
  }
  return samples;
}

}  // namespace harness
