#include "common/harness/see.h"

#include <algorithm>
#include <cstdio>

#include "common/harness/check.h"
#include "common/harness/gpu_info.h"
#include "common/harness/operands.h"
#include "common/harness/registry.h"
#include "common/harness/stats.h"
#include "common/ptx/trace_format.h"

namespace harness {
namespace {

using ptx::trace::Config;
using ptx::trace::Event;
using ptx::trace::kPlaces;
using ptx::trace::kRegion;

void (*set_trace)(const Config&) = nullptr;

struct SeeOptions {
  std::string command, json;
  Size size{0, 0, 0};
  int launches = 3, sm = -1;
};

SeeOptions parse(const std::vector<std::string>& arguments) {
  SeeOptions o;
  o.command = arguments.at(0);
  const bool trace = o.command == "trace";
  for (size_t i = 1; i < arguments.size(); i += 2) {
    const std::string& name = arguments[i];
    const bool known = name == "--sizes" || (o.command == "once" && name == "--launches") ||
                       (trace && (name == "--json" || name == "--sm"));
    if (!known) throw UsageError(o.command + " knows no \"" + name + "\"");
    if (i + 1 == arguments.size()) throw UsageError(name + " needs a value");
    const std::string& value = arguments[i + 1];
    if (name == "--sizes") o.size = parse_size(value);
    if (name == "--launches") o.launches = int(parse_integer(value, name, 1, 1000));
    if (name == "--sm") o.sm = int(parse_integer(value, name, 0, 1023));
    if (name == "--json") o.json = value;
  }
  if (!o.size.M) throw UsageError(o.command + " needs --sizes MxNxK");
  if (trace && o.json.empty()) throw UsageError("trace needs --json FILE");
  return o;
}

/// Time of one launch. The same for traced and plain ones.
class Watch {
 public:
  Watch() {
    GPU_CHECK(cudaEventCreate(&start_));
    GPU_CHECK(cudaEventCreate(&end_));
  }
  ~Watch() {
    cudaEventDestroy(start_);
    cudaEventDestroy(end_);
  }
  double microseconds(const Launch& launch) {
    GPU_CHECK(cudaEventRecord(start_));
    launch(gpu::Stream{});
    GPU_CHECK(cudaEventRecord(end_));
    GPU_CHECK(cudaEventSynchronize(end_));
    float ms;
    GPU_CHECK(cudaEventElapsedTime(&ms, start_, end_));
    return ms * 1e3;
  }

 private:
  cudaEvent_t start_ = nullptr, end_ = nullptr;
};

/// The memory that traced launches write to.
class Recorder {
 public:
  Recorder()
      : events_(kPlaces * sizeof(Event), "trace"), used_(sizeof(uint32_t), "trace counter") {}
  ~Recorder() {
    try {
      set_trace({nullptr, nullptr, -1, 0});
    } catch (const gpu::Error&) {  // the device is lost: that was said elsewhere
    }
  }
  void arm(int sm) {
    launch_ += 1u << 24;  // more than there are blocks
    gpu::fill(events_.get(), 0, events_.bytes());
    gpu::fill(used_.get(), 0, used_.bytes());
    set_trace({events_.get<Event>(), used_.get<uint32_t>(), sm, launch_});
    gpu::synchronize();
  }
  std::vector<Event> events() {
    uint32_t used = 0;
    gpu::copy_to_host(&used, used_.get(), sizeof used);
    std::vector<Event> host(std::min(used, kPlaces));
    if (!host.empty()) gpu::copy_to_host(host.data(), events_.get(), host.size() * sizeof(Event));
    return host;
  }

 private:
  gpu::Buffer events_, used_;
  uint32_t launch_ = 0;
};

int trace_command(const Program& program, const SeeOptions& o) {
  OutputFile file(o.json);
  const Step plain = find_step(program.step);
  if (!set_trace)
    throw UsageError("this program holds no traced kernel: build " + program.step + ".trace");
  const Step traced = find_step(program.step + ".trace");
  require_support(plain, o.size);
  const size_t guard = guard_bytes(o.size);
  require_memory(Operands::bytes(o.size, guard) + kPlaces * sizeof(Event),
                 "to trace " + text(o.size));
  Operands operands(o.size, Inputs::normal, 5, guard);
  const Launch launch_plain = plain.prepare(operands.problem);
  const Launch launch_traced = traced.prepare(operands.problem);
  const GpuInfo gpu = gpu_info();
  Recorder recorder;

  // The first SM, from the asked one on, that runs a block at all: small problems leave some idle.
  int sm = std::max(o.sm, 0);
  std::vector<Event> events;
  for (; sm < gpu.sms; ++sm) {
    recorder.arm(sm);
    launch_traced(gpu::Stream{});
    gpu::synchronize();
    events = recorder.events();
    if (!events.empty() || o.sm >= 0) break;
  }
  if (events.empty())
    throw UsageError(o.sm >= 0 ? "no block ran on SM " + std::to_string(o.sm) + " of " +
                                     std::to_string(gpu.sms)
                               : program.step + " waits for nothing that could be traced");
  if (const std::string wrong = explain(operands.verdict(), o.size.M, o.size.N); !wrong.empty())
    throw gpu::Error("the traced kernel is wrong: " + wrong);

  // Plain and traced launches in turn, after the same warm-up; the last traced one is kept.
  Watch watch;
  std::vector<double> plain_us, traced_us;
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 3; ++i) launch_plain(gpu::Stream{});
    plain_us.push_back(watch.microseconds(launch_plain));
    recorder.arm(sm);
    for (int i = 0; i < 3; ++i) launch_plain(gpu::Stream{});
    traced_us.push_back(watch.microseconds(launch_traced));
  }
  events = recorder.events();
  const double plain_time = median(plain_us), traced_time = median(traced_us);
  const double overhead = 100 * (traced_time / plain_time - 1);

