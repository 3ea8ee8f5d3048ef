// The state of the running launch, shared by the files of the device.
#pragma once
#include <boost/context/fiber.hpp>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/emulator/clocks.h"
#include "common/ptx/emulated/language.h"

namespace emu {

using Site = uint32_t;  // a place in the source: from a Loc, or from a return address (report.cpp)

struct Cta;
struct Thread;

/// Threads that meet: a warp, a warpgroup, a block at a barrier, a cluster.
struct Meeting {
  unsigned arrived = 0, expected = 0;
  Loc here{};
  std::vector<Thread*> waiting;
  ClockSum sum;
};

/// A copy of one thread by cp.async. Lands when the thread waits for its group, or when an
/// mbarrier arrival that follows it is delivered.
struct CpAsync {
  char* smem;
  const char* gmem;
  unsigned bytes, from_gmem;  // zeros after the first `from_gmem`
  Site site;
  bool landed = false;
};
using CpGroup = std::vector<std::shared_ptr<CpAsync>>;

struct TmaStore {
  CUtensorMap map;
  const char* smem;
  int coords[5];
  Loc here;
};

enum AccessKind : uint8_t { kGlobalLoad, kGlobalStore, kSharedLoad, kSharedStore, kCpAsync };

/// One plain access of one lane, kept until its warp's requests are counted.
struct LoggedAccess {
  uintptr_t address;
  Site site;
  uint8_t bytes;
  AccessKind kind;
};

struct Thread {
  boost::context::fiber fiber;
  Cta* cta = nullptr;
  uint3 index{};
  unsigned linear = 0;  // in the block
  unsigned id = 0;      // in clocks
  bool done = false, ready = false;
  bool loads = false, multiplies = false;  // what it has done so far: names its role in reports

  const char* waits_for = nullptr;  // while it can't run
  Loc waits_at{};
  struct Mbarrier* waits_on = nullptr;
  uint32_t waits_parity = 0;
  const int* waits_flag = nullptr;
  int waits_value = 0;
  uint64_t polled_at = ~uint64_t{0};
  unsigned idle_polls = 0;  // since anything changed

  Clock known;                // of the others
  Tick first = 1, now = 1;    // its own ticks: since its start, now
  std::vector<Tick> proxy_fences, init_fences;  // when it ran them
  Clock known_at_proxy_fence;
  Clock released_by_fence, acquired_by_fence;  // __threadfence with relaxed flags

  CpGroup cp_open;
  std::vector<CpGroup> cp_groups;  // oldest first
  std::shared_ptr<std::deque<std::function<void()>>> cp_arrivals;  // on mbarriers, behind copies
  std::vector<TmaStore> stores_open;
  std::vector<std::vector<TmaStore>> store_groups;
  unsigned store_agent = 0;
  Tick stores_committed = 0;

  std::vector<LoggedAccess> log;  // since the last barrier of the block

  bool cluster_arrived = false;
  unsigned cluster_phase = 0;
  bool wgmma_fenced = false;
  uintptr_t acc_low = ~uintptr_t{0}, acc_high = 0;  // bounds of its wgmma accumulators

