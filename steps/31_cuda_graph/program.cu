// 31_cuda_graph: a transformer block as twelve launches, as one graph, and with dependent launch
// arch: 90a
// uses: 23_tma_store
//
// Three kinds of workloads. batchN: the block on N sequences of 64 tokens, from launch-bound to
// compute-bound. spinNus: twelve kernels of N microseconds that do nothing, to see what hides what.
// handoverNMB: one kernel writes N MB, the next reads them, to see what a graph does with data.
#include "common/harness/experiment.h"
#include "steps/31_cuda_graph/block.h"

namespace {

using block::How;
using block::Node;
using block::Stamp;
using harness::Counters;
using harness::Run;
using harness::Setup;
using harness::Variant;
using Nodes = std::vector<Node>;

// ---- graphs -------------------------------------------------------------------------------------

using Graph = std::shared_ptr<CUgraph_st>;
using Executable = std::shared_ptr<CUgraphExec_st>;

/// Enqueues the nodes on `how.stream`; stamps, if any, lie one after another.
void enqueue(const Nodes& nodes, How how) {
  for (const Node& node : nodes) {
    node.launch({how.stream, how.programmatic && node.own, node.own ? how.stamp : nullptr});
    if (how.stamp) ++how.stamp;
  }
}

/// What these launches would be as a graph: nothing runs. Each node depends on the one before; with
/// dependent launch the edge says that it may start early.
Graph capture(const Nodes& nodes, How how) {
  cudaGraph_t graph = nullptr;
  GPU_CHECK(cudaStreamBeginCapture(how.stream, cudaStreamCaptureModeThreadLocal));
  try {
    enqueue(nodes, how);
  } catch (...) {  // the stream must not stay in capture
    if (cudaStreamEndCapture(how.stream, &graph) == cudaSuccess) cudaGraphDestroy(graph);
    throw;
  }
  GPU_CHECK(cudaStreamEndCapture(how.stream, &graph));
  return {graph, cudaGraphDestroy};
}

Executable instantiate(const Graph& graph) {
  cudaGraphExec_t executable = nullptr;
  GPU_CHECK(cudaGraphInstantiate(&executable, graph.get(), 0));
  return {executable, cudaGraphExecDestroy};
}

/// What a graph costs on the host before it is launched, and to point it at other memory.
Counters graph_costs(const Nodes& nodes, const Nodes& others, How how) {
  const auto now = harness::Timeline::now;
  const Graph other = capture(others, how);
  Counters counters;
  double last = now();
  const auto lap = [&](const char* name) {
    counters[name] = (now() - last) * 1e6;
    last = now();
  };
  const Graph graph = capture(nodes, how);
  lap("capture_us");
  const Executable executable = instantiate(graph);
  lap("instantiate_us");
  const auto launch_and_wait = [&](const char* name) {
    GPU_CHECK(cudaGraphLaunch(executable.get(), how.stream));
    GPU_CHECK(cudaStreamSynchronize(how.stream));
    lap(name);
  };
  launch_and_wait("first_launch_us");  // uploads it
  launch_and_wait("second_launch_us");
  cudaGraphExecUpdateResultInfo info{};
  GPU_CHECK(cudaGraphExecUpdate(executable.get(), other.get(), &info));
  lap("update_us");
  launch_and_wait("updated_launch_us");
  return counters;
}

// ---- stamps -------------------------------------------------------------------------------------

/// The stamps of the kernels of one iteration.
class Stamps {
 public:
  explicit Stamps(size_t count) : host_(count), device_(count * sizeof(Stamp), "stamps") {}
  Stamp* device() const { return device_.get<Stamp>(); }
  void clear() {
    gpu::fill(device_.get(), 0, device_.bytes());
    gpu::synchronize();
  }
  /// Begin and end of each kernel that has a stamp, in nanoseconds; waits for them.
  const std::vector<Stamp>& read() {
    gpu::copy_to_host(host_.data(), device_.get(), device_.bytes());
    for (Stamp& stamp : host_) stamp.not_begin = ~stamp.not_begin;
    return host_;
  }