  std::string out = "{\"format\": 2, \"step\": " + quoted(program.step) +
                    ", \"unit\": " + quoted(program.unit) + ", \"size\": [" +
                    std::to_string(o.size.M) + ", " + std::to_string(o.size.N) + ", " +
                    std::to_string(o.size.K) + "], \"gpu\": " + quoted(gpu.name) +
                    ", \"sms\": " + std::to_string(gpu.sms) + ", \"sm\": " + std::to_string(sm) +
                    ", \"device\": " + describe_device() + ", \"plain_us\": " +
                    fixed(plain_time, 2) + ", \"traced_us\": " + fixed(traced_time, 2) +
                    ", \"last_traced_us\": " + fixed(traced_us.back(), 2) +
                    ", \"overhead_pct\": " + fixed(overhead, 2) + ",\n \"warps\": [";
  bool first = true;
  int warps = 0;
  for (size_t region = 0; region * kRegion < events.size(); ++region) {
    const Event* e = &events[region * kRegion];
    if (e->what != uint32_t(ptx::trace::Kind::warp)) continue;
    int count = 1;
    while (count < int(kRegion) && (e[count].what & 0xff)) ++count;
    out += std::string(first ? "\n" : ",\n") + "  {\"cta\": " + std::to_string(e->a) +
           ", \"warp\": " + std::to_string(e->b) +
           ", \"full\": " + (count == int(kRegion) ? "true" : "false") + ", \"events\": [";
    for (int i = 1; i < count; ++i) {
      char text[64];
      snprintf(text, sizeof text, "%s[%u,%u,%u,%u]", i > 1 ? "," : "", e[i].a, e[i].b, e[i].what,
               e[i].d);
      out += text;
    }
    out += "]}";
    first = false, ++warps;
  }
  file.commit(out + "\n ]}\n");
  printf("%s %s: plain %.1f us, traced %.1f us: overhead %.1f %%; %d warps on SM %d\n", plain.id,
         text(o.size).c_str(), plain_time, traced_time, overhead, warps, sm);
  return 0;
}

int once_command(const Program& program, const SeeOptions& o) {
  const Step step = find_step(program.step);
  require_support(step, o.size);
  const size_t guard = guard_bytes(o.size);
  require_memory(Operands::bytes(o.size, guard), "to launch " + text(o.size));
  Operands operands(o.size, Inputs::normal, 5, guard);
  const Launch launch = step.prepare(operands.problem);
  for (int i = 0; i < o.launches; ++i) launch(gpu::Stream{});
  gpu::synchronize();
  printf("%s %s: launched %d times\n", step.id, text(o.size).c_str(), o.launches);
  return 0;
}

/// What the driver says of the step's kernel, found by capturing one launch of it.
int occupancy_command(const Program& program, const SeeOptions& o) {
  const Step step = find_step(program.step);
  require_support(step, o.size);
  Operands operands(o.size, Inputs::integers, 5, 0);
  const Launch launch = step.prepare(operands.problem);
  cudaStream_t stream;
  cudaGraph_t graph;
  GPU_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  GPU_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  launch(stream);
  GPU_CHECK(cudaStreamEndCapture(stream, &graph));
  size_t count = 0;
  GPU_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  GPU_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type;
    GPU_CHECK(cudaGraphNodeGetType(node, &type));
    if (type != cudaGraphNodeTypeKernel) continue;
    cudaKernelNodeParams params;
    cudaFuncAttributes attributes;
    int blocks = 0;
    GPU_CHECK(cudaGraphKernelNodeGetParams(node, &params));
    GPU_CHECK(cudaFuncGetAttributes(&attributes, params.func));
    const int threads = int(params.blockDim.x * params.blockDim.y * params.blockDim.z);
    GPU_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, params.func, threads,
                                                            params.sharedMemBytes));
    printf("{\"blocks_per_sm\": %d, \"threads\": %d, \"registers\": %d, \"static_smem\": %zu, "
           "\"dynamic_smem\": %u, \"grid\": %u}\n",
           blocks, threads, attributes.numRegs, attributes.sharedSizeBytes, params.sharedMemBytes,
           params.gridDim.x * params.gridDim.y * params.gridDim.z);
  }
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return 0;
}

}  // namespace

int see_command(const Program& program, const std::vector<std::string>& arguments) {
  const SeeOptions options = parse(arguments);
  require_device(program);
  if (options.command == "occupancy") return occupancy_command(program, options);
  return options.command == "trace" ? trace_command(program, options)
                                    : once_command(program, options);
}

}  // namespace harness

bool ptx::trace::register_trace(void (*configure)(const Config&)) {
  harness::set_trace = configure;
  return true;
}