  unsigned warp() const { return linear / 32; }
  unsigned lane() const { return linear % 32; }
  unsigned warpgroup() const { return linear / 128; }
};

struct Mbarrier {
  Cta* cta = nullptr;
  uint32_t offset = 0;
  unsigned agent = 0;
  uint32_t count = 0, pending = 0;
  int64_t tx = 0;
  Tick phase = 0;
  ClockSum arrivals;  // of this phase
  Clock done;         // of the last completed phase
  unsigned init_thread = 0;
  Tick init_tick = 0;
  Loc init_at{};
};

struct Warp {
  Meeting meeting;
  const void* in[32];
  const void* in2[32];
  void* out[32];
  uint64_t value[32];
};

/// Accumulator of a warpgroup while wgmmas on it are in flight; the threads' registers are poison.
struct Accumulator {
  float* registers[128];
  unsigned columns = 0, pending = 0;
  bool touched = true;        // registers used by other instructions since the last wgmma.fence
  std::vector<float> tile;    // [64][columns]
};

struct Wgmma {
  Accumulator* acc;
  uint64_t desc_a, desc_b;
  std::vector<uint16_t> rows_a;  // [64][16] if A came from registers
  bool scale_d, mn_a, mn_b, bf16;
  unsigned n;
  Loc here;
};

struct Warpgroup {
  Meeting meeting;
  unsigned agent = 0;
  Tick committed = 0, retired = 0;
  std::vector<Wgmma> open;
  std::vector<std::vector<Wgmma>> groups;
  std::vector<std::unique_ptr<Accumulator>> accumulators;
  float* registers[128];
  const uint32_t* frag_a[128];
};

/// Shadow of two bytes of memory: who wrote them last, and up to three who read them since.
struct Cell {
  Tick written = 0;  // 0: never
  Site write_site = 0, read_site = 0;
  Tick read[3] = {};
  uint16_t writer = 0;  // with kAsyncProxy
  uint16_t reader[3] = {};
};
constexpr uint16_t kAsyncProxy = 0x8000;  // in Cell::writer: written by TMA

/// A range of memory with shadow: a block's shared memory or a global allocation.
struct Region {
  uintptr_t begin = 0;
  size_t bytes = 0;
  std::vector<Cell> cells;  // global memory: empty until the launch writes to it
  bool global = false, initialised = false;
  std::string name;
  bool contains(uintptr_t a) const { return a - begin < bytes; }
};

struct Cluster;
struct Cta {
  Cluster* cluster = nullptr;
  unsigned slot = 0, rank = 0;
  uint3 block{};
  char* smem = nullptr;  // window of shared memory; offset 0 is its start
  Region dynamic, fixed;
  std::vector<char> fixed_image;  // static shared memory while another block's is in place
  Meeting barriers[16];
  std::vector<Warp> warps;
  std::vector<Warpgroup> warpgroups;
  std::map<uint32_t, Mbarrier> mbarriers;
  std::vector<Thread> threads;
  std::deque<Thread*> ready;
  unsigned live = 0, next_store_agent = 0;
};

struct Cluster {
  std::vector<std::unique_ptr<Cta>> ctas;
  Meeting barrier;
  unsigned phase = 0;  // of the barrier
  Clock done;          // what its last phase brought together
  unsigned live = 0;   // threads
  unsigned first_slot = 0;
};

struct State {
  LaunchInfo info{};
  unsigned block_threads = 0;
  size_t clock_size = 0;
  std::vector<std::unique_ptr<Cluster>> clusters;  // running
  std::vector<Cta*> slots;
  std::vector<Tick> last_tick;   // of every clock element: a new block goes on from there
  uint64_t progress = 0;         // raised by whatever may let a polling thread go on
  bool stopped = false;
  Counters counters;
  std::deque<std::pair<uintptr_t, size_t>> l2;  // boxes that TMA has loaded, the newest first
  uint32_t random = 1, seed = 0;

