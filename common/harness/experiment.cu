// The rounds of an experiment: check, time in random order, check again, draw.
#include "common/harness/experiment.h"

#include <cuda_profiler_api.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <numeric>
#include <random>

#include "common/harness/measure.h"
#include "common/harness/report.h"
#include "common/harness/stats.h"

namespace harness {
namespace {

using Graph = std::shared_ptr<CUgraphExec_st>;

Graph capture(gpu::Stream stream, const std::function<void()>& work) {
  cudaGraph_t graph;
  GPU_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    work();
  } catch (...) {  // end the capture, or the stream is lost for whatever comes next
    if (cudaStreamEndCapture(stream, &graph) == cudaSuccess) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  GPU_CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  gpu::check(status, "cudaGraphInstantiate");
  return Graph(executable, cudaGraphExecDestroy);
}

__global__ void spin_kernel(uint64_t ns) {
  for (const uint64_t start = globaltimer(); globaltimer() - start < ns;) continue;
}

/// What the stopwatch times: the variant itself, or a graph of it for each input set.
Contender make_contender(const Setup& setup, const Variant& variant, gpu::Stream stream) {
  Contender contender;
  contender.name = variant.name;
  contender.flop = setup.flop, contender.bytes = setup.bytes;
  if (!variant.captured) {
    contender.launch = [run = variant.run](int set, gpu::Stream on) { run({set, on, nullptr}); };
    return contender;
  }
  std::vector<Graph> graphs;
  for (int set = 0; set < setup.sets; ++set)
    graphs.push_back(capture(stream, [&] { variant.run({set, stream, nullptr}); }));
  contender.launch = [graphs](int set, gpu::Stream on) {
    GPU_CHECK(cudaGraphLaunch(graphs[size_t(set)].get(), on));
  };
  return contender;
}

bool is_floor(const Setup& setup, const Variant& variant) {
  return std::find(setup.floor.begin(), setup.floor.end(), variant.name) != setup.floor.end();
}

class Measurement {
 public:
  Measurement(const Program& program, const Peers& peers, const Nvml& nvml, std::string workload,
              Setup& setup)
      : program_(program), peers_(peers), workload_(std::move(workload)), setup_(setup),
        stopwatch_(setup.sets, nvml, main_stream()),
        random_(peers.size > 1 ? 7 : std::random_device{}()) {
    for (const Variant& v : setup_.variants)
      contenders_.push_back(make_contender(setup_, v, stopwatch_.stream()));
  }

  /// Runs every variant once. "", or which is wrong and how.
  std::string check() {
    for (size_t i = 0; i < contenders_.size(); ++i) {
      poison(i);
      contenders_[i].launch(0, stopwatch_.stream());
      gpu::synchronize();
      if (std::string wrong = verdict(i, 0); !wrong.empty()) return wrong;
      if (std::string wrong = out_of_order(i); !wrong.empty()) return wrong;
    }
    return "";
  }

  /// The rounds. Appends a row per variant; "" or what was wrong after the last block.
  std::string time(std::vector<Row>& rows) {
    for (Contender& c : contenders_) calibrate(c);
    const size_t n = contenders_.size();
    std::vector<std::vector<double>> seconds(n);
    std::vector<std::vector<Counters>> counters(n);
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    for (int round = 0; round < setup_.rounds; ++round) {
      std::shuffle(order.begin(), order.end(), random_);
      for (size_t i : order) {
        const bool last = round == setup_.rounds - 1;
        if (last) poison(i);
        seconds[i].push_back(block(contenders_[i]));
        counters[i].push_back(alone(contenders_[i]));
        if (setup_.variants[i].measured)
          for (const auto& [name, value] : setup_.variants[i].measured())
            counters[i].back()[name] = peers_.max(value);
        if (!last) continue;
        const int sets = setup_.sets, set = (contenders_[i].next_set + sets - 1) % sets;
        if (std::string wrong = verdict(i, set); !wrong.empty())
          return wrong + ", after the last timed block";
      }
    }
    for (size_t i = 0; i < n; ++i) rows.push_back(row(i, seconds, counters[i]));
    return "";
  }

