// Ways to launch a list of kernels: one by one, as a graph, with dependent launch. What a graph
// costs, and when the kernels ran.
#pragma once
#include "work.h"

namespace block {

using harness::Counters;
using harness::Run;
using harness::Variant;

// ---- graphs -------------------------------------------------------------------------------------

using Graph = std::shared_ptr<CUgraph_st>;
using Executable = std::shared_ptr<CUgraphExec_st>;

/// Enqueues the nodes on `how.stream`; stamps, if any, lie one after another.
inline void enqueue(const Nodes& nodes, How how) {
  for (const Node& node : nodes) {
    node.launch({how.stream, how.programmatic && node.own, node.own ? how.stamp : nullptr});
    if (how.stamp) ++how.stamp;
  }
}

/// What these launches would be as a graph: nothing runs. Each node depends on the one before; with
/// dependent launch the edge says that it may start early.
inline Graph capture(const Nodes& nodes, How how) {
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

inline size_t size_of(const Graph& graph) {
  size_t nodes = 0;
  GPU_CHECK(cudaGraphGetNodes(graph.get(), nullptr, &nodes));
  return nodes;
}

inline Executable instantiate(const Graph& graph) {
  cudaGraphExec_t executable = nullptr;
  GPU_CHECK(cudaGraphInstantiate(&executable, graph.get(), 0));
  return {executable, cudaGraphExecDestroy};
}

/// What a graph costs on the host before it is launched, and to point it at other memory.
inline Counters graph_costs(const Nodes& nodes, const Nodes& others, How how) {
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
  counters["nodes"] = double(size_of(graph));
  return counters;
}

// ---- stamps -------------------------------------------------------------------------------------

/// The stamps of the kernels of one iteration.
class Stamps {
 public:
  explicit Stamps(size_t count) : host_(count), device_(count * sizeof(Stamp), "stamps") {
    gpu::fill(device_.get(), 0, device_.bytes());
    gpu::synchronize();
  }
  Stamp* device() const { return device_.get<Stamp>(); }
  /// Begin and end of each kernel that has a stamp, in nanoseconds, of the last iteration.
  const std::vector<Stamp>& read() {
    gpu::copy_to_host(host_.data(), device_.get(), device_.bytes());
    return host_;
  }

 private:
  std::vector<Stamp> host_;
  gpu::Buffer device_;
};

inline bool has(const Stamp& stamp) { return stamp.end != 0; }

/// From the first kernel's begin to the last one's end: how long any ran, and how long none.
inline Counters kernels_and_gaps(const std::vector<Stamp>& stamps) {
  uint64_t busy = 0, end = 0;
  for (const Stamp& stamp : stamps) {  // in the order of their begin
    if (!has(stamp)) return {};
    if (stamp.end > end) busy += stamp.end - std::max<uint64_t>(end, stamp.begin);
    end = std::max<uint64_t>(end, stamp.end);
  }
  return {{"kernel_us", double(busy) * 1e-3},
          {"gap_us", double(end - stamps[0].begin - busy) * 1e-3}};
}

// ---- ways ---------------------------------------------------------------------------------------

struct Stream {
  Stream() { GPU_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream); }
  Stream(const Stream&) = delete;
  gpu::Stream stream = nullptr;
};

enum class Submit { launches, launches_and_waits, graph };

/// The nodes of each set, and all it takes to launch them in one way; as graphs of so many nodes.
class Way {
 public:
  Way(std::vector<Nodes> sets, Submit submit, bool programmatic, size_t nodes_per_graph = 1000)
      : sets_(std::move(sets)), submit_(submit), programmatic_(programmatic),
        stamps_(sets_[0].size()) {
    enqueue(sets_[0], {own_.stream});  // loads the code of every kernel: not while one captures
    GPU_CHECK(cudaStreamSynchronize(own_.stream));
    if (submit != Submit::graph) return;
    for (const Nodes& nodes : sets_) {
      graphs_.emplace_back();
      for (size_t i = 0; i < nodes.size(); i += nodes_per_graph) {
        const Nodes part(nodes.begin() + long(i),
                         nodes.begin() + long(std::min(nodes.size(), i + nodes_per_graph)));
        graphs_.back().push_back(instantiate(capture(part, {own_.stream, programmatic})));
      }
    }
    stamped_ = instantiate(capture(sets_[0], {own_.stream, programmatic, stamps_.device()}));
  }

  void run(const Run& r) {
    if (r.timeline) return draw(r);
    const Nodes& nodes = sets_[size_t(r.set)];
    if (submit_ == Submit::graph) {
      for (const Executable& graph : graphs_[size_t(r.set)])
        GPU_CHECK(cudaGraphLaunch(graph.get(), r.stream));
    } else if (submit_ == Submit::launches) {
      enqueue(nodes, {r.stream, programmatic_});
    } else {
      for (const Node& node : nodes) {
        node.launch({r.stream});
        GPU_CHECK(cudaStreamSynchronize(r.stream));
      }
    }
  }

  /// One iteration with stamps: how long kernels worked, and how long none did.
  Counters stamped() {
    for (int warm_up = 0; warm_up < 2; ++warm_up) {
      if (stamped_)
        GPU_CHECK(cudaGraphLaunch(stamped_.get(), own_.stream));
      else
        launch_stamped(own_.stream, [](const Node&, double, double) {});
      GPU_CHECK(cudaStreamSynchronize(own_.stream));
    }
    return kernels_and_gaps(stamps_.read());
  }
  /// The same, and for a graph what it costs on the host.
  Counters measured() {
    Counters counters = stamped();
    if (submit_ == Submit::graph)
      counters.merge(graph_costs(sets_[0], sets_[1 % sets_.size()], {own_.stream, programmatic_}));
    return counters;
  }

  /// Of the iteration with stamps.
  double last_kernel_us() {
    const Stamp last = stamps_.read().back();
    return double(last.end - last.begin) * 1e-3;
  }

 private:
  /// The iteration for the picture.
  void draw(const Run& r) {
    const auto now = harness::Timeline::now;
    const Nodes& nodes = sets_[0];
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
      const uint64_t begin = has(stamps[i]) ? stamps[i].begin : stamps[i - 1].end;
      const uint64_t end = has(stamps[i]) ? stamps[i].end : stamps[i + 1].begin;
      r.timeline->add_stamps("kernels", nodes[i].name, begin, end);
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
  std::vector<std::vector<Executable>> graphs_;  // of each set
  Executable stamped_;
};

inline Variant variant(const std::string& name, const std::shared_ptr<Way>& way) {
  Variant v;
  v.name = name;
  v.run = [way](const Run& r) { way->run(r); };
  v.measured = [way] { return way->measured(); };
  return v;
}

}  // namespace block