 private:
  std::vector<Stamp> host_;
  gpu::Buffer device_;
};

bool has(const Stamp& stamp) { return stamp.end != 0; }

/// From the first kernel's begin to the last one's end: how long any ran, and how long none.
Counters kernels_and_gaps(const std::vector<Stamp>& stamps) {
  uint64_t busy = 0, end = 0;
  for (const Stamp& stamp : stamps) {  // in the order of their begin
    if (!has(stamp)) return {};
    if (stamp.end > end) busy += stamp.end - std::max<uint64_t>(end, stamp.not_begin);
    end = std::max<uint64_t>(end, stamp.end);
  }
  return {{"kernel_us", double(busy) * 1e-3},
          {"gap_us", double(end - stamps[0].not_begin - busy) * 1e-3}};
}

// ---- variants -----------------------------------------------------------------------------------

struct Stream {
  Stream() { GPU_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream); }
  Stream(const Stream&) = delete;
  gpu::Stream stream = nullptr;
};

enum class Submit { launches, launches_and_waits, graph };

/// The nodes of each set, and all it takes to launch them in one way.
class Way {
 public:
  Way(std::vector<Nodes> sets, Submit submit, bool programmatic)
      : sets_(std::move(sets)), submit_(submit), programmatic_(programmatic),
        stamps_(sets_[0].size()) {
    enqueue(sets_[0], {own_.stream});  // loads the code of every kernel: not while one captures
    GPU_CHECK(cudaStreamSynchronize(own_.stream));
    for (size_t set = 0; submit == Submit::graph && set < sets_.size(); ++set)
      graphs_.push_back(instantiate(capture(sets_[set], {own_.stream, programmatic})));
    if (submit == Submit::graph)
      stamped_ = instantiate(capture(sets_[0], {own_.stream, programmatic, stamps_.device()}));
  }

  void run(const Run& r) {
    if (r.timeline) return draw(r);
    const Nodes& nodes = sets_[size_t(r.set)];
    if (submit_ == Submit::graph) {
      GPU_CHECK(cudaGraphLaunch(graphs_[size_t(r.set)].get(), r.stream));
    } else if (submit_ == Submit::launches) {
      enqueue(nodes, {r.stream, programmatic_});
    } else {
      for (const Node& node : nodes) {
        node.launch({r.stream});
        GPU_CHECK(cudaStreamSynchronize(r.stream));
      }
    }
  }

  /// After a block: one iteration with stamps, and what a graph costs.
  Counters measured() {
    Counters counters;
    if (submit_ == Submit::graph)
      counters = graph_costs(sets_[0], sets_[1 % sets_.size()], {own_.stream, programmatic_});
    for (int warm_up = 0; warm_up < 2; ++warm_up) {
      stamps_.clear();
      if (stamped_)
        GPU_CHECK(cudaGraphLaunch(stamped_.get(), own_.stream));
      else
        launch_stamped(own_.stream, [](const Node&, double, double) {});
      GPU_CHECK(cudaStreamSynchronize(own_.stream));
    }
    counters.merge(kernels_and_gaps(stamps_.read()));
    return counters;
  }

  /// Of the iteration with stamps.
  double last_kernel_us() {
    const Stamp last = stamps_.read().back();
    return double(last.end - last.not_begin) * 1e-3;
  }

 private:
  /// The iteration for the picture: stamps where kernels are ours, else events around them.
  void draw(const Run& r) {
    const auto now = harness::Timeline::now;
    const Nodes& nodes = sets_[0];
    stamps_.clear();
    if (stamped_) {
      const double begin = now();
      GPU_CHECK(cudaGraphLaunch(stamped_.get(), r.stream));
      r.timeline->add_host("graph", begin, now());
    } else {
      launch_stamped(r.stream, [&](const Node& node, double begin, double end) {
        r.timeline->add_host(node.name, begin, end);
      });
    }
    GPU_CHECK(cudaStreamSynchronize(r.stream));
    const auto& stamps = stamps_.read();
    for (size_t i = 0; i < nodes.size(); ++i) {
      // A kernel of the ladder fills the time between its neighbours, which are ours.
      const bool known = has(stamps[i]) || (i > 0 && i + 1 < nodes.size());
      if (!known) continue;
      const uint64_t begin = has(stamps[i]) ? stamps[i].not_begin : stamps[i - 1].end;
      const uint64_t end = has(stamps[i]) ? stamps[i].end : stamps[i + 1].not_begin;
      r.timeline->add_stamps(i % 2 ? "kernels 2, 4, .." : "kernels 1, 3, ..", nodes[i].name, begin,
                             end);
    }
  }

