// NVML by its C interface (nvml.h, NVIDIA Management Library reference), loaded at run time: the
// toolkit does not always bring its header, and a container not always the library.
#if !defined(LADDER_EMULATED)
#include <dlfcn.h>

#include <chrono>

#include "common/harness/gpu_info.h"

namespace harness {
namespace {

struct Utilization {
  unsigned gpu, memory;  // percent
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency_us;
  int type, status;
  union {
    double f64;
    unsigned u32;
    unsigned long long u64;
  } value;
};
constexpr unsigned kPowerInstant = 186;  // NVML_FI_DEV_POWER_INSTANT, mW
constexpr int kClockSm = 1;              // NVML_CLOCK_SM

}  // namespace

template <class F>
F Nvml::entry(const char* name) const {
  return library_ ? reinterpret_cast<F>(dlsym(library_, name)) : nullptr;
}

Nvml::Nvml(const std::string& pci) {
  library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  const auto init = entry<int (*)()>("nvmlInit_v2");
  const auto find = entry<int (*)(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
  if (!init || !find || init() != 0 || find(pci.c_str(), &device_) != 0) device_ = nullptr;
}

Nvml::~Nvml() {
  if (const auto shutdown = entry<int (*)()>("nvmlShutdown")) shutdown();
  if (library_) dlclose(library_);
}

std::string Nvml::driver() const {
  char text[96];
  const auto get = entry<int (*)(char*, unsigned)>("nvmlSystemGetDriverVersion");
  return get && get(text, sizeof text) == 0 ? text : "unknown";
}

double Nvml::power_limit() const {
  unsigned milliwatts;
  const auto get = entry<int (*)(void*, unsigned*)>("nvmlDeviceGetEnforcedPowerLimit");
  return device_ && get && get(device_, &milliwatts) == 0 ? milliwatts * 1e-3 : -1;
}

Nvml::Sample Nvml::sample() const {
  Sample s;
  if (!device_) return s;
  unsigned mhz, milliwatts;
  Utilization used;
  FieldValue power = {};
  power.field = kPowerInstant;
  const auto clock = entry<int (*)(void*, int, unsigned*)>("nvmlDeviceGetClockInfo");
  const auto fields = entry<int (*)(void*, int, FieldValue*)>("nvmlDeviceGetFieldValues");
  const auto average = entry<int (*)(void*, unsigned*)>("nvmlDeviceGetPowerUsage");
  const auto usage = entry<int (*)(void*, Utilization*)>("nvmlDeviceGetUtilizationRates");
  if (clock && clock(device_, kClockSm, &mhz) == 0) s.sm_mhz = mhz;
  if (fields && fields(device_, 1, &power) == 0 && power.status == 0)
    s.power_w = power.value.u32 * 1e-3;
  else if (average && average(device_, &milliwatts) == 0)  // older drivers: over the last second
    s.power_w = milliwatts * 1e-3;
  if (usage && usage(device_, &used) == 0) s.gpu_pct = used.gpu, s.memory_pct = used.memory;
  return s;
}

Sampler::Sampler(const Nvml& nvml) : nvml_(nvml), thread_([this] { run(); }) {}

Sampler::~Sampler() {
  stop_ = true;
  thread_.join();
}

void Sampler::open(Window* window) {
  const std::lock_guard<std::mutex> lock(mutex_);
  window_ = window;
}

void Sampler::close() { open(nullptr); }

void Sampler::run() {
  while (!stop_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!window_) continue;
    }
    const Nvml::Sample s = nvml_.sample();  // not under the lock: it can take a millisecond
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!window_) continue;
    Nvml::Sample& sum = window_->sum;
    const bool first = window_->count++ == 0;
    const auto add = [first](double& total, double value) { total = (first ? 0 : total) + value; };
    add(sum.sm_mhz, s.sm_mhz), add(sum.power_w, s.power_w);
    add(sum.gpu_pct, s.gpu_pct), add(sum.memory_pct, s.memory_pct);
  }
}

}  // namespace harness
#endif
