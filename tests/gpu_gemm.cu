// step: 29_any_shape
// gemm() on a GPU: from two threads, inside graph capture, beside other work, past 2^31 elements.
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/catch.h"
#include "tests/gemm_support.h"

namespace {

struct Stream {
  cudaStream_t get;
  Stream() { GPU_CHECK(cudaStreamCreateWithFlags(&get, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(get); }
};

bool supported() {
  const bool hopper = gpu::attribute(cudaDevAttrComputeCapabilityMajor) == 9;
  if (!hopper) WARN("needs compute capability 9.0");
  return hopper;
}

std::vector<GemmParams> mixed() {
  const Layout row = Layout::row_major, col = Layout::col_major;
  return {gemm_params(16, 512, 2048),                          // split along K
          gemm_params(129, 257, 65, row, col, Type::bf16, 1),  // padded
          gemm_params(300, 520, 136, col, row), gemm_params(1, 1, 1),
          gemm_params(64, 96, 4099, col, col, Type::bf16)};
}

}  // namespace

TEST_CASE("gemm: two threads, each with its stream and workspace") {
  if (!supported()) return;
  std::atomic<int> wrong{0}, failed{0};
  const auto work = [&](unsigned seed) {
    Stream stream;
    std::vector<std::unique_ptr<GemmCase>> cases;
    size_t bytes = 0;
    for (const GemmParams& p : mixed()) {
      cases.push_back(std::make_unique<GemmCase>(p, seed++));
      bytes = std::max(bytes, gemm_workspace_bytes(cases.back()->p));
    }
    Workspace workspace(bytes);  // one for all of them, one after the other
    for (int round = 0; round < 20; ++round) {
      for (auto& c : cases)
        failed += gemm(c->p, workspace.get(), workspace.bytes(), stream.get) != cudaSuccess;
      GPU_CHECK(cudaStreamSynchronize(stream.get));
      for (auto& c : cases) wrong += c->wrong() != 0;
    }
  };
  std::thread other(work, 100u);
  work(1);
  other.join();
  CHECK(failed == 0);
  CHECK(wrong == 0);
}

TEST_CASE("gemm: captured into a graph, launched again and again") {
  if (!supported()) return;
  Stream stream;
  for (const GemmParams& p : mixed()) {
    GemmCase c(p);
    Workspace workspace(gemm_workspace_bytes(c.p));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    GPU_CHECK(cudaStreamBeginCapture(stream.get, cudaStreamCaptureModeGlobal));
    const gpu::Status status = gemm(c.p, workspace.get(), workspace.bytes(), stream.get);
    GPU_CHECK(cudaStreamEndCapture(stream.get, &graph));
    REQUIRE(status == cudaSuccess);
    GPU_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int launch = 0; launch < 3; ++launch) {
      c.clear();
      GPU_CHECK(cudaDeviceSynchronize());
      GPU_CHECK(cudaGraphLaunch(exec, stream.get));
      GPU_CHECK(cudaStreamSynchronize(stream.get));
      CHECK(c.wrong() == 0);
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
  }
}

// Split tiles, while other launches take SMs away: whoever adds the parts up, same bits.
TEST_CASE("gemm: the same bits every time") {
  if (!supported()) return;
  const GemmParams shapes[] = {gemm_params(256, 512, 3000), gemm_params(1000, 1000, 1000)};
  for (const char* config : {"128x128/c1x1/s16/g8/p0", "128x256/c2x1/s7/g8/p0",
                             "64x128/c1x1/s40/g8/p0",
                             "128x128/c1x8/s1/g8/p0", "200x256/c1x1/s1/g4/p1"}) {
    const Forced forced(config);
    for (GemmParams shape : shapes) {
      shape.alpha = 0.3f;  // so that an other order of the sums would be seen
      GemmCase c(shape), noise(shape);
      std::vector<uint16_t> fine(c.a.size());
      for (size_t i = 0; i < fine.size(); ++i)
        fine[i] = uint16_t(0x3000 + i * 7919 % 0x1000);  // 0.125 to 2
      gpu::copy_to_device(c.A.get(), fine.data(), c.A.bytes());
      Workspace workspace(gemm_workspace_bytes(c.p)), other(gemm_workspace_bytes(noise.p));
      Stream stream, noisy;
      std::vector<float> first;
      int different = 0;
      for (int run = 0; run < 30; ++run) {
        c.clear();
        GPU_CHECK(cudaDeviceSynchronize());
        for (int i = 0; i < run % 4; ++i)
          REQUIRE(gemm(noise.p, other.get(), other.bytes(), noisy.get) == cudaSuccess);
        REQUIRE(gemm(c.p, workspace.get(), workspace.bytes(), stream.get) == cudaSuccess);
        GPU_CHECK(cudaDeviceSynchronize());
        const std::vector<float> now = c.result();
        if (run == 0) first = now;
        different += std::memcmp(first.data(), now.data(), now.size() * 4) != 0;
      }
      INFO(config);
      CHECK(different == 0);
      CHECK(gemm_is_reproducible(c.p));
    }
  }
}

namespace {
using Count = unsigned long long;
__global__ void fill_with(uint16_t* p, int64_t n, uint16_t value) {
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) p[i] = value;
}
__global__ void count_others(const uint16_t* p, int64_t n, uint16_t value, Count* found) {
  Count mine = 0;
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll)
    mine += p[i] != value;
  if (mine) atomicAdd(found, mine);
}
}  // namespace

TEST_CASE("gemm: a C of more than 2^31 elements") {
  if (!supported()) return;
  for (int64_t ldc : {50000, 50001}) {  // by TMA, and element by element
    const int64_t M = 50000, N = 50000, K = 8, elements = M * ldc;
    size_t free_bytes = 0, all = 0;
    GPU_CHECK(cudaMemGetInfo(&free_bytes, &all));
    if (free_bytes < size_t(elements) * 2 + (size_t{1} << 30)) {
      WARN("not enough memory: " << free_bytes << " bytes are free");
      return;
    }
    gpu::Buffer A(M * K * 2), B(K * N * 2), C(elements * 2), found(8);
    gpu::fill(C.get(), 0, C.bytes()), gpu::fill(found.get(), 0, 8);
    fill_with<<<1024, 256>>>(A.get<uint16_t>(), M * K, bits_of(Type::f16, 1));
    fill_with<<<1024, 256>>>(B.get<uint16_t>(), K * N, bits_of(Type::f16, 1));
    GemmParams p = make_problem(M, N, K, A.get(), B.get(), C.get());
    p.ldc = ldc;
    Workspace workspace(gemm_workspace_bytes(p));
    REQUIRE(gemm(p, workspace.get(), workspace.bytes(), nullptr) == cudaSuccess);
    // All are 8; where rows are longer than N, the last element of each stays 0.
    count_others<<<1024, 256>>>(C.get<uint16_t>(), elements, 0x4800, found.get<Count>());
    Count others = 0;
    gpu::copy_to_host(&others, found.get(), 8);
    CHECK(others == Count(M * (ldc - N)));
  }
}