  template <class Said>
  void launch_stamped(gpu::Stream stream, const Said& said) {
    Stamp* stamp = stamps_.device();
    for (const Node& node : sets_[0]) {
      const double begin = harness::Timeline::now();
      node.launch({stream, programmatic_ && node.own, node.own ? stamp : nullptr});
      said(node, begin, harness::Timeline::now());
      if (submit_ == Submit::launches_and_waits) GPU_CHECK(cudaStreamSynchronize(stream));
      ++stamp;
    }
  }

  std::vector<Nodes> sets_;
  Submit submit_;
  bool programmatic_;
  Stream own_;
  Stamps stamps_;
  std::vector<Executable> graphs_;
  Executable stamped_;
};

Variant variant(const std::string& name, const std::shared_ptr<Way>& way) {
  Variant v;
  v.name = name;
  v.run = [way](const Run& r) { way->run(r); };
  v.measured = [way] { return way->measured(); };
  return v;
}

// ---- workloads ----------------------------------------------------------------------------------

/// The block. Sets are layers: twelve, whose weights (75 MB) no L2 keeps, or three where even one
/// set of activations is larger.
Setup batch(int sequences, bool drawn) {
  const int sets = sequences <= 64 ? 12 : 3;
  const auto work = std::make_shared<block::Block>(sequences, sets);
  struct Seen {  // which variant ran last, and what the first one found, by set
    bool ours = true;
    std::map<int, std::vector<half>> found;
  };
  const auto seen = std::make_shared<Seen>();
  Setup setup;
  setup.sets = sets;
  setup.flop = work->flop();
  setup.poison = [work] { work->poison(); };
  setup.check = [work, seen](int set) -> std::string {
    const std::vector<half> got = work->output(set);
    if (seen->ours) {  // the same kernels: the same bits, whoever launches them
      auto& found = seen->found[set];
      if (found.empty()) found = got;
      if (memcmp(found.data(), got.data(), got.size() * sizeof(half)))
        return "not bit for bit what the first variant computes";
    }
    return work->compare(set, got);
  };
  const auto nodes_of = [&](block::Gemm gemm) {
    std::vector<Nodes> all;
    for (int set = 0; set < sets; ++set) all.push_back(work->nodes(set, gemm));
    return all;
  };
  using block::Gemm;
  const auto add = [&](const std::string& name, Gemm gemm, Submit submit, bool programmatic) {
    const auto way = std::make_shared<Way>(nodes_of(gemm), submit, programmatic);
    Variant v = variant(name, way);
    const bool ours = gemm == Gemm::ladder;
    v.run = [way, seen, ours](const Run& r) {
      seen->ours = ours;
      way->run(r);
    };
    v.drawn = drawn && ours;
    setup.variants.push_back(v);
  };
  add("launches", Gemm::ladder, Submit::launches, false);
  add("launches_pdl", Gemm::ladder, Submit::launches, true);
  add("launches_and_waits", Gemm::ladder, Submit::launches_and_waits, false);
  add("graph", Gemm::ladder, Submit::graph, false);
  add("graph_pdl", Gemm::ladder, Submit::graph, true);
  add("cublas_launches", Gemm::cublas, Submit::launches, false);
  add("cublas_graph", Gemm::cublas, Submit::graph, false);
  int own = 0;
  for (const Node& node : work->nodes(0, Gemm::ladder)) own += node.own;
  for (Variant& v : setup.variants) v.counters = {{"nodes", 12}, {"own_kernels", double(own)}};
  setup.keep = work;
  return setup;
}

/// Twelve kernels of a known length, on every SM.
Setup spin(int microseconds) {
  Nodes nodes;
  for (int i = 0; i < 12; ++i)
    nodes.push_back({"spin",
                     [=](const How& how) {
                       block::launch(how, unsigned(gpu::num_sms()), 128, 0, block::spin,
                                     microseconds * 1000);
                     },
                     false});
  Setup setup;
  setup.rounds = 3, setup.idle_seconds = 0.02;  // no data, no power to speak of
  const auto add = [&](const std::string& name, Submit submit) {
    Variant v = variant(name, std::make_shared<Way>(std::vector<Nodes>{nodes}, submit, false));
    v.measured = nullptr;
    v.checked = false;
    setup.variants.push_back(v);
  };
  add("launches", Submit::launches);
  add("launches_and_waits", Submit::launches_and_waits);
  add("graph", Submit::graph);
  setup.poison = [] {};
  return setup;
}

