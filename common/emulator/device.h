// The emulated device as its host side (common/gpu/emulated.h) and the harness see it. What kernels
// call: common/ptx/emulated/instructions.h. Knows nothing of GEMM.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/ptx/emulated/types.h"

namespace emu {

/// Where in the kernel's source something was called.
struct Loc {
  const char* file = "";
  unsigned line = 0;
  /// As a default argument: where the function that has it is called.
  static constexpr Loc current(const char* file = __builtin_FILE(),
                               unsigned line = __builtin_LINE()) {
    return {file, line};
  }
};

struct LaunchInfo {
  const char* step;
  const void* kernel;  // resolved to a name in reports
  dim3 grid, block, cluster;
  size_t dynamic_smem;
};
/// Runs the grid; returns when it has ended or can't go on.
void launch(const LaunchInfo&, const std::function<void()>& thread_body);

void* device_malloc(size_t bytes, const char* name);
void device_free(void*);
/// The host has written here: reads of it are no longer "never written".
void device_initialised(void*, size_t bytes);

int num_sms();                  // 4, or EMU_SMS: as many CTAs run at once
constexpr size_t kL2PerSm = 256 * 1024;  // about half of an H200's share
constexpr size_t kMaxSmem = 227 * 1024;  // dynamic shared memory of one block, as on sm_90
void set_seed(unsigned seed);   // order of threads and of landings; default EMU_SEED or 0
void set_trace(bool on);        // the first report tells what happened to the same buffer before

struct Access {  // of one kind, over a launch
  uint64_t requests = 0, bytes = 0, sectors = 0, wavefronts = 0, ideal = 0;
};
struct Counters {
  uint64_t blocks = 0, threads = 0;
  Access global_load, global_store;             // sectors of 32 bytes; bytes are those asked for
  Access shared_load, shared_store, ldmatrix, stmatrix, cp_async;
  uint64_t tma_load_bytes = 0, tma_store_bytes = 0, mma_flops = 0, wgmma_flops = 0;
  uint64_t barriers = 0, mbarrier_arrivals = 0, mbarrier_waits = 0, atomics = 0;
  uint64_t tma_multicast_bytes = 0;  // of tma_load_bytes, those for another block
  uint64_t tma_miss_bytes = 0;  // of boxes that are not among the last kL2PerSm * num_sms() loaded
  uint64_t cp_async_ahead = 0, wgmma_ahead = 0;  // most groups in flight when a wait returned
};
const Counters& counters();                      // of the last launch
std::vector<std::pair<std::string, double>> counters_list(const Counters&);

int reports();                                   // findings so far, repeats included
const std::vector<std::string>& report_texts();  // the first of each kind and place
void clear_reports();
void set_quiet(bool on);                         // collect them, print none

}  // namespace emu
