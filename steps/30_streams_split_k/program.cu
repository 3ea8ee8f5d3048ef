// 30_streams_split_k: a long K in chunks over streams, side by side; an event each, then the sum.
// arch: 90a
// uses: 23_tma_store, 25_stream_k
// New: fork and join of streams by events, and what they cost beside the same chunks as one grid,
//      as a graph, as stream-k, and beside cuBLAS. The kernels are in chunk.h.
#include "common/harness/baselines.h"
#include "common/harness/experiment.h"
#include "common/harness/reference.h"
#include "common/harness/session.h"
#include "chunk.h"  // of this folder, so that a copy of it has its own

namespace {

using harness::Run;
using harness::Setup;
using harness::Variant;

/// Streams beside the main one, an event that they wait for and one of each that it waits for.
class Fork {
 public:
  explicit Fork(int others) : streams_(size_t(others)), done_(size_t(others)) {
    GPU_CHECK(cudaEventCreateWithFlags(&start_, cudaEventDisableTiming));  // cheaper than timed
    for (gpu::Stream& s : streams_)
      GPU_CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    for (cudaEvent_t& e : done_) GPU_CHECK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  }
  ~Fork() {
    for (gpu::Stream s : streams_) cudaStreamDestroy(s);
    for (cudaEvent_t e : done_) cudaEventDestroy(e);
    cudaEventDestroy(start_);
  }
  Fork(const Fork&) = delete;

  /// Calls work(0, main), work(1, first other) and so on; `main` then waits for all of them.
  template <class Work>
  void run(gpu::Stream main, const Work& work) const {
    GPU_CHECK(cudaEventRecord(start_, main));
    work(0, main);
    for (size_t i = 0; i < streams_.size(); ++i) {
      GPU_CHECK(cudaStreamWaitEvent(streams_[i], start_, 0));  // not before the last join
      work(int(i) + 1, streams_[i]);
      GPU_CHECK(cudaEventRecord(done_[i], streams_[i]));
    }
    for (cudaEvent_t e : done_) GPU_CHECK(cudaStreamWaitEvent(main, e, 0));
  }

 private:
  std::vector<gpu::Stream> streams_;
  std::vector<cudaEvent_t> done_;
  cudaEvent_t start_;
};

struct Gemm {
  harness::InputSets sets;
  gpu::Buffer partial;  // [chunks][M][N]; one is enough: iterations do not overlap

  Gemm(const harness::Size& size, int most_chunks)
      : sets(size), partial(size_t(most_chunks * size.M * size.N) * 4, "partial sums") {}

  std::vector<SplitK> split(int chunks) const {
    std::vector<SplitK> all;
    for (const Problem& p : sets.step) all.emplace_back(p, partial.get<float>(), chunks);
    return all;
  }
};

/// A step of the ladder, launched as it is.
Variant step(const char* id, const Gemm& gemm) {
  const Step linked = harness::find_step(id);
  std::vector<Launch> launches;
  for (const Problem& p : gemm.sets.step) launches.push_back(linked.prepare(p));
  return {id, [launches](const Run& r) { launches[size_t(r.set)](r.stream); }};
}

Variant cublas(const harness::Contender& contender) {
  return {contender.name, [launch = contender.launch](const Run& r) { launch(r.set, r.stream); }};
}

/// n streams with `each` chunks in one launch. `captured`: the same calls once, into a graph that
/// is then launched.
Variant streams(int n, bool captured, const Gemm& gemm, int each = 1) {
  Variant variant;
  variant.name = (captured ? "graph_" : "streams_") + std::to_string(n) +
                 (each > 1 ? "x" + std::to_string(each) : "");
  variant.captured = captured;
  variant.drawn = n == 8;
  variant.counters = {{"streams", n}, {"chunks", n * each}};
  variant.run = [split = gemm.split(n * each), fork = std::make_shared<Fork>(n - 1),
                 each](const Run& r) {
    const SplitK& s = split[size_t(r.set)];
    fork->run(r.stream, [&](int i, gpu::Stream on) {
      const auto mark = r.mark(on, "stream " + std::to_string(i), std::to_string(i));
      s.launch(on, i * each, each);
    });
    const auto mark = r.mark(r.stream, "stream 0", "join");
    s.join(r.stream);
  };
  return variant;
}

/// The same chunks as the third dimension of one grid: what streams stand in for.
Variant one_grid(int n, const Gemm& gemm) {
  Variant variant;
  variant.name = "grid_" + std::to_string(n);
  variant.drawn = n == 8;
  variant.counters = {{"streams", 1}, {"chunks", n}};
  variant.run = [split = gemm.split(n), n](const Run& r) {
    const SplitK& s = split[size_t(r.set)];
    {
      const auto mark = r.mark(r.stream, "stream 0", "all chunks");
      s.launch(r.stream, 0, n);
    }
    const auto mark = r.mark(r.stream, "stream 0", "join");
    s.join(r.stream);
  };
  return variant;
}

/// How many streams, chunks and nodes to try. `several`: streams and chunks of each.
struct Sweep {
  std::vector<int> launched, captured, gridded;
  std::vector<std::pair<int, int>> several;