  /// One iteration of each variant that wants to be drawn.
  void draw(const std::vector<Row>& rows, std::vector<DrawnIteration>& drawn) {
    for (size_t i = 0; i < contenders_.size(); ++i) {
      const Variant& variant = setup_.variants[i];
      if (!variant.drawn) continue;
      const gpu::Stream stream = stopwatch_.stream();
      Timeline timeline;
      Graph graph;
      if (variant.captured) graph = capture(stream, [&] { variant.run({0, stream, &timeline}); });
      for (int warm_up = 0; warm_up < 2; ++warm_up) {
        if (graph)
          GPU_CHECK(cudaGraphLaunch(graph.get(), stream));
        else
          variant.run({0, stream, nullptr});
        gpu::synchronize();
      }
      peers_.barrier();
      timeline.begin(stream);
      const double start = Timeline::now();
      if (graph) {
        GPU_CHECK(cudaGraphLaunch(graph.get(), stream));
        timeline.add_host("launch of the graph", start, Timeline::now());
      } else {
        variant.run({0, stream, &timeline});
      }
      const double enqueued = Timeline::now();
      GPU_CHECK(cudaStreamSynchronize(stream));
      // Nothing to show where the iteration waited itself.
      if (const double end = Timeline::now(); end - enqueued > 3e-6)
        timeline.add_host("waits", enqueued, end);
      gpu::synchronize();
      drawn.push_back({workload_, variant.name,
                       rows.empty() ? 0 : median(rows[rows.size() - contenders_.size() + i].seconds)
                                              * 1e6,
                       timeline.spans()});
    }
  }

 private:
  void poison(size_t i) {
    if (setup_.variants[i].checked && setup_.poison) setup_.poison();
    gpu::synchronize();
  }

  /// Once more behind a kernel that takes its time, and then the poison: work that does not wait
  /// for the stream is overwritten by it, and what the stream does not wait for is seen unfinished.
  std::string out_of_order(size_t i) {
    if (!setup_.variants[i].checked || !setup_.poison_on) return "";
    const gpu::Stream stream = stopwatch_.stream();
    gpu::launch(stream, {dim3(1), dim3(1)}, spin_kernel, uint64_t{2000000});
    setup_.poison_on(stream);
    contenders_[i].launch(0, stream);
    GPU_CHECK(cudaStreamSynchronize(stream));
    const std::string wrong = verdict(i, 0);
    gpu::synchronize();
    return wrong.empty() ? "" : wrong + " (only behind other work of its stream: does it fork from "
                                        "there, and join?)";
  }

  std::string verdict(size_t i, int set) {
    if (!setup_.variants[i].checked || !setup_.check) return "";
    std::string wrong = setup_.check(set);
    if (peers_.max(wrong.empty() ? 0 : 1) > 0 && wrong.empty()) wrong = "wrong on another rank";
    return wrong.empty() ? "" : setup_.variants[i].name + ": " + wrong;
  }

  void calibrate(Contender& c) {
    c.seconds = 1;  // so that a block is one iteration
    c.seconds = peers_.max(stopwatch_.glance(c, 0, 0, 0));
    for (int i = 0; i < 2; ++i)
      c.seconds = std::min(c.seconds, peers_.max(stopwatch_.glance(c, 0, 0, 0.004)));
    c.seen = {};
  }

  double block(Contender& c) {
    peers_.barrier();
    return peers_.max(stopwatch_.glance(c, setup_.idle_seconds, std::min(0.010, 3 * c.seconds),
                                        setup_.block_seconds));
  }

  /// Iterations each alone on an idle device, by the host's clock.
  Counters alone(Contender& c) {
    std::vector<double> host, latency;
    for (int i = 0; i < (c.seconds < 1e-3 ? 5 : 1); ++i) {
      peers_.barrier();
      const double start = Timeline::now();
      c.launch(c.next_set, stopwatch_.stream());
      const double enqueued = Timeline::now();
      GPU_CHECK(cudaStreamSynchronize(stopwatch_.stream()));
      host.push_back(peers_.max(enqueued - start));
      latency.push_back(peers_.max(Timeline::now() - start));
      c.next_set = (c.next_set + 1) % setup_.sets;
    }
    return {{"host_us", median(host) * 1e6}, {"latency_us", median(latency) * 1e6}};
  }

