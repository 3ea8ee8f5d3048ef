// On a GPU: `tune` times what is right, and nothing else.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "common/harness/device.h"
#include "common/harness/kind.h"
#include "common/harness/registry.h"
#include "tests/catch.h"

using namespace harness;

namespace {

__global__ void multiply(Problem p, int times, float extra) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= p.batch * p.M * p.N) return;
  const int64_t batch = i / (p.M * p.N), row = i / p.N % p.M, col = i % p.N;
  const Storage a = storage_a(p), b = storage_b(p), c = storage_c(p);
  float sum = 0;
  for (int repeat = 0; repeat < times; ++repeat) {
    sum = i == p.M ? extra : 0;
    for (int64_t k = 0; k < p.K; ++k)
      sum += float(load(a.type, p.A, a.index(batch, row, k)) *
                   load(b.type, p.B, b.index(batch, k, col)));
  }
  store(c.type, p.C, c.index(batch, row, col), sum);
}

std::vector<std::string> candidates(const Problem&) {
  std::vector<std::string> names;
  std::istringstream words(std::getenv("TEST_CANDIDATES"));
  for (std::string word; words >> word;) names.push_back(word);
  return names;
}

Launch prepare(const Problem& p) {
  const char* given = std::getenv("LADDER_GEMM_CONFIG");
  const std::string config = given ? given : "good";
  if (config == "throws") throw gpu::Error("no such configuration");
  const int times = config == "slow" ? 50 : 1;
  const float extra = config == "wrong" ? 1 : 0;
  const gpu::LaunchConfig shape = {dim3(unsigned((p.batch * p.M * p.N + 255) / 256)), dim3(256)};
  return [=](gpu::Stream stream) { gpu::launch(stream, shape, multiply, p, times, extra); };
}

std::string tuned(const char* names) {
  setenv("TEST_CANDIDATES", names, 1);
  Options options;
  options.command = "tune";
  options.sizes = {{128, 96, 64}, {64, 32, 48, parse_kind("TN-bf16-batch3")}};
  options.json = "gpu_tune.json";
  std::remove(options.json.c_str());
  const int code = tune_command({"95_tuned", "", "75+", "ffma"}, options);  // may throw: no CHECK
  CHECK(code == 0);
  std::stringstream text;
  text << std::ifstream(options.json).rdbuf();
  std::remove(options.json.c_str());
  return text.str();
}

}  // namespace

TEST_CASE("a candidate that is wrong or fails is never timed") {
  register_step({"95_tuned", [](const Problem&) { return std::string(); }, prepare, candidates});
  const std::string all = tuned("slow wrong good throws");
  CHECK(all.find("wrong") == std::string::npos);
  CHECK(all.find("throws") == std::string::npos);
  CHECK(all.find("\"good\"") < all.find("\"slow\""));  // fastest first
  CHECK(all.find("\"slow\"") != std::string::npos);
  CHECK(all.find("64x32x48/TN-bf16-batch3") != std::string::npos);
  CHECK(tuned("wrong good").find("wrong") == std::string::npos);  // the first is judged as well
  CHECK_THROWS_AS(tuned("wrong throws"), gpu::Error);
  CHECK(std::getenv("LADDER_GEMM_CONFIG") == nullptr);
}
