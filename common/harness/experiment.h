// Experiments: what is done around a kernel (streams, graphs, copies), as named variants of named
// workloads. A folder steps/NN_name with a program.cu is one; it defines experiment() below, and
// everything else is here. How to write one: steps/30_streams_split_k. GPU builds only.
#pragma once
#include <map>
#include <memory>

#include "common/harness/device.h"
#include "common/harness/experiment_options.h"
#include "common/harness/registry.h"

namespace harness {

/// What happened when during one iteration. GPU spans come from events, whose own resolution is
/// about half a microsecond and which keep kernels of one stream a microsecond apart.
class Timeline {
 public:
  Timeline();
  ~Timeline();
  Timeline(const Timeline&) = delete;

  /// A span on the host's clock, seconds of now().
  void add_host(const std::string& name, double begin, double end);
  /// A span between two values of globaltimer() that kernels wrote.
  void add_stamps(const std::string& lane, const std::string& name, uint64_t begin_ns,
                  uint64_t end_ns);
  static double now();  // the host's steady clock

  // For the harness: relates the clocks on an idle device; all spans once everything is done.
  void begin(gpu::Stream stream);
  std::vector<Span> spans() const;

 private:
  friend class Mark;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// From its construction to its end: a span of what was enqueued on the stream meanwhile, and one
/// of the host. Does nothing where there is no timeline.
class Mark {
 public:
  Mark(Timeline* timeline, gpu::Stream stream, const std::string& lane, const std::string& name);
  ~Mark();
  Mark(const Mark&) = delete;

 private:
  Timeline* timeline_;
  gpu::Stream stream_;
  std::string lane_, name_;
  cudaEvent_t begin_ = nullptr;
  double host_begin_ = 0;
  bool captured_ = false;
};

/// One iteration of a variant. It must begin after what is on `stream`, and end before what comes
/// after it there: other streams wait for an event of it, and it for theirs.
struct Run {
  int set = 0;  // of the input sets
  gpu::Stream stream = nullptr;
  Timeline* timeline = nullptr;  // when it is to be drawn; never while it is timed

  Mark mark(gpu::Stream on, const std::string& lane, const std::string& name) const {
    return Mark(timeline, on, lane, name);
  }
};

using Counters = std::map<std::string, double>;

struct Variant {
  std::string name;                     // "graph"; the row is NN_name/workload/graph
  std::function<void(const Run&)> run;  // enqueues one iteration; may block, if that is shown
  bool captured = false;                // into a graph per set, which is then what is launched
  bool drawn = false;                   // one iteration goes into the file of timelines
  bool checked = true;                  // false: computes nothing that could be compared
  double bytes = 0;                     // of one iteration, where they are not the workload's
  Counters counters;                    // constants of it: how many streams, nodes, bytes
  std::function<Counters()> measured;   // asked after each of its timed blocks
};

/// A workload ready to run. Its memory belongs to what the functions hold, or to `keep`.
struct Setup {
  int sets = 1;                   // inputs rotate among them
  std::vector<Variant> variants;  // speedups are over the first
  std::function<void()> poison;   // makes all outputs something that no right answer is
  std::function<std::string(int set)> check;  // after a sync: "", or what is wrong
  /// poison, enqueued on a stream, where that can be done. Then it is also checked that an
  /// iteration begins after what is on its stream, and that its stream waits for all of it.
  std::function<void(gpu::Stream)> poison_on;
  double flop = 0, bytes = 0;     // of one iteration
  double block_seconds = 0.012;   // that a block is timed for; at least one iteration
  double idle_seconds = 0.080;    // before it
  int rounds = 5;
  /// Variants that do a part of the work alone (the copies, the products): what takes the longest
  /// of these is a floor for the others, and pct_floor says how near they come.
  std::vector<std::string> floor;
  std::shared_ptr<void> keep;
};

/// The stream that iterations are enqueued on, for what must know it beforehand (cuBLAS).
gpu::Stream main_stream();

struct Workload {
  std::string name;             // "batch1", "256x256x65536"
  std::function<Setup()> make;  // may throw Skip
};

/// This workload cannot be run here; the message says why. It is left out, which is no failure.
struct Skip : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Other processes that run the same experiment, one per GPU. All walk the same rounds in the same
/// order; times are the longest over them, and rank 0 alone writes.
struct Peers {
  int rank = 0, size = 1;
  std::function<void()> barrier = [] {};
  std::function<double(double)> max = [](double value) { return value; };
};

/// The whole command line; returns the exit code and prints one line per error.
int experiment_main(const Program& program, const std::vector<std::string>& arguments,
                    const std::function<std::vector<Workload>()>& workloads,
                    const Peers& peers = {});

/// Nanoseconds, one clock for the whole GPU. Spans of them: Timeline::add_stamps.
__device__ inline uint64_t globaltimer() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)::"memory");
  return now;
}

}  // namespace harness

/// The build says which experiment a program is (cmake/gpu.cmake).
#define LADDER_PROGRAM \
  ::harness::Program { LADDER_STEP, "", LADDER_ARCH, "" }

/// What a program.cu defines.
std::vector<harness::Workload> experiment();