/// One kernel leaves `megabytes` to the next, or does both itself.
Setup handover(int megabytes) {
  const int64_t fours = int64_t(megabytes) * (1 << 20) / 16;
  const int ctas = gpu::num_sms() * 8, threads = block::ELEMENT_THREADS;
  struct Memory {
    std::vector<std::unique_ptr<gpu::Buffer>> x;
    gpu::Buffer y, sums;
  };
  const int sets = std::max(2, 256 / megabytes);  // so that x is never in L2
  const auto memory = std::shared_ptr<Memory>(
      new Memory{{}, gpu::Buffer(size_t(fours) * 16, "y"),
                 gpu::Buffer(size_t(ctas) * threads * sizeof(float), "sums")});
  std::vector<float> host(size_t(fours) * 4);  // small integers: every sum is exact
  double want = 0;
  for (size_t i = 0; i < host.size(); ++i) want += 2 * (host[i] = float(i % 7));
  for (int set = 0; set < sets; ++set) {
    memory->x.push_back(std::make_unique<gpu::Buffer>(size_t(fours) * 16, "x"));
    gpu::copy_to_device(memory->x.back()->get(), host.data(), size_t(fours) * 16);
  }
  std::vector<Nodes> two, one;
  for (int set = 0; set < sets; ++set) {
    const auto* x = memory->x[size_t(set)]->get<const float4>();
    auto* y = memory->y.get<float4>();
    auto* sums = memory->sums.get<float>();
    two.push_back({{"produce",
                    [=](const How& how) {
                      block::launch(how, unsigned(ctas), threads, 0, block::produce, x, y, fours,
                                    how.stamp);
                    },
                    true},
                   {"consume",
                    [=](const How& how) {
                      block::launch(how, unsigned(ctas), threads, 0, block::consume<1>, y, sums,
                                    fours, how.stamp);
                    },
                    true}});
    one.push_back({{"both",
                    [=](const How& how) {
                      block::launch(how, unsigned(ctas), threads, 0, block::consume<2>, x, sums,
                                    fours, how.stamp);
                    },
                    true}});
  }
  Setup setup;
  setup.sets = sets;
  setup.rounds = 3, setup.idle_seconds = 0.02;
  setup.poison = [memory] {
    gpu::fill(memory->y.get(), 0xff, memory->y.bytes());
    gpu::fill(memory->sums.get(), 0xff, memory->sums.bytes());
  };
  setup.check = [memory, want](int) -> std::string {
    std::vector<float> sums(memory->sums.bytes() / sizeof(float));
    gpu::copy_to_host(sums.data(), memory->sums.get(), memory->sums.bytes());
    double got = 0;
    for (float sum : sums) got += sum;
    return got == want ? "" : "the sum is " + std::to_string(got) + ", not " + std::to_string(want);
  };
  const auto add = [&](const std::string& name, const std::vector<Nodes>& nodes, Submit submit) {
    const auto way = std::make_shared<Way>(nodes, submit, false);
    Variant v = variant(name, way);
    v.measured = [way, megabytes] {  // how fast the second kernel read what the first one left
      Counters counters = way->measured();
      if (const double us = way->last_kernel_us(); us > 0)
        counters["read_gb_per_s"] = megabytes * 1.048576e3 / us;
      return counters;
    };
    setup.variants.push_back(v);
  };
  add("two_launches", two, Submit::launches);
  add("two_nodes", two, Submit::graph);
  add("one_kernel", one, Submit::launches);
  add("one_node", one, Submit::graph);
  setup.keep = memory;
  return setup;
}

}  // namespace

std::vector<harness::Workload> experiment() {
  std::vector<harness::Workload> all;
  for (int sequences : {1, 4, 16, 64, 256, 1024})
    all.push_back({"batch" + std::to_string(sequences),
                   [=] { return batch(sequences, sequences == 1 || sequences == 1024); }});
  for (int us : {1, 2, 5, 10, 25})
    all.push_back({"spin" + std::to_string(us) + "us", [=] { return spin(us); }});
  for (int mb : {4, 16, 64, 256})
    all.push_back({"handover" + std::to_string(mb) + "MB", [=] { return handover(mb); }});
  return all;
}
