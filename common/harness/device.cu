// The GPU as device.h wants it: what it is, what it can run, its datasheet.
#include <algorithm>
#include <vector>

#include "common/harness/device.h"
#include "common/harness/gpu_info.h"
#include "common/harness/operands.h"
#include "common/step.h"

namespace harness {
namespace {

__global__ void probe_kernel() {}

int compute_capability() {
  return 10 * gpu::attribute(cudaDevAttrComputeCapabilityMajor) +
         gpu::attribute(cudaDevAttrComputeCapabilityMinor);
}

std::string version_text(int version) {  // 13000 -> "13.0"
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

GpuInfo gpu_info() {
  GpuInfo info;
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0)
    throw gpu::Error(std::string("no usable GPU: ") +
                     (status != cudaSuccess ? cudaGetErrorString(status) : "none is visible") +
                     "; is an NVIDIA driver installed (nvidia-smi)?");
  cudaDeviceProp properties;
  GPU_CHECK(cudaGetDeviceProperties(&properties, 0));
  GPU_CHECK(cudaDriverGetVersion(&driver));
  GPU_CHECK(cudaRuntimeGetVersion(&runtime));
  char pci[32];
  GPU_CHECK(cudaDeviceGetPCIBusId(pci, sizeof pci, 0));
  info.name = properties.name;
  info.pci = pci;
  info.sm = compute_capability();
  info.sms = gpu::num_sms();
  info.memory = double(properties.totalGlobalMem);
  info.l2 = gpu::attribute(cudaDevAttrL2CacheSize);
  info.clock_ghz = gpu::attribute(cudaDevAttrClockRate) * 1e-6;
  info.driver_cuda = version_text(driver);
  info.cuda = version_text(runtime);
  return info;
}

double peak_tflops(const GpuInfo& gpu) {
  // Dense FP16 Tensor Core with FP32 accumulate. Sources: NVIDIA's datasheets of H100 (sparse
  // figure halved), H200, A100, A30, A10, A40, L4, L40, L40S, T4, B200 (HGX, one of eight), and
  // the architecture whitepapers GA102, AD102, RTX Blackwell for the GeForce cards.
  static const struct {
    const char* name;  // the first one found in the GPU's name counts
    double tflops;
  } table[] = {
      {"H200 NVL", 835.5}, {"H200", 989.4},     {"GH200", 989.4},    {"H100 PCIe", 756},
      {"H100 NVL", 835.5}, {"H100", 989.4},     {"H800", 989.4},     {"H20", 148},
      {"B200", 2250},      {"A100", 312},       {"A800", 312},       {"A30", 165},
      {"A40", 149.7},      {"A10G", 70},        {"A10", 125},        {"L40S", 362},
      {"L40", 181},        {"L4", 121},         {"Tesla T4", 65},    {"RTX 5090", 209.5},
      {"RTX 5080", 112.6}, {"RTX 4090", 165.2}, {"RTX 4080", 97.5},  {"RTX 3090 Ti", 80},
      {"RTX 3090", 71},    {"RTX 3080 Ti", 68}, {"RTX 3080", 59.5},
  };
  for (const auto& row : table)
    if (gpu.name.find(row.name) != std::string::npos) return row.tflops;
  // FLOP per clock and SM; GeForce cards do FP32 accumulate at half the rate of their siblings.
  const double rate = gpu.sm == 80                    ? 2048
                      : gpu.sm == 90                  ? 4096
                      : gpu.sm == 100 || gpu.sm == 103 ? 8192
                                                      : 1024;
  const bool geforce = gpu.name.find("GeForce") != std::string::npos;
  return gpu.sms * (geforce ? rate / 2 : rate) * gpu.clock_ghz * 1e-3;
}

std::string describe_device() {
  try {
    const GpuInfo gpu = gpu_info();
    return "{\"name\": " + quoted(gpu.name) + ", \"sm\": " + quoted(std::to_string(gpu.sm)) +
           ", \"sms\": " + std::to_string(gpu.sms) + ", \"memory\": " + fixed(gpu.memory, 0) +
           ", \"driver\": " + quoted(Nvml(gpu.pci).driver()) + ", \"cuda\": " + quoted(gpu.cuda) +
           ", \"peak_tflops\": " + fixed(peak_tflops(gpu), 1) + "}";
  } catch (const gpu::Error&) {
    return "null";
  }
}

void require_device(const Program& program) {
  const GpuInfo gpu = gpu_info();
  const bool exact = program.arch.back() == 'a';  // "90a": this GPU and no newer one
  const int needed = std::stoi(program.arch);
  if (exact ? gpu.sm != needed : gpu.sm < needed)
    throw UsageError(program.step + " needs " + (exact ? "exactly" : "at least") + " sm_" +
                     program.arch.substr(0, program.arch.find('+')) + "; " + gpu.name + " is sm_" +
                     std::to_string(gpu.sm));
  cudaFuncAttributes attributes;
  const cudaError_t status = cudaFuncGetAttributes(&attributes, probe_kernel);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
    cudaGetLastError();
    throw UsageError("this program was built for other GPUs; build it with LADDER_ARCHS=" +
                     std::to_string(gpu.sm));
  }
  gpu::check(status, "cudaFuncGetAttributes");
}

double free_memory() {
  size_t free = 0, total = 0;
  GPU_CHECK(cudaMemGetInfo(&free, &total));
  return double(free);
}

void require_memory(double bytes, const std::string& for_what) {
  if (const double free = free_memory(); bytes > free)
    throw gpu::Error("needs " + bytes_text(bytes) + " of GPU memory " + for_what + "; " +
                     bytes_text(free) + " are free");
}

namespace {
bool exact_buffers = false;
}  // namespace

void use_exact_buffers() { exact_buffers = true; }

std::shared_ptr<gpu::Buffer> take_buffer(size_t bytes, const char* name) {
  constexpr size_t kKept = 32, kLeast = 1 << 20, kLargest = 64 << 20;
  // Never destroyed: at the end of the program CUDA may be gone before it.
  static auto& kept = *new std::vector<std::unique_ptr<gpu::Buffer>>;
  if (exact_buffers || bytes > kLargest) return std::make_shared<gpu::Buffer>(bytes, name);
  const auto fits = [&](const auto& b) {
    return b->bytes() >= bytes && b->bytes() <= 4 * std::max(bytes, kLeast);
  };
  const auto found = std::find_if(kept.begin(), kept.end(), fits);
  std::unique_ptr<gpu::Buffer> buffer;
  if (found != kept.end()) {
    buffer = std::move(*found);
    kept.erase(found);
  } else {
    buffer = std::make_unique<gpu::Buffer>(std::max(bytes * 2, kLeast), name);
  }
  return {buffer.release(), [](gpu::Buffer* given_back) {
            kept.insert(kept.begin(), std::unique_ptr<gpu::Buffer>(given_back));
            if (kept.size() > kKept) kept.pop_back();
          }};
}

void set_schedule(uint64_t) {}
size_t check_guard(const Size& size) { return exact_buffers ? 0 : guard_bytes(size); }
double check_budget(const Program&) { return 1e12; }
std::vector<std::pair<std::string, double>> counters() { return {}; }
std::string take_findings() { return ""; }

}  // namespace harness