  Row row(size_t i, const std::vector<std::vector<double>>& seconds,
          std::vector<Counters> counters) const {
    const Variant& variant = setup_.variants[i];
    const Sampler::Window& seen = contenders_[i].seen;
    for (size_t round = 0; round < counters.size(); ++round) {
      Counters& c = counters[round];
      const double t = seconds[i][round];
      c["time_us"] = t * 1e6;
      c["vs_first"] = seconds[0][round] / t;
      if (variant.checked && setup_.flop > 0) c["tflops"] = setup_.flop / t * 1e-12;
      const double bytes = variant.bytes > 0 ? variant.bytes : variant.checked ? setup_.bytes : 0;
      if (bytes > 0) c["gb_per_s"] = bytes / t * 1e-9;
      if (!setup_.floor.empty() && variant.checked)
        c["pct_floor"] = 100 * floor(seconds, round) / t;
      if (seen.count > 0 && seen.sum.power_w >= 0) c["power_w"] = seen.sum.power_w / seen.count;
      if (seen.count > 0 && seen.sum.sm_mhz >= 0)
        c["sm_clock_nvml_mhz"] = seen.sum.sm_mhz / seen.count;
      for (const auto& [name, value] : variant.counters) c[name] = value;
    }
    return {program_.step + "/" + workload_ + "/" + variant.name, seconds[i], counters};
  }

  double floor(const std::vector<std::vector<double>>& seconds, size_t round) const {
    double longest = 0;
    for (size_t i = 0; i < seconds.size(); ++i)
      if (is_floor(setup_, setup_.variants[i]))
        longest = std::max(longest, seconds[i][round]);
    return longest;
  }

