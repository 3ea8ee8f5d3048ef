// 31_cuda_graph: a transformer block as twelve launches, as one graph, and with dependent launch
// arch: 90a
// uses: 18_wgmma_pipeline, 23_tma_store
//
// Workloads. decode1: one token through the block, the launch-bound end. batchN: the block on N
// sequences of 64 tokens, on to the compute-bound end. decode_model1, model1: twelve blocks in a
// row, so that a graph can be long. spinNus: twelve kernels of N microseconds that do nothing, to
// see what hides what. handoverNMB: one kernel writes N MB, the next reads them, to see what a
// graph does with data.
#include "block.h"
#include "common/harness/experiment.h"
#include "decode.h"
#include "ways.h"

namespace {

using block::Block;
using block::Decode;
using block::Gemm;
using block::How;
using block::Layers;
using block::Node;
using block::Nodes;
using block::Submit;
using block::Way;
using harness::Counters;
using harness::Run;
using harness::Setup;
using harness::Variant;

/// What the variants of a block share: which of them ran last, and what the first one computed.
struct Seen {
  bool ours = true;
  std::map<int, std::vector<half>> found;  // by layer
};

/// "" if this layer's output is right, and the same bits whoever launched the kernels.
std::string check(Layers& work, Seen& seen, int layer) {
  const std::vector<half> got = work.output(layer);
  if (seen.ours) {
    auto& found = seen.found[layer];
    if (found.empty()) found = got;
    if (memcmp(found.data(), got.data(), got.size() * sizeof(half)))
      return "not bit for bit what the first variant computes";
  }
  return work.compare(layer, got);
}

Variant variant(const std::string& name, const std::shared_ptr<Way>& way,
                const std::shared_ptr<Seen>& seen, bool ours) {
  Variant v = block::variant(name, way);
  v.run = [way, seen, ours](const Run& r) {
    seen->ours = ours;
    way->run(r);
  };
  return v;
}

/// One layer an iteration; inputs rotate over all.
Setup one_of(const std::shared_ptr<Layers>& work, int layers, bool drawn, bool in_short = false) {
  const auto seen = std::make_shared<Seen>();
  Setup setup;
  setup.sets = layers;
  setup.flop = work->flop();
  setup.poison = [work] { work->poison(); };
  setup.check = [work, seen](int layer) { return check(*work, *seen, layer); };
  const auto add = [&](const std::string& name, Gemm gemm, Submit submit, bool programmatic) {
    const bool main = name == "launches" || name == "graph" || name == "graph_pdl";
    if (in_short && !main) return;
    std::vector<Nodes> sets;
    for (int layer = 0; layer < layers; ++layer) sets.push_back(work->nodes(layer, gemm));
    const bool ours = gemm == Gemm::ladder;
    Variant v = variant(name, std::make_shared<Way>(sets, submit, programmatic), seen, ours);
    v.drawn = drawn && main;
    setup.variants.push_back(v);
  };
  add("launches", Gemm::ladder, Submit::launches, false);
  add("launches_pdl", Gemm::ladder, Submit::launches, true);
  add("launches_and_waits", Gemm::ladder, Submit::launches_and_waits, false);
  add("graph", Gemm::ladder, Submit::graph, false);
  add("graph_pdl", Gemm::ladder, Submit::graph, true);
  add("cublas_launches", Gemm::cublas, Submit::launches, false);
  add("cublas_graph", Gemm::cublas, Submit::graph, false);
  setup.keep = work;
  return setup;
}

constexpr int LAYERS = 12;  // their weights (75 MB) no L2 keeps

/// Three layers are enough where even one layer's activations are larger.
Setup batch(int sequences) {
  const int layers = sequences <= 64 ? LAYERS : 3;
  return one_of(std::make_shared<Block>(sequences, layers), layers, sequences == 1024,
                sequences > 1024);
}

/// All layers an iteration: what a graph of a whole model is worth over one of a block.
Setup model(const std::shared_ptr<Layers>& work) {
  const auto seen = std::make_shared<Seen>();
  Setup setup;
  setup.flop = LAYERS * work->flop();
  setup.poison = [work] { work->poison(); };
  setup.check = [work, seen](int) -> std::string {
    for (int layer : {0, LAYERS - 1})
      if (std::string wrong = check(*work, *seen, layer); !wrong.empty()) return wrong;
    return "";
  };
  Nodes nodes;
  for (int layer = 0; layer < LAYERS; ++layer)
    for (const Node& node : work->nodes(layer, Gemm::ladder)) nodes.push_back(node);
  const auto add = [&](const std::string& name, Submit submit, bool programmatic, size_t each) {
    setup.variants.push_back(
        variant(name, std::make_shared<Way>(std::vector<Nodes>{nodes}, submit, programmatic, each),
                seen, true));
  };
  add("launches", Submit::launches, false, 0);
  add("graph_a_block", Submit::graph, false, nodes.size() / LAYERS);
  add("graph", Submit::graph, false, nodes.size());
  add("graph_pdl", Submit::graph, true, nodes.size());
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
    Variant v =
        block::variant(name, std::make_shared<Way>(std::vector<Nodes>{nodes}, submit, false));
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
  const int ctas = gpu::num_sms() * 4, threads = block::ELEMENT_THREADS;
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
    Variant v = block::variant(name, way);
    v.measured = [way, megabytes] {  // how fast the second kernel read what the first one left
      Counters counters = way->stamped();
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
  all.push_back({"decode1", [] { return one_of(std::make_shared<Decode>(LAYERS), LAYERS, true); }});
  all.push_back({"decode_model1", [] { return model(std::make_shared<Decode>(LAYERS)); }});
  for (int sequences : {1, 4, 16, 64, 256, 1024, 4096})
    all.push_back({"batch" + std::to_string(sequences), [=] { return batch(sequences); }});
  all.push_back({"model1", [] { return model(std::make_shared<Block>(1, LAYERS)); }});
  for (int us : {1, 2, 5, 10, 25})
    all.push_back({"spin" + std::to_string(us) + "us", [=] { return spin(us); }});
  for (int mb : {4, 16, 64, 256})
    all.push_back({"handover" + std::to_string(mb) + "MB", [=] { return handover(mb); }});
  return all;
}