  int most_chunks() const {
    int most = 1;
    for (const std::vector<int>& list : {launched, captured, gridded})
      for (int n : list) most = std::max(most, n);
    for (const auto& [n, each] : several) most = std::max(most, n * each);
    return most;
  }
};

Setup gemm(const harness::Size& size, const Sweep& sweep) {
  const int most = sweep.most_chunks();
  harness::require_memory(harness::InputSets::bytes(size) + 4.0 * most * size.M * size.N + 1e9,
                          "for " + harness::text(size));
  const auto data = std::make_shared<Gemm>(size, most);
  const std::vector<Problem>& problems = data->sets.step;
  const auto baselines = std::make_shared<harness::Baselines>(harness::main_stream(), problems);
  const harness::Nvml nvml(harness::gpu_info().pci);
  harness::Stopwatch stopwatch(int(problems.size()), nvml, harness::main_stream());
  Setup setup;
  setup.sets = int(problems.size());
  setup.idle_seconds = 0.040;
  setup.flop = 2.0 * double(size.M) * double(size.N) * double(size.K);
  setup.variants = {step("23_tma_store", *data), step("25_stream_k", *data),
                    cublas(baselines->default_gemm()),
                    cublas(baselines->best_gemm(stopwatch, harness::Regime::burst))};
  for (int n : sweep.launched) setup.variants.push_back(streams(n, false, *data));
  for (const auto& [n, each] : sweep.several)
    setup.variants.push_back(streams(n, false, *data, each));
  for (int n : sweep.captured) setup.variants.push_back(streams(n, true, *data));
  for (int n : sweep.gridded) setup.variants.push_back(one_grid(n, *data));
  setup.poison_on = [data](gpu::Stream s) {  // the sums too: old ones would be right
    data->sets.poison(data->sets.step, s);
    gpu::fill_async(data->partial.get(), 0xff, data->partial.bytes(), s);
  };
  setup.poison = [on = setup.poison_on] { on(harness::main_stream()); };
  setup.check = [data, size](int set) {
    const harness::Verdict verdict = harness::compare_on_device(
        data->sets.step[size_t(set)], harness::Inputs::normal, harness::Sum::fp64);
    return harness::explain(verdict, size.M, size.N);
  };
  return setup;
}

__global__ void empty_kernel() {}

/// What the parts of a fork and a join cost, around a kernel that does nothing.
Setup events() {
  const auto launch = [](gpu::Stream s) { gpu::launch(s, {dim3(1), dim3(32)}, empty_kernel); };
  const auto fork = std::make_shared<Fork>(1);
  const auto make_event = [](unsigned flags) {
    cudaEvent_t event;
    GPU_CHECK(cudaEventCreateWithFlags(&event, flags));
    return std::shared_ptr<CUevent_st>(event, cudaEventDestroy);
  };
  const auto order = make_event(cudaEventDisableTiming), timed = make_event(cudaEventDefault);
  Setup setup;
  setup.idle_seconds = 0.040;
  const auto add = [&](const char* name, std::function<void(const Run&)> run) {
    Variant variant{name, std::move(run)};
    variant.checked = false;
    setup.variants.push_back(std::move(variant));
  };
  add("launch", [=](const Run& r) { launch(r.stream); });
  add("launch_record", [=](const Run& r) {
    launch(r.stream);
    GPU_CHECK(cudaEventRecord(order.get(), r.stream));
  });
  add("launch_record_timed", [=](const Run& r) {
    launch(r.stream);
    GPU_CHECK(cudaEventRecord(timed.get(), r.stream));
  });
  add("launch_record_wait", [=](const Run& r) {  // for its own past, which is nothing to wait for
    launch(r.stream);
    GPU_CHECK(cudaEventRecord(order.get(), r.stream));
    GPU_CHECK(cudaStreamWaitEvent(r.stream, order.get(), 0));
  });
  add("two_launches", [=](const Run& r) { launch(r.stream), launch(r.stream); });
  add("two_streams", [=](const Run& r) {  // one each, fork and join
    fork->run(r.stream, [&](int, gpu::Stream on) { launch(on); });
  });
  return setup;
}

}  // namespace

std::vector<harness::Workload> experiment() {
  const Sweep one_tile = {
      {1, 2, 4, 8, 12, 16, 32}, {4, 8, 16, 32}, {8, 32}, {{4, 4}, {4, 8}}};
  const Sweep few_tiles = {{1, 2, 4, 8}, {4, 8}, {8}, {{2, 4}}};
  const Sweep many_tiles = {{1, 2, 4}, {}, {2}, {}};
  return {{"256x256x65536", [=] { return gemm({256, 256, 65536}, one_tile); }},
          {"512x512x16384", [=] { return gemm({512, 512, 16384}, few_tiles); }},
          {"4096x4096x4096", [=] { return gemm({4096, 4096, 4096}, many_tiles); }},
          {"events", events}};
}
