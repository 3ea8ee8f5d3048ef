// What the GPU is, and what NVML reads of it. GPU builds only.
#pragma once
#include <atomic>
#include <mutex>
#include <string>
#include <thread>

namespace harness {

struct GpuInfo {
  std::string name, pci, driver_cuda, cuda;  // "NVIDIA H200", bus id, newest CUDA, CUDA built with
  int sm = 0, sms = 0;                       // 90, 132
  double memory = 0, l2 = 0;                 // bytes
  double clock_ghz = 0;                      // the highest
};

/// The current device. Throws gpu::Error if there is no GPU.
GpuInfo gpu_info();

/// TFLOPS of the datasheet: dense FP16 Tensor Core with FP32 accumulate.
double peak_tflops(const GpuInfo& gpu);

/// NVIDIA's management library, loaded if it is there; every figure is -1 where it is not.
class Nvml {
 public:
  explicit Nvml(const std::string& pci);
  ~Nvml();
  Nvml(const Nvml&) = delete;

  std::string driver() const;    // "580.159.04", or "unknown"
  double power_limit() const;    // W
  struct Sample {
    double sm_mhz = -1, power_w = -1;          // now
    double gpu_pct = -1, memory_pct = -1;      // of the time, over the driver's last period
  };
  Sample sample() const;

 private:
  void* library_ = nullptr;
  void* device_ = nullptr;
  template <class F>
  F entry(const char* name) const;
};

/// Samples in a thread of its own while a window is open; a window may be opened many times.
class Sampler {
 public:
  explicit Sampler(const Nvml& nvml);
  ~Sampler();
  struct Window {
    Nvml::Sample sum;  // of `count` samples
    int count = 0;
  };
  void open(Window* window);
  void close();

 private:
  void run();
  const Nvml& nvml_;
  std::mutex mutex_;
  Window* window_ = nullptr;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace harness
