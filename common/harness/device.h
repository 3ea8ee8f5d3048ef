// What the harness asks of a device, and the commands that only a GPU has. Implemented by
// device.cu on a GPU, by emulated.cpp on the emulated device.
#pragma once
#include <memory>
#include <utility>

#include "common/gpu/gpu.h"
#include "common/harness/options.h"

namespace harness {

/// What the build says about the step of this program: the first lines of its kernel.cu.
struct Program {
  std::string step, base, arch, unit;  // "06_warp_tile", "" for none, "75+" or "90a", "ffma"
};

/// Throws UsageError if this device cannot run a step for `arch`, gpu::Error if there is none.
void require_device(const Program& program);
/// JSON object: name, sm, sms, memory (bytes), driver, cuda; null where there is no GPU.
std::string describe_device();
/// Bytes of device memory that can still be allocated.
double free_memory();
/// Throws gpu::Error, with what is needed and what is free, if `bytes` cannot be allocated.
void require_memory(double bytes, const std::string& for_what);

/// A buffer of at least so many bytes. On a GPU one that was given back serves again, where it is
/// not much too large: checks of thousands of small shapes would wait for cudaMalloc otherwise.
std::shared_ptr<gpu::Buffer> take_buffer(size_t bytes, const char* name);
/// From now on every buffer is exactly as large as it must be and none has guard bands, so that
/// compute-sanitizer sees each access outside.
void use_exact_buffers();

/// The emulated device runs threads and lands copies in another order for every seed.
void set_schedule(uint64_t seed);
/// Bytes of the guard bands around the matrices that `check` uses.
size_t check_guard(const Size& size);
/// `budget` of the suite: the emulated device is slow.
double check_budget(const Program& program);
/// What the emulated device counted during the last launch, by name; nothing on a GPU.
std::vector<std::pair<std::string, double>> counters();
/// What the emulated device found wrong since the last call (races, hazards, accesses out of
/// bounds), the first in full; "" if nothing, and on a GPU.
std::string take_findings();

int bench_command(const Program& program, const Options& options);
int ceilings_command(const Program& program, const Options& options);
int tune_command(const Program& program, const Options& options);
int trust_command(const Program& program, const Options& options);
/// Skips or changes every barrier, wait, arrival and fence of the step in turn: is it missed?
int mutate_command(const Program& program, const Options& options);

}  // namespace harness
