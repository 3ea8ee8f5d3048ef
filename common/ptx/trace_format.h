// What the trace backend writes and the program NN_idea.trace reads (tools/lib/tracing.py knows the
// kinds by these numbers).
#pragma once
#include <cstdint>

namespace ptx::trace {

enum class Kind : uint32_t {
  warp = 1,         // {CTA, warp, kind, time}: the first event of a region
  label,            // {address, letters 0-3, kind | stage + 1 << 8 | bytes / 8 << 16, letters 4-7}
  // the others: {begin, end, kind | n << 8 | line << 16, address in shared memory}
  copy_commit,      // the group's copies lie between this and the event before
  copy_wait,        // n groups may stay in flight
  barrier,
  mbarrier_wait,
  tma_load,
  wgmma_wait,       // begins when the group was committed; n groups may stay in flight
  tma_store,
  store_wait,
  cluster_barrier,
  flag_wait,
};

struct Event {
  uint32_t a, b, what, d;
};

constexpr uint32_t kRegion = 1 << 15;        // events of a warp, at most
constexpr uint32_t kPlaces = kRegion << 8;   // events in all

struct Config {
  Event* events;    // [kPlaces], zero before the launch
  uint32_t* used;   // events handed out
  int sm;           // the SM that is watched; -1: none
  uint32_t launch;  // differs from launch to launch by more than there are blocks
};

/// Called once by a kernel.cu built for tracing (common/harness/trace.cu has it).
bool register_trace(void (*configure)(const Config&));

}  // namespace ptx::trace