  uint32_t roll(uint32_t below) {
    random = random * 1664525 + 1013904223;
    return uint32_t((uint64_t(random >> 4) * below) >> 28);
  }
};
extern State state;
extern Thread* self;  // null while the host runs

// ---- clocks: the numbering of threads and agents ------------------------------------------------
constexpr unsigned kMbarrierAgents = 64, kStoreAgents = 32;
inline unsigned agents_per_cta() {
  return (state.block_threads + 127) / 128 + kMbarrierAgents + kStoreAgents;
}
inline unsigned first_agent(unsigned slot) {
  return unsigned(state.slots.size()) * state.block_threads + slot * agents_per_cta();
}

/// Whoever makes an access: what it knows, and how the access is stamped.
struct View {
  const Ticks* known;
  unsigned self;      // its own element of clocks, and the ticks of it that are its own
  Tick first, now;
  unsigned stamp;     // reads and writes are stamped by this element
  Tick tick;
  bool knows(unsigned id, Tick at) const {
    if (id == self && at >= first) return at <= now;
    return known && (*known)[id] >= at;
  }
};
inline View view_of(const Thread* t) {
  return {t->known.get(), t->id, t->first, t->now, t->id, t->now};
}
/// Everything `t` did up to now becomes part of `sum`.
inline void release(Thread* t, ClockSum& sum) {
  sum.add(t->known);
  sum.add(t->id, t->now++, state.clock_size);
}
inline void acquire(Thread* t, const Clock& clock) { t->known = join(t->known, clock); }

// ---- scheduler.cpp ------------------------------------------------------------------------------
void block_self(const char* what, Loc here);
void wake(Thread*);
void poll(const char* what, Loc here);  // let everyone else go first
/// An asynchronous effect on memory of `target`; delivered when nothing else can go on.
void add_pending(std::function<void()> deliver, Cta* target, uintptr_t into, Site issued,
                 const char* what);

// ---- shadow.cpp ---------------------------------------------------------------------------------
enum class Proxy { generic, async };
Region* region_of(uintptr_t address);           // or null: not device memory
void shadow_read(Region&, uintptr_t, unsigned bytes, Site, const View&, Proxy, const Clock* fence);
void shadow_write(Region&, uintptr_t, unsigned bytes, Site, const View&, Proxy,
                  const char* what = "writes");
void land(Region&, uintptr_t, unsigned bytes, unsigned writer, Tick, Proxy);
bool fenced_between(const View&, unsigned writer, Tick written, bool init, const Clock* fence);
/// Where the bytes live, or null after a report that they are outside.
Region* checked_region(uintptr_t, size_t bytes, bool global, const char* does, Site);
bool near_global(uintptr_t);                    // in the guard zone of an allocation
void settle_global_memory();                    // the launch is over

// ---- memory.cpp ---------------------------------------------------------------------------------
constexpr unsigned kWindowBits = 18, kReserved = 1024, kMaxFixed = 48 * 1024;
constexpr uint32_t kFixedOffset = 0x40000;      // of static shared memory, for names and banks
Cta* cta_of(uintptr_t address);                 // whose shared memory it is, or null
uint32_t offset_of(uintptr_t address);          // in the window of that block
char* same_offset(const void* p, const Cta*);   // the same place in another block of the cluster
std::string place(uintptr_t address);           // "A stage[1] + 128 bytes"
std::string label_at(uint32_t offset);
void reset_labels();
void show_fixed(Cta*);                          // put this block's static shared memory in place

// ---- common/ptx/emulated: barrier.cpp, flags.cpp, wgmma.cpp -------------------------------------
void leave_cluster_barrier(Thread*);               // the thread has ended
void reset_flags();
void touch_accumulator(Thread*, uintptr_t, Site);  // by another instruction than wgmma
std::string accumulator_text(const char* pattern);

// ---- mbarrier.cpp -------------------------------------------------------------------------------
Mbarrier* find_mbarrier(const uint64_t* bar, Cta* of, Loc here, bool async_proxy);
void mbarrier_complete_tx(Mbarrier&, unsigned bytes);
void mbarrier_arrive_one(Mbarrier&, Site, const char* what);
std::string name_of(const Mbarrier&);

// ---- counters.cpp -------------------------------------------------------------------------------
void count_accesses(Cta&);  // of all its threads since the last time
void count_matrix(Access&, const void* const* rows, unsigned matrices);
void count_l2(uintptr_t box, size_t bytes);
/// Shared memory by its offset in the region: only the bank matters.
inline void log_access(uintptr_t address, unsigned bytes, AccessKind kind, Site site) {
  self->log.push_back({address, site, uint8_t(bytes), kind});
}

}  // namespace emu

#include "common/emulator/report.h"