  const Program& program_;
  const Peers& peers_;
  const std::string workload_;
  Setup& setup_;
  Stopwatch stopwatch_;
  std::mt19937 random_;
  std::vector<Contender> contenders_;
};

/// Makes the workload, with the variants asked for and those that they are compared to.
/// False if it has to be left out here.
bool make_setup(const Workload& workload, const ExperimentOptions& options, const Peers& peers,
                Setup& setup, std::vector<std::string>& left_out) {
  std::string why;
  try {
    setup = workload.make();
  } catch (const Skip& e) {
    why = e.what();
  }
  if (peers.max(why.empty() ? 0 : 1) > 0) {
    left_out.push_back(workload.name + ": " + (why.empty() ? "not on another rank" : why));
    if (peers.rank == 0) printf("left out: %s\n", left_out.back().c_str());
    return false;
  }
  std::vector<std::string> names;
  for (const Variant& v : setup.variants) {
    require_name(v.name, "variant");
    names.push_back(v.name);
  }
  std::vector<Variant> kept;
  const std::vector<size_t> wanted = chosen(names, options.variants, "variant");
  for (size_t i = 0; i < names.size(); ++i)
    if (i == 0 || is_floor(setup, setup.variants[i]) ||
        std::find(wanted.begin(), wanted.end(), i) != wanted.end())
      kept.push_back(setup.variants[i]);
  setup.variants = kept;
  return true;
}

int check_or_bench(const Program& program, const ExperimentOptions& options,
                   const std::vector<Workload>& workloads, const Peers& peers) {
  const bool benches = options.common.command == "bench", writes = peers.rank == 0;
  if (benches) refuse_debug_build();
  const OutputFile file(writes ? options.common.json : "");
  const OutputFile drawing(writes ? options.timelines : "");
  std::vector<std::string> names;
  for (const Workload& w : workloads) {
    require_name(w.name, "workload");
    names.push_back(w.name);
  }
  const std::vector<size_t> wanted = chosen(names, options.workloads, "workload");
  require_device(program);
  const GpuInfo gpu = gpu_info();
  const Nvml nvml(gpu.pci);
  Context context = make_context(options.common, gpu, nvml);
  std::vector<Row> rows;
  std::vector<DrawnIteration> drawn;
  std::vector<std::string> left_out;
  std::string checked;
  for (size_t w : wanted) {
    Setup setup;
    if (!make_setup(workloads[w], options, peers, setup, left_out)) continue;
    Measurement measurement(program, peers, nvml, names[w], setup);
    std::string wrong = measurement.check();
    const size_t before = rows.size();
    if (wrong.empty() && benches) wrong = measurement.time(rows);
    if (wrong.empty() && !options.timelines.empty()) measurement.draw(rows, drawn);
    if (!wrong.empty()) {
      fprintf(stderr, "error: %s: wrong at %s, %s\n", program.step.c_str(), names[w].c_str(),
              wrong.c_str());
      return 1;
    }
    for (const Variant& v : setup.variants)
      checked += std::string(checked.empty() ? "" : ",\n") + "    {\"name\": " +
                 quoted(program.step + "/" + names[w] + "/" + v.name) +
                 ", \"run_type\": \"iteration\", \"right\": 1}";
    if (!writes) continue;
    printf("%s %s: %zu variants right\n", program.step.c_str(), names[w].c_str(),
           setup.variants.size());
    for (size_t i = before; i < rows.size(); ++i)
      printf("%s %.1f us\n", rows[i].name.c_str(), median(rows[i].seconds) * 1e6);
    fflush(stdout);
  }
  if (!writes) return 0;
  if (!left_out.empty()) context.emplace_back("left_out", joined(left_out, "; "));
  if (benches) {
    write_report(rows, context, options.common, file);
    if (!options.timelines.empty())
      drawing.commit(timelines_json(program.step, context, drawn));
  } else {
    file.commit("{\n  \"context\": {\"step\": " + quoted(program.step) + ", \"device\": " +
                describe_device() + "},\n  \"benchmarks\": [\n" + checked + "\n  ]\n}\n");
  }
  return 0;
}

/// For a profiler: iterations of one variant, unchecked, between cudaProfilerStart and Stop.
int once(const Program& program, const ExperimentOptions& options,
         const std::vector<Workload>& workloads) {
  require_device(program);
  std::vector<std::string> names, left_out, variants;
  for (const Workload& w : workloads) names.push_back(w.name);
  Setup setup;
  const Workload& workload = workloads[chosen(names, options.workloads, "workload").at(0)];
  if (!make_setup(workload, options, {}, setup, left_out)) return 0;
  for (const Variant& v : setup.variants) variants.push_back(v.name);
  const size_t which = chosen(variants, options.variants, "variant").at(0);
  const Contender contender = make_contender(setup, setup.variants[which], main_stream());
  const auto iterations = [&](int count) {
    for (int i = 0; i < count; ++i) contender.launch(i % setup.sets, main_stream());
    gpu::synchronize();
  };
  iterations(2);
  GPU_CHECK(cudaProfilerStart());
  iterations(options.iterations);
  GPU_CHECK(cudaProfilerStop());
  printf("%s/%s/%s: %d iterations\n", program.step.c_str(), workload.name.c_str(),
         variants[which].c_str(), options.iterations);
  return 0;
}

}  // namespace

gpu::Stream main_stream() {
  static const gpu::Stream stream = [] {
    gpu::Stream made;
    GPU_CHECK(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return made;
  }();
  return stream;
}

int experiment_main(const Program& program, const std::vector<std::string>& arguments,
                    const std::function<std::vector<Workload>()>& workloads, const Peers& peers) {
  const auto fail = [](const std::string& message, int code) {
    fflush(stdout);
    fprintf(stderr, "error: %s\n", message.c_str());
    return code;
  };
  try {
    if (arguments.size() == 1 && (arguments[0] == "--help" || arguments[0] == "-h")) {
      puts(kExperimentUsage);
      return 0;
    }
    const ExperimentOptions options = parse_experiment_options(arguments);
    if (options.common.command == "once") return once(program, options, workloads());
    if (options.common.command != "describe")
      return check_or_bench(program, options, workloads(), peers);
    std::string names;
    for (const Workload& w : workloads())
      names += std::string(names.empty() ? "" : ", ") + quoted(w.name);
    printf("{\"experiment\": %s, \"arch\": %s, \"workloads\": [%s], \"device\": %s}\n",
           quoted(program.step).c_str(), quoted(program.arch).c_str(), names.c_str(),
           describe_device().c_str());
    return 0;
  } catch (const UsageError& e) {
    return fail(e.what(), 2);
  } catch (const gpu::Error& e) {
    return fail(program.step + ": " + e.what(), 3);
  } catch (const std::bad_alloc&) {
    return fail(program.step + ": out of host memory", 3);
  } catch (const std::exception& e) {
    return fail(program.step + ": " + e.what(), 3);
  }
}

}  // namespace harness
